"""Typical mistakes, collected from public questions about tools of this field, and the answers.

A row has the habit and where it comes from, the document, the line that has to be named and what
has to be said there: the one hint that its writer needs. No row gets a second problem.

Among the sources: yaml.org/type/bool.html and ansible.com on YAML; the FAQ of Snakemake and
snakemake/snakemake#2774 (memory), #2903 (indentation), #2510 (run times); flux-framework/flux-core
#4565, llnl/maestrowf#369 and ESMCI/cime#5019 (time limits); argoproj/argo-workflows#1801, #3611,
#5644, #10393 and rackerlabs/understack#2206 (conditions, quotes, hyphens); the pages of
computing centres on arrays of jobs in Slurm; It4innovations/hyperqueue#248; Parsl/parsl#1119.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flux_ensemble.document.lint import Warnings
from flux_ensemble.document.loading import load_text
from flux_ensemble.document.problems import DocumentError

RULES = "rules:\n- {trigger: start, action: {name: submit, label: a}}\n"
SWEEP = "jobs: [{name: a, command: 'run {x}', params: {x: [1, 2]}}]\n" + RULES


def answers(text: str) -> list[str]:
    """Return what is said about a document: its problems, else its warnings."""
    found = Warnings()
    try:
        load_text(text, name="demo", file="a.yaml", warnings=found)
    except DocumentError as error:
        return str(error).splitlines()
    return found.warnings


def job(key: str, command: str = "run") -> str:
    """A document whose group has a key on line 4."""
    return f"jobs:\n- name: a\n  command: {command}\n  {key}\n{RULES}"


def command(text: str) -> str:
    """A document whose group, with a parameter x, has a command on line 3."""
    return job("params: {x: [1]}", text)


def rule(text: str) -> str:
    """A document with a second rule on line 4."""
    return f"{SWEEP}- {text}\n"


def when(condition: str) -> str:
    """A document with a condition on line 5."""
    return rule(
        f"trigger: job-fail\n  when: {condition}\n"
        "  action: {name: submit, label: a, repetitions: unlimited}"
    )


def submit(value: str) -> str:
    """A document with an action that gives a parameter, on line 4."""
    action = f"{{name: submit, label: a, params: {{x: {value}}}, repetitions: unlimited}}"
    return rule(f"{{trigger: job-success, action: {action}}}")


YAML = [
    ("tabs (Ansible)", "jobs:\n\t- name: a\n", 2, "indented with spaces, not with tabs"),
    ("a tab after a dash", "jobs:\n-\tname: a\n\tcommand: x\n", 2, "with spaces, not with tabs"),
    ("a key too far to the right (Ansible)", "jobs:\n- name: a\n    command: x\n", 3,
     "indent 'command' as far as 'name' on line 2"),
    ("a key too far to the left (Ansible)", "jobs:\n- name: a\n command: x\n", 3,
     "indent 'command' as far as 'name' on line 2"),
    ("no space after a colon (YAML)", "jobs:\n- name:a\n  command: x\n", 2,
     "a colon is followed by a space: name: a"),
    ("no space after a dash (YAML)", "jobs:\n-name: a\n command: x\n", 2,
     "a dash is followed by a space: - name: a"),
    ("a missing colon (YAML)", "jobs:\n- name: a\n  command\n  count: 2\n", 3,
     "a colon is missing after 'command'"),
    ("a missing colon at the top", "jobs\n- name: a\n  command: x\n", 1,
     "a colon is missing after 'jobs'"),
    ("braces at the beginning (Ansible, Jinja)", job("count: 1", "{program} --x 1"), 3,
     "put the value in quotes: command: '{program} --x 1'"),
    ("braces within braces", "jobs: [{name: a, command: run {x}, params: {x: [1]}}]\n", 1,
     "put the value in quotes: command: 'run {x}'"),
    ("a colon in a command (GitLab CI)", job("count: 1", "echo result: 5"), 3,
     "put the value in quotes: command: 'echo result: 5'"),
    ("a percent sign at the beginning (Jupyter)", job("count: 1", "%run x.ipynb"), 3,
     "put the value in quotes: command: '%run x.ipynb'"),
    ("a pattern at the beginning (shells)", job("count: 1", "*.sh"), 3,
     "put the value in quotes: command: '*.sh'"),
    ("quotes within quotes (Argo)", when('"job.outcome == "failed""'), 5,
     "quotes of the other kind inside: when: 'job.outcome == \"failed\"'"),
    ("a quote that is not closed", job("count: 1", '"echo hi'), 3,
     "the quote that begins on this line is not closed"),
    ("a bracket that is not closed", job("params: {x: [1, 2}"), 4, "a ']' is missing"),
    ("a comment as in JavaScript", '{\n// c\n"jobs": []}', 2, "a comment begins with '#'"),
    ("a blank of a web page", "jobs:\n-\u00a0name: a\n  command: x\n", 2,
     "a blank that is none to YAML"),
    ("a duplicate key (yamllint)", "jobs:\n- name: a\n  command: x\n  name: b\n" + RULES, 4,
     "duplicate key 'name' (first on line 2)"),
    ("yes in quotes (Norway problem)", job('exclusive: "yes"'), 4,
     "expected true or false, not 'yes' (write true)"),
    ("a number in quotes (Compose)", job('cores: "4"'), 4, "not '4' (write 4)"),
    ("a mapping of jobs (GitHub Actions)", "jobs:\n  a:\n    command: x\n" + RULES, 1,
     "a list, of which each item begins with a dash"),
    ("a list of variables (Compose)", job("environment: [OMP_NUM_THREADS=4]"), 4,
     "write {OMP_NUM_THREADS: 4}"),
    ("a list of parameters (Argo)", job("params:\n  - x: [1, 2]"), 4, "leave out the dash"),
    ("a list at the top (Ansible)", "- name: a\n  command: x\n", 1, "leave out the dash"),
    ("a key at the left margin", "jobs:\n- name: a\n  command: x\ncount: 2\n" + RULES, 4,
     "it is a key of a job group: indent it as far as its 'name'"),
]  # fmt: skip

UNITS = [
    ("a clock (Slurm)", job("duration: 1:30:00"), 4, "(write 90m)"),
    ("words (Snakemake)", job("duration: 10 min"), 4, "(write 10m)"),
    ("days and a clock (Slurm)", job("duration: 1-12:00:00"), 4, "(write 36h)"),
    ("no limit (PBS)", job("duration: unlimited"), 4, "(write 0 for no limit)"),
    ("a decimal comma", job("duration: 1,5h"), 4, "(write 1.5h)"),
    ("weeks (HyperQueue)", job("duration: 2w"), 4, "(write 14d)"),
    ("thousands", job("count: 1,000"), 4, "(write 1000)"),
    ("a float (Python)", job("count: 1e3"), 4, "(write 1000)"),
    ("memory (Slurm, Snakemake)", job("mem: 2GB"), 4, "Flux gives out no memory"),
    ("seconds in a condition", when("job.runtime > 30min"), 5, "write 1800 for '30min'"),
    ("a duration as a text", when("job.runtime > '1h'"), 5, "write 3600, in seconds"),
    ("bytes in a condition", when("job.memo.mem > 2GiB"), 5, "write 2147483648 for '2GiB'"),
]  # fmt: skip

VALUES = [
    ("a range of Python", job("params: {x: 'range(0, 5)'}", "run {x}"), 4,
     "for several write {range: [0, 5]}"),
    ("a range of shells", job("params: {x: 0..5}", "run {x}"), 4,
     "for several write {range: [0, 5]}"),
    ("a list without brackets", job("params:\n    x: 1, 2, 3", "run {x}"), 5,
     "for several write [1, 2, 3]"),
    ("an ellipsis", job("params: {x: [1, 2, ..., 10]}", "run {x}"), 4,
     "'...' is a value like the others"),
    ("a mapping (Hydra, W&B)", job("params: {x: {values: [1, 2]}}"), 4,
     "write a list alone: [1, 2]"),
    ("bounds (Optuna)", job("params: {x: {min: 0, max: 5}}"), 4, "write {range: [0, 5]}"),
    ("a distribution (W&B)", job("params: {x: {uniform: [0, 1]}}"), 4, "'variables' of a 'search'"),
    ("a table as the parameters", job("params: points.csv"), 4, "{file: 'points.csv'}"),
    ("a table as the values", job("params: {x: {csv: points.csv}}"), 4, "{file: 'points.csv'}"),
]  # fmt: skip

NAMES = [
    *(
        (f"{key} ({tool})", job(f"{key}: 1"), 4, f"did you mean '{meant}'?")
        for key, tool, meant in [
            ("cmd", "HyperQueue", "command"),
            ("script", "GitLab CI, Nextflow", "command"),
            ("executable", "HTCondor", "command"),
            ("shell", "Snakemake", "command"),
            ("walltime", "PBS, Parsl", "duration"),
            ("time-limit", "Flux", "duration"),
            ("timeout_min", "submitit", "duration"),
            ("ntasks", "Slurm", "tasks"),
            ("cpus-per-task", "Slurm", "cores"),
            ("threads", "Snakemake", "cores"),
            ("gres", "Slurm", "gpus"),
            ("partition", "Slurm", "queue"),
            ("account", "Slurm", "bank"),
            ("cwd", "Flux", "workdir"),
            ("env", "GitHub Actions", "environment"),
            ("stdout", "HTCondor", "output"),
            ("matrix", "GitHub Actions", "params"),
            ("array", "Slurm", "params"),
            ("replicas", "Kubernetes", "count"),
            ("retry", "GitLab CI", "retries"),
            ("maxForks", "Nextflow", "max-active"),
            ("priority", "Slurm", "urgency"),
            ("max_active", "Python", "max-active"),
            ("label", "Nextflow", "name"),
        ]
    ),
    *(
        (f"{key} ({tool})", job(f"{key}: b"), 4, "{trigger: job-success, group: OTHER")
        for key, tool in [
            ("depends_on", "Compose"),
            ("needs", "GitHub Actions"),
            ("after", "Snakemake"),
            ("dependencies", "Argo"),
        ]
    ),
    ("container (Nextflow)", job("container: x"), 4, "it belongs into the command"),
    ("options (Flux)", job("options: -n 4"), 4, "are keys of the group"),
    ("ntasks-per-node (Slurm)", job("ntasks-per-node: 4"), 4, "'tasks' counts those of all nodes"),
    ("job, in the singular", "job: [{name: a, command: x}]\n" + RULES, 1, "did you mean 'jobs'?"),
    ("if (Ansible, GitHub)", rule("{trigger: job-fail, if: x, action: {name: terminate}}"), 4,
     "did you mean 'when'?"),
    ("on (GitHub Actions)", rule("{on: start, action: {name: submit, label: a}}"), 4,
     "did you mean 'trigger'?"),
    ("a trigger in the past tense", rule("{trigger: job-failed, action: {name: terminate}}"), 4,
     "did you mean 'job-fail'?"),
    ("on-failure", rule("{trigger: on-failure, action: {name: terminate}}"), 4,
     "did you mean 'job-fail'?"),
    ("job-complete (Argo)", rule("{trigger: job-complete, action: {name: submit, label: a}}"), 4,
     "did you mean 'job-success'?"),
    ("run, as an action", rule("{trigger: start, action: {name: run, label: a}}"), 4,
     "did you mean 'submit'?"),
    ("stop, as an action", rule("{trigger: job-fail, action: {name: stop}}"), 4,
     "did you mean 'terminate'?"),
    ("a misspelt label", rule("{trigger: job-fail, group: aa, action: {name: terminate}}"), 4,
     "no job group named 'aa' (did you mean 'a'?"),
    ("COMPLETED (Slurm)", when("job.outcome == 'COMPLETED'"), 5, "did you mean 'success'?"),
    ("exit_code (Nextflow)", when("job.exit_code == 1"), 5, "did you mean 'job.returncode'?"),
    ("state (Slurm)", when("job.state == 'failed'"), 5, "did you mean 'job.outcome'?"),
    ("elapsed (Slurm)", when("job.elapsed > 60"), 5, "did you mean 'job.runtime'?"),
    ("a parameter as a field", when("job.x > 1"), 5, "did you mean 'job.params.x'?"),
    ("a counter in another form", when("count.a.failures > 1"), 5, "did you mean 'failed'?"),
    ("a counter without its group", when("count.failed > 1"), 5, "write count.a.failed"),
    ("a counter alone", when("failed > 1"), 5, "did you mean 'count.a.failed'?"),
    ("an average", when("avg['a-duration'] > 1"), 5, "did you mean 'mean'?"),
    ("a hyphen in a counter (Argo)", when("count.a.gave-up > 1"), 5, "count.a['gave-up']"),
    ("a hyphen in a group (Argo)",
     "jobs: [{name: my-job, command: x}]\nrules:\n"
     "- {trigger: start, action: {name: submit, label: my-job}}\n"
     "- {trigger: job-fail, when: count.my-job.failed > 3, action: {name: terminate}}\n",
     4, "count['my-job']"),
]  # fmt: skip

EXPRESSIONS = [
    ("&& (C, Argo)", when("job.id > 1 && job.id < 3"), 5, "write 'and' for '&&'"),
    ("|| (C, Argo)", when("job.id > 1 || job.id < 3"), 5, "write 'or' for '||'"),
    ("& (pandas)", when("(job.id > 1) & (job.id < 3)"), 5, "write 'and' for '&'"),
    ("! (C)", when("'!(job.id > 1)'"), 5, "write 'not' for '!'"),
    ("= (SQL)", when("job.id = 1"), 5, "write '==' to compare"),
    ("=== (JavaScript)", when("job.id === 1"), 5, "write '==' for '==='"),
    ("^ for a power", when("job.runtime ^ 2 > 1"), 5, "a power is written as x ** 2"),
    ("math.sqrt (Python)", when("math.sqrt(job.runtime) > 1"), 5, "write sqrt"),
    ("50%", when("count.a.failed > 50%"), 5, "write 0.5 for '50%'"),
    ("50% of", when("count.a.failed > 50% of count.a.submitted"), 5, "write 0.5 * for '50% of'"),
    ("-gt (shells)", when("job.id -gt 1"), 5, "write '>' for '-gt'"),
    ("between (SQL)", when("job.params.x between 1 and 3"), 5, "write 1 <= job.params.x <= 3"),
    ("AND (SQL)", when("job.id > 1 AND job.id < 3"), 5, "write 'and' for 'AND'"),
    ("is None (Python)", when("job.memo.loss is None"), 5, "'x == x' asks whether there is one"),
    ("== None (Python)", when("job.memo.loss == None"), 5, "'x == x' asks whether there is one"),
    ("true (YAML)", when("job.params.x == true"), 5, "write True"),
    ("a text without quotes (Argo)", when("job.outcome == failed"), 5, "in quotes: 'failed'"),
    ("a set (Python)", when("job.params.x in {1, 2}"), 5, "a list has brackets: [1, 2]"),
    ("$x (shells)", when("$x > 1"), 5, "write job.params.x for '$x'"),
    ("${{ }} (GitHub)", when("${{ job.params.x > 1 }}"), 5, "an expression has no braces"),
    ("f-strings (Python)", when("""f'{job.params.x}' == '1'"""), 5, "no f-strings"),
    ("thousands", when("job.id > 1,000"), 5, "write 1000 for '1,000'"),
    ("a comma for and", when("job.id > 1, job.id < 3"), 5, "write 'and' for ','"),
    ("a missing parenthesis", when("(job.id > 1"), 5, "a ')' is missing"),
    ("3 > x > 5 (Python)", when("3 > job.params.x > 5"), 5, "never holds"),
    ("3 >= x >= 5 (Python)", when("3 >= job.params.x >= 5"), 5, "never holds"),
    ("log of zero", when("log(0) > 1"), 5, "never holds: it reads no metric"),
    ("a power without bounds", when("2 ** 9999 ** 9999 > 5"), 5, "never holds: it reads no metric"),
    ("2 < x < 2 (Python)", when("2 < job.params.x < 2"), 5, "never holds"),
    ("an action's expression without braces", submit("job.params.x + 1"), 4,
     "an expression is in braces, '{job.params.x + 1}'"),
    ("${ } in an action (shells)", submit("'${job.params.x}'"), 4, "write '{job.params.x}'"),
    ("{{ }} in an action (Ansible)", submit("'{{ job.params.x }}'"), 4,
     "write '{ job.params.x }'"),
    ("$x in an action (shells)", submit("$x"), 4, "the triggering job's value is '{job.params.x}'"),
]  # fmt: skip

SHELL = [
    *(
        (f"{text} ({tool})", command(f"'run {text}'"), 3, "(write '{x}')")
        for text, tool in [
            ("$x", "shells"),
            ("${x}", "shells"),
            ("${{ matrix.x }}", "GitHub Actions"),
            ("{{ x }}", "Ansible"),
            ("{{inputs.parameters.x}}", "Argo"),
            ("{wildcards.x}", "Snakemake"),
            ("%(x)s", "Python"),
            ("<x>", "manuals"),
            ("{}", "GNU parallel"),
        ]
    ),
    ("a variable in a script", command("[sh, -c, 'run $x']"), 3,
     "'$x' is a variable of the shell, and empty (write '{x}')"),
    ("a format (Python)", command("'run {x:.2f}'"), 3, "there are no formats here"),
    ("> (GNU parallel)", command("run {x} > out.txt"), 3, "write 'output: FILE' for a file"),
    ("a pipe (GNU parallel)", command("run {x} | sort"), 3, "no shell runs the command"),
    ("cd and && (shells)", command("cd runs && run {x}"), 3, "no shell runs the command"),
    ("& (shells)", command("run {x} &"), 3, "no shell runs the command"),
    ("~ (shells)", command("~/bin/run {x}"), 3, "no shell runs the command"),
    ("a module (Slurm)", command("module load gcc {x}"), 3, "no shell runs the command"),
    ("~ in a directory", job("workdir: ~/runs"), 4, "no shell reads this"),
    ("$HOME in the environment", job("environment: {DATA: $HOME/data}"), 4, "no shell reads this"),
    ("a list of commands (GitLab CI)",
     "jobs:\n- name: a\n  command:\n  - cd x\n  - ./run --y\n" + RULES, 3,
     "for several commands write [sh, -c, 'cd x; ./run --y']"),
    ("a command as the only word (Docker)", job("count: 1", "[./run --y 1]"), 3,
     "each word is an item (write a text, command: ./run --y 1)"),
    ("lines of a script (Snakemake)", "jobs:\n- name: a\n  command: |\n    ./a\n    ./b\n" + RULES,
     3, "the lines are one command"),
    ("a script without quotes (Docker)", command("sh -c run {x}"), 3,
     "the script of sh is 'run' alone, without '{x}': put all of it in quotes"),
    ("the number in an array (Slurm)", job("count: 4", "run $SLURM_ARRAY_TASK_ID"), 3,
     "'{index}' is the number of each job"),
    ("%j in an output file (Slurm)", job("output: out-%j.txt"), 4, "(write '{{id}}')"),
    ("%a in an output file (Slurm)", job("output: 'out-%4a.txt'"), 4, "(write '{index}')"),
    ("flux run in a command (Flux)", job("count: 1", "flux run -n 4 ./a.out"), 3,
     "write the program alone, and its size as 'tasks'"),
    ("flux submit in a command (Flux)", job("count: 1", "flux submit ./a.out"), 3,
     "'flux submit' submits another job"),
    ("options of flux run (Flux)", job("count: 1", "-n 4 ./a.out"), 3,
     "options of a job are keys of its group"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        pytest.param(text, line, said, id=habit)
        for habit, text, line, said in (*YAML, *UNITS, *VALUES, *NAMES, *EXPRESSIONS, *SHELL)
    ],
)
def test_a_typical_mistake_is_answered_by_the_one_hint_that_its_writer_needs(
    text: str, line: int, said: str
) -> None:
    (answer,) = answers(text)
    assert answer.startswith(f"a.yaml:{line}: ")
    assert said in answer


@pytest.mark.parametrize(
    "text",
    [
        # These hold for one number.
        when("2 <= job.params.x <= 2"),
        when("2 >= job.params.x >= 2"),
        # Scripts have variables of their own, and arguments.
        command("[sh, -c, 'x={x}; run $x']"),
        command("[sh, -c, 'for x in 1 2; do run $x {x}; done']"),
        command("[sh, -c, 'run $1 $2', sh, '{x}', b]"),
        command("[bash, -c, 'run \"$@\"', bash, '{x}']"),
        command("[sh, -c, 'run $x {x}']") + "# x\n",
        command("[python, -c, 'print(f\"{x} {y}\")']"),
        command("[awk, '{print $x}', '{x}.txt']"),
        # A long command on several lines.
        "jobs:\n- name: a\n  command: |\n    run\n      --x 1\n      data.csv\n" + RULES,
        "jobs:\n- name: a\n  command: >\n    run\n    --x 1\n" + RULES,
        # Words that are right here.
        job("output: out-{{id}}.txt"),
        job("output: 'out-100%.txt'"),
        job("params: {x: ['1,2,3', 'a, b']}", "run {x}"),
        job("params: {x: [points.csv]}", "run {x}"),
        job("count: 1", "flux start run"),
        job("count: 1", "run '{}'"),
        job("count: 1", "run --time 1:30:00 --mem 2GB 50% a:b"),
        when("1 < job.params.x < 3"),
        when("job.params.x in [1, 2]"),
        when("job.id % 2 == 0"),
        submit("'{job.params.x + 1}'"),
        submit("'{job.params.x}'"),
    ],
)
def test_what_only_looks_like_a_mistake_is_none(text: str) -> None:
    said = answers(text)
    # One of them is one: nothing sets the variable there.
    assert len(said) == text.endswith("# x\n"), said


def test_the_documents_that_come_with_the_package_have_no_mistakes() -> None:
    examples = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
    assert examples
    for path in examples:
        found = Warnings()
        load_text(path.read_text(), file=path.name, directory=str(path.parent), warnings=found)
        assert [one for one in found.warnings if "is left as it is" in one] == []


def test_keys_beside_an_empty_mapping_are_told_to_be_indented_below_it() -> None:
    text = job("params:\n  t: [1, 2]\n  rc: [3]\n  environment:\n  OMP_NUM_THREADS: 4")
    said = [one.partition(": unknown key ")[2] for one in answers(text) if "unknown key" in one]
    assert said == [
        "'t' (indent 't' below 'params')",
        "'rc' (indent 'rc' below 'params')",
        "'OMP_NUM_THREADS' (indent 'OMP_NUM_THREADS' below 'environment')",
    ]
