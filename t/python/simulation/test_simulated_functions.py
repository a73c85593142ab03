"""A simulation calls the functions of flux-ensemble's own algorithms, and no others."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flux_ensemble.queues.simulation.functions import Caller, SimulatedResult

SOURCE = """
def count(event, state, **kwargs):
    print("not printed")
    state["calls"] = state.get("calls", 0) + 1
    return Action(name="terminate", reason=str(state["calls"]))

def fail(**kwargs):
    raise KeyError("x")
"""


def called(caller: Caller, function: str) -> SimulatedResult:
    results: list[Any] = []
    caller.call(function, {"event": {}}, 60.0, results.append)
    (result,) = results
    assert isinstance(result, SimulatedResult)
    return result


def test_our_own_are_called_and_keep_their_state(capsys: Any) -> None:
    caller = Caller(SOURCE, Counter())
    for number in (1, 2):
        result = called(caller, "count")
        value = {"name": "terminate", "reason": str(number)}
        assert result.returned == [{"kind": "action", "value": value}]
        assert result.state == {"calls": number}
    assert capsys.readouterr().out == ""


def test_one_that_raises_has_failed() -> None:
    result = called(Caller(SOURCE, Counter()), "fail")
    assert (result.ok, result.reason) == (False, "custom function 'fail' raised KeyError: 'x'")


def test_others_are_counted() -> None:
    calls: Counter[str] = Counter()
    for source in (SOURCE, None):
        assert called(Caller(source, calls), "other") == SimulatedResult()
    assert calls == {"other": 2}
