"""Early stopping: which trials are stopped, and that Optuna's pruners would stop the same ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from play import CancelJobs, search_state, submit
from test_search import Search, searching

from flux_ensemble.engine.events import Interrupted
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.features.search import model
from flux_ensemble.features.search.early_stop import MEDIAN_OF, EarlyStop, Percentile, stopping
from flux_ensemble.features.search.model import Objective, Stop

ASHA = {"policy": "asha", "step": "epoch", "eta": 2}
MEDIAN = {"policy": "median", "step": "epoch", "trials": 2}
PERCENTILE = {"policy": "percentile", "step": "epoch", "trials": 2, "percentile": 10}
HYPERBAND = {"policy": "hyperband", "step": "epoch", "to": 2, "eta": 2}
PATIENCE = {"policy": "patience", "step": "epoch", "patience": 0}
THRESHOLD = {"policy": "threshold", "step": "epoch", "upper": 0.8}
POLICIES = [ASHA, MEDIAN, PERCENTILE, HYPERBAND, PATIENCE, THRESHOLD]


def curves(trials: int, steps: int) -> list[list[float]]:
    """What each trial publishes at each step; some values are the same, and sums are exact."""
    draw = random.Random(7)
    return [
        [int(64 * (draw.random() / (step + 1) + draw.random() / 4)) / 64 for step in range(steps)]
        for _ in range(trials)
    ]


def interleaved(trials: int, steps: int, slots: int) -> Iterator[tuple[int, int]]:
    """Trial and step of what is published, in an order that slots give."""
    draw = random.Random(3)
    waiting = list(range(trials - 1, -1, -1))
    active: dict[int, int] = {}
    while waiting or active:
        while waiting and len(active) < slots:
            active[waiting.pop()] = 0
        number = draw.choice(sorted(active))
        active[number] += 1
        yield number, active[number]
        if active[number] == steps:
            del active[number]


#: Each with the pruner of Optuna that decides as it does.
PRUNERS: dict[Stop, Callable[[Any], Any]] = {
    Stop("asha", "n", 1, eta=3): lambda of: of.SuccessiveHalvingPruner(1, 3),
    Stop("asha", "n", 2, eta=2): lambda of: of.SuccessiveHalvingPruner(2, 2),
    Stop("median", "n", 3, trials=4): lambda of: of.MedianPruner(4, n_warmup_steps=3),
    Stop("percentile", "n", percentile=25): lambda of: of.PercentilePruner(25, 5),
    Stop("percentile", "n", 2, trials=9, percentile=62.5): lambda of: of.PercentilePruner(
        62.5, 9, n_warmup_steps=2
    ),
    Stop("hyperband", "n", last=9): lambda of: of.HyperbandPruner(1, 9, 3),
    Stop("hyperband", "n", 2, last=8, eta=2): lambda of: of.HyperbandPruner(2, 8, 2),
    Stop("patience", "n", patience=3): lambda of: of.PatientPruner(None, 3),
    Stop("patience", "n", patience=0, min_delta=0.125): lambda of: of.PatientPruner(None, 0, 0.125),
    Stop("threshold", "n", 2, lower=0.0625, upper=0.5): lambda of: of.ThresholdPruner(
        0.0625, 0.5, n_warmup_steps=2
    ),
    Stop("threshold", "n", upper=0.75): lambda of: of.ThresholdPruner(upper=0.75),
}


def deciding(stop: Stop, maximize: bool = False) -> EarlyStop:
    """The policy of a search `hpo`."""
    found = stopping(model.Search("hpo", "a", (), (Objective("loss", maximize),), stop=stop))
    assert found is not None
    return found


@pytest.mark.filterwarnings("ignore::Warning")  # Optuna calls one of them experimental.
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("stop", PRUNERS, ids=lambda stop: f"{stop.policy}-{stop.begin}")
def test_the_same_trials_are_stopped_as_by_the_pruners_of_optuna(
    stop: Stop, maximize: bool
) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = PRUNERS[stop](optuna.pruners)
    direction = "maximize" if maximize else "minimize"
    study = optuna.create_study(study_name="hpo", direction=direction, pruner=pruner)
    values = curves(60, 9)
    trials = [study.ask() for _ in values]
    ours = deciding(stop, maximize)
    over: dict[int, int] = {}
    for number, step in interleaved(60, 9, 5):
        if number in over:
            continue
        value = values[number][step - 1]
        value = 1 - value if maximize else value
        trials[number].report(value, step)
        pruned = trials[number].should_prune()
        assert ours.publish(number, step, -value if maximize else value) == pruned
        if pruned or step == 9:
            over[number] = step
            ours.end(number, not pruned)
            states = optuna.trial.TrialState
            study.tell(
                trials[number],
                None if pruned else value,
                state=states.PRUNED if pruned else states.COMPLETE,
            )
        # One that is read from a snapshot decides as this one.
        again = deciding(stop, maximize)
        again.load(json.loads(json.dumps(ours.dump())))
        assert again.dump() == ours.dump()
        ours = again
    assert sum(step < 9 for step in over.values()) > 5


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_values_that_are_no_finite_numbers_are_beyond_the_bounds_that_optuna_says(
    value: str, maximize: bool
) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.ThresholdPruner(upper=0.75)
    study = optuna.create_study(direction="maximize" if maximize else "minimize", pruner=pruner)
    trial = study.ask()
    trial.report(float(value), 1)
    document = searching(stop={**THRESHOLD, "upper": 0.75}, parallel=1)
    if maximize:
        document["search"][0]["maximize"] = document["search"][0].pop("minimize")
    play = Stopped(document)
    play.begin(1)
    play.event(1, "memo", epoch=1, loss=value)
    assert bool(play.of(CancelJobs)) == trial.should_prune()


def test_of_very_many_trials_the_median_is_that_of_the_latest() -> None:
    median = Percentile(50, begin=1, trials=1)
    for number in range(MEDIAN_OF):
        median.publish(number, 1, 0.0)
        median.end(number, True)
    assert median.publish(MEDIAN_OF, 1, 1.0)
    for number in range(MEDIAN_OF + 1):
        median.publish(number, 1, 2.0)
        median.end(number, True)
    assert not median.publish(MEDIAN_OF, 1, 1.0)


class Stopped(Search):
    """Jobs publish a loss at each of some epochs."""

    def publish(self, job: int, *losses: float, first: int = 1) -> None:
        for epoch, loss in enumerate(losses, first):
            self.t += 1.0
            self.event(job, "memo", epoch=epoch, loss=loss)

    def over(self, job: int, *losses: float) -> None:
        """A trial that is complete."""
        self.begin(job)
        self.publish(job, *losses)
        self.end(job)


def test_a_trial_that_is_no_good_is_stopped_and_its_last_value_told() -> None:
    play = Stopped(searching(stop=ASHA, parallel=1))
    play.over(1, 0.5, 0.4)
    play.begin(2)
    play.publish(2, 0.9)
    assert play.of(CancelJobs)[-1].jobs == (2,)
    (pruned,) = play.recorded("pruned")
    assert pruned == {"search": "hpo", "trial": 1, "id": 2, "step": 1, "value": 0.9}
    assert play.search["active"] == 1
    play.event(2, "exception", type="cancel", severity=0)
    play.end(2, 15)
    assert (play.search["pruned"], play.search["canceled"], play.search["complete"]) == (1, 0, 1)
    trials = search_state(play.engine, "hpo").trials
    assert trials.seen(0, 0, 3, 2)["ends"] == [[0, 0.4], [1, 0.9, 1]]
    assert play.points == [0.01, 0.02, 0.03]


def test_a_trial_whose_loss_is_no_number_is_stopped_by_a_threshold_and_told_as_failed() -> None:
    play = Stopped(searching(stop=THRESHOLD, parallel=1))
    play.over(1, 0.5, 0.4)
    play.begin(2)
    play.event(2, "memo", epoch=1, loss="nan")
    assert play.of(CancelJobs)[-1].jobs == (2,)
    (pruned,) = play.recorded("pruned")
    assert pruned == {"search": "hpo", "trial": 1, "id": 2, "step": 1, "value": None}
    play.event(2, "exception", type="cancel", severity=0)
    play.end(2, 15)
    assert (play.search["pruned"], play.search["canceled"], play.search["failed"]) == (1, 0, 0)
    trials = search_state(play.engine, "hpo").trials
    assert trials.seen(0, 0, 3, 2)["ends"] == [[0, 0.4], [1, None]]


@pytest.mark.parametrize("stop", [ASHA, MEDIAN, PERCENTILE, HYPERBAND, PATIENCE])
def test_other_policies_do_not_see_what_is_no_number(stop: dict[str, Any]) -> None:
    play = Stopped(searching(stop=stop, parallel=1))
    play.over(1, 0.5, 0.4)
    play.begin(2)
    play.event(2, "memo", epoch=1, loss="nan")
    assert not play.of(CancelJobs)


def test_a_job_that_was_faster_than_its_end_is_complete() -> None:
    play = Stopped(searching(stop=ASHA, parallel=1))
    play.over(1, 0.5)
    play.over(2, 0.9)
    assert (play.search["pruned"], play.search["complete"]) == (0, 2)


def test_a_trial_that_is_stopped_while_the_instance_shuts_down_does_not_run_again() -> None:
    play = Stopped(searching(stop=ASHA, parallel=1))
    play.over(1, 0.5)
    play.begin(2)
    play.publish(2, 0.9)
    play.post(Interrupted(play.tick(), (2,)))
    play.event(2, "exception", type="cancel", severity=0)
    play.end(2, 15)
    assert play.search["pruned"] == 1
    assert play.points == [0.01, 0.02, 0.03]


def test_a_trial_whose_job_is_being_interrupted_is_not_stopped_and_runs_again() -> None:
    play = Stopped(searching(stop=ASHA, parallel=1))
    play.over(1, 0.5)
    play.begin(2)
    play.post(Interrupted(play.tick(), (2,)))
    play.publish(2, 0.9)
    assert not play.of(CancelJobs)
    play.event(2, "exception", type="cancel", severity=0)
    play.end(2, 15)
    assert play.search["pruned"] == 0
    assert play.points == [0.01, 0.02, 0.02]


def test_one_that_runs_again_is_not_compared_with_itself() -> None:
    play = Stopped(searching(stop=ASHA, parallel=1, on_failure="retry"))
    play.begin(1)
    play.publish(1, 0.5)
    play.end(1, 256)
    play.begin(2)
    play.publish(2, 0.6)
    assert not play.of(CancelJobs)
    assert play.points == [0.01, 0.01]


@pytest.mark.parametrize("memo", [{"loss": 9.0}, {"epoch": "two", "loss": 9.0}, {"epoch": 1}])
def test_what_is_published_without_a_step_or_a_value_is_not_compared(memo: dict[str, Any]) -> None:
    play = Stopped(searching(stop=ASHA, parallel=1))
    play.over(1, 0.5)
    play.begin(2)
    play.event(2, "memo", **memo)
    assert not play.of(CancelJobs)


def test_rules_see_how_many_were_stopped() -> None:
    rule = {
        "trigger": "metric",
        "when": "search.hpo.pruned >= 1",
        "action": {"name": "close", "label": "hpo"},
    }
    play = Stopped(searching([rule], stop=MEDIAN, parallel=1))
    play.over(1, 0.5)
    play.over(2, 0.4)
    play.begin(3)
    play.publish(3, 0.9)
    play.event(3, "exception", type="cancel", severity=0)
    play.end(3, 15)
    assert (play.search["state"], play.search["reason"]) == ("done", "closed")
    (done,) = play.recorded("search-done")
    assert done["pruned"] == 1


@pytest.mark.parametrize("stop", POLICIES, ids=lambda stop: stop["policy"])
@pytest.mark.parametrize("at", range(0, 40, 3))
def test_an_engine_that_is_restored_stops_the_same_trials(at: int, stop: dict[str, Any]) -> None:
    """At some events, and with the same commands since."""
    document = searching([{"trigger": "search-done", "action": submit("b")}], stop=stop)
    first = Stopped(document)
    handled: list[Any] = []
    handle = first.engine.handle
    first.handle = lambda event: handled.append(event) or handle(event)  # type: ignore[func-returns-value]
    for job in (1, 2):
        first.begin(job)
    first.publish(1, 0.5, 0.4)
    first.publish(2, 0.6, 0.3)
    first.end(1)
    first.end(2)
    first.begin(3)
    first.begin(4)
    first.publish(3, 0.5, 0.9)
    first.publish(4, 0.2)
    first.event(3, "exception", type="cancel", severity=0)
    first.end(3, 15)
    first.end(4)
    assert first.search["pruned"] == 1
    second = Stopped(document).engine
    second.stats.keep_values()
    for event in handled[:at]:
        second.handle(event)
    snapshot = json.loads(json.dumps(dump(second)))
    third = restore(first.engine.spec, snapshot, [second.stats.take_values()])
    assert dump(third) == dump(second)
    for event in handled[at:]:
        assert third.handle(event) == second.handle(event)
    assert dump(third) == dump(first.engine)
