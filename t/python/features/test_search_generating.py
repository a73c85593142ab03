"""Generators of gest-api: what they are told, what is taken from them, and what they do wrong."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy
import pytest
from local_queue import children, command_of
from simulations import predict
from test_search_asking import ONE, TWO, VARIABLES, Asked, Bench, bench

from flux_ensemble.features.search.advisers import described
from flux_ensemble.features.search.generator import GeneratorError
from flux_ensemble.features.search.model import Generator, Search, Stop, Variable
from flux_ensemble.features.search.suggester import suggesting
from flux_ensemble.features.search.trials import STATE
from flux_ensemble.features.search.vocs import Choices, vocs_of

pytest.importorskip("gest_api")
pytest.importorskip("scipy")

KINDS = (*VARIABLES[:2], Variable("kind", choices=("p", "q", "r")))
GOOD = "{'x': 0.5, 'n': 1, 'kind': 'p'}"


def search(name: str, arguments: Any = None, **given: Any) -> Search:
    """A search with the generator `generators:NAME`."""
    generator = Generator(f"generators:{name}", arguments or {}, given.pop("initial", 1))
    given = {"objectives": ONE, "trials": 10_000, "variables": KINDS, **given}
    return Search("hpo", "a", sampler="generator", generator=generator, **given)


def bad(how: str, **given: Any) -> Search:
    return search("Bad", {"how": how}, initial=0, **given)


def told(asked: Asked) -> list[dict[str, Any]]:
    """What the generator knows."""
    results: list[dict[str, Any]] = asked.sampling._generator.told
    return results


def refusal(given: Search) -> str:
    """Why there are no points."""
    with pytest.raises(GeneratorError) as caught:
        Asked(given).ask()
    return caught.value.reason


def test_a_generator_is_told_of_variables_and_objectives_as_the_standard_has_them() -> None:
    vocs = vocs_of(described(search("Learner", objectives=TWO), 7))
    assert vocs.variable_names == ["x", "n", "kind"]
    assert vocs.variables["x"].domain == [1e-4, 1.0]
    assert (vocs.variables["n"].domain, vocs.variables["n"].dtype) == ([1, 8], int)
    assert vocs.variables["kind"].values == {"p", "q", "r"}
    assert {name: type(one).__name__ for name, one in vocs.objectives.items()} == {
        "loss": "MinimizeObjective",
        "gain": "MaximizeObjective",
    }


def test_choices_have_the_order_of_the_document_in_each_process() -> None:
    names = [f"choice {number}" for number in range(50)]
    assert list(Choices(names)) == names
    assert numpy.array(list(Choices(names))).tolist() == names
    assert Choices(names) == set(names)


def test_points_before_there_are_results_are_those_of_a_sobol_sequence() -> None:
    asked = Asked(search("Learner", initial=3))
    qmc = Asked(Search("hpo", "a", KINDS, ONE, sampler="qmc", trials=100)).ask(20)
    assert asked.ask(4) == qmc[:4]
    asked.end(0)
    asked.end(1)
    assert asked.ask(2) == qmc[4:6]
    asked.end(2)
    assert asked.ask(2) != qmc[6:8]
    assert [result["loss"] for result in told(asked)] == [
        asked.trials.all[number].value for number in range(3)
    ]


def test_points_before_there_are_results_are_all_different_or_there_are_fewer() -> None:
    variables = (Variable("n", 1, 2, integer=True), Variable("kind", choices=("p", "q")))
    points = Asked(search("Learner", variables=variables, initial=20)).ask(10)
    assert {tuple(point.values()) for point in points} == {(n, k) for n in (1, 2) for k in "pq"}
    assert len(points) == 4


def test_a_point_of_the_user_that_lacks_values_has_those_that_it_has() -> None:
    asked = Asked(search("Learner", initial=0))
    asked.trials.give([{"n": 8}, {"kind": "r"}])
    first, second = asked.ask(2)
    assert (first["n"], second["kind"]) == (8, "r")


def test_a_point_of_the_user_may_be_one_that_was_tried_before() -> None:
    variables = (Variable("n", 1, 3, integer=True), Variable("kind", choices=("p",)))
    asked = Asked(search("Learner", initial=0, variables=variables))
    for _ in range(2):
        asked.trials.give([{"n": 2}])
        assert asked.ask() == [{"n": 2, "kind": "p"}]


@pytest.mark.parametrize("draw", ["random", "numpy.random"])
def test_a_generator_that_draws_from_the_process_gives_the_same_points_with_the_same_seed(
    draw: str,
) -> None:
    number = f"__import__('importlib').import_module('{draw}').uniform(0.1, 0.9)"
    first, same, other = [
        Asked(bad(f"[{{'x': {number}, 'n': 1, 'kind': 'p'}}]"), seed).ask() for seed in (7, 7, 8)
    ]
    assert first == same != other


def test_a_simulation_of_a_generator_has_the_same_points_with_the_same_seed() -> None:
    document = {
        "name": "hpo",
        "search": [
            {
                "id": "hpo", "group": "a", "variables": {"x": {"low": 0, "high": 1}},
                "minimize": "loss", "trials": 3, "generator": "generators:Learner",
            }
        ],
        "jobs": [{"name": "a", "command": "a {x}"}],
        "rules": [{"trigger": "start", "action": {"name": "search", "label": "hpo"}}],
        "simulate": {"a": {"duration": 60, "memo": {"loss": {"expression": "x"}}}},
    }  # fmt: skip
    first, same, other = [
        predict(document, seed=seed).status["searches"][0]["best"] for seed in (7, 7, 8)
    ]
    assert first == same != other


def test_failed_trials_and_those_stopped_early_are_withheld() -> None:
    asked = Asked(search("Learner", stop=Stop("asha", "epoch")))
    asked.run(30, 1)
    states = [trial.state for trial in asked.trials.all]
    assert {"complete", "failed", "pruned"} <= set(states)
    assert [result["x"] for result in told(asked)] == [
        asked.trials.all[number].params[0]
        for number in asked.trials.ended
        if states[number] == "complete"
    ]


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("name", ["Learner", "Kept"])
def test_a_new_process_that_is_told_of_all_trials_goes_on_as_the_one_before(
    name: str, slots: int
) -> None:
    given = search(name, parallel=slots)
    straight = Asked(given).run(40, slots)
    assert Asked(given).run(40, slots, again=3) == straight
    assert Asked(given, seed=8).run(40, slots) != straight
    assert [given.objection(point) for point in straight] == [None] * 40


def test_what_a_generator_gives_besides_the_variables_comes_back_with_the_result() -> None:
    asked = Asked(bad("[{'x': 0.001 * (1 + len(self.told)), 'n': 1, 'kind': 'p', '_id': 'a', "
                      "'score': __import__('numpy').float32(0.5)}]"))  # fmt: skip
    asked.ask()
    asked.end(0)
    asked.ask()
    (result,) = told(asked)
    assert (result["_id"], result["score"], result["n"]) == ("a", 0.5, 1)
    assert type(result["score"]) is float


def test_a_generator_that_did_not_give_a_point_is_not_told_what_it_was_called() -> None:
    asked = Asked(search("Kept"))
    asked.ask()
    asked.end(0)
    for number in (1, 2, 3):
        asked.ask()
        asked.end(number)
    asked.ask()
    assert [result.get("_id") for result in told(asked)] == [None, 1, 2, 3]
    # The state is gone, as when the points that had it were dropped.
    for trial in asked.trials.all:
        trial.attributes = {
            key: one for key, one in (trial.attributes or {}).items() if key != STATE
        }
    asked.anew()
    asked.ask()
    assert [result.get("_id") for result in told(asked)] == [None] * 4


def test_of_the_states_of_a_generator_the_last_one_is_kept() -> None:
    asked = Asked(search("Kept"))
    asked.run(10, 1)
    kept = [trial.number for trial in asked.trials.all if STATE in (trial.attributes or {})]
    assert kept == [9]
    assert sum("keys" in (trial.attributes or {}) for trial in asked.trials.all) == 9


def test_scalars_of_numpy_and_values_that_were_rounded_are_those_of_the_variables() -> None:
    how = ("[{'x': numpy.float64(1.0000001), 'n': numpy.array([2.6]), 'kind': numpy.str_('q')}]"
           ).replace("numpy", "__import__('numpy')")  # fmt: skip
    (point,) = Asked(bad(how)).ask()
    assert point == {"x": 1.0, "n": 3, "kind": "q"}
    assert [type(value) for value in point.values()] == [float, int, str]


def test_a_point_that_is_there_already_is_left_out_and_another_one_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = Asked(bad(f"[{GOOD}] * n"))
    assert asked.ask(3) == [{"x": 0.5, "n": 1, "kind": "p"}]
    assert "points that the search has already are left out: 6\n" in capsys.readouterr().out
    # Nothing else comes, so the search has no more points.
    assert asked.ask() == []
    learner = Asked(search("Learner", initial=0, variables=(Variable("n", 1, 3, integer=True),)))
    points = [learner.ask() for _ in range(6)]
    given = [point["n"] for found in points for point in found]
    assert len(given) == len(set(given))


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("1 / 0", "raised ZeroDivisionError: division by zero in 'suggest'"),
        ("sys.exit(3)", "called sys.exit(3) in 'suggest'"),
        ("None", "gave no list of points, but null"),
        (f"[{GOOD}] * 10**6", "gave 1000000 points, and was asked for 1; the search's 'batch' "),
        ("[5]", "gave point 0, which is no mapping, but 5"),
        ("[{'x': 0.5, 'n': 1}]", "gave point 0 without 'kind'; the variables are 'x', 'n', 'kind'"),
        ("[{'x': float('nan'), 'n': 1, 'kind': 'p'}]",
         "gave point 0: x: expected a number >= 0.0001 and <= 1.0, not nan"),
        ("[{'x': 1.5, 'n': 1, 'kind': 'p'}]",
         "gave point 0: x: expected a number >= 0.0001 and <= 1.0, not 1.5"),
        ("[{'x': 0.5, 'n': 'many', 'kind': 'p'}]",
         "gave point 0: n: expected an integer >= 1 and <= 8, not 'many'"),
        ("[{'x': 0.5, 'n': 1, 'kind': 'z'}]",
         "gave point 0: kind: expected one of 'p', 'q', 'r', not 'z'"),
        ("[{'x': 0.5, 'n': 1, 'kind': 'p', 'more': 'm' * 5000}]",
         "gave point 0, and what is no variable in it is 5012 bytes of JSON, more than 4096"),
        ("[{'x': 0.5, 'n': 1, 'kind': 'p', 'more': self}]",
         "gave point 0, and what is no variable in it is no JSON"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_its_points_is_said(how: str, reason: str) -> None:
    assert refusal(bad(how)).startswith(reason)


def test_nothing_is_no_error_but_the_end_of_the_points() -> None:
    assert Asked(bad("[]")).ask(5) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere:Learner", "is not there: there is no module 'nowhere' where flux-ensemble is "
         "installed, in PYTHONPATH or in the document's directory"),
        ("generators:Lerner", "is not there: 'generators' has no 'Lerner' (did you mean 'Learner'? "
         "classes: "),
        ("generators:Silent", "is no generator of gest-api: it has no method 'suggest'"),
        ("generators:no_class", "raised TypeError"),
        ("json:__name__", "is no class, but 'json'"),
    ],
)  # fmt: skip
def test_a_generator_that_is_none_is_refused(name: str, reason: str) -> None:
    given = search("Learner", initial=0)
    assert given.generator is not None
    object.__setattr__(given.generator, "name", name)
    assert refusal(given).startswith(reason)


def test_a_generator_that_is_not_there_is_refused_before_its_first_point_is_needed() -> None:
    given = search("Learner", initial=5)
    assert given.generator is not None
    object.__setattr__(given.generator, "name", "generators:Lerner")
    assert refusal(given).startswith("is not there: 'generators' has no 'Lerner'")


def test_a_state_that_cannot_be_kept_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import generators

    monkeypatch.setattr(generators.Kept, "dump", lambda self: {"model": "m" * 100_000})
    assert refusal(search("Kept", initial=0)).startswith("gave a state of 100013 bytes")


def test_a_generator_that_failed_is_made_anew_and_told_all_again() -> None:
    asked = Asked(search("Learner"))
    asked.run(6, 1)
    generator = asked.sampling._generator
    before = list(generator.told)
    generator.suggest = lambda n: None
    asked.end(5)
    with pytest.raises(GeneratorError):
        asked.ask()
    request = {"count": 1, "points": [], "attributes": {}, "ends": []}
    assert len(asked.sampling.answer(request)["points"]) == 1
    assert told(asked) is not generator.told
    assert told(asked)[: len(before)] == before
    assert len(told(asked)) == len(before) + 1


# -- in a process of its own --------------------------------------------------------


@pytest.fixture(autouse=True)
def _helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "helpers"))


def test_what_it_prints_is_logged_and_its_failure_has_a_traceback_of_its_own_code(
    tmp_path: Path,
) -> None:
    how = f"print('{{}} not JSON') or sys.stdout.flush() or [{GOOD}]"
    with bench(bad(how), tmp_path) as made:
        assert made.ask().ok
        assert "search: {} not JSON" in made.lines
    with bench(bad("1 / 0"), tmp_path) as made:
        advice = made.ask()
        assert advice.reason == (
            "search 'hpo': its generator 'generators:Bad' raised ZeroDivisionError: division by "
            "zero in 'suggest'"
        )
        assert advice.detail.splitlines()[1].startswith(f'  File "{Path(__file__).parents[1]}')


def test_one_that_sleeps_for_ever_or_leaves_is_ended_and_said(tmp_path: Path) -> None:
    with bench(search("Bad", {"how": "time.sleep(1000)"}, timeout=1.0), tmp_path) as made:
        # The first point is not asked of it; so the process is there then.
        made.asker._search = search("Bad", timeout=60.0)
        assert made.ask().ok
        Asked.end(made, 0)  # type: ignore[arg-type]
        made.asker._search = search("Bad", timeout=0.5)
        said = "its generator 'generators:Bad' was ended after 0.5 s, its 'timeout'"
        assert said in made.ask().reason
    with bench(bad("os._exit(3)"), tmp_path) as made:
        assert "its generator 'generators:Bad' exited with status 3" in made.ask().reason


def test_one_that_is_killed_in_mid_ask_is_followed_by_one_with_the_same_points(
    tmp_path: Path,
) -> None:
    (tmp_path / "go-on").touch()
    given = search("Waits")
    expected = Asked(search("Learner")).run(8, 1)
    with bench(given, tmp_path) as made:
        points = [one(made, number) for number in range(4)]
        (tmp_path / "go-on").unlink()
        made.begin()
        made.loop.run(lambda: (tmp_path / "asked").exists() or not looks_again(made))
        kill()
        made.loop.run(lambda: bool(made.advice))
        assert "was killed by signal 9" in made.advice.pop().reason
        (tmp_path / "go-on").touch()
        points += [one(made, number) for number in range(4, 8)]
    # No seventh trial has ended, so all are complete.
    assert points[:7] == expected[:7]


def looks_again(made: Bench) -> bool:
    """Have the loop turn, though nothing happens in it."""
    made.loop.timer(0.02, lambda: None)
    return True


def kill() -> None:
    """Kill the process of the generator."""
    (pid,) = [pid for pid in children(os.getpid()) if b"child.py" in command_of(pid)]
    os.kill(pid, signal.SIGKILL)


def one(made: Bench, number: int) -> dict[str, Any]:
    """The next point, whose trial ends."""
    (point,) = made.ask().points
    Asked.end(made, number)  # type: ignore[arg-type]
    params: dict[str, Any] = point["params"]
    return params


def test_after_points_were_dropped_the_generator_is_a_new_one(tmp_path: Path) -> None:
    begin = "print('begins', flush=True)"
    how = "[{'x': 0.001 * (i + 1), 'n': 1, 'kind': 'p'} for i in range(n)]"
    arguments = {"how": how, "begin": begin}
    with bench(search("Bad", arguments, initial=0), tmp_path) as made:
        made.ask(2)
        made.ask(1)
        assert made.lines.count("search: begins") == 1
        made.trials.drop_stock()
        made.ask(1)
        assert made.lines.count("search: begins") == 2


def test_the_search_of_a_generator_is_described_as_json() -> None:
    text = json.dumps(described(search("Learner", {"reach": 0.2}), 7))
    assert suggesting(json.loads(text)) is not None
    assert '"class": "generators:Learner", "arguments": {"reach": 0.2}' in text
