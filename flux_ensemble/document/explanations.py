"""What each key of a document means, with its default and examples: for editors and `explain`.

A key is named by its path without positions in lists: `jobs.retries.times`. Keys of `actions` are
those of `action`. What forms a value can have is in `document.schema`, and in more detail in
docs/document.md; the tests hold the three together.
"""

from __future__ import annotations

from flux_ensemble.algorithms.builtin import SHIPPED
from flux_ensemble.document.detector_keys import DETECTOR_KEYS
from flux_ensemble.document.key import Key
from flux_ensemble.document.member_keys import MEMBER_KEYS
from flux_ensemble.document.search_keys import SEARCH_KEYS

#: Keys of a submit action, and of `with` in `retries`, that take the place of the group's.
OVERRIDES = {
    "nodes": Key("Nodes of a job, in place of what the group says.", ("{job.nnodes * 2}",)),
    "tasks": Key("Tasks of a job, in place of what the group says.", (8,)),
    "cores": Key("Cores of a task, in place of what the group says.", (4,)),
    "gpus": Key("GPUs of a task, in place of what the group says.", (1,)),
    "duration": Key("Time limit of a job, in place of the group's.", ("{job.duration * 2}", "2h")),
    "urgency": Key("Urgency of a job from 0 to 31, in place of the group's.", (31,)),
    "queue": Key("Queue to submit to, in place of the group's.", ("debug",)),
    "bank": Key("Bank to submit to, in place of the group's.", ("physics",)),
    "environment": Key("Environment variables, over those of the group.", ({"MODE": "fine"},)),
    "workdir": Key("Working directory, in place of the group's.", ("runs/{job.id}",)),
    "attributes": Key(
        "Attributes of the jobspec, merged over those of the group.",
        ({"system": {"constraints": {"hostlist": ["node1"]}}},),
    ),
}

_DISTRIBUTION = {
    "uniform": Key("Any value between two, each as likely.", ({"min": 10, "max": 20},)),
    "uniform.min": Key("The least value.", (10,)),
    "uniform.max": Key("The greatest value.", (20,)),
    "normal": Key("Around a mean. A negative duration is taken as 0.", ({"mean": 60, "sigma": 5},)),
    "normal.mean": Key("The mean.", (60,)),
    "normal.sigma": Key("The standard deviation.", (5,)),
    "lognormal": Key("Half of the values are below the median.", ({"median": 60, "sigma": 0.5},)),
    "lognormal.median": Key("The median.", (60,)),
    "lognormal.sigma": Key("The standard deviation of the logarithm.", (0.5,)),
    "exponential": Key("Exponentially distributed.", ({"mean": 60},)),
    "exponential.mean": Key("The mean.", (60,)),
    "param": Key("The job's value of this parameter of its sweep.", ("epochs",)),
}

KEYS: dict[str, Key] = {
    **{f"search{path}": key for path, key in SEARCH_KEYS.items()},
    **{f"members{path}": key for path, key in MEMBER_KEYS.items()},
    "name": Key(
        "The ensemble's name: letters, digits, _ and -. A name on the command line goes before it. "
        "The default is the name of the file without its extension.",
        ("study",),
    ),
    "jobs": Key(
        "The job groups. Nothing runs by itself: a rule or a user submits a group. Entries of one "
        "name are submitted together.",
        ([{"name": "echo", "command": "echo hello", "count": 5}],),
    ),
    "rules": Key(
        "What is done when something happens.",
        ([{"trigger": "start", "action": {"name": "submit", "label": "echo"}}],),
    ),
    "use": Key(
        "Packaged algorithms: each makes groups and rules, which take its place when the document "
        "is loaded. 'validate --expanded' prints them.",
        ([{"algorithm": "retry-with-more", "group": "relax", "duration": 2}],),
    ),
    "use.algorithm": Key(
        "Its name. The other keys are its arguments: 'explain use.retry-with-more' lists them.",
        tuple(SHIPPED),
    ),
    "use.id": Key(
        "What the names that it makes begin with. The default is the algorithm's name.", ("longer",)
    ),
    "metrics": Key(
        "Further statistics, best jobs, and metrics that are kept by the values of parameters.",
        (["skew", {"name": "p90", "statistic": "quantile", "q": 0.9}],),
    ),
    "metrics.name": Key("A name of your own for the statistic.", ("p90",)),
    "metrics.statistic": Key(
        "One of River's univariate statistics, by the name of its class. Other keys are its "
        "arguments.",
        ("quantile", "rolling_max", "ew_mean"),
    ),
    "metrics.of": Key(
        "Which jobs the statistic is of: by default the durations of those that succeeded, and "
        "what any job publishes; with 'by' the metric itself, such as simulate-fom.",
        ("finished", "success"),
    ),
    "metrics.by": Key("Keep the metric by the values of these parameters, too.", (["t"],)),
    "metrics.best": Key(
        "Keep the best job so far, with its value, id and parameters: best.NAME.value.",
        ({"name": "top", "of": "simulate-fom", "mode": "max"},),
    ),
    "metrics.best.name": Key("What expressions call it: best.NAME.", ("top",)),
    "metrics.best.of": Key("A memo key, duration or pending of a group.", ("simulate-fom",)),
    "metrics.best.mode": Key("Whether the greatest or the least value is best.", ("min",), "max"),
    "metrics.best.live": Key(
        "Take in jobs that still run, with their latest value; one that fails is dropped again.",
        (True,),
        False,
    ),
    "rate-window": Key("What rates such as rate.GROUP are taken over.", ("5m",), "60s"),
    "custom": Key(
        "Python source with functions for 'custom' actions.",
        ("def decide(event, **kwargs):\n    return Action(name='submit', label='echo')\n",),
    ),
    "plugins": Key("Python modules with functions for 'custom' actions.", (["lab.steering"],)),
    "logging": Key("What is printed, and how often a heartbeat is.", ({"heartbeat": "30s"},)),
    "logging.debug": Key("Print every event of the jobs.", (True,), False),
    "logging.heartbeat": Key(
        "Time between heartbeats, at which rules on ages and times are evaluated; 0 is off. Where "
        "a rule grows or shrinks the default is 60 seconds.",
        ("30s",),
        0,
    ),
    "limits": Key("Bounds of the ensemble.", ({"active-jobs": 100},)),
    "limits.active-jobs": Key("No more jobs are in the queue at once.", (100,), 10_000),
    "limits.jobs": Key("An ensemble that asks for more jobs in all fails.", (5000,), 100_000),
    "limits.losses": Key(
        "How often one job that was lost while it ran runs again; then it has failed.", (10,), 3
    ),
    "limits.records": Key("The record of jobs has no more jobs.", (10_000,), 1_000_000),
    "scaling": Key("Bounds of growing and shrinking.", ({"min-nodes": 2, "max-nodes": 16},)),
    "scaling.min-nodes": Key("'shrink' asks for no fewer nodes.", (2,), 1),
    "scaling.max-nodes": Key("'grow' asks for no more nodes.", (16,)),
    "scaling.deadline": Key("A request without an answer is denied then.", ("15m",), "10m"),
    "scaling.refusals": Key("So many refusals in a row disable a rule.", (5,), 3),
    "finish": Key(
        "When the ensemble completes: 'idle' when nothing is active and no rule can fire, 'never' "
        "when somebody ends it.",
        ("never",),
        "idle",
    ),
    "durability": Key(
        "'strict': no job starts before Flux's record of it is on disk.", ("strict",), "fast"
    ),
    "records": Key("Keep a record of each job that has ended.", (False,), True),
    "job-names": Key(
        "What jobs are called in the queue: after the 'group', or 'full' after ensemble and group.",
        ("full",),
        "group",
    ),
    "seed": Key("What samples and simulations are drawn with.", (7,), 0),
    "simulate": Key(
        "How the jobs of each group behave in a simulation.", ({"train": {"duration": "45m"}},)
    ),
    # -- job groups
    "jobs.name": Key("The group's name, by which rules call it.", ("simulate",)),
    "jobs.command": Key(
        "Text, split into words as a shell does, or a list of words. No shell runs it. {NAME} is "
        "the value of a parameter.",
        ("simulate --temperature {t}", ["sh", "-c", "a | b"]),
    ),
    "jobs.jobspec": Key("Instead of a command: a jobspec, or a file with one.", ("job.yaml",)),
    "jobs.count": Key("Jobs of one submission, for each combination of parameters.", (5,), 1),
    "jobs.nodes": Key("Nodes of a job.", (2, "{n}"), 1),
    "jobs.tasks": Key("Tasks of a job. The default is one for each node.", (8,)),
    "jobs.cores": Key("Cores of a task.", (4,), 1),
    "jobs.gpus": Key("GPUs of a task.", (1,), 0),
    "jobs.duration": Key("Time limit of a job; 0 is none.", ("30m", 3600), 0),
    "jobs.workdir": Key(
        "Working directory. The default is that of whoever loaded the document.", ("runs/{t}",)
    ),
    "jobs.environment": Key(
        "Variables to add to the environment of whoever loaded the document.",
        ({"OMP_NUM_THREADS": 4},),
    ),
    "jobs.output": Key("File of standard output; its directory is made.", ("out/{{id}}.txt",)),
    "jobs.error": Key("File of standard error. The default is that of 'output'.", ("err.txt",)),
    "jobs.queue": Key("Queue to submit to.", ("debug",)),
    "jobs.bank": Key("Bank to submit to.", ("physics",)),
    "jobs.urgency": Key("Urgency of a job, from 0 to 31.", (20,), 16),
    "jobs.exclusive": Key("The nodes are the job's alone.", (True,), False),
    "jobs.attributes": Key(
        "Attributes that are merged into the jobspec's (RFC 14).",
        ({"system": {"constraints": {"properties": ["gpu"]}}},),
    ),
    "jobs.params": Key(
        "Parameters and their values: there is a job for each combination. {NAME} in a command is "
        "replaced by the value.",
        ({"t": [280, 300, 320], "seed": {"range": [0, 4]}},),
    ),
    "jobs.sweep": Key(
        "How the values are combined: all with all, side by side, or a sample of all.",
        ("zip",),
        "product",
    ),
    "jobs.samples": Key("How many combinations 'sweep: sample' draws.", (10,)),
    "jobs.retries": Key(
        "How often a job that failed runs again, or a mapping that says more.",
        (3, {"times": 3, "on": ["failed", "timeout"], "after": "30s"}),
        0,
    ),
    "jobs.retries.times": Key("How often a job runs again at most.", (3,)),
    "jobs.retries.on": Key(
        "After which outcomes (failed, timeout, canceled), or for which an expression is true.",
        (["timeout", "job.returncode == 17"],),
        "failed",
    ),
    "jobs.retries.after": Key("How long it waits before.", ("30s",), 0),
    "jobs.retries.factor": Key("What the wait is multiplied by each time.", (2,), 1),
    "jobs.retries.with": Key(
        "What is other than at the last attempt.", ({"duration": "{job.duration * 2}"},)
    ),
    "jobs.retries.spread": Key(
        "'node': it runs again on another member than those that it failed on, if there is one.",
        ("node",),
    ),
    "jobs.on-lost": Key(
        "What becomes of a job that may have run when its node, its member or the run was lost: "
        "resubmit has it run again, as if it had not run, fail counts it as failed, hold submits "
        "it again with urgency 0. The default is that of its member, else resubmit.",
        ("fail", "hold"),
    ),
    "jobs.avoid-nodes": Key(
        "What runs again keeps off the nodes where it failed, if others can run it.", (False,), True
    ),
    "jobs.max-active": Key("No more jobs of the group are in the queue at once.", (10,)),
    "jobs.predict": Key(
        "How long a job takes is learned from these parameters: job.predicted, time.remaining.",
        (["n", "potential"],),
    ),
    "jobs.order": Key(
        "The jobs that wait in the service are sent by what they are predicted to take.",
        ("longest-first",),
    ),
    "jobs.start": Key(
        "'in-time': only while the allocation lasts longer than 'duration'; 'always': in any case.",
        ("always",),
        "in-time",
    ),
    "jobs.member": Key("Name or label of the members that its jobs run on.", ("gpu",)),
    # -- rules
    "rules.id": Key(
        "The rule's name. The default is rule-N with its position, from 0.", ("enough",)
    ),
    "rules.trigger": Key(
        "What starts the rule; a list of job-* triggers starts it at each of them.",
        ("start", "job-success", ["job-fail", "job-timeout"]),
    ),
    "rules.name": Key(
        "The metric of a 'metric' rule, the values that a 'drift' or 'anomaly' rule watches, the "
        "rule of a 'scale-*' one, the group of others.",
        ("count.simulate.success", "simulate-error"),
    ),
    **{f"rules.detector{path}": key for path, key in DETECTOR_KEYS.items()},
    "rules.group": Key(
        "The job group, or groups, that a job-* or idle rule is about.", ("simulate",)
    ),
    "rules.when": Key(
        "The condition: a number, a comparison of the metric in 'name', or an expression.",
        (3, "> 5.5", "count.a.success >= 3 and job.params.t < 300"),
    ),
    "rules.scope": Key(
        "'queue': a job-* rule sees the jobs of others, too. 'member': there is the rule for each "
        "member, with the jobs, the metrics and the repetitions of that one.",
        ("member", "queue"),
        "ensemble",
    ),
    "rules.on-error": Key(
        "What is done when a custom function fails, or an expression of an action has no value.",
        ("fail",),
        "disable",
    ),
    "rules.after": Key("When a timer rule fires first, after the start.", ("12h",)),
    "rules.every": Key(
        "How long it is from one time of a timer rule to the next, and between two looks of a "
        "job-running rule at jobs.",
        ("10m",),
    ),
    "rules.below": Key("How little time is left when a time-left rule fires.", ("20m",)),
    "rules.by": Key(
        "An idle rule fires for each combination of the values of these parameters.", (["t"],)
    ),
    "rules.enabled": Key("false: the rule waits for an 'enable' action.", (False,), True),
    "rules.action": Key("What is done.", ({"name": "submit", "label": "simulate"},)),
    "rules.actions": Key(
        "Instead of 'action': several, done in this order.",
        ([{"name": "cancel", "label": "a"}, {"name": "submit", "label": "b"}],),
    ),
    # -- actions
    "rules.action.name": Key(
        "submit, cancel, copy, update, terminate, enable, disable, reset, custom, grow or shrink.",
        ("submit",),
    ),
    "rules.action.label": Key(
        "The job group, the rule to enable or disable, the function to call, or the metric to "
        "reset.",
        ("simulate",),
    ),
    "rules.action.value": Key("How many nodes to grow or shrink by.", (4,), 1),
    "rules.action.count": Key(
        "Jobs for each combination of parameters, in place of the group's.", (5,)
    ),
    "rules.action.params": Key(
        "Values of parameters in place of the group's, or 'trigger' for those of the triggering "
        "job.",
        ({"t": "{job.params.t}"}, "trigger"),
    ),
    "rules.action.jobs": Key("'trigger': the triggering job alone.", ("trigger",)),
    "rules.action.near": Key(
        "'trigger': the jobs run on the member of the triggering job.", ("trigger",)
    ),
    "rules.action.state": Key("How 'terminate' ends the ensemble.", ("failed",), "completed"),
    "rules.action.reason": Key(
        "What status and log say about a 'terminate'.", ("{job.params.t} K cannot be relaxed",)
    ),
    "rules.action.repetitions": Key("How often the action runs at most.", (5, "unlimited"), 1),
    "rules.action.backoff": Key(
        "How many times the rule could run and does not, between two runs.", (2,), 0
    ),
    "rules.action.cooldown": Key("How long the rule does not run after a run.", ("10m",), 0),
    "rules.action.cancel": Key("'terminate' cancels the jobs, too.", (True,), False),
    "rules.action.timeout": Key("How long a custom function may take.", ("5m",), "60s"),
    # -- simulations
    "simulate.duration": Key(
        "How long a job takes from its start.",
        ("30s", {"lognormal": {"median": "45m", "sigma": 0.4}}),
        1,
    ),
    "simulate.duration.from-log": Key("As long as in this recording.", ("run.jsonl",)),
    "simulate.failure-rate": Key("The probability that a job fails.", (0.05,), 0),
    "simulate.startup": Key("Time from the allocation of its nodes to its start.", ("2s",), 0),
    "simulate.memo.expression": Key(
        "What the job publishes, computed from its parameters.", ("(x - 1) ** 2 + exp(-epoch / 9)",)
    ),
    "simulate.memo.step": Key("The name that counts the steps in the expression.", ("epoch",)),
    "simulate.memo.steps": Key("How many values the job publishes while it runs.", (27,)),
    "simulate.memo": Key(
        "What a job publishes before it finishes, a distribution for each key.",
        ({"fom": {"normal": {"mean": 0.9, "sigma": 0.02}}},),
    ),
    **{
        f"simulate.{owner}.{name}": key
        for owner in ("duration", "startup", "memo")
        for name, key in _DISTRIBUTION.items()
    },
    **{
        f"members.simulate.{owner}.{name}": key
        for owner in ("startup", "loss")
        for name, key in _DISTRIBUTION.items()
        if name not in ("param", "from-log")
    },
    **{f"rules.action.{name}": key for name, key in OVERRIDES.items()},
    **{f"jobs.retries.with.{name}": key for name, key in OVERRIDES.items()},
}
