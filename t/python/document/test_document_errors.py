"""What is wrong with a document is said in sentences, each with its line and its path."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flux_ensemble.document.functions import unresolved
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text
from flux_ensemble.document.problems import Problem

GROUPS = "jobs: [{name: echo, command: echo}, {name: sleep, command: sleep 1}]\n"


def problems(text: str, **given: Any) -> list[str]:
    """The sentences about a document called d.yaml."""
    with pytest.raises(DocumentError) as caught:
        load_text(text, **{"name": "test", "file": "d.yaml", **given})
    return str(caught.value).splitlines()


def rule(text: str) -> list[str]:
    """The sentences about a rule, in flow style, after two job groups."""
    return problems(f"{GROUPS}rules:\n  - {text}\n")


def test_the_example_of_the_contract() -> None:
    text = """\
name: hello
jobs:
  - name: sleep
    command: sleep 10
  - name: echo
    command: echo hello
rules:
  - trigger: start
    action: {name: submit, label: sleep}
  - trigger: metric
    name: count.sleep.success
    when: 3
    action:
      label: amg
      name: submit
"""
    assert problems(text, file="hello.yaml") == [
        "hello.yaml:14: rules[1].action.label: no job group named 'amg' (groups: echo, sleep)"
    ]


def test_all_problems_are_told_at_once_in_the_order_of_their_lines() -> None:
    text = """\
logging: {heartbeat: soon}
jobs:
  - name: sleep
    command: sleep 'x
    nodes: -1
    nodes: 2
rules:
  - trigger: start
    action: {name: submit, label: amg}
  - trigger: metric
    name: median.sleep-duration
    when: "=> 3"
    action: {name: custom, label: g}
custom: |
  def f(**kwargs): ...
limit: {}
"""
    assert problems(text) == [
        "d.yaml:1: logging.heartbeat: expected a duration (seconds, or text such as '30s', "
        "'1.5h' or '100ms'), not 'soon'",
        'd.yaml:4: jobs[0].command: bad quotes in "sleep \'x": no closing quotation',
        "d.yaml:5: jobs[0].nodes: expected an integer >= 1, not -1",
        "d.yaml:6: jobs[0].nodes: duplicate key 'nodes' (first on line 5)",
        "d.yaml:9: rules[0].action.label: no job group named 'amg' (groups: sleep)",
        "d.yaml:11: rules[1].name: no statistic named 'median' (statistics: count, iqr, mad, "
        "max, mean, min, n, nodes, queue, rate, share, time, variance)",
        "d.yaml:12: rules[1].when: expected a number, a comparison such as '> 5', or an "
        "expression such as 'count.GROUP.success >= 3', not '=> 3' (write '>=' for '=>')",
        "d.yaml:13: rules[1].action.label: no function named 'g' (functions: f)",
        "d.yaml:16: limit: unknown key 'limit' (did you mean 'limits'? keys: name, logging, jobs, "
        "rules, search, members, use, custom, plugins, metrics, rate-window, limits, scaling, "
        "finish, job-names, durability, share, records, seed, simulate)",
    ]


def test_problems_are_there_one_by_one_too() -> None:
    with pytest.raises(DocumentError) as caught:
        load_text("jobs: [{name: a, command: b, count: two}]\n", name="test", file="d.yaml")
    assert caught.value.problems == [
        Problem(1, "jobs[0].count", "expected an integer >= 1, not 'two'")
    ]


def test_a_document_without_a_file_is_called_document() -> None:
    assert problems("jobs: 3", file=None) == [
        "document:1: jobs: expected a list of job groups, not 3"
    ]


def test_each_null_in_a_list_is_told_with_its_line() -> None:
    sentence = "expected text, a number, true or false, not null (put it in quotes if the text"
    text = """\
jobs:
  - name: a
    command: [echo, null]
    environment: {A: ~}
    params:
      x:
        - 1
        - null
        - fast
        - ~
      y: {written: ["1.10", null]}
      z: [1, {written: null}]
search:
  - {id: s, group: null, variables: {v: [a, null]}, minimize: y, trials: 3}
rules:
  - {trigger: start, action: {name: submit, label: a, params: {x: [1, null]}}}
"""
    found = problems(text)
    for line, path in [
        (3, "jobs[0].command[1]"),
        (4, "jobs[0].environment.A"),
        (8, "jobs[0].params.x[1]"),
        (10, "jobs[0].params.x[3]"),
    ]:
        assert any(each.startswith(f"d.yaml:{line}: {path}: {sentence}") for each in found), path
    # It is a choice of a search.
    assert not any("variables.v" in each for each in found)
    written = "expected a value as text, such as '1.10', not null"
    assert f"d.yaml:11: jobs[0].params.y.written[1]: {written}" in found
    assert f"d.yaml:12: jobs[0].params.z[1]: {written}" in found


def test_a_null_in_a_list_of_an_action_is_told_with_its_place() -> None:
    (found,) = problems("""\
jobs: [{name: a, command: "echo {x}", params: {x: 1}}]
rules:
  - {trigger: start, action: {name: submit, label: a, params: {x: [1, null]}}}
""")
    assert found.startswith(
        "d.yaml:3: rules[0].action.params: parameter 'x[1]': expected text, a number, true or "
    )


def test_a_document_that_came_as_json_has_no_lines() -> None:
    mapping = {"jobs": [{"name": "a", "command": "b", "count": 0}]}
    with pytest.raises(DocumentError) as caught:
        load_mapping(mapping, name="test", file="d.yaml")
    assert str(caught.value) == "d.yaml: jobs[0].count: expected an integer >= 1, not 0"
    with pytest.raises(DocumentError) as caught:
        load_mapping(mapping, name="test")
    assert str(caught.value) == "document: jobs[0].count: expected an integer >= 1, not 0"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "hello",
            "d.yaml:1: expected a mapping such as {jobs: [...], rules: [...]}, not 'hello'",
        ),
        (
            "- jobs",
            "d.yaml:1: expected a mapping such as {jobs: [...], rules: [...]}, "
            "not a list with 1 item",
        ),
        ("name: a", "d.yaml:1: expected job groups in 'jobs', or rules in 'rules'"),
        ("jobs: []\nrules: []", "d.yaml:1: expected job groups in 'jobs', or rules in 'rules'"),
        ("jobs:\n", "d.yaml:1: jobs: expected a list of job groups, not null"),
        ("jobs: {a: 1}",
         "d.yaml:1: jobs: expected a list of job groups, not a mapping with 1 key "
         "(a list, of which each item begins with a dash)"),
        (f"{GROUPS}rules: start", "d.yaml:2: rules: expected a list of rules, not 'start'"),
        (
            f"{GROUPS}finish: soon",
            "d.yaml:2: finish: expected a way to finish, not 'soon' (one of: idle, never)",
        ),
        (
            f"{GROUPS}durability: often",
            "d.yaml:2: durability: expected a durability, not 'often' (one of: fast, strict)",
        ),
        (f"{GROUPS}seed: x", "d.yaml:2: seed: expected an integer, not 'x'"),
        (f"{GROUPS}seed: 1.0", "d.yaml:2: seed: expected an integer, not 1.0 (write 1)"),
        (f"{GROUPS}custom: [f]", "d.yaml:2: custom: expected Python source text, "
         "not a list with 1 item"),
        (
            f"{GROUPS}plugins: [a.b, 'c d']",
            "d.yaml:2: plugins[1]: expected the name of a Python module, not 'c d'",
        ),
        (
            f"{GROUPS}limits: {{active_jobs: 3}}",
            "d.yaml:2: limits.active_jobs: unknown key 'active_jobs' "
            "(did you mean 'active-jobs'? keys: active-jobs, jobs, records, losses)",
        ),
        (
            f"{GROUPS}limits: {{jobs: 0}}",
            "d.yaml:2: limits.jobs: expected an integer >= 1, not 0",
        ),
        (
            f"{GROUPS}scaling: {{min-nodes: 0}}",
            "d.yaml:2: scaling.min-nodes: expected an integer >= 1, not 0",
        ),
        (
            f"{GROUPS}scaling:\n  max-nodes: -2",
            "d.yaml:3: scaling.max-nodes: expected an integer >= 1, not -2",
        ),
        (
            f"{GROUPS}scaling:\n  max-nodes: 3\n  min-nodes: 4",
            "d.yaml:4: scaling.min-nodes: expected at most max-nodes, which is 3, not 4",
        ),
        (
            f"{GROUPS}scaling: {{deadline: 0}}",
            "d.yaml:2: scaling.deadline: expected a duration > 0, not 0",
        ),
        (
            f"{GROUPS}scaling: {{deadline: inf}}",
            "d.yaml:2: scaling.deadline: expected a duration (seconds, or text such as '30s', "
            "'1.5h' or '100ms'), not 'inf'",
        ),
        (
            f"{GROUPS}scaling: {{refusals: 0}}",
            "d.yaml:2: scaling.refusals: expected an integer >= 1, not 0",
        ),
        (
            f"{GROUPS}scaling: {{max_nodes: 4}}",
            "d.yaml:2: scaling.max_nodes: unknown key 'max_nodes' "
            "(did you mean 'max-nodes'? keys: min-nodes, max-nodes, deadline, refusals)",
        ),
        (
            f"{GROUPS}metrics: [{{name: nodes, statistic: skew}}]",
            "d.yaml:2: metrics[0]: there is a statistic 'nodes' already; give another 'name'",
        ),
        (f"{GROUPS}logging: yes", "d.yaml:2: logging: expected a mapping with the keys debug and "
         "heartbeat, not true"),
        (f"{GROUPS}logging: {{debug: 1}}",
         "d.yaml:2: logging.debug: expected true or false, not 1"),
        (
            f"{GROUPS}logging: {{heartbeat: -1}}",
            "d.yaml:2: logging.heartbeat: expected a duration (seconds, or text such as '30s', "
            "'1.5h' or '100ms'), not -1",
        ),
        (f"{GROUPS}seed: .inf", "d.yaml:2: seed: expected a finite number, not inf"),
        (
            f"{GROUPS}seed: 100000000000000000000",
            "d.yaml:2: seed: expected an integer of at most 64 bits",
        ),
        (
            f'{GROUPS}custom: "a\\0b"',
            "d.yaml:2: custom: expected text without the character '\\0'",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_whole_document(text: str, sentence: str) -> None:
    assert problems(text) == [sentence]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "jobs[0]: expected a job group such as {name: NAME, command: COMMAND}, "
         "not a list with 0 items"),
        ("{command: x}", "jobs[0]: the key 'name' is missing"),
        ("{name: a}", "jobs[0]: expected a command or a jobspec"),
        ("{name: 3, command: x}", "jobs[0].name: expected a name (letters, digits, '_', '-' and "
         "'.', at most 128, not '-' or '.' first), not 3"),
        ("{name: a b, command: x}", "jobs[0].name: expected a name (letters, digits, '_', '-' and "
         "'.', at most 128, not '-' or '.' first), not 'a b'"),
        ("{name: \"a\\n\", command: x}", "jobs[0].name: expected a name (letters, digits, '_', '-' "
         "and '.', at most 128, not '-' or '.' first), not 'a\\n'"),
        ("{name: a, command: x, cuont: 5}", "jobs[0].cuont: unknown key 'cuont' (did you mean "
         "'count'? keys: name, command, jobspec, count, nodes, tasks, cores, gpus, duration, "
         "workdir, inputs, environment, output, error, queue, bank, urgency, exclusive, "
         "attributes, params, sweep, samples, retries, max-active, predict, order, start, member, "
         "on-lost, avoid-nodes)"),
        ("{name: a, command: x, order: longest-first}",
         "jobs[0].order: 'order: longest-first' needs 'predict' in the same entry: the parameters "
         "that the duration of a job follows from, such as 'predict: [n]'"),
        ("{name: a, command: x, predict: [n], order: longest-first}",
         "jobs[0].predict[0]: the entry has no parameter 'n' (parameters: none)"),
        ("{name: a, command: x, params: {size: [1]}, predict: [sizes]}",
         "jobs[0].predict[0]: the entry has no parameter 'sizes' (did you mean 'size'? "
         "parameters: size)"),
        ("{name: a, command: x, params: {n: [1]}, predict: n}",
         "jobs[0].predict: expected a list of parameters, not 'n'"),
        ("{name: a, command: x, params: {n: [1]}, predict: [n], order: shortest-first}",
         "jobs[0].order: expected an order, not 'shortest-first' (did you mean "
         "'longest-first'? one of: longest-first)"),
        (f"{{name: a, command: x, predict: [{', '.join('abcdefghijklmnopq')}]}}",
         "jobs[0].predict: expected at most 16 parameters, not 17"),
        ("{name: a, command: x, count: 0}", "jobs[0].count: expected an integer >= 1, not 0"),
        ("{name: a, command: x, count: -5}", "jobs[0].count: expected an integer >= 1, not -5"),
        ("{name: a, command: x, count: 1.5}", "jobs[0].count: expected an integer >= 1, not 1.5"),
        ("{name: a, command: x, count: true}", "jobs[0].count: expected an integer >= 1, not true"),
        ("{name: a, command: x, nodes: two}", "jobs[0].nodes: "
         "expected a number, or text with a parameter such as '{n}', not 'two'"),
        ("{name: a, command: x, nodes: 3000000000}",
         "jobs[0].nodes: expected an integer >= 1, not 3000000000"),
        ("{name: a, command: x, gpus: -1}", "jobs[0].gpus: expected an integer >= 0, not -1"),
        ("{name: a, command: x, retries: -1}", "jobs[0].retries: expected an integer >= 0, or a "
         "mapping such as {times: 3, on: [failed, timeout]}, not -1"),
        ("{name: a, command: x, urgency: 32}",
         "jobs[0].urgency: expected an integer >= 0 and <= 31, not 32"),
        ("{name: a, command: x, exclusive: 1}", "jobs[0].exclusive: expected true or false, not 1"),
        ("{name: a, command: x, workdir: ''}",
         "jobs[0].workdir: expected text that is not empty, not ''"),
        ("{name: a, command: x, inputs: in.txt, workdir: w}",
         "jobs[0].inputs: expected a list of paths of files, not 'in.txt'"),
        ("{name: a, command: x, inputs: [''], workdir: w}",
         "jobs[0].inputs[0]: expected text that is not empty, not ''"),
        ("{name: a, command: x, inputs: [in.txt]}",
         "jobs[0].inputs: the files are linked into the working directory of a job, so its group "
         "needs 'workdir', such as 'runs/{x}'"),
        ("{name: a, command: x, inputs: [in.txt], workdir: 'runs/{{id}}'}",
         "jobs[0].workdir: a directory with 'inputs' is made before the job has an id: use a "
         "parameter or '{index}' in place of Flux's template in 'runs/{{id}}'"),
        ("{name: a, command: x, inputs: [in/, a/..], workdir: w}",
         "jobs[0].inputs[1]: expected the path of a file, not 'a/..'"),
        ("{name: a, command: x, inputs: [a/in.txt, b/in.txt], workdir: w}",
         "jobs[0].inputs[1]: 'in.txt' would be there twice in the working directory, as "
         "inputs[0], too"),
        ("{name: a, command: x, inputs: ['{x}.txt'], workdir: 'w/{x}', output: '{x}.txt', "
         "params: {x: 1}}", "jobs[0].inputs[0]: the job would write its 'output' there"),
        ("{name: a, command: x, inputs: [in.txt], workdir: w, error: ../in.txt}",
         "jobs[0].inputs[0]: the job would write its 'error' there"),
        ("{name: a, command: x, duration: 1 hour}", "jobs[0].duration: expected a duration "
         "(seconds, or text such as '30s', '1.5h' or '100ms'), not '1 hour' (write 1h)"),
        ("{name: a, command: x, duration: .nan}",
         "jobs[0].duration: expected a finite number, not nan"),
        ("{name: a, command: x, environment: [A]}",
         "jobs[0].environment: expected a mapping of environment variables, "
         "not a list with 1 item"),
        ("{name: a, command: x, environment: {A: [b]}}", "jobs[0].environment.A: expected text, "
         "a number, true or false, not a list with 1 item"),
        ("{name: a, command: x, environment: {A=B: c}}", "jobs[0].environment['A=B']: expected "
         "the name of an environment variable, not 'A=B'"),
        ("{name: a, command: x, attributes: {shell: {}}}", "jobs[0].attributes.shell: unknown key "
         "'shell' (keys: system, user)"),
        ("{name: a, command: x, attributes: {system: {duration: 1h}}}",
         "jobs[0].attributes.system.duration: expected a number of seconds, not '1h'"),
        ("{name: a, command: x, attributes: {system: {dependencies: [{scheme: after}]}}}",
         "jobs[0].attributes.system.dependencies[0]: the key 'value' is missing"),
        ("{name: a, command: x, attributes: {user: {ensemble: 1}}}",
         "jobs[0].attributes.user.ensemble: the user attribute 'ensemble' is where flux-ensemble "
         "marks its jobs"),
        ("{name: a, command: ''}", "jobs[0].command: expected a command of at least one word"),
        ("{name: a, command: []}", "jobs[0].command: expected a command of at least one word"),
        ("{name: a, command: [x, [y]]}", "jobs[0].command[1]: expected text, a number, true or "
         "false, not a list with 1 item"),
        ("{name: a, command: 3}",
         "jobs[0].command: expected a command: text, or a list of its words, not 3"),
        ("{name: a, command: 'echo \"x'}",
         "jobs[0].command: bad quotes in 'echo \"x': no closing quotation"),
        ("{name: a, command: x, jobspec: {version: 1, tasks: [{command: y}]}}",
         "jobs[0].command: 'command' cannot be combined with 'jobspec', which says it itself"),
        ("{name: a, command: x, params: [1]}",
         "jobs[0].params: expected a mapping, not a list with 1 item"),
        ("{name: a, command: x, params: {1x: [1]}}", "jobs[0].params.1x: expected a parameter's "
         "name (letters, digits, '_' and '-', not a digit or '-' first), not '1x'"),
        ("{name: a, command: x, params: {x: []}}",
         "jobs[0].params.x: expected at least one value, not a list with 0 items"),
        ("{name: a, command: x, params: {x: [[1]]}}",
         "jobs[0].params.x[0]: expected text, a number, true or false, not a list with 1 item"),
        ("{name: a, command: x, params: {x: {range: [0, 10, 0]}}}", "jobs[0].params.x: expected "
         "a range such as [start, stop, step], not [0, 10, 0]"),
        ("{name: a, command: x, params: {x: {range: [5, 5]}}}",
         "jobs[0].params.x: expected at least one value, and {range: [5, 5]} has none"),
        ("{name: a, command: x, params: [{x: 1, y: 2}, {x: 3, y: 4}]}", "jobs[0].params: expected "
         "a mapping, not a list with 2 items (write a list for each name, side by side: "
         "{x: [1, ...], y: [2, ...]} with 'sweep: zip')"),
        ("{name: a, command: x, params: {x: [1], y: [1]}, sweep: grid}", "jobs[0].sweep: expected "
         "a kind of sweep, not 'grid' (one of: product, zip, sample)"),
        ("{name: a, command: x, params: {x: [1, 2], y: [1, 2, 3]}, sweep: zip}", "jobs[0].params: "
         "'zip' needs equally many values of each parameter (x has 2, y has 3)"),
        ("{name: a, command: x, params: {x: [1, 2]}, sweep: sample}",
         "jobs[0].sweep: 'sweep: sample' needs 'samples', the number to draw"),
        ("{name: a, command: x, params: {x: [1, 2]}, sweep: sample, samples: 3}",
         "jobs[0].samples: expected at most 2 samples, as there are no more combinations, not 3"),
        ("{name: a, command: x, params: {x: [1, 2]}, samples: 2}",
         "jobs[0].samples: 'samples' is only for 'sweep: sample'"),
        ("{name: a, command: x, sweep: zip}", "jobs[0].sweep: 'sweep' needs 'params'"),
        ("{name: a, command: x, samples: 2}", "jobs[0].samples: 'samples' needs 'params'"),
        ("{name: a, command: x, params: {x: {range: [0, 100000000]}, y: {range: [0, 100000000]}}}",
         "jobs[0].params: expected at most 9007199254740992 combinations, not 10000000000000000"),
        ("{name: a, command: x, params: {x: {range: [0, 100000]}}, count: 100000}",
         "jobs[0]: expected at most 2147483647 jobs, not 10000000000"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_job_group(text: str, sentence: str) -> None:
    assert problems(f"jobs:\n  - {text}\n") == [f"d.yaml:2: {sentence}"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("start", ": expected a rule such as {trigger: start, action: {...}}, not 'start'"),
        ("{trigger: start}", ": the key 'action' is missing"),
        ("{action: {name: terminate}}", ": the key 'trigger' is missing"),
        ("{trigger: start, action: stop}", ".action: expected an action such as "
         "{name: submit, label: GROUP}, not 'stop'"),
        ("{trigger: start, action: {}}", ".action: the key 'name' is missing"),
        ("{trigger: start, action: {name: submti, label: echo}}", ".action.name: expected an "
         "action, not 'submti' (did you mean 'submit'? one of: submit, cancel, copy, terminate, "
         "custom, grow, shrink, enable, disable, update, reset, search, close, refresh)"),
        ("{trigger: start, scope: all, action: {name: terminate}}",
         ".scope: expected a scope, not 'all' (one of: ensemble, member, queue)"),
        ("{trigger: start, on-error: retyr, action: {name: terminate}}", ".on-error: expected a "
         "way to handle errors, not 'retyr' (did you mean 'retry'? one of: disable, fail, retry)"),
        ("{trigger: start, action: {name: submit, label: ech}}", ".action.label: no job group "
         "named 'ech' (did you mean 'echo'? groups: echo, sleep)"),
        ("{trigger: start, action: {name: submit}}",
         ".action: the action 'submit' needs a 'label', a job group"),
        ("{trigger: start, action: {name: update, urgency: 3}}",
         ".action: the action 'update' needs a 'label', a job group"),
        ("{trigger: start, action: {name: custom}}",
         ".action: the action 'custom' needs a 'label', a function"),
        ("{trigger: start, action: {name: enable}}",
         ".action: the action 'enable' needs a 'label', a rule"),
        ("{trigger: start, action: {name: cancel, label: x}}",
         ".action.label: no job group named 'x' (groups: echo, sleep)"),
        ("{trigger: start, action: {name: disable, label: x}}",
         ".action.label: no rule with the id 'x' (ids: rule-0)"),
        ("{trigger: start, action: {name: custom, label: f}}",
         ".action.label: no function named 'f' (functions: none)"),
        ("{trigger: start, action: {name: terminate, label: echo}}", ".action.label: 'label' "
         "means nothing to the action 'terminate' (only to: submit, cancel, update, custom, "
         "enable, disable, reset, search, close, refresh, grow, shrink)"),
        ("{trigger: start, action: {name: terminate, value: 2}}",
         ".action.value: 'value' means nothing to the action 'terminate' (only to: grow, shrink)"),
        ("{trigger: start, action: {name: cancel, params: {}}}",
         ".action.params: 'params' means nothing to the action 'cancel' (only to: submit)"),
        ("{trigger: start, action: {name: update, label: echo}}",
         ".action: the action 'update' needs 'urgency' or 'duration'"),
        ("{trigger: start, action: {name: update, label: echo, urgency: 40}}",
         ".action.urgency: expected an integer >= 0 and <= 31, not 40"),
        ("{trigger: start, action: {name: submit, label: echo, count: 0}}",
         ".action.count: expected an integer >= 1, not 0"),
        ("{trigger: start, action: {name: submit, label: echo, params: {x: [1]}}}",
         ".action.params: group 'echo' has no parameter 'x' (parameters: none)"),
        ("{trigger: start, action: {name: submit, label: echo, repetitions: 0}}",
         ".action.repetitions: expected an integer >= 1 or 'unlimited', not 0"),
        ("{trigger: start, action: {name: submit, label: echo, repetitions: always}}",
         ".action.repetitions: expected an integer >= 1 or 'unlimited', not 'always'"),
        ("{trigger: start, action: {name: submit, label: echo, backoff: -1}}",
         ".action.backoff: expected an integer >= 0, not -1"),
        ("{trigger: start, action: {name: submit, label: echo, cooldown: inf}}",
         ".action.cooldown: expected a duration (seconds, or text such as '30s', '1.5h' or "
         "'100ms'), not 'inf'"),
        ("{trigger: start, action: {name: grow, value: 0}}",
         ".action.value: expected an integer >= 1, not 0"),
        ("{trigger: scale-done, name: nope, action: {name: terminate}}",
         ".name: no rule with the id 'nope' (ids: rule-0)"),
        ("{trigger: scale-denied, group: echo, action: {name: terminate}}",
         ".group: 'group' means nothing to the trigger 'scale-denied' (only to: job-*, idle)"),
        ("{trigger: metric, name: nodes.down, action: {name: terminate}}",
         ".name: no metric named 'nodes.down' (metrics: nodes.free, nodes.size, nodes.up)"),
        ("{trigger: metric, action: {name: terminate}}",
         ": the trigger 'metric' needs 'name', a metric, or 'when', an expression"),
        ("{trigger: metric, when: 3, action: {name: terminate}}",
         ".when: 3 compares a metric; say which in 'name'"),
        ("{trigger: metric, when: 1 < 2, action: {name: terminate}}",
         ".when: '1 < 2' names no metric, so nothing triggers the rule"),
        ("{trigger: metric, name: sleep, action: {name: terminate}}", ".name: expected a metric "
         "such as 'count.GROUP.success' or 'mean.GROUP-duration', not 'sleep'"),
        ("{trigger: metric, name: count.amg.success, action: {name: terminate}}",
         ".name: no job group named 'amg' (groups: echo, sleep)"),
        ("{trigger: metric, name: count.sleep.won, action: {name: terminate}}", ".name: no counter "
         "named 'won' (counters: submitted, finished, success, failed, canceled, timeout, "
         "interrupted, attempts, gave-up)"),
        ("{trigger: metric, name: mean.amg-duration, action: {name: terminate}}",
         ".name: no job group for 'amg-duration': expected GROUP-VARIABLE (groups: echo, sleep)"),
        ("{trigger: metric, name: p90.sleep-duration, action: {name: terminate}}", ".name: no "
         "statistic named 'p90' (statistics: count, iqr, mad, max, mean, min, n, nodes, queue, "
         "rate, share, time, variance)"),
        ("{trigger: metric, name: mean.sleep-waiting, when: '> 5', action: {name: terminate}}",
         ".name: 'mean.sleep-waiting' is known at heartbeats only, and the heartbeat is off; "
         "set logging.heartbeat, such as 'logging: {heartbeat: 10s}'"),
        ("{trigger: metric, when: \"max['sleep-running'] > 5\", action: {name: terminate}}",
         ".when: 'max.sleep-running' is known at heartbeats only, and the heartbeat is off; "
         "set logging.heartbeat, such as 'logging: {heartbeat: 10s}'"),
        ("{trigger: heartbeat, action: {name: terminate}}",
         ".trigger: there are no heartbeats: the heartbeat is off; set logging.heartbeat, "
         "such as 'logging: {heartbeat: 10s}'"),
        ("{trigger: metric, name: count.echo.success, when: '>> 3', action: {name: terminate}}",
         ".when: expected a number, a comparison such as '> 5', or an expression such as "
         "'count.GROUP.success >= 3', not '>> 3'"),
        ("{trigger: metric, name: count.echo.success, when: true, action: {name: terminate}}",
         ".when: expected a number, a comparison such as '> 5', or an expression, not true"),
        ("{trigger: metric, name: count.echo.success, when: .inf, action: {name: terminate}}",
         ".when: expected a finite number, not inf"),
        ("{trigger: metric, name: count.echo.success, when: __import__('os'), "
         "action: {name: terminate}}", ".when: '__import__' is not a function of conditions "
         "(functions: abs, max, min, round, floor, ceil, sqrt, exp, log, log2, log10, sin, "
         "cos, tan, tanh, pow)"),
        ("{trigger: job-finish, when: '> 5', action: {name: terminate}}", ".when: '> 5' compares "
         "the metric of a metric rule; this trigger has none, so write an expression such as "
         "'count.GROUP.success > 3'"),
        ("{trigger: job-memo, when: 5, action: {name: terminate}}", ".when: 5 compares "
         "the metric of a metric rule; this trigger has none, so write an expression such as "
         "'count.GROUP.success > 3'"),
        ("{trigger: job-finish, name: echo, group: echo, action: {name: terminate}}",
         ".group: 'group' is another word for 'name'; give one"),
        ("{trigger: job-finish, group: amg, action: {name: terminate}}",
         ".group: no job group named 'amg' (groups: echo, sleep)"),
        ("{trigger: idle, name: amg, action: {name: terminate}}",
         ".name: no job group named 'amg' (groups: echo, sleep)"),
        ("{trigger: metric, group: echo, when: count.echo.success > 3, action: {name: terminate}}",
         ".group: 'group' means nothing to the trigger 'metric' (only to: job-*, idle)"),
        ("{trigger: start, name: echo, action: {name: terminate}}",
         ".name: 'name' means nothing to the trigger 'start' (only to: metric, job-*, idle, "
         "scale-*, search-*, member-*, drift, anomaly)"),
        ("{trigger: time-left, action: {name: terminate}}",
         ": the trigger 'time-left' needs 'below', such as 'below: 20m'"),
        ("{trigger: idle, below: 5m, action: {name: terminate}}",
         ".below: 'below' means nothing to the trigger 'idle' (only to: time-left)"),
        ("{trigger: metric, name: rate.amg, when: '> 5', action: {name: terminate}}",
         ".name: no job group named 'amg' (groups: echo, sleep)"),
        ("{trigger: metric, name: time.left, when: '> 5', action: {name: terminate}}",
         ".name: 'time.left' is known at heartbeats only, and the heartbeat is off; set "
         "logging.heartbeat, such as 'logging: {heartbeat: 10s}'"),
        ("{trigger: timer, every: 5, when: time.remaining > 5, action: {name: terminate}}",
         ".when: 'time.remaining' is empty: no job group says with 'predict' which parameters the "
         "duration of its jobs follows from"),
        ("{trigger: job-success, when: job.predicted > 5, action: {name: terminate}}",
         ".when: 'job.predicted' is empty for each job that this is about: its group says with "
         "'predict' which parameters its duration follows from"),
        ("{trigger: idle, by: [t], action: {name: terminate}}",
         ".by: 'by' needs 'group', the group whose parameters these are"),
        ("{trigger: idle, group: echo, by: [t], action: {name: terminate}}",
         ".by[0]: group 'echo' has no parameter 't' in jobs[0] (parameters: none)"),
        ("{trigger: idle, group: echo, by: t, action: {name: terminate}}",
         ".by: expected a list of parameters, not 't'"),
        ("{trigger: idle, group: echo, by: [], action: {name: terminate}}",
         ".by: expected a list of parameters, not a list with 0 items"),
        ("{trigger: start, by: [t], action: {name: terminate}}",
         ".by: 'by' means nothing to the trigger 'start' (only to: idle)"),
        ("{trigger: idle, scope: queue, action: {name: terminate}}",
         ".scope: 'scope' means nothing to the trigger 'idle' (only to: job-*)"),
        ("{trigger: timer, action: {name: terminate}}",
         ": the trigger 'timer' needs 'after' or 'every'"),
        ("{trigger: timer, every: 0, action: {name: terminate}}",
         ".every: expected a duration > 0, not 0"),
        ("{trigger: timer, after: later, action: {name: terminate}}", ".after: expected a duration "
         "(seconds, or text such as '30s', '1.5h' or '100ms'), not 'later'"),
        ("{trigger: start, after: 3, action: {name: terminate}}",
         ".after: 'after' means nothing to the trigger 'start' (only to: timer)"),
        ("{trigger: start, id: request, action: {name: terminate}}",
         ".id: the rule id 'request' is reserved (reserved: request, retry)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_rule(text: str, sentence: str) -> None:
    assert rule(text) == [f"d.yaml:3: rules[0]{sentence}"]


def test_an_unknown_trigger_is_told_with_what_was_meant_and_all_there_are() -> None:
    (sentence,) = rule("{trigger: job-finnish, action: {name: terminate}}")
    assert sentence.startswith(
        "d.yaml:3: rules[0].trigger: expected a trigger, not 'job-finnish' "
        "(did you mean 'job-finish'? one of: start, metric, heartbeat, timer, idle, scale-done, "
    )
    assert sentence.endswith(
        ", job-timeout, job-gave-up, job-running, job-run, job-sched, job-cleanup)"
    )


def test_rule_ids_are_different() -> None:
    text = f"""{GROUPS}
rules:
  - {{trigger: start, id: rule-1, action: {{name: terminate}}}}
  - {{trigger: start, action: {{name: terminate}}}}
  - {{trigger: start, id: twice, action: {{name: terminate}}}}
  - {{trigger: start, id: twice, action: {{name: terminate}}}}
"""
    assert problems(text) == [
        "d.yaml:5: rules[1].id: the rule id 'rule-1' is that of rules[0] too",
        "d.yaml:7: rules[3].id: the rule id 'twice' is that of rules[2] too",
    ]


def test_syntax_errors_of_custom_source_have_the_line_in_the_document() -> None:
    text = f"{GROUPS}custom: |\n  def f():\n      pass\n  def g(:\n      pass\n"
    assert problems(text) == ["d.yaml:5: custom: Python syntax error: invalid syntax"]


def test_syntax_errors_of_other_source_have_the_line_in_the_source() -> None:
    text = f'{GROUPS}custom: "def f():\\n    pass\\ndef g(:"\n'
    assert problems(text) == [
        "d.yaml:2: custom: Python syntax error: invalid syntax (line 3 of the source)"
    ]


def calling(source: str) -> str:
    """A document with a rule that calls function f."""
    rule = "rules: [{trigger: start, action: {name: custom, label: f}}]"
    return f"jobs: []\n{rule}\ncustom: {json.dumps(source)}\n"


GIVEN = "metrics, event, rule, action, handle, ensemble"


@pytest.mark.parametrize(
    ("source", "objection"),
    [
        ("def f(metrics): ...", "is called with 'event' too, which it does not take: add **kwargs"),
        (f"def f({GIVEN[:-10]}): ...", "is called with 'ensemble' too, which it does not take: "
         "add **kwargs"),
        ("def f(metric, **kwargs): ...", "takes 'metric', which it is not given: functions are "
         f"called with the keywords {GIVEN}, state"),
        ("def f(metrics, /, **kwargs): ...", "takes 'metrics', which it is not given: functions "
         f"are called with the keywords {GIVEN}, state"),
        ("def f(*, memo, **kwargs): ...", "takes 'memo', which it is not given: functions are "
         f"called with the keywords {GIVEN}, state"),
    ],
)  # fmt: skip
def test_a_function_that_cannot_be_called_is_refused_where_it_is_named(
    source: str, objection: str
) -> None:
    (found,) = problems(calling(source))
    assert found.endswith(f"rules[0].action.label: function 'f' {objection}")


@pytest.mark.parametrize(
    ("source", "known"),
    [
        (f"def f({GIVEN}): ...", True),
        (f"def f({GIVEN}, state, more=1): ...", True),
        ("def f(**kwargs): ...", True),
        ("def f(*args, event, mine=0, **kwargs): ...", True),
        # What these take is known when the source has run, and asked for then.
        ("@decorated\ndef f(metrics): ...", False),
        ("if True:\n    def f(metrics): ...", False),
        ("def f(metrics): ...\nf = print", False),
        ("async def f(**kwargs): ...", False),
    ],
)
def test_a_function_of_which_nothing_is_known_is_asked_for_when_the_document_is_loaded(
    source: str, *, known: bool
) -> None:
    assert unresolved(load_text(calling(source), name="d")) == (None if known else ["f"])


def test_source_that_python_cannot_parse_is_no_reason_to_fail() -> None:
    (sentence,) = problems(f"{GROUPS}custom: '{'-' * 100_000}1'\n")
    assert sentence.startswith("d.yaml:2: custom: Python source that cannot be parsed: ")


def test_a_large_source_is_for_a_module() -> None:
    assert problems(f"{GROUPS}custom: '{'x' * 300_000}'\n") == [
        "d.yaml:2: custom: Python source has at most 262144 characters, not 300000; "
        "put it in a module, and the module in 'plugins'"
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[3]", "metrics[0]: expected a statistic: its name, or a mapping such as "
         "{name: p90, statistic: quantile, q: 0.9}, or {best: {name: top, of: md-fom}}, "
         "or {of: md-fom, by: [t]}, or {of: fom, unit: eV}, not 3"),
        ("[{name: p90}]", "metrics[0]: the key 'statistic' is missing"),
        ("[mean]", "metrics[0]: there is a statistic 'mean' already; give another 'name'"),
        ("[skew, {name: skew, statistic: kurtosis}]",
         "metrics[1]: there is a statistic 'skew' already; give another 'name'"),
        ("[{name: count, statistic: sum}]",
         "metrics[0]: there is a statistic 'count' already; give another 'name'"),
        ("[{name: r, statistic: rolling_max, window_size: 1000001}]", "metrics[0].window_size: "
         "expected an integer >= 1 and <= 100000, not 1000001"),
        ("[{name: r, statistic: rolling_quantile, q: 0.5, window_size: 0}]",
         "metrics[0].window_size: expected an integer >= 1 and <= 100000, not 0"),
        ("[{name: a-b, statistic: sum}]", "metrics[0]: expected a statistic's name (letters, "
         "digits and '_', not a digit first), not 'a-b'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_statistic(text: str, sentence: str) -> None:
    assert problems(f"{GROUPS}metrics: {text}\n") == [f"d.yaml:2: {sentence}"]


def test_a_statistic_is_one_of_rivers() -> None:
    (sentence,) = problems(f"{GROUPS}metrics: [medain]\n")
    assert sentence.startswith(
        "d.yaml:2: metrics[0]: River has no univariate statistic 'medain' (statistics: "
    )
    (sentence,) = problems(f"{GROUPS}metrics: [{{name: p90, statistic: quantile, p: 0.9}}]\n")
    assert sentence.startswith("d.yaml:2: metrics[0]: Quantile(q: ")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"name": "a b"}, "d.yaml:1: name: expected a name (letters, digits, '_' and '-', at most "
         "128, not '-' first), not 'a b'"),
        ({"name": None, "file": "my run.yaml"}, "my run.yaml:1: name: expected a name (letters, "
         "digits, '_' and '-', at most 128, not '-' first), not 'my run', which is the file's; "
         "write 'name:' in the document"),
        ({"name": None, "file": None},
         "document:1: the ensemble has no name: write 'name:' in the document, or give it one "
         "with --name"),
    ],
)  # fmt: skip
def test_an_ensemble_needs_a_name(given: dict[str, Any], sentence: str) -> None:
    assert problems(GROUPS, **given) == [sentence]


def test_a_name_in_the_document_is_checked() -> None:
    assert problems(f"{GROUPS}name: a.b\n", name=None) == [
        "d.yaml:2: name: expected a name (letters, digits, '_' and '-', at most 128, "
        "not '-' first), not 'a.b'"
    ]


def test_what_follows_from_a_problem_is_not_told() -> None:
    text = """\
jobs:
  - {name: a b, command: x}
  - {name: c, command: 3}
  - {name: d, command: x, count: 0}
  - {name: e, command: x, params: {x: []}}
rules:
  - {trigger: start, action: {name: submit, label: e, params: {x: 3}}}
  - {trigger: start, action: {name: submit, label: a b}}
  - {trigger: job-finish, group: c, action: {name: submit, label: d}}
  - {trigger: timer, every: soon, action: {name: update, label: d, urgency: 99}}
  - {trigger: metric, when: [], action: {name: terminate}}
"""
    assert [line.split(": ")[1] for line in problems(text)] == [
        "jobs[0].name",
        "jobs[1].command",
        "jobs[2].count",
        "jobs[3].params.x",
        "rules[3].action.urgency",
        "rules[3].every",
        "rules[4].when",
    ]


def test_parameters_of_a_group_with_a_problem_are_known_to_rules() -> None:
    text = """\
jobs:
  - {name: md, command: "run {t}", params: {t: [300, 310]}, duration: soon, predict: [t]}
rules:
  - trigger: job-success
    group: md
    when: job.params.t > 300 and job.predicted > 5
    action: {name: submit, label: md}
  - trigger: anomaly
    name: md-energy
    when: job.params.t > 300
    detector: {quantile: {q: 0.99}}
    action: {name: cancel, jobs: trigger}
"""
    (found,) = problems(text)
    assert found.startswith("d.yaml:2: jobs[0].duration: expected a duration")


def test_many_names_are_not_all_listed() -> None:
    groups = "".join(f"  - {{name: g{i:03}, command: x}}\n" for i in range(100))
    text = f"jobs:\n{groups}rules: [{{trigger: start, action: {{name: submit, label: amg}}}}]\n"
    (sentence,) = problems(text)
    assert sentence.endswith("g058, g059, and 40 more)")


def test_a_long_value_is_not_quoted_in_full() -> None:
    (sentence,) = problems(f"{GROUPS}finish: {'x' * 1000}\n")
    assert len(sentence) < 150


@pytest.mark.parametrize(
    ("mapping", "sentence"),
    [
        ([], "document: expected a mapping such as {jobs: [...], rules: [...]}, "
         "not a list with 0 items"),
        (None, "document: expected a mapping such as {jobs: [...], rules: [...]}, not null"),
        ({"jobs": [{"name": "a", "command": "b", "duration": float("nan")}]},
         "document: jobs[0].duration: expected a finite number, not nan"),
        ({"jobs": [{"name": "a", "command": "b", 3: 4}]},
         "document: jobs[0]: expected a key that is text, not 3"),
        ({"jobs": [{"name": "a", "command": {"b"}}]},
         "document: jobs[0].command: expected plain data, not {'b'}: write a list"),
        ({"jobs": [{"name": "a", "command": print}]},
         "document: jobs[0].command: expected plain data, not <built-in function print>: a job "
         "runs a command, so write a program that calls it (docs/python.md, 'Within a job')"),
        ({"jobs": [{"name": "a", "command": "\ud800"}]},
         "document: jobs[0].command: expected UTF-8 text, not a lone surrogate"),
        ({"jobs": [{"name": "a", "command": "b", "count": 10**5000}]},
         "document: jobs[0].count: expected an integer of at most 64 bits"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_mapping(mapping: Any, sentence: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load_mapping(mapping, name="test")
    assert str(caught.value) == sentence


def test_a_mapping_that_contains_itself_is_refused() -> None:
    mapping: dict[str, Any] = {}
    mapping["jobs"] = [mapping]
    with pytest.raises(DocumentError, match="expected at most 64 levels of mappings and lists"):
        load_mapping(mapping, name="test")


def test_a_mapping_that_multiplies_is_refused() -> None:
    value: list[Any] = [1] * 10
    for _ in range(20):
        value = [value] * 10
    with pytest.raises(DocumentError, match="expected at most 250000 values"):
        load_mapping({"jobs": value}, name="test")


def test_problems_of_one_line_are_told_in_the_order_of_the_document() -> None:
    """They were in the order of a set, which differs from one process to the next."""
    names = [f"{letter}{number}" for number in range(3) for letter in "hgfedcba"]
    wrong = ", ".join(f"{name}: 1" for name in names)
    with pytest.raises(DocumentError) as error:
        load_text(f"jobs: [{{name: a, command: 'true'}}]\nsimulate: {{{wrong}}}\n", name="x")
    told = [problem.path for problem in error.value.problems]
    assert told == [f"simulate.{name}" for name in names[: len(told)]]
    assert len(told) > 9
    others = ["window_size", "q", "statistic", "name", "alpha"]
    entry = {
        **dict.fromkeys(others, 1),
        "statistic": "skew",
        "name": "n",
        "best": {"name": "b", "of": "a-x", "mode": "max"},
    }
    with pytest.raises(DocumentError) as error:
        load_mapping({"jobs": [{"name": "a", "command": "x"}], "metrics": [entry]}, name="x")
    told = [problem.path for problem in error.value.problems]
    assert [path for path in told if "best" not in path] == [f"metrics[0].{one}" for one in others]


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ("{t: 1}", ": group 'a' has no parameter 't' (parameters: dt)"),
        ("{t: '{job.params.dt}'}", ": group 'a' has no parameter 't' (parameters: dt)"),
        ("{dt: small}", ": params.dt: expected a number, as the parameter has, not 'small'"),
        ("{dt: [1, 2]}", ".params.dt: expected text, a number, true or false, not a list"),
        ("{dt: null}", ".params.dt: expected text, a number, true or false, not null"),
        ("trigger", ".params: expected a mapping of parameters, not 'trigger'"),
        ("{dt: '{job.params.d}'}", ""),
        ("{dt: '{job.params.dt'}", ""),
    ],
)
def test_parameters_of_retries_that_do_not_fit(params: str, problem: str) -> None:
    retries = f"{{times: 1, with: {{params: {params}}}}}"
    sentences = problems(
        f"jobs: [{{name: a, command: 'x {{dt}}', params: {{dt: [1, 2.5]}}, retries: {retries}}}]\n"
        "rules: [{trigger: start, action: {name: submit, label: a}}]\n"
    )
    at = f"d.yaml:1: jobs[0].retries.with{problem}" if problem else "d.yaml:1: jobs[0].retries: "
    assert [sentence[: len(at)] for sentence in sentences] == [at]


def test_the_jobs_of_a_search_keep_the_parameters_that_the_sampler_chose() -> None:
    assert problems(
        "jobs: [{name: a, command: 'x {p}', retries: {times: 1, with: {params: {p: 1}}}}]\n"
        "search: [{id: s, group: a, trials: 3, minimize: q, variables: {p: {low: 0, high: 1}}}]"
        "\n"
    ) == [
        "d.yaml:2: search[0].group: the jobs of group 'a' run again with other parameters "
        "('params' in 'with' of its 'retries'), and a trial has those that the sampler chose: "
        "leave 'params' out"
    ]
