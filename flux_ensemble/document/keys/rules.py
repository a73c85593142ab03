"""The keys of rules and of actions, with the triggers and the actions that take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.keys.detectors import DETECTOR
from flux_ensemble.document.keys.forms import (
    BOOLEAN,
    DURATION,
    NAMED,
    NAMES_OF_PARAMETERS,
    FurtherAction,
    FurtherTrigger,
    Key,
    choice,
    integer,
    list_of,
    mapping,
    or_list,
    text,
    with_features,
    with_further,
)
from flux_ensemble.document.keys.overrides import OVERRIDE_KEYS, SOME, computed, read_text
from flux_ensemble.feature_list import parts
from flux_ensemble.metrics.columns import Known
from flux_ensemble.metrics.detector import DETECTORS


class Trigger(NamedTuple):
    """A trigger of a rule.

    Args:
        about: when it fires, for the guide. Links lead from docs/.
        knows: what expressions know of the job that triggers the rule; None if none does.
        event: the event of the journal without which it never fires, if not every ensemble
            receives that; else empty.
    """

    about: str
    knows: Known | None = None
    event: str = ""


#: Job events of RFC 21 that a rule can name as `job-EVENT`. At what can come at any time all may be
#: known that is known at the end.
_EVENTS = {
    "submit": Trigger("A job was submitted.", Known.SUBMISSION),
    "validate": Trigger("Flux has accepted the job's jobspec.", Known.SUBMISSION),
    "invalidate": Trigger(
        "Flux has withdrawn a job that it was about to accept.", Known.SUBMISSION
    ),
    "depend": Trigger("The job has no dependency left.", Known.SUBMISSION),
    "priority": Trigger("The job has its priority, and waits for the scheduler.", Known.SUBMISSION),
    "alloc": Trigger("The job has its nodes.", Known.SUBMISSION),
    "start": Trigger("The job has started.", Known.START),
    "finish": Trigger("The last task of the job has ended.", Known.END),
    "release": Trigger("The job has given back some of its nodes.", Known.END),
    "free": Trigger("The job has given back all of its nodes.", Known.END),
    "clean": Trigger("Nothing of the job is left.", Known.END),
    "exception": Trigger("The job has an exception, fatal or not.", Known.END),
    "urgency": Trigger("The job's urgency was changed.", Known.START),
    "memo": Trigger("The job, or a user, has published a memo.", Known.END),
    "dependency-add": Trigger("The job has a dependency more.", Known.SUBMISSION),
    "dependency-remove": Trigger("A dependency of the job is met.", Known.SUBMISSION),
    "prolog-start": Trigger("The prolog of the job has started.", Known.SUBMISSION),
    "prolog-finish": Trigger("The prolog of the job has ended.", Known.SUBMISSION),
    "epilog-start": Trigger("The epilog of the job has started.", Known.END),
    "epilog-finish": Trigger("The epilog of the job has ended.", Known.END),
    "jobspec-update": Trigger("The job's jobspec was changed, such as its time limit.", Known.END),
    "resource-update": Trigger(
        "The job's resources were changed, such as when they expire.", Known.END
    ),
    "set-flags": Trigger("Flux has set flags of the job.", Known.END),
    "flux-restart": Trigger("Flux was restarted while the job was active.", Known.END),
    "debug": Trigger("Flux has a message about the job, for its developers.", Known.END),
}
JOB_EVENTS = tuple(_EVENTS)

#: Triggers on an outcome of a job -> the outcome.
OUTCOME_TRIGGERS = {
    "job-success": "success",
    "job-fail": "failed",
    "job-cancel": "canceled",
    "job-timeout": "timeout",
}

#: Older names that are still accepted -> today's names.
TRIGGER_ALIASES = {
    "job-run": "job-start",
    "job-sched": "job-priority",
    "job-cleanup": "job-clean",
}

#: Triggers on what becomes of members.
MEMBER_TRIGGERS = ("member-up", "member-draining", "member-lost")

#: The trigger on a job that runs, and every how many seconds jobs are looked at where the rule does
#: not say.
RUNNING_TRIGGER = "job-running"
RUNNING_EVERY = 30.0

#: The trigger on a job that was to run again, and has been tried as often as it may be.
GAVE_UP_TRIGGER = "job-gave-up"

_TRIGGERS: Mapping[str, Trigger] = {
    "start": Trigger("The ensemble starts."),
    "metric": Trigger(
        "The metric in `name`, or a metric in `when`, changes; also at each heartbeat."
    ),
    "heartbeat": Trigger("At every heartbeat: every `logging.heartbeat`."),
    "timer": Trigger("When `after` has passed since the start, and then every `every`."),
    "idle": Trigger(
        "The group, each of the groups, or the ensemble has no active job left after it had one, "
        "and [nothing that it caused](triggers.md#idle) is under way."
    ),
    "time-left": Trigger(
        "Less time than `below` is [left](metrics.md#rates-and-time) until the allocation "
        "expires; never if it has no limit."
    ),
    "member-up": Trigger(
        "A [member](members.md) is up. While a member starts, a rule that can still fire "
        "for it keeps the ensemble from ending."
    ),
    "member-draining": Trigger(
        "A [member](members.md) gets no more jobs, because its time is nearly up or "
        "somebody asked for that."
    ),
    "member-lost": Trigger(
        "A [member](members.md) is lost: it [ended unasked](members.md#the-life-of-a-member)."
    ),
    "drift": Trigger("The values in `name` have [changed](metrics.md#drift-and-anomalies)."),
    "anomaly": Trigger(
        "A job has published a value [unlike those before](metrics.md#drift-and-anomalies)."
    ),
    **{f"job-{name}": trigger._replace(event=name) for name, trigger in _EVENTS.items()},
    "job-success": Trigger("A job has succeeded, see [outcomes](metrics.md#outcomes).", Known.END),
    "job-fail": Trigger("A job has failed, see [outcomes](metrics.md#outcomes).", Known.END),
    "job-cancel": Trigger("A job was cancelled.", Known.END),
    "job-timeout": Trigger("A job has reached its time limit.", Known.END),
    GAVE_UP_TRIGGER: Trigger(
        "A job has been tried as often as its [retries](retries.md) allow.", Known.END
    ),
    RUNNING_TRIGGER: Trigger(
        "A job runs and `when` holds. Running jobs are looked at one after the other, "
        "every `every`. The rule fires once for each job, and keeps no ensemble from ending.",
        Known.START,
    ),
}

#: The triggers of features.
_FURTHER_TRIGGERS: tuple[FurtherTrigger, ...] = tuple(
    trigger for part in parts("keys") for trigger in getattr(part, "TRIGGERS", ())
)

#: Trigger -> when it fires, for the guide.
TRIGGERS = with_further(
    {
        **{name: trigger.about for name, trigger in _TRIGGERS.items()},
        **{old: f"An older name of `{new}`." for old, new in TRIGGER_ALIASES.items()},
    },
    _FURTHER_TRIGGERS,
)

#: Triggers on what becomes of an entry of a list that a feature reads -> the key of the list.
OF_ENTRIES = {trigger.name: trigger.on for trigger in _FURTHER_TRIGGERS if trigger.on}

#: Triggers on what becomes of the requests of rules.
OF_REQUESTS = tuple(trigger.name for trigger in _FURTHER_TRIGGERS if not trigger.on)


def _kinds(triggers: Iterable[str]) -> Iterable[str]:
    """Return the beginnings of triggers, as `Key.only` has them."""
    return dict.fromkeys(f"{name.partition('-')[0]}-" for name in triggers)


#: Triggers on jobs -> what expressions know of the job then.
KNOWN_AT: Mapping[str, Known] = {
    name: trigger.knows for name, trigger in _TRIGGERS.items() if trigger.knows is not None
}

#: Triggers on jobs -> the event of the journal that they need.
TRIGGER_EVENTS: Mapping[str, str] = {
    name: trigger.event for name, trigger in _TRIGGERS.items() if trigger.event
}

#: Action -> what it does, for the guide. Links lead from docs/.
_KERNEL_ACTIONS: Mapping[str, str] = {
    "submit": "Submit the job group `label`. The other keys replace values of the group; the sizes "
    "of a jobspec stay as they are.",
    "cancel": "Cancel the active jobs of the group `label`, or of the whole ensemble; with "
    "`jobs: trigger` the triggering job alone.",
    "terminate": "End the ensemble. With `state: failed`, `run` exits with 1.",
    "custom": "Call the Python function `label`, see [custom functions](custom.md).",
    "enable": "Turn the rule with the `id` in `label` on.",
    "disable": "Turn the rule with the `id` in `label` off.",
    "update": "Change the `urgency` or the `duration` of the active jobs of the group `label`; "
    "with `jobs: trigger` of the triggering job alone.",
    "reset": "Forget the values of [statistics](metrics.md). `label` is a metric such as "
    "`physics-err` (as in `mean.physics-err`), or a group for all of its metrics.",
}

#: The actions of features.
_FURTHER: tuple[FurtherAction, ...] = tuple(
    action for part in parts("keys") for action in getattr(part, "ACTIONS", ())
)

ACTIONS = with_further(_KERNEL_ACTIONS, _FURTHER)

#: Actions on the triggering job, and those that submit jobs again.
OF_JOB = frozenset(action.name for action in _FURTHER if action.of_job)
AGAIN = frozenset(action.name for action in _FURTHER if action.again)

#: Actions that change the number of nodes of the instance; with a label, of members of that pool.
RESIZES = tuple(action.name for action in _FURTHER if action.resizes)

#: Actions whose label is an entry of a list that a feature reads -> the key of the list; and those
#: that have jobs of its group submitted.
ON_ENTRIES = {action.name: action.on for action in _FURTHER if action.on}
SUBMITS = frozenset(action.name for action in _FURTHER if action.submits)

#: Actions whose label is a job group.
ON_GROUPS = ("submit", "cancel", "update")

_delay = partial(parse_duration, limit=False)


def _with_features(key: Key) -> Key:
    """Return a key as one that the actions of features take, too, if they say so."""
    only = {*key.only, *(action.name for action in _FURTHER if key.name in action.takes)}
    same = len(only) == len(key.only)
    return key if same else key.of(*(name for name in ACTIONS if name in only))


_KERNEL_KEYS = (
    Key(
        "name",
        choice("an action", tuple(ACTIONS)),
        f"{', '.join([*ACTIONS][:-1])} or {[*ACTIONS][-1]}.",
        ("submit",),
        required=True,
        read=None,
        python="str",
    ),
    Key(
        "label",
        text(),
        "The job group, the rule to enable or disable, the function to call, or the metric to "
        "reset.",
        ("simulate",),
        only=(*ON_GROUPS, "custom", "enable", "disable", "reset", *ON_ENTRIES, *RESIZES),
    ),
    Key(
        "count",
        SOME,
        "Jobs for each combination of parameters, in place of the group's; of `search`, how many "
        "more trials.",
        (5,),
        only=("submit",),
        read=computed(SOME),
        expression=True,
    ),
    Key(
        "params",
        {
            "type": ["object", "string"],
            "description": "a mapping, or 'trigger'",
            "pattern": r"^trigger\Z",
        },
        "Values of parameters in place of the group's, or 'trigger' for those of the triggering "
        "job.",
        ({"t": "{job.params.t}"}, "trigger"),
        only=("submit",),
        expression=True,
        python='Mapping[str, Any] | Literal["trigger"]',
    ),
    *(
        key.of("submit", *(("update",) if key.name in ("duration", "urgency") else ()))
        for key in OVERRIDE_KEYS
    ),
    Key(
        "jobs",
        choice("the jobs", ("trigger",)),
        "'trigger': the triggering job alone.",
        ("trigger",),
        only=("cancel", "update"),
    ),
    Key(
        "near",
        choice("a job to run near to", ("trigger",)),
        "'trigger': the jobs run on the member of the triggering job.",
        ("trigger",),
        only=("submit",),
    ),
    Key(
        "state",
        choice("a final state", ("completed", "failed")),
        "How 'terminate' ends the ensemble.",
        ("failed",),
        "completed",
        only=("terminate",),
    ),
    Key(
        "reason",
        text(),
        "What status and log say about a 'terminate'.",
        ("{job.params.t} K cannot be relaxed",),
        only=("terminate",),
        read=read_text,
        expression=True,
    ),
    Key(
        "repetitions",
        {
            "type": ["integer", "string"],
            "description": "an integer >= 1 or 'unlimited'",
            "minimum": 1,
            "pattern": r"^unlimited\Z",
        },
        "How often the action runs at most.",
        (5, "unlimited"),
        1,
        read=lambda value: None if value == "unlimited" else value,
        python='int | Literal["unlimited"]',
        more="Write `unlimited` for no bound. `validate` notes rules on jobs without it: they "
        "fire for the first job alone.",
    ),
    Key(
        "backoff",
        integer(0),
        "How many triggers to skip between two runs.",
        (2,),
        0,
    ),
    Key(
        "cooldown",
        DURATION,
        "How long the rule rests after a run.",
        ("10m",),
        0,
        read=_delay,
        more="A [duration](document.md#durations).",
    ),
    Key(
        "cancel",
        BOOLEAN,
        "'terminate' cancels the jobs, too.",
        (True,),
        False,
        only=("terminate",),
    ),
    Key(
        "timeout",
        DURATION,
        "How long a custom function may take.",
        ("5m",),
        "60s",
        only=("custom",),
        read=parse_duration,
    ),
)

ACTION_KEYS = tuple(map(_with_features, with_features("ACTION_KEYS", _KERNEL_KEYS)))

ACTION = mapping("an action such as {name: submit, label: GROUP}", ACTION_KEYS)

RULE_KEYS = (
    Key(
        "id",
        NAMED,
        "The rule's name. The default is rule-N with its position, from 0.",
        ("enough",),
        read=None,
        unset="`rule-N`",
        more="`enable`, `disable`, status and log use it. `request` and `retry` are reserved.",
    ),
    Key(
        "trigger",
        or_list(choice("a trigger", tuple(TRIGGERS)), "a trigger, or a list of them"),
        "What starts the rule; a list of job-* triggers starts it at each of them.",
        ("start", "job-success", ["job-fail", "job-timeout"]),
        required=True,
        read=None,
        python="str | Sequence[str]",
        more="See [triggers](triggers.md).",
    ),
    Key(
        "name",
        text(),
        "The metric of a 'metric' rule, the values that a 'drift' or 'anomaly' rule watches, the "
        "rule of a 'scale-*' one, the group of others.",
        ("count.simulate.success", "simulate-error"),
        only=(
            "metric",
            "job-",
            "idle",
            *_kinds(OF_REQUESTS),
            *_kinds(OF_ENTRIES),
            "member-",
            *DETECTORS,
        ),
        read=None,
        more="A `scale-*` rule without it is about the requests of every rule; for `job-*` and "
        "`idle` it is another word for `group`.",
    ),
    Key(
        "group",
        or_list(text(), "a job group, or a list of them"),
        "The job group, or groups, that a job-* or idle rule is about.",
        ("simulate",),
        only=("job-", "idle"),
        read=None,
        more="Without it, every job of the ensemble, or the ensemble. An `idle` rule with a list "
        "[waits for all of them](triggers.md#several-groups).",
    ),
    Key(
        "when",
        {
            "type": ["number", "string"],
            "description": "a number, a comparison such as '> 5', or an expression",
        },
        "The condition: a number, a comparison of the metric in 'name', or an expression.",
        (3, "> 5.5", "count.a.success >= 3 and job.params.t < 300"),
        more="See [conditions](expressions.md#conditions).",
    ),
    Key(
        "scope",
        choice("a scope", ("ensemble", "member", "queue")),
        "'queue': a job-* rule sees the jobs of others, too. 'member': the rule exists for "
        "each member, with the jobs, the metrics and the repetitions of that member.",
        ("member", "queue"),
        "ensemble",
        only=("job-",),
        more="With `queue`, `group` is any job name. See [rules of one member]"
        "(members.md#rules-of-one-member).",
    ),
    Key(
        "on-error",
        choice("a way to handle errors", ("disable", "fail", "retry")),
        "What is done when a custom function fails, or an expression of an action has no value.",
        ("fail",),
        "disable",
        more="`disable` the rule, `fail` the ensemble, or `retry`, see "
        "[custom functions](custom.md); `retry` disables where an [expression](expressions.md) has "
        "no value. It holds, too, if the instance [refuses](elastic.md#in-a-document) again and "
        "again, and if the queue [refuses jobs for good](reliability.md#what-holds-jobs-back): "
        "with `disable` the ensemble then ends as failed when all else has ended.",
    ),
    Key(
        "after",
        DURATION,
        "The time from the start until a timer rule first fires.",
        ("12h",),
        only=("timer",),
        read=_delay,
        more="A [duration](document.md#durations).",
    ),
    Key(
        "every",
        DURATION,
        "The time between two firings of a timer rule, and between two looks of a "
        "job-running rule at the jobs.",
        ("10m",),
        only=("timer", RUNNING_TRIGGER),
        read=_delay,
        more="With `every` alone a timer fires first after one such "
        "[duration](document.md#durations). Of "
        "`job-running` the default is 30 seconds.",
    ),
    Key(
        "below",
        DURATION,
        "The time left at which a time-left rule fires.",
        ("20m",),
        only=("time-left",),
        read=_delay,
        more="A [duration](document.md#durations).",
    ),
    Key(
        "by",
        {**NAMES_OF_PARAMETERS, "minItems": 1},
        "The parameters for each combination of whose values an idle rule fires.",
        (["t"],),
        only=("idle",),
        read=lambda names: tuple(dict.fromkeys(names)),
        more="Every job of its `group` has them, see [idle](triggers.md#for-each-value).",
    ),
    Key(
        "detector",
        DETECTOR,
        "How a 'drift' or 'anomaly' rule judges the values in 'name'.",
        ({"adwin": {"delta": 0.002}}, {"quantile": {"q": 0.999, "warm-up": 200}}),
        only=tuple(DETECTORS),
        read=None,
        more="See [drift and anomalies](metrics.md#drift-and-anomalies).",
    ),
    Key(
        "enabled",
        BOOLEAN,
        "false: the rule waits for an 'enable' action.",
        (False,),
        True,
    ),
    Key(
        "action",
        ACTION,
        "What is done.",
        ({"name": "submit", "label": "simulate"},),
        read=None,
        more="See [actions](actions.md).",
    ),
    Key(
        "actions",
        {**list_of("a list of actions", ACTION), "minItems": 1},
        "Instead of 'action': several, done in this order.",
        ([{"name": "cancel", "label": "a"}, {"name": "submit", "label": "b"}],),
        read=None,
        more="`repetitions`, `backoff` and `cooldown` of the first count for all.",
    ),
)

RULE = mapping("a rule such as {trigger: start, action: {...}}", RULE_KEYS)
