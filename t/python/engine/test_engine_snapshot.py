"""Snapshots: an engine that is restored cannot be told from the one that was dumped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from play import (
    CallCustom,
    CancelJobs,
    CommandDone,
    CommandFailed,
    JobEvent,
    Play,
    Request,
    Started,
    SubmitJobs,
    Tag,
    document,
    on_start,
    submit,
)
from test_engine_properties import Histories

from flux_ensemble.document.loading import load_mapping, load_text
from flux_ensemble.document.model import Spec
from flux_ensemble.engine import jobs
from flux_ensemble.engine.codec import encode, event_from_json, to_json
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import Event
from flux_ensemble.engine.snapshot import FORMAT, dump, restore
from flux_ensemble.engine.status import status
from flux_ensemble.metrics.paths import MetricPath
from flux_ensemble.metrics.streams import Values
from flux_ensemble.runtime.recording import read_lines

TRACES = sorted((Path(__file__).parents[2] / "traces").glob("*.jsonl"))


def image(engine: Engine) -> str:
    """All that can be seen of an engine between two events, as text."""
    return json.dumps(
        {
            "snapshot": dump(engine),
            "status": status(engine),
            "metrics": engine.metrics(engine.t),
            "pending": [to_json(one) for one in engine.pending],
            "wants": sorted(engine.wants_events),
            "foreign": engine.wants_foreign,
            "idle": engine.idle,
        },
        allow_nan=False,
        sort_keys=True,
    )


class Cuts:
    """An engine that can be restored as it was before any event that it got here.

    Attributes:
        events: what it has handled.
        answers: the commands of each event, encoded.
        values: what the streams took in at each event.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.events: list[Event] = []
        self.answers: list[list[str]] = []
        self._images: list[str] = []
        self.values: list[Values] = []
        engine.stats.keep_values()

    def handle(self, event: Event) -> list[Any]:
        self._images.append(image(self.engine))
        commands = self.engine.handle(event)
        self.values.append(self.engine.stats.take_values())
        self.events.append(event)
        self.answers.append([encode(one) for one in commands])
        return commands

    def restored(self, cut: int) -> Engine:
        """The engine as it was before event number `cut`, through JSON."""
        found = json.loads(self._images[cut])["snapshot"]
        values = json.loads(json.dumps(self.values[:cut]))
        return restore(self.engine.spec, found, values)

    def check(self) -> None:
        """Every restored engine goes on as this one did."""
        for cut, before in enumerate(self._images):
            engine = self.restored(cut)
            engine.check()
            assert image(engine) == before
            for event, answer in zip(self.events[cut:], self.answers[cut:], strict=True):
                again = event_from_json(json.loads(encode(event)))
                assert [encode(one) for one in engine.handle(again)] == answer
            engine.check()
            assert image(engine) == image(self.engine)


class Restored(Histories):
    """The histories of the engine's properties, cut before each event."""

    cuts: Cuts | None = None

    def post(self, event: Event) -> list[Any]:
        if self.cuts is None:
            self.cuts = Cuts(self.engine)
            self.handle = self.cuts.handle
        return super().post(event)

    def teardown(self) -> None:
        if self.cuts is not None:
            self.cuts.check()


TestRestored = Restored.TestCase
TestRestored.settings = settings(
    max_examples=settings().max_examples // 2,
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_golden_recording_goes_on_from_any_cut(path: Path) -> None:
    lines = read_lines(path)
    _, header = next(lines)
    load: Any = load_text if isinstance(header["document"], str) else load_mapping
    spec = load(header["document"], name=header["name"], directory=header["directory"])
    cuts = Cuts(Engine(spec))
    for _, line in lines:
        cuts.handle(event_from_json(line["event"]))
    cuts.check()


def cut_play(given: dict[str, Any]) -> tuple[Play, Cuts]:
    """A play whose engine can be restored as it was before any event."""
    play = Play(given, start=False)
    cuts = Cuts(play.engine)
    play.handle = cuts.handle
    play.post(Started(play.t))
    return play, cuts


CUSTOM = {"name": "custom", "label": "f", "repetitions": "unlimited"}
CALLS = document(
    custom="def f(**kwargs): ...\n",
    rules=[
        on_start(),
        {"id": "call", "trigger": "job-start", "action": CUSTOM, "on-error": "retry"},
    ],
)


def state(engine: Engine) -> dict[str, Any]:
    """The state in the engine's snapshot, as plain JSON."""
    found: dict[str, Any] = json.loads(json.dumps(dump(engine)))["state"]
    return found


def test_what_a_pause_holds_is_restored() -> None:
    play, cuts = cut_play(CALLS)
    for job in (1, 2):
        play.begin(job)
    failing, returning = play.of(CallCustom)
    play.failed(failing)
    play.request("pause")
    play.timer("retry:call:0")
    play.done(returning, returned=[{"kind": "action", "value": submit("b")}])
    held = state(play.engine)["actions"]["held"]
    assert [origin[:2] for origin, _ in held] == [["call", 0], ["call", 1]]
    play.request("resume")
    assert play.submitted("b") == 1
    assert len(play.of(CallCustom)) == 3
    cuts.check()


def test_a_call_that_is_to_be_tried_again_is_restored() -> None:
    play, cuts = cut_play(CALLS)
    play.begin(1)
    for attempt in range(3):
        play.failed(play.of(CallCustom)[-1])
        assert state(play.engine)["actions"]["retries"][0][2]["attempt"] == attempt + 1
        play.timer("retry:call:0")
    play.failed(play.of(CallCustom)[-1])
    assert not play.engine.rules.states["call"].enabled
    cuts.check()


def test_a_rule_of_a_custom_function_is_restored_as_it_was() -> None:
    play, cuts = cut_play(CALLS)
    play.begin(1)
    rule = {
        "id": "extra",
        "trigger": "metric",
        "name": "mean.a-duration",
        "when": "> 0",
        "enabled": False,
        "on-error": "fail",
        "action": submit("b", repetitions="unlimited", cooldown=2, backoff=1),
    }
    plain = {"trigger": "timer", "every": "5s", "action": submit("b")}
    returned = [{"kind": "rule", "value": one} for one in (rule, plain)]
    play.done(play.of(CallCustom)[0], returned=returned)
    play.end(1)
    engine = cuts.restored(len(cuts.events) - 1)
    assert engine.rules.states["extra"].rule == play.engine.rules.states["extra"].rule
    assert engine.rules.states["extra"].rule.enabled is False
    play.request("rules", id="extra", enabled=True)
    play.run(2)
    play.timer("rule:rule-3")
    assert play.submitted("b") == 2
    cuts.check()


def test_jobs_of_others_are_restored_with_what_they_have_been_through() -> None:
    rules = [on_start(), {"trigger": "job-cancel", "scope": "queue", "action": submit("b")}]
    play, cuts = cut_play(document(rules=rules))
    play.foreign(99, "start")
    play.foreign(99, "exception", type="cancel", severity=0)
    columns = state(play.engine)["foreign"]
    assert columns["id"] == [99]
    assert columns["group"] == ["x"]
    play.foreign(99, "finish", status=15)
    assert play.submitted("b") == 1
    cuts.check()


def test_overrides_of_a_submission_are_restored() -> None:
    group = {"name": "a", "command": "echo {x}", "params": {"x": [1, 2]}, "retries": 2}
    given = document(
        jobs=[group],
        rules=[{"trigger": "timer", "every": 5, "action": submit("a", params={"x": [7, 8, 9]})}],
        limits={"active-jobs": 1},
    )
    play, cuts = cut_play(given)
    play.timer("rule:rule-0")
    for job in (1, 2, 3):
        play.run(job, status=1)
    more = [more for _, more in state(play.engine)["workload"]["firings"]["more"]]
    assert {"params": {"x": [7, 8, 9]}, "attempt": 1} in more
    cuts.check()


def test_jobs_that_a_refused_submission_left_behind_are_restored() -> None:
    play, cuts = cut_play(document(finish="never"))
    play.accept = False
    play.post(Request(play.tick(), 5, "submit", {"group": "a", "count": 3}))
    (command,) = play.of(SubmitJobs)
    play.post(CommandFailed(play.tick(), command.id, "EIO", "no", ids=(1,)))
    late = Tag("a", command.rule, command.firing, 2)
    assert play.engine.expects(late)
    play.post(JobEvent(play.tick(), 3, "submit", {}, late))
    assert not play.engine.expects(late)
    cuts.check()


def test_commands_without_an_outcome_are_pending_in_the_order_of_their_ids() -> None:
    play, cuts = cut_play(CALLS)
    play.accept = False
    play.begin(2)
    play.begin(1)
    play.post(Request(play.tick(), 5, "cancel", {"group": "a"}))
    pending = play.engine.pending
    assert [type(one) for one in pending] == [CallCustom, CallCustom, CancelJobs]
    assert [one.id for one in pending] == sorted(one.id for one in pending)
    play.post(CommandDone(play.tick(), pending[1].id))
    engine = cuts.restored(len(cuts.events) - 1)
    assert engine.pending == pending
    assert play.engine.pending == [pending[0], pending[2]]


def test_no_values_are_kept_unless_asked_for() -> None:
    play = Play(document(rules=[on_start()]))
    play.begin(1)
    assert play.engine.stats.take_values() == []
    play.engine.stats.keep_values()
    play.end(1)
    ((group, variable, (value,)),) = play.engine.stats.take_values()
    assert (group, variable) == ("a", "duration")
    assert value == play.engine.stats.lookup(MetricPath("max", "a", "duration"))
    assert play.engine.stats.take_values() == []


def dumped() -> tuple[Spec, dict[str, Any], list[Values]]:
    """A document, a snapshot with some of everything, and the values beside it."""
    play, cuts = cut_play(CALLS)
    play.begin(1)
    play.event(1, "memo", x=0.5)
    play.end(1)
    play.begin(2)
    found = json.loads(json.dumps(dump(play.engine)))
    return play.engine.spec, found, cuts.values


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)


@given(st.data())
def test_a_snapshot_that_is_damaged_anywhere_is_refused(data: Any) -> None:
    spec, snapshot, values = dumped()
    before = json.dumps(snapshot, sort_keys=True)
    part: Any = snapshot
    key: Any = data.draw(st.sampled_from(["state", "digest"]))
    while isinstance(part[key], (dict, list)) and part[key] and data.draw(st.integers(0, 3)):
        part = part[key]
        keys = sorted(part) if isinstance(part, dict) else range(len(part))
        key = data.draw(st.sampled_from(keys))
    if data.draw(st.booleans()):
        del part[key]
    else:
        part[key] = data.draw(JSON)
    assume(json.dumps(snapshot, sort_keys=True) != before)
    with pytest.raises(ValueError, match="the snapshot is damaged"):
        restore(spec, snapshot, values)


def test_a_snapshot_does_not_depend_on_the_order_of_keys() -> None:
    spec, snapshot, values = dumped()
    turned = json.loads(json.dumps(snapshot, sort_keys=True))
    assert dump(restore(spec, turned, values))["digest"] == snapshot["digest"]


@pytest.mark.parametrize("given", [None, [], "text", {}, {"state": {}}])
def test_what_is_no_snapshot_is_refused(given: Any) -> None:
    spec, _, values = dumped()
    with pytest.raises(ValueError, match="expected a snapshot of an engine"):
        restore(spec, given, values)


def test_a_snapshot_of_another_format_is_refused() -> None:
    spec, snapshot, values = dumped()
    snapshot["format"] = FORMAT + 1
    with pytest.raises(ValueError, match=f"of format {FORMAT + 1}, and this version reads"):
        restore(spec, snapshot, values)


@pytest.mark.parametrize(
    "changes",
    [
        {"jobs": [{"name": "a", "command": "true"}]},
        {"rules": [on_start()]},
        {"rules": [on_start(), {**CALLS["rules"][1], "action": {**CUSTOM, "repetitions": 1}}]},
        {"rules": [{**one, "id": f"r{n}"} for n, one in enumerate(CALLS["rules"])]},
    ],
    ids=["group", "rule", "repetitions", "id"],
)
def test_a_snapshot_of_another_document_is_refused(changes: dict[str, Any]) -> None:
    _, snapshot, values = dumped()
    said = r"^the snapshot does not fit ensemble 'test' \(\w+Error: .+\); expected the document"
    with pytest.raises(ValueError, match=said):
        restore(load_mapping({**CALLS, **changes}), snapshot, values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "the stream 'a-duration' of the snapshot had 1 values, and the values .* hold 0"),
        ([[["a", "y", [1]]]], "the stream 'a-duration' of"),
        ([[["c", "x", [1]]]], "no stream 'c', 'x'"),
        ([[["a", 5, [1]]]], "no stream 'a', 5"),
        ([[["a", "x", ["1"]]]], "'1' is not a finite number"),
        ([[["a", "x", [True]]]], "True is not a finite number"),
        ([[["a", "x", [float("inf")]]]], "inf is not a finite number"),
        ([[["a", "x"]]], "the values beside the snapshot are damaged"),
        ([5], "the values beside the snapshot are damaged"),
    ],
)
def test_values_that_do_not_belong_to_a_snapshot_are_refused(values: Any, message: str) -> None:
    spec, snapshot, _ = dumped()
    with pytest.raises(ValueError, match=message):
        restore(spec, snapshot, values)


def test_a_snapshot_stays_as_it_is_when_the_engine_goes_on() -> None:
    play = Play(CALLS)
    play.event(1, "submit")
    play.event(1, "depend")
    snapshot = dump(play.engine)
    before = json.dumps(snapshot)
    play.event(1, "depend")
    play.event(1, "validate")
    play.run(2)
    assert json.dumps(snapshot) == before
    assert json.dumps(dump(play.engine)) != before


def test_what_is_shown_or_recorded_of_a_job_is_stored_while_it_is_active() -> None:
    stored = {*jobs._COLUMNS, *jobs._UNUSUAL}
    job = jobs.ActiveJob(1, "a", None, 0, 0.0)
    for name in {*jobs.FIELDS.values(), *jobs.RECORDED} - stored:
        # It follows from what is stored, so it cannot be set.
        with pytest.raises(AttributeError):
            setattr(job, name, getattr(job, name))
