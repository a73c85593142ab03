"""A valid document becomes a `Spec` with everything that it says, and the defaults."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flux_ensemble.document.actions import parse_action
from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.functions import ENTRY_POINTS, defined_names
from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.keys.rules import TRIGGER_ALIASES, TRIGGERS
from flux_ensemble.document.lint import Warnings
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text
from flux_ensemble.document.model import Action, Limits, Rule, Spec
from flux_ensemble.document.retries import Retries
from flux_ensemble.document.rules import parse_rule
from flux_ensemble.features.scaling.document import Scaling
from flux_ensemble.metrics.names import Statistic

JOBS: list[dict[str, Any]] = [
    {"name": "echo", "command": "echo {x}", "params": {"x": [1, 2]}},
    {"name": "sleep", "command": "sleep 1"},
]


def spec(*rules: dict[str, Any], **given: Any) -> Spec:
    """The spec of a document with two job groups and some rules."""
    return load_mapping({"jobs": JOBS, "rules": list(rules), **given}, name="test")


def rule(**given: Any) -> Rule:
    """A rule of such a document, which terminates unless it says else."""
    given.setdefault("action", {"name": "terminate"})
    more = {"members": [{"name": "pool"}]} if given["trigger"].startswith("member-") else {}
    return spec(given, logging={"heartbeat": 5}, **more).rules[0]


def action(**given: Any) -> Action:
    """An action of a rule of such a document."""
    source = {"custom": "def f(**kwargs): ..."} if given.get("label") == "f" else {}
    return spec({"trigger": "start", "action": given}, **source).rules[0].action


def test_the_first_documents_can_be_checked_by_several_threads_at_once() -> None:
    script = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from flux_ensemble.document.loading import load_text
together = threading.Barrier(8)
def load(number):
    together.wait()
    return load_text("jobs: [{name: a, command: b}]", name="a").name
with ThreadPoolExecutor(8) as threads:
    print(set(threads.map(load, range(8))))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("{'a'}\n", "")


def test_a_job_group_has_defaults() -> None:
    (jobset,) = load_text("jobs: [{name: a, command: b c}]", name="test").groups["a"].sets
    assert jobset == JobSet(name="a", index=0, command=("b", "c"))


def test_a_job_group_has_what_it_says() -> None:
    text = """\
jobs:
  - name: a.b-c_1
    command: [b, "c d"]
    count: 3
    nodes: 2
    tasks: 8
    cores: 4
    gpus: 1
    duration: 1.5h
    workdir: /w
    environment: {A: b}
    output: out-{{id}}.txt
    error: err.txt
    queue: q
    bank: k
    urgency: 20
    exclusive: true
    attributes: {system: {x: 1}}
    retries: 2
"""
    (jobset,) = load_text(text, name="test").groups["a.b-c_1"].sets
    assert jobset == JobSet(
        name="a.b-c_1",
        index=0,
        command=("b", "c d"),
        count=3,
        nodes=2,
        tasks=8,
        cores=4,
        gpus=1,
        duration=5400.0,
        workdir="/w",
        environment={"A": "b"},
        output="out-{{id}}.txt",
        error="err.txt",
        queue="q",
        bank="k",
        urgency=20,
        exclusive=True,
        attributes={"system": {"x": 1}},
        retries=Retries(2),
    )


def test_entries_of_one_name_are_one_group() -> None:
    jobs = [{"name": name, "command": name} for name in ("a", "b", "a")]
    groups = load_mapping({"jobs": jobs}, name="test").groups
    assert {name: [one.index for one in group.sets] for name, group in groups.items()} == {
        "a": [0, 1],
        "b": [0],
    }


def test_a_document_has_defaults() -> None:
    found = load_text("jobs: [{name: a, command: b}]", name="test")
    assert (found.finish, found.heartbeat, found.debug, found.seed) == ("idle", 0.0, False, 0)
    assert (found.custom, found.plugins, found.rules) == (None, (), ())
    assert found.durability == "fast"
    assert found.limits == Limits(active_jobs=10_000, jobs=100_000)
    assert [one.name for one in found.statistics] == [
        "variance",
        "mean",
        "iqr",
        "max",
        "min",
        "mad",
        "n",
    ]


def test_a_document_has_what_it_says() -> None:
    text = """\
name: mine
logging: {debug: true, heartbeat: 500ms}
jobs: [{name: a, command: b}]
custom: |
  def f(**kwargs): ...
plugins: [pkg.module]
metrics:
  - skew
  - ew_mean
  - {name: p90, statistic: quantile, q: 0.9}
limits: {active-jobs: 3}
finish: never
durability: strict
seed: 7
"""
    found = load_text(text, directory="/there")
    assert (found.name, found.debug, found.heartbeat) == ("mine", True, 0.5)
    assert (found.finish, found.seed, found.directory) == ("never", 7, "/there")
    assert found.durability == "strict"
    assert (found.custom, found.plugins) == ("def f(**kwargs): ...\n", ("pkg.module",))
    assert found.limits == Limits(active_jobs=3, jobs=100_000)
    assert found.statistics[-3:] == (
        Statistic("skew", "Skew"),
        Statistic("ew_mean", "EWMean"),
        Statistic("p90", "Quantile", {"q": 0.9}),
    )


def test_a_document_may_have_rules_alone() -> None:
    text = "rules: [{trigger: job-finish, scope: queue, action: {name: terminate}}]"
    assert load_text(text, name="test").groups == {}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"name": "given", "file": "dir/stem.yaml"}, "given"),
        ({"file": "dir/stem.yaml"}, "document"),
    ],
)
def test_the_name_given_goes_before_the_documents(given: dict[str, Any], name: str) -> None:
    assert load_text("name: document\njobs: [{name: a, command: b}]", **given).name == name


def test_the_name_is_the_files_stem_where_nothing_else_says_it() -> None:
    assert load_text("jobs: [{name: a, command: b}]", file="dir/stem.yaml").name == "stem"


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_every_trigger_is_one_and_an_alias_is_what_it_stands_for(trigger: str) -> None:
    needs: dict[str, dict[str, Any]] = {
        "metric": {"name": "count.echo.success"},
        "timer": {"after": 1},
        "time-left": {"below": 60},
        "drift": {"name": "echo-error", "detector": {"adwin": {}}},
        "anomaly": {"name": "echo-error", "detector": {"quantile": {}}},
    }
    found = rule(trigger=trigger, **needs.get(trigger, {}))
    assert found.trigger == TRIGGER_ALIASES.get(trigger, trigger)


def test_a_rule_has_defaults() -> None:
    assert rule(trigger="start") == Rule(
        id="rule-0", trigger="start", action=Action(name="terminate")
    )


def test_a_rule_has_what_it_says() -> None:
    found = rule(
        **{
            "id": "mine",
            "trigger": "job-memo",
            "group": "echo",
            "when": "fom > 3",
            "scope": "queue",
            "on-error": "retry",
            "enabled": False,
        }
    )
    assert found == Rule(
        id="mine",
        trigger="job-memo",
        action=Action(name="terminate"),
        group="echo",
        when="fom > 3",
        scope="queue",
        on_error="retry",
        enabled=False,
    )


def test_name_is_another_word_for_group_but_for_metrics() -> None:
    assert rule(trigger="job-finish", name="echo").group == "echo"
    assert rule(trigger="job-finish", name="echo").name is None
    assert rule(trigger="idle", name="echo").group == "echo"
    metric = rule(trigger="metric", name="mean.echo-duration", when="> 5.5")
    assert (metric.name, metric.group, metric.when) == ("mean.echo-duration", None, "> 5.5")


def test_with_scope_queue_a_group_is_any_name() -> None:
    assert rule(trigger="job-finish", group="theirs", scope="queue").group == "theirs"


def test_a_timer_has_durations() -> None:
    found = rule(trigger="timer", after="2m", every=0.5)
    assert (found.after, found.every) == (120.0, 0.5)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"name": "submit", "label": "echo", "count": 2, "params": {"x": [7]}},
            Action("submit", "echo", count=2, params={"x": [7]}),
        ),
        ({"name": "cancel"}, Action("cancel")),
        ({"name": "cancel", "label": "echo"}, Action("cancel", "echo")),
        ({"name": "terminate", "cancel": True}, Action("terminate", cancel=True)),
        ({"name": "grow"}, Action("grow", value=1)),
        ({"name": "shrink", "value": 2}, Action("shrink", value=2)),
        ({"name": "enable", "label": "rule-0"}, Action("enable", "rule-0")),
        ({"name": "disable", "label": "rule-0"}, Action("disable", "rule-0")),
        (
            {"name": "update", "label": "echo", "urgency": 31},
            Action("update", "echo", urgency=31),
        ),
        (
            {"name": "update", "label": "echo", "duration": "inf"},
            Action("update", "echo", duration=0.0),
        ),
        (
            {"name": "cancel", "repetitions": "unlimited", "backoff": 3, "cooldown": "30s"},
            Action("cancel", repetitions=None, backoff=3, cooldown=30.0),
        ),
        ({"name": "cancel", "repetitions": 3}, Action("cancel", repetitions=3)),
        (
            {"name": "custom", "label": "f", "timeout": "inf"},
            Action("custom", "f", timeout=0.0),
        ),
    ],
)
def test_actions_have_what_they_say(given: dict[str, Any], expected: Action) -> None:
    assert action(**given) == expected


@pytest.mark.parametrize("heartbeat", [{}, {"heartbeat": 0}])
@pytest.mark.parametrize("name", ["grow", "shrink"])
def test_there_is_a_heartbeat_where_a_rule_grows_or_shrinks(
    name: str, heartbeat: dict[str, Any]
) -> None:
    scaling = {"trigger": "start", "action": {"name": name}}
    assert spec(scaling, logging=heartbeat).heartbeat == 60.0
    assert spec(scaling, logging={"heartbeat": 3}).heartbeat == 3.0


def test_scaling_has_bounds_a_deadline_and_a_number_of_refusals() -> None:
    assert spec().settings["scaling"] == Scaling(1, None, 600.0, 3)
    given = {"min-nodes": 2, "max-nodes": 2, "deadline": "2m", "refusals": 1}
    assert spec(scaling=given).settings["scaling"] == Scaling(2, 2, 120.0, 1)


OLD_KEYS = """\
name: demo
jobs: [{name: a, command: x}]
rules: [{trigger: start, action: {name: submit, label: a}}]
scaling:
  deadline: 2m
  max-size: 8
  min-size: 2
"""


def test_old_keys_are_read_as_the_new_ones_with_one_warning_each() -> None:
    found = Warnings()
    old = load_text(OLD_KEYS, warnings=found, file="d.yaml")
    new = OLD_KEYS.replace("-size", "-nodes")
    assert old == load_text(new)
    assert found.warnings == [
        "d.yaml:6: scaling.max-size: 'max-size' is deprecated: use 'max-nodes'",
        "d.yaml:7: scaling.min-size: 'min-size' is deprecated: use 'min-nodes'",
    ]


def test_an_old_key_is_read_in_a_mapping_that_stays_as_it_is() -> None:
    value = {
        "name": "demo",
        "jobs": [{"name": "a", "command": "x"}],
        "scaling": {"max-size": 8},
    }
    kept = copy.deepcopy(value)
    assert load_mapping(value).settings["scaling"] == Scaling(1, 8, 600.0, 3)
    assert value == kept


def test_an_old_key_is_read_beside_what_use_makes() -> None:
    found = Warnings()
    used = OLD_KEYS.replace("command: x", "command: x, duration: 1h")
    used += "use: [{algorithm: retry-with-more, group: a, duration: {factor: 2, most: 4h}}]\n"
    spec = load_text(used, warnings=found)
    assert spec.settings["scaling"] == Scaling(2, 8, 120.0, 3)
    assert len([text for text in found.warnings if "deprecated" in text]) == 2
    assert spec.expansion is not None
    assert load_mapping(spec.expansion).settings == spec.settings


@pytest.mark.parametrize(
    ("scaling", "sentence"),
    [
        (
            "{max-size: 3, max-nodes: 4}",
            "d.yaml:2: scaling.max-size: 'max-nodes' is the new name of this key, and is there "
            "too: take one out",
        ),
        ("\n  max-size: 0", "d.yaml:3: scaling.max-size: expected an integer >= 1, not 0"),
        (
            "\n  max-size: 3\n  min-size: 4",
            "d.yaml:4: scaling.min-size: expected at most max-nodes, which is 3, not 4",
        ),
    ],
)
def test_what_is_wrong_with_an_old_key_is_said_where_it_is(scaling: str, sentence: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load_text(f"jobs: [{{name: a, command: x}}]\nscaling: {scaling}\n", file="d.yaml")
    assert str(caught.value) == sentence


@pytest.mark.parametrize("trigger", ["scale-done", "scale-denied"])
def test_a_rule_can_be_about_the_requests_of_one_rule(trigger: str) -> None:
    assert rule(trigger=trigger).name is None
    found = rule(trigger=trigger, name="rule-0", when="nodes.size > queue['pending-nodes']")
    assert (found.name, found.group, found.title) == ("rule-0", None, f"{trigger} rule-0")


def test_gauges_are_known_with_a_heartbeat() -> None:
    found = rule(trigger="metric", name="max.sleep-waiting", when="> 5")
    assert found.name == "max.sleep-waiting"


@pytest.mark.parametrize(
    "source",
    [
        "def f(**kwargs): ...",
        "async def f(**kwargs): ...",
        "f = lambda **kwargs: None",
        "from there import g as f",
        "import f.g",
        "from there import *",
        "try:\n    import x\nexcept ImportError:\n    def f(**kwargs): ...",
        "if True:\n    f = g = print",
        "(f, g) = print, print",
    ],
)
def test_a_custom_action_can_call_what_the_source_defines(source: str) -> None:
    found = spec({"trigger": "start", "action": {"name": "custom", "label": "f"}}, custom=source)
    assert found.rules[0].action == Action("custom", "f")


def test_an_expression_of_the_source_may_be_long() -> None:
    assert defined_names(f"f = {' + '.join(['1'] * 1200)}") == {"f"}


def test_source_is_read_without_running_it(tmp_path: Path) -> None:
    assert defined_names(f"open({str(tmp_path / 'x')!r}, 'w')\ndef f(): ...") == {"f"}
    assert not list(tmp_path.iterdir())


def test_what_plugins_define_is_not_known() -> None:
    custom = {"trigger": "start", "action": {"name": "custom", "label": "anything"}}
    assert spec(custom, plugins=["pkg.module"]).rules[0].action.label == "anything"


def test_entry_points_are_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\nplugged = plug:plugged\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert action(name="custom", label="plugged", timeout="2m").timeout == 120.0


def test_a_valid_document_costs_no_import_of_river() -> None:
    code = (
        "import sys; from flux_ensemble.document.loading import load_text\n"
        "load_text('jobs: [{name: a, command: b}]', name='test')\n"
        "assert 'river' not in sys.modules and 'jobspec' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_member_of_fixed_size_refuses_rules_that_scale() -> None:
    text = (
        "rules:\n"
        "  - {trigger: start, action: {name: grow}}\n"
        "  - {trigger: start, action: {name: terminate}}\n"
        "  - {trigger: start, action: {name: shrink}}\n"
    )
    assert len(load_text(text, file="d.yaml").rules) == 3
    with pytest.raises(DocumentError) as caught:
        load_text(text, file="d.yaml", elastic=False)
    needs = "needs an instance that can change its nodes, and this one has a fixed size"
    assert str(caught.value).splitlines() == [
        f"d.yaml:2: rules[0].action: 'grow' {needs}",
        f"d.yaml:4: rules[2].action: 'shrink' {needs}",
    ]


def test_an_action_of_a_function_is_read_as_one_of_the_document() -> None:
    value = {"name": "submit", "label": "echo", "params": {"x": 3}, "cooldown": "1m"}
    assert parse_action(value, spec(), []) == Action(
        "submit", "echo", params={"x": 3}, cooldown=60.0
    )
    assert parse_action({"name": "enable", "label": "r"}, spec(), ["r"]).label == "r"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "expected an action such as {name: submit, label: GROUP}, not null"),
        ({}, "the key 'name' is missing"),
        (
            {"name": "submit", "label": "amg", "cuont": 3},
            "cuont: unknown key 'cuont' (did you mean 'count'? keys: name, label, value, count, "
            "params, nodes, tasks, cores, gpus, duration, urgency, queue, bank, environment, "
            "workdir, attributes, jobs, near, state, reason, repetitions, backoff, cooldown, "
            "cancel, timeout); "
            "label: no job group named 'amg' (groups: echo, sleep)",
        ),
        (
            {"name": "submit", "label": "echo", "params": {"y": 3}},
            "params: group 'echo' has no parameter 'y' (parameters: x)",
        ),
        (
            {"name": "submit", "label": "echo", "count": float("inf")},
            "count: expected a finite number, not inf",
        ),
        ({"name": "enable", "label": "x"}, "label: no rule with the id 'x' (ids: r)"),
        ({"name": "custom", "label": "g"}, "label: no function named 'g' (functions: f)"),
    ],
)
def test_an_action_of_a_function_is_refused_in_a_sentence(value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_action(value, spec(custom="def f(): ..."), ["r"])
    assert str(caught.value) == sentence


def test_a_rule_of_a_function_is_read_as_one_of_the_document() -> None:
    value = {"trigger": "job-run", "name": "echo", "action": {"name": "terminate"}}
    expected = Rule("added-1", "job-start", Action("terminate"), group="echo")
    assert parse_rule(value, spec(), ["rule-0"], "added-1") == expected
    assert parse_rule({**value, "id": "own"}, spec(), ["rule-0"], "added-1").id == "own"


def test_a_rule_of_a_function_may_name_itself() -> None:
    value = {"trigger": "start", "action": {"name": "disable", "label": "added-1"}}
    assert parse_rule(value, spec(), [], "added-1").action.label == "added-1"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([], "expected a rule such as {trigger: start, action: {...}}, not a list with 0 items"),
        (
            {"trigger": "timer", "id": "r", "action": {"name": "submit"}},
            "id: the rule id 'r' is in use; "
            "action: the action 'submit' needs a 'label', a job group; "
            "the trigger 'timer' needs 'after' or 'every'",
        ),
        (
            {"trigger": "start", "id": "retry", "action": {"name": "terminate"}},
            "id: the rule id 'retry' is reserved (reserved: request, retry)",
        ),
        (
            {"trigger": "heartbeat", "action": {"name": "terminate"}},
            "trigger: there are no heartbeats: the heartbeat is off; set logging.heartbeat, "
            "such as 'logging: {heartbeat: 10s}'",
        ),
    ],
)
def test_a_rule_of_a_function_is_refused_in_a_sentence(value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_rule(value, spec(), ["r"], "added-1")
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0.0),
        (90, 90.0),
        (0.5, 0.5),
        ("90", 90.0),
        ("30s", 30.0),
        ("100ms", 0.1),
        ("5m", 300.0),
        ("1.5h", 5400.0),
        ("2d", 172800.0),
        ("1e3s", 1000.0),
        ("inf", 0.0),
        ("infinity", 0.0),
    ],
)
def test_durations_are_seconds_or_text(value: Any, seconds: float) -> None:
    assert parse_duration(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    [
        -1,
        "-1s",
        "",
        "s",
        "1 s",
        "1w",
        "1h30m",
        "nan",
        float("nan"),
        float("inf"),
        10**400,
        "1e999d",
        True,
        None,
        [1],
        "\u0661s",
    ],
)
def test_what_is_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(value)


def test_text_of_any_length_that_is_no_duration_is_refused_at_once_and_briefly() -> None:
    with pytest.raises(ValueError, match="expected a duration") as caught:
        parse_duration("1" * 10**6 + "x")
    assert len(str(caught.value)) < 200


def test_infinity_is_refused_where_the_duration_is_no_limit() -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration("inf", limit=False)
