"""What a custom function keeps from call to call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from caller_bench import KWARGS, Make, benches

from flux_ensemble.runtime.custom.state import MAX_STATE

COUNT = "def f(state, **kwargs): state['calls'] = state.get('calls', 0) + 1\n"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path) as make:
        yield make


def test_what_a_function_leaves_is_there_at_its_next_call(bench: Make) -> None:
    results = bench(COUNT).calls("f", "f", "f")
    assert [result.state for result in results] == [{"calls": 1}, {"calls": 2}, {"calls": 3}]


def test_each_function_has_a_state_of_its_own(bench: Make) -> None:
    worker = bench(COUNT + "def g(state, **kwargs): state['name'] = 'g'\n")
    first, second, third = worker.calls("f", "g", "f")
    assert (first.state, second.state, third.state) == ({"calls": 1}, {"name": "g"}, {"calls": 2})


def test_it_goes_on_from_what_was_kept_before(bench: Make) -> None:
    assert bench(COUNT, states={"f": {"calls": 41}}).call().state == {"calls": 42}


def test_a_state_that_did_not_change_is_not_reported(bench: Make) -> None:
    worker = bench("def f(state, **kwargs): state.get('x')", states={"f": {"x": 1}})
    assert worker.call().state is None


def test_a_function_without_a_parameter_for_it_is_called_as_before(bench: Make) -> None:
    source = "def f(metrics, event, rule, action, handle, ensemble): pass"
    assert bench(source).call().ok


def test_a_call_that_failed_changes_nothing(bench: Make) -> None:
    source = (
        "def f(state, **kwargs):\n"
        "    state['calls'] = state.get('calls', 0) + 1\n"
        "    if state['calls'] == 2 and 'once' not in state: raise ValueError('no')\n"
        "def g(state, **kwargs): state['once'] = True\n"
    )
    worker = bench(source)
    assert worker.call().state == {"calls": 1}
    assert worker.failure()[0] == "custom function 'f' raised ValueError: no"
    assert worker.failure()[0] == "custom function 'f' raised ValueError: no"


def test_it_outlives_the_process(bench: Make) -> None:
    worker = bench(COUNT + "import os\ndef end(**kwargs): os._exit(1)\n")
    assert worker.call().state == {"calls": 1}
    assert not worker.call("end").ok
    assert worker.call().state == {"calls": 2}


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("state['x'] = object()", "left a state that is not JSON: Object of type object"),
        ("state['x'] = float('nan')", "left a state that is not JSON: Out of range float"),
        ("state['x'] = state", "left a state that is not JSON: Circular reference"),
        ("state['x'] = 'x' * 70_000", "left a state of 70009 bytes of JSON, more than 65536"),
    ],
)
def test_a_state_that_cannot_be_kept_is_a_failure(bench: Make, statement: str, reason: str) -> None:
    worker = bench(f"def f(state, **kwargs): {statement}\n" + COUNT.replace("f(", "g("))
    assert worker.failure()[0].startswith(f"custom function 'f' {reason}")
    assert worker.call("g").state == {"calls": 1}


def test_the_largest_state_is_kept(bench: Make) -> None:
    size = MAX_STATE - len('{"x": ""}')
    result = bench(f"def f(state, **kwargs): state['x'] = 'x' * {size}").call()
    assert result.ok
    assert result.state == {"x": "x" * size}


def test_a_forged_state_is_refused(bench: Make) -> None:
    source = (
        "import os, json\n"
        "def f(**kwargs):\n"
        "    answer = {'call': 1, 'ok': True, 'returned': [], 'state': [1]}\n"
        "    os.write(100, json.dumps(answer).encode() + b'\\n')\n"
    )
    reason, _ = bench(source).failure()
    assert "state: expected a mapping, not a list with 1 item" in reason


def test_metrics_can_be_read_as_those_of_the_predecessor(bench: Make) -> None:
    source = (
        "def f(metrics, **kwargs):\n"
        "    return Action(mean=metrics.models['mean']['sleep-duration'].get(),\n"
        "        done=metrics.models['count']['sleep']['success'].get())\n"
    )
    assert bench(source).call().returned[0]["value"] == {"mean": 1.5, "done": 3}


def test_paths_of_the_job_are_absolute(
    bench: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = {"name": "finish", "workdir": "run", "output": "out.txt"}
    monkeypatch.setitem(KWARGS, "event", event)
    result = bench("def f(event, **kwargs): return Action(event)").call()
    assert result.returned[0]["value"] == {
        "name": "finish",
        "workdir": str(tmp_path / "run"),
        "output": str(tmp_path / "run" / "out.txt"),
    }
