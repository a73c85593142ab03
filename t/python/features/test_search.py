"""Searches in the engine: points are asked for, become jobs, and are told of with later asks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from play import Finish, Play, Started, StartTimer, SubmitJobs, search_state, submit

from flux_ensemble.engine.commands import Ask
from flux_ensemble.engine.events import Interrupted, Tag
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.features.search.entries import Front, Given


def searching(rules: list[dict[str, Any]] | None = None, **given: Any) -> dict[str, Any]:
    """A document with a search of four trials, two at once."""
    search = {
        "id": "hpo",
        "group": "a",
        "variables": {"x": {"low": 0, "high": 1}, "kind": ["p", "q"]},
        "minimize": "loss",
        "trials": 4,
        "parallel": 2,
        **{key.replace("_", "-"): value for key, value in given.items()},
    }
    start = {"trigger": "start", "action": {"name": "search", "label": "hpo"}}
    return {
        "name": "test",
        "search": [search],
        "jobs": [
            {"name": "a", "command": "run {x} {kind}"},
            {"name": "b", "command": "true {x}", "params": {"x": 0}},
        ],
        "rules": [start, *(rules or [])],
    }


class Search(Play):
    """An engine whose asks are answered: the point of trial n has x = (n + 1) / 100.

    Attributes:
        answers: whether asks are answered at once.
    """

    answers = True

    def post(self, event: Any) -> list[Any]:
        commands = super().post(event)
        for command in commands:
            if isinstance(command, Ask) and self.answers:
                self.answer(command)
        return commands

    def answer(self, command: Ask, count: int | None = None) -> list[Any]:
        points = [
            {"params": {"x": (number + 1) / 100, "kind": "p"}}
            for number in range(command.first, command.first + command.count)
        ][:count]
        return self.done(command, points=points, seconds=0.01)

    def try_out(self, job: int, loss: Any = None, status: int = 0) -> None:
        """The job of a trial goes through its life, and publishes a loss."""
        self.begin(job)
        self.t += 10.0
        if loss is not None:
            self.event(job, "memo", loss=loss)
        self.end(job, status)

    @property
    def points(self) -> list[float]:
        """The parameter x of all jobs that were sent."""
        return [one.params["x"] for one in self.of(SubmitJobs) if one.group == "a"]

    @property
    def search(self) -> Mapping[str, Any]:
        (search,) = self.status()["searches"]
        return search


def test_points_are_asked_for_and_each_becomes_a_job_with_the_tag_of_its_trial() -> None:
    play = Search(searching())
    assert play.of(Ask) == [Ask(1, "hpo", 0, 2, 0)]
    point = {"x": 0.01, "kind": "p"}
    assert play.of(SubmitJobs)[0] == SubmitJobs(2, "a", "search:hpo", 0, 0, 1, None, point)
    assert play.points == [0.01, 0.02]


def test_what_an_ask_is_to_see_is_the_points_before_it_and_the_trials_that_have_ended() -> None:
    play = Search(searching())
    play.try_out(1, 0.5)
    assert play.of(Ask)[1] == Ask(4, "hpo", 2, 1, 1)
    trials = search_state(play.engine, "hpo").trials
    assert trials.seen(0, 0, 2, 1) == {
        "points": [[0.01, "p"], [0.02, "p"]],
        "attributes": {},
        "ends": [[0, 0.5]],
    }
    play.try_out(2, 0.25)
    # The same question has the same answer, whatever has happened since.
    assert trials.seen(0, 0, 2, 1)["ends"] == [[0, 0.5]]


def test_a_search_that_is_done_triggers_its_rules_with_the_best_point() -> None:
    rule = {
        "trigger": "search-done",
        "name": "hpo",
        "action": submit("b", params={"x": "{search.hpo.best.x}"}),
    }
    play = Search(searching([rule]))
    for job, loss in ((1, 0.5), (2, 0.1), (3, 0.1), (4, 0.2)):
        play.try_out(job, loss)
    assert play.of(SubmitJobs)[-1].params == {"x": 0.02}
    assert [best["trial"] for best in play.recorded("best")] == [0, 1]
    (done,) = play.recorded("search-done")
    assert (done["reason"], done["complete"], done["best"]["trial"]) == ("trials", 4, 1)
    play.run(5)
    assert [one.state for one in play.of(Finish)] == ["completed"]
    assert play.search["best"][0] == {
        "trial": 1,
        "job": 2,
        "value": 0.1,
        "params": {"x": 0.02, "kind": "p"},
    }


def test_an_ensemble_with_an_open_ask_is_not_idle_and_does_not_end() -> None:
    rule = {"trigger": "idle", "group": "a", "action": submit("b")}
    play = Search(searching([rule], parallel=1))
    play.answers = False
    play.try_out(1, 0.5)
    assert not play.submitted("b")
    assert not play.of(Finish)
    play.answers = True
    play.answer(play.of(Ask)[-1])
    for job in (2, 3, 4):
        play.try_out(job, 0.5)
    assert play.submitted("b") == 1


def test_close_sends_no_more_trials_and_the_search_is_done_when_those_it_has_are_over() -> None:
    rules = [
        {
            "trigger": "metric",
            "when": "search.hpo.best.value < 0.2",
            "action": {"name": "close", "label": "hpo"},
        },
        {"trigger": "search-done", "action": submit("b")},
    ]
    play = Search(searching(rules))
    play.try_out(1, 0.1)
    assert play.points == [0.01, 0.02]
    assert play.search["state"] == "closing"
    assert not play.submitted("b")
    play.try_out(2, 0.5)
    assert play.submitted("b") == 1
    assert (play.search["state"], play.search["reason"]) == ("done", "closed")


def test_points_are_asked_for_in_batches_and_again_when_none_are_left_for_a_slot() -> None:
    play = Search(searching(batch=3, trials=8))
    assert [(one.first, one.count) for one in play.of(Ask)] == [(0, 3)]
    assert play.search["stock"] == 1
    play.try_out(1, 0.5)
    assert len(play.of(Ask)) == 1
    for job in (2, 3, 4, 5):
        play.try_out(job, 0.5)
    # The last batch is what is left of the trials.
    assert [(one.first, one.count) for one in play.of(Ask)] == [(0, 3), (3, 3), (6, 2)]


def test_points_one_after_the_other_are_asked_for_when_no_trial_is_under_way() -> None:
    play = Search(searching(sequential=True))
    play.try_out(1, 0.5)
    assert play.points == [0.01, 0.02]
    play.try_out(2, 0.5)
    assert [(one.first, one.count, one.ended) for one in play.of(Ask)] == [(0, 2, 0), (2, 2, 2)]
    assert play.points == [0.01, 0.02, 0.03, 0.04]


def test_a_refresh_drops_the_points_that_were_not_sent_and_asks_anew() -> None:
    rule = {
        "trigger": "job-success",
        "group": "b",
        "action": {"name": "refresh", "label": "hpo", "repetitions": "unlimited"},
    }
    play = Search(searching([rule], batch=4, trials=9))
    play.try_out(1, 0.5)
    assert (play.points, play.search["stock"]) == ([0.01, 0.02, 0.03], 1)
    play.answers = False
    play.request("action", action={"name": "refresh", "label": "hpo"})
    assert play.search["stock"] == 0
    (new,) = play.of(Ask)[1:]
    assert (new.first, new.count, new.ended) == (3, 4, 1)
    # An ask that is under way is forgotten: what it brings is that of the old model.
    play.request("action", action={"name": "refresh", "label": "hpo"})
    play.answer(new)
    assert play.search["stock"] == 0
    again = play.of(Ask)[-1]
    assert (again.id != new.id, again.first, again.ended) == (True, 3, 1)
    play.answer(again)
    assert play.search["stock"] == 4
    play.try_out(2, 0.5)
    assert play.points[-1] == 0.04


@pytest.mark.parametrize("close", [False, True])
def test_a_refresh_of_a_search_that_is_not_running_changes_nothing(close: bool) -> None:
    play = Search(searching(batch=4), start=close)
    if close:
        play.request("action", action={"name": "close", "label": "hpo"})
    before = play.search, len(play.of(Ask))
    play.request("action", action={"name": "refresh", "label": "hpo"})
    assert (play.search, len(play.of(Ask))) == before


def test_a_refresh_brings_points_where_there_were_none_and_ends_a_delay() -> None:
    play = Search(searching())
    play.answers = False
    play.try_out(1, 0.5)
    play.answer(play.of(Ask)[-1], 0)
    asks = len(play.of(Ask))
    play.request("action", action={"name": "refresh", "label": "hpo"})
    assert len(play.of(Ask)) == asks + 1
    play.failed(play.of(Ask)[-1], "search 'hpo': its generator 'm:C' raised ValueError: no")
    play.request("action", action={"name": "refresh", "label": "hpo"})
    assert len(play.of(Ask)) == asks + 2
    # The timer that was set is none of the search's any more.
    play.timer("ask:hpo")
    assert len(play.of(Ask)) == asks + 2


GIVEN = [{"x": 0.9, "kind": "q"}, {"x": 0.8, "kind": "p"}, {"x": 0.7, "kind": "q"}]


def test_the_points_of_a_document_are_tried_first_and_the_suggester_is_told_of_them() -> None:
    play = Search(searching(points=GIVEN))
    assert play.recorded("given") == [{"search": "hpo", "first": 0, "points": 3}]
    assert not play.of(Ask)
    play.try_out(1, 0.5)
    play.try_out(2, None, status=256)
    # Each of them is a trial, one after the other; the ask is for what is left of `trials`.
    assert play.of(Ask) == [Ask(4, "hpo", 3, 1, 2)]
    assert play.points == [0.9, 0.8, 0.7, 0.04]
    seen = search_state(play.engine, "hpo").trials.seen(0, 0, 3, 2)
    assert seen == {
        "points": [[0.9, "q"], [0.8, "p"], [0.7, "q"]],
        "attributes": {str(number): {"given": True} for number in range(3)},
        "ends": [[0, 0.5], [1, None]],
    }
    play.try_out(3, 0.1)
    play.try_out(4, 0.2)
    assert (play.search["state"], play.search["reason"]) == ("done", "trials")
    assert play.search["best"][0]["trial"] == 2


def test_what_a_point_of_the_user_lacks_is_requested_in_the_order_of_the_points() -> None:
    partial = [GIVEN[0], {"kind": "q"}, GIVEN[1]]
    play = Search(searching(points=partial, trials=6))
    play.engine.stats.keep_values()
    assert play.recorded("given") == [{"search": "hpo", "first": 0, "points": 3}]
    # The one that is whole is sent, and the suggester is asked for what the next ones lack.
    (ask,) = play.of(Ask)
    assert (ask.first, ask.count) == (1, 1)
    trials = search_state(play.engine, "hpo").trials
    assert play.points == [0.9, 0.02]
    assert trials.seen(1, 0, 2, 0)["fixed"] == [GIVEN[1]]
    # Those of a later request come after them.
    more(play, points=[{"x": 0.25}, GIVEN[2]])
    assert play.recorded("given")[-1] == {"search": "hpo", "first": 3, "points": 2}
    play.request("action", action={"name": "refresh", "label": "hpo"})
    for job in range(1, 9):
        play.try_out(job, 0.5)
        assert not trials.partial or trials.given == len(trials.stock)
    assert play.search["reason"] == "trials"
    assert len(play.points) == 8
    assert "fixed" not in trials.seen(0, 0, 8, 8)


def test_points_that_lack_values_are_tried_before_those_that_were_suggested() -> None:
    play = Search(searching(parallel=1, batch=4))
    play.engine.stats.keep_values()
    assert play.search["stock"] == 3
    more(play, points=[{"kind": "q"}])
    # Those that were suggested are suggested anew, after it.
    trials = search_state(play.engine, "hpo").trials
    assert (play.search["stock"], len(trials.partial)) == (0, 1)
    play.try_out(1, 0.5)
    assert play.of(Ask)[-1] == Ask(play.of(Ask)[-1].id, "hpo", 1, 4, 1)
    assert (play.search["stock"], len(trials.partial)) == (3, 0)


def test_a_value_of_the_best_trial_may_be_null_or_not_be_there_and_rules_take_it() -> None:
    then = {
        "trigger": "search-done",
        "action": {**submit("b"), "params": {"x": "{search.hpo.best.x}"}},
    }
    variables = {"kind": ["p", "q"], "x": {"low": 0, "high": 1, "when": "kind == 'q'"}}
    play = Search(searching([then], variables=variables, trials=1, points=[{"kind": "p"}]))
    (job,) = play.of(SubmitJobs)
    assert job.params == {"kind": "p"}
    play.try_out(1, 0.5)
    assert play.search["best"][0]["params"] == {"kind": "p"}
    assert play.recorded("search-done")[0]["best"]["x"] is None
    assert play.of(SubmitJobs)[-1].params == {"x": {"written": None}}


def test_a_refresh_keeps_the_points_of_the_user() -> None:
    play = Search(searching(points=GIVEN, parallel=1, batch=4, trials=6))
    play.request("action", action={"name": "refresh", "label": "hpo"})
    play.try_out(1, 0.5)
    play.request("action", action={"name": "refresh", "label": "hpo"})
    for job in range(2, 7):
        play.try_out(job, 0.5)
    assert play.points == [0.9, 0.8, 0.7, 0.04, 0.05, 0.06]


def test_a_search_that_is_started_again_does_not_try_its_points_twice() -> None:
    play = Search(searching(points=GIVEN, parallel=1))
    play.request("action", action={"name": "close", "label": "hpo"})
    play.request("action", action={"name": "search", "label": "hpo"})
    for job in range(1, 5):
        play.try_out(job, 0.5)
    assert play.points == [0.9, 0.8, 0.7, 0.04]


def more(play: Search, **args: Any) -> Mapping[str, Any]:
    """The reply to a request for more trials, after a round through a snapshot."""
    reply = play.request("search", **args)
    assert reply.errno is None, reply
    values = [play.engine.stats.take_values()]
    assert dump(restore(play.engine.spec, dump(play.engine), values)) == dump(play.engine)
    return reply.result


def test_points_that_are_added_are_tried_before_those_that_were_suggested() -> None:
    play = Search(searching(parallel=1, batch=4))
    play.engine.stats.keep_values()
    assert play.points == [0.01]
    assert more(play, points=[{"x": "0.5", "kind": "q"}, {"x": 0.6, "kind": "p"}]) == {
        "search": "hpo", "trials": 6, "added": 2, "reopened": False,
    }  # fmt: skip
    assert more(play, search="hpo", points=[{"x": 0.7, "kind": "p"}])["trials"] == 7
    given = play.recorded("given")[-1]
    assert given == {"search": "hpo", "first": 3, "points": 1}
    assert Given(**given).sentence(0.0, str) == "hpo: trial 3 is given, and tried first"
    for job in range(1, 8):
        play.try_out(job, 0.5)
    assert play.points == [0.01, 0.5, 0.6, 0.7, 0.02, 0.03, 0.04]
    # Their numbers are those of the order in which they were sent, so nothing is told twice.
    trials = search_state(play.engine, "hpo").trials
    assert [trial.params[0] for trial in trials.all] == play.points
    assert trials.ended == list(range(7))


def test_a_search_that_was_cancelled_says_how_many_trials_follow_besides() -> None:
    play = Search(searching(parallel=2))
    play.engine.stats.keep_values()
    play.try_out(1, 0.5)
    play.request("cancel")
    for job in (2, 3):
        play.try_out(job, status=15)
    assert play.engine.state == "canceled"
    assert more(play, more=2) == {
        "search": "hpo", "trials": 6, "added": 2, "left": 1, "reopened": True,
    }  # fmt: skip
    assert play.recorded("more")[-1] == {"search": "hpo", "more": 2, "left": 1, "trials": 6}


def test_an_ask_that_is_open_when_points_are_added_is_made_again_with_them() -> None:
    play = Search(searching(parallel=2, sampler="tpe"))
    play.engine.stats.keep_values()
    play.answers = False
    play.try_out(1, 0.5)
    asked = play.of(Ask)[-1]
    more(play, points=[{"x": 0.5, "kind": "q"}])
    # The slot is taken by the point, and the answer that comes too late is no trial.
    play.answer(asked)
    assert play.points == [0.01, 0.02, 0.5]
    play.answers = True
    play.try_out(2, 0.5)
    assert play.of(Ask)[-1].first == 3
    assert play.points == [0.01, 0.02, 0.5, 0.04]


@pytest.mark.parametrize("done", [True, False])
def test_a_search_goes_on_with_more_trials(done: bool) -> None:
    rule = {"trigger": "idle", "group": "b", "action": submit("b")}
    play = Search({**searching([rule]), "finish": "never"})
    play.engine.stats.keep_values()
    for job in range(1, 5 if done else 3):
        play.try_out(job, 0.5)
    assert play.search["state"] == ("done" if done else "running")
    assert more(play, more=3)["trials"] == 7
    for job in range(5 if done else 3, 8):
        play.try_out(job, 0.1)
    assert (play.search["state"], play.search["trials"], play.search["complete"]) == ("done", 7, 7)
    assert len(play.recorded("search-done")) == 1 + done
    assert len(play.points) == 7


@pytest.mark.parametrize("finish", ["idle", "never"])
def test_nobody_is_idle_between_the_end_of_a_search_and_more_trials_of_it(finish: str) -> None:
    play = Search({**searching(parallel=1), "finish": finish})
    play.engine.stats.keep_values()
    for job in range(1, 5):
        play.try_out(job, 0.5)
    idle = play.search["idle_seconds"]
    play.t += 1000.0
    assert more(play, more=1)["reopened"] is (finish == "idle")
    play.try_out(5, 0.5)
    assert play.search["complete"] == 5
    assert play.search["idle_seconds"] == pytest.approx(idle, abs=0.1)


def test_an_ensemble_that_has_ended_goes_on_with_more_trials_and_ends_again() -> None:
    play = Search(searching([{"trigger": "search-done", "action": submit("b")}], points=GIVEN))
    play.engine.stats.keep_values()
    for job in range(1, 5):
        play.try_out(job, 0.5)
    play.run(5)
    assert [one.state for one in play.of(Finish)] == ["completed"]
    before = play.search
    assert more(play, more=2, points=[{"x": 0.25, "kind": "p"}])["reopened"]
    assert play.recorded("reopen")[0]["ended"] == "completed"
    assert play.recorded("more") == [{"search": "hpo", "more": 3, "trials": 7}]
    for job in range(6, 9):
        play.try_out(job, 0.1)
    assert play.points[4:] == [0.25, 0.06, 0.07]
    assert [one.state for one in play.of(Finish)] == ["completed", "completed"]
    # Nothing that was over has changed.
    assert (before["complete"], play.search["complete"], play.search["failed"]) == (4, 7, 0)


def test_a_rule_goes_on_with_a_search_until_its_best_is_good_enough() -> None:
    rule = {
        "trigger": "search-done",
        "when": "search.hpo.best.value > 0.1",
        "action": {"name": "search", "label": "hpo", "count": 2, "repetitions": 3},
    }
    last = {"trigger": "search-done", "when": "search.hpo.best.value <= 0.1", "action": submit("b")}
    play = Search(searching([rule, last]))
    for job in range(1, 7):
        play.try_out(job, 0.5)
    assert [entry["trials"] for entry in play.recorded("more")] == [6, 8]
    play.try_out(7, 0.05)
    play.try_out(8, 0.5)
    assert (play.search["state"], play.search["trials"], play.submitted("b")) == ("done", 8, 1)
    # Each time the search is done, since there is a job of it between.
    assert len(play.recorded("search-done")) == 3


def test_a_rule_that_goes_on_with_a_search_keeps_the_limit_of_jobs() -> None:
    rule = {
        "trigger": "search-done",
        "action": {"name": "search", "label": "hpo", "count": 9, "repetitions": "unlimited"},
    }
    play = Search({**searching([rule]), "limits": {"jobs": 6}})
    for job in range(1, 7):
        play.try_out(job, 0.5)
    assert [entry["more"] for entry in play.recorded("more")] == [2]
    assert [one.state for one in play.of(Finish)] == ["completed"]


def test_a_search_that_was_cut_short_goes_on_with_what_it_had_left() -> None:
    play = Search(searching(points=GIVEN))
    play.engine.stats.keep_values()
    play.try_out(1, 0.5)
    for job in (2, 3):
        play.begin(job)
    play.request("cancel")
    for job in (2, 3):
        play.event(job, "exception", type="cancel", severity=0)
        play.end(job, 15)
    assert [one.state for one in play.of(Finish)] == ["canceled"]
    more(play, more=1)
    for job in (4, 5):
        play.try_out(job, 0.5)
    assert (play.search["canceled"], play.search["complete"]) == (2, 3)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({}, "give 'more', a number of trials, or 'points'"),
        ({"search": "hpx", "more": 1},
         "ensemble 'test' has no search 'hpx' (did you mean 'hpo'? searches: hpo)"),
        ({"points": [{"x": 0.5, "kind": "p"}, {"x": 2, "kind": "p"}]},
         "points[1]: x: expected a number >= 0 and <= 1, not 2.0"),
        ({"points": ["x"]}, "points[0]: expected a mapping of the variables, not 'x'"),
        ({"points": [{"x": {}}]}, "points[0]: x: expected text, a number, true, false or null, not "
         "a mapping with 0 keys"),
        ({"points": [{"x": {"written": 1}}]}, "points[0]: x: expected text, a number, true, false "
         "or null, not a mapping with 1 key"),
        ({"points": [{"x": None}]}, "points[0]: x: expected a number >= 0 and <= 1, not null"),
        ({"more": 10_000_000},
         "10000000 more trials would make 10000004 of search 'hpo', and limits.jobs is 100000"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ended", [False, True])
def test_what_is_wrong_with_a_request_for_more_trials(
    args: dict[str, Any], reason: str, ended: bool
) -> None:
    play = Search(searching())
    for job in range(1, 5 if ended else 2):
        play.try_out(job, 0.5)
    before, state = len(play.commands), dump(play.engine)["state"]["searches"]
    assert play.request("search", **args).reason == reason
    # That is the only effect.
    assert len(play.commands) == before + 1
    assert dump(play.engine)["state"]["searches"] == state


def test_a_search_whose_trials_have_all_ended_is_not_done_once_more() -> None:
    again = {"id": "again", "trigger": "timer", "every": 9,
             "action": {"name": "search", "label": "hpo", "repetitions": 9}}  # fmt: skip
    play = Search(searching([again], trials=1, parallel=1))
    play.try_out(1, 0.5)
    play.timer("rule:again")
    assert (play.search["state"], len(play.recorded("search-done"))) == ("done", 1)


def test_the_limit_of_jobs_holds_for_trials_of_several_jobs() -> None:
    rule = {
        "trigger": "search-done",
        "action": {"name": "search", "label": "hpo", "count": 9, "repetitions": "unlimited"},
    }
    play = Search({**searching([rule], **REPEATS, trials=1), "limits": {"jobs": 8}})
    reply = play.request("search", more=2)
    assert reply.reason == (
        "2 more trials would make 3 of search 'hpo' with 3 jobs each, and limits.jobs is 8"
    )
    for job in range(1, 7):
        play.try_out(job, 0.5)
    assert [entry["more"] for entry in play.recorded("more")] == [1]
    assert [one.state for one in play.of(Finish)] == ["completed"]


def test_of_several_searches_a_request_names_one() -> None:
    document = searching()
    other = {**document["search"][0], "id": "other", "group": "c"}
    document["search"].append(other)
    document["jobs"].append({"name": "c", "command": "run {x} {kind}"})
    document["rules"].append({"trigger": "start", "action": {"name": "search", "label": "other"}})
    play = Search(document)
    assert play.request("search", more=1).reason == (
        "ensemble 'test' has 2 searches: name one of them (hpo, other)"
    )
    assert play.request("search", search="other", more=1).errno is None
    assert [one["trials"] for one in play.status()["searches"]] == [4, 5]


def test_of_the_states_of_a_generator_the_last_is_in_a_snapshot() -> None:
    play = Search(searching(generator="m:C", parallel=1), start=False)
    play.answers = False
    play.post(Started(play.t))
    for number in range(3):
        kept = {"state": {"n": number}, "ended": number, "keys": {"_id": number}}
        point = {"params": {"x": 0.5 + number / 10, "kind": "p"}, "attributes": kept}
        play.done(play.of(Ask)[-1], points=[point], seconds=0.01)
        play.try_out(number + 1, 0.5)
    trials = search_state(play.engine, "hpo").trials
    assert [trial.attributes for trial in trials.all] == [
        {"keys": {"_id": 0}},
        {"keys": {"_id": 1}},
        {"state": {"n": 2}, "ended": 2, "keys": {"_id": 2}},
    ]


def test_a_closed_search_can_be_started_again_and_goes_on_with_the_same_trials() -> None:
    play = Search(searching(), start=True)
    play.request("action", action={"name": "close", "label": "hpo"})
    play.try_out(1, 0.5)
    play.request("action", action={"name": "search", "label": "hpo"})
    assert play.points == [0.01, 0.02, 0.03]
    assert play.of(Ask)[-1].first == 2


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (None, "it published no number 'loss'"),
        ("low", "it published no number 'loss'"),
        (True, "it published no number 'loss'"),
        (float("nan"), "it published no number 'loss'"),
    ],
)
def test_success_without_the_objective_is_a_failed_trial(loss: Any, reason: str) -> None:
    play = Search(searching())
    play.try_out(1, loss)
    assert play.recorded("trial-failed") == [
        {"search": "hpo", "trial": 0, "id": 1, "reason": reason}
    ]
    trials = search_state(play.engine, "hpo").trials
    assert trials.seen(0, 0, 2, 1)["ends"] == [[0, None]]


def test_a_failed_trial_has_its_penalty_and_is_never_the_best() -> None:
    play = Search(searching(on_failure={"penalty": "-1e3"}))
    play.try_out(1, 0.1, status=256)
    play.try_out(2, 0.5)
    trials = search_state(play.engine, "hpo").trials
    assert trials.seen(0, 0, 2, 2)["ends"] == [[0, -1000.0], [1, 0.5]]
    assert play.search["best"][0]["trial"] == 1


def test_of_several_objectives_the_trials_that_are_best_in_one_are_the_front() -> None:
    rule = {
        "trigger": "metric",
        "when": "search.hpo.front >= 3",
        "action": {"name": "close", "label": "hpo"},
    }
    play = Search(searching([rule], minimize="loss", maximize=["gain"], trials=9))
    for job, loss, gain in ((1, 0.5, 1.0), (2, 0.5, 0.5), (3, 0.2, 0.3), (4, 0.9, 2.0)):
        play.begin(job)
        play.event(job, "memo", loss=loss, gain=gain)
        play.end(job)
    assert play.search["front"] == [
        {"trial": 2, "job": 3, "values": [0.2, 0.3], "params": {"x": 0.03, "kind": "p"}},
        {"trial": 0, "job": 1, "values": [0.5, 1.0], "params": {"x": 0.01, "kind": "p"}},
        {"trial": 3, "job": 4, "values": [0.9, 2.0], "params": {"x": 0.04, "kind": "p"}},
    ]
    found = play.recorded("front")
    assert [one["trial"] for one in found] == [0, 2, 3]
    assert Front(**found[1]).sentence(0.0, str) == (
        "hpo: none is better in all than 0.2, 0.3 (trial 2: x=0.03 kind=p)"
    )
    assert (play.search["objective"], play.search["direction"]) == (
        "loss, gain",
        "minimize, maximize",
    )
    assert (play.search["front_size"], play.search["best"], play.search["state"]) == (
        3,
        [],
        "closing",
    )
    trials = search_state(play.engine, "hpo").trials
    assert trials.seen(0, 0, 4, 4)["ends"][0] == [0, [0.5, 1.0]]


def test_a_trial_without_one_of_several_objectives_has_failed_with_its_penalty() -> None:
    play = Search(searching(minimize=["loss", "seconds"], on_failure={"penalty": [9, "1e3"]}))
    play.try_out(1, 0.5)
    (failed,) = play.recorded("trial-failed")
    assert failed["reason"] == "it published no number 'seconds', but loss"
    trials = search_state(play.engine, "hpo").trials
    assert trials.seen(0, 0, 2, 1)["ends"] == [[0, [9.0, 1000.0]]]


def test_a_failed_trial_runs_again_with_the_same_parameters_up_to_three_times() -> None:
    play = Search(searching(parallel=1, trials=1, on_failure="retry"))
    for job in (1, 2, 3, 4):
        play.try_out(job, status=256)
    assert play.points == [0.01] * 4
    assert play.search["failed"] == 1
    assert play.engine.stats.counts["a"]["finished"] == 1
    assert [one.state for one in play.of(Finish)] == ["completed"]


@pytest.mark.parametrize("loss", [None, "text", float("nan"), float("inf")])
def test_a_trial_without_a_value_has_failed_and_runs_again_too(loss: Any) -> None:
    play = Search(searching(on_failure="retry", parallel=1, trials=1))
    for job in range(1, 4):
        play.try_out(job, loss=loss)
        assert play.search["failed"] == 0
    play.try_out(4, loss=2)
    assert play.points == [0.01] * 4
    assert (play.search["complete"], play.search["failed"]) == (1, 0)
    counts = play.status()["groups"]["a"]
    assert (counts["attempts"], counts["success"], counts["finished"]) == (4, 4, 1)


def test_what_runs_again_without_a_value_hides_no_job_that_has_failed() -> None:
    play = Search(searching(on_failure="retry", parallel=1, trials=1))
    for job in (1, 2, 3):
        play.try_out(job)
    play.request("submit", group="b")
    play.run(5, status=256)
    play.try_out(4, loss=2)
    assert (play.status()["failed"], play.status()["retries"]) == (1, 3)


def test_a_trial_without_a_value_fails_when_it_has_been_tried_often_enough() -> None:
    play = Search(searching(on_failure="retry", parallel=1, trials=1))
    for job in range(1, 5):
        play.try_out(job)
    assert (play.search["complete"], play.search["failed"]) == (0, 1)
    assert play.status()["groups"]["a"]["finished"] == 1


def test_an_attempt_without_a_value_is_described_as_the_search_has_it() -> None:
    play = Search(searching(on_failure="retry", parallel=1, trials=1))
    play.engine.records.keep()
    play.try_out(1, loss=float("nan"))
    play.begin(2)
    lost(play, 2)
    play.try_out(3, loss=1)
    describer = Describer(play.engine.spec, "/", str)
    rows = [describer.describe(job, play.t) for job in play.engine.records.take()]
    assert [(row["trial"], row["trial_state"]) for row in rows] == [
        (0, "failed"),
        (0, "interrupted"),
        (0, "complete"),
    ]


REPEATS: dict[str, Any] = {"repeats": 3, "parallel": 1}


def jobs_of(play: Search, first: int, *losses: float | None) -> None:
    """The jobs of a trial: each publishes a loss, or fails."""
    for id, loss in enumerate(losses, first):
        play.try_out(id, loss, 256 if loss is None else 0)


def test_the_value_of_a_trial_with_several_jobs_is_that_of_all() -> None:
    play = Search(searching(**REPEATS, aggregate="median"))
    (sent,) = play.of(SubmitJobs)
    assert (sent.count, sent.each, sent.params) == (3, 3, {"x": 0.01, "kind": "p"})
    jobs_of(play, 1, 4.0, 1.0)
    assert play.search["active"] == 1
    assert not play.recorded("best")
    play.try_out(3, 2.0)
    (best,) = play.recorded("best")
    assert (best["trial"], best["value"]) == (0, 2.0)
    assert play.points == [0.01, 0.02]
    assert (play.search["repeats"], play.search["aggregate"]) == (3, "median")


def test_a_job_that_fails_is_no_failed_trial_but_all_of_them_are() -> None:
    play = Search(searching(**REPEATS, on_failure={"penalty": 9}))
    jobs_of(play, 1, 4.0, None, 1.0)
    assert (play.search["complete"], play.search["failed"]) == (1, 0)
    assert play.search["best"][0]["value"] == 2.5
    jobs_of(play, 4, None, None, None)
    assert (play.search["complete"], play.search["failed"]) == (1, 1)
    (failed,) = play.recorded("trial-failed")
    assert failed["trial"] == 1
    assert failed["reason"] == "failed"
    assert search_state(play.engine, "hpo").trials.seen(0, 0, 2, 2)["ends"] == [[0, 2.5], [1, 9.0]]


def test_each_job_of_a_trial_runs_again_by_itself() -> None:
    play = Search(searching(**REPEATS, on_failure="retry"))
    jobs_of(play, 1, 4.0, None, 1.0)
    again = play.of(SubmitJobs)[-1]
    assert (again.rule, again.first, again.count) == ("retry", 1, 1)
    assert play.search["active"] == 1
    play.try_out(4, 1.0)
    assert play.search["best"][0]["value"] == 2.0


def test_of_a_trial_some_of_whose_jobs_are_cancelled_the_others_count() -> None:
    document = searching(**REPEATS)
    document["jobs"][0]["max-active"] = 1
    play = Search(document)
    play.try_out(1, 3.0)
    play.begin(2)
    play.request("cancel", group="a")
    play.event(2, "exception", type="cancel", severity=0)
    play.end(2, 15)
    assert (play.search["complete"], play.search["canceled"]) == (1, 0)
    assert play.search["best"][0]["value"] == 3.0


@pytest.mark.parametrize("at", range(0, 30, 3))
def test_an_engine_that_is_restored_knows_the_jobs_of_a_trial_that_have_ended(at: int) -> None:
    document = searching(**REPEATS)
    document["search"][0]["minimize"] = ["loss", "cost"]
    first = Search(document)
    handled: list[Any] = []
    handle = first.engine.handle
    first.handle = lambda event: handled.append(event) or handle(event)  # type: ignore[func-returns-value]
    for id in range(1, 7):
        first.begin(id)
        first.event(id, "memo", loss=float(id), cost=id % 3)
        first.end(id, 256 if id == 2 else 0)
    assert [one["values"] for one in first.search["front"]] == [[2.0, 0.5]]
    second = Search(document).engine
    second.stats.keep_values()
    for event in handled[:at]:
        second.handle(event)
    snapshot = json.loads(json.dumps(dump(second)))
    third = restore(first.engine.spec, snapshot, [second.stats.take_values()])
    for event in handled[at:]:
        assert third.handle(event) == second.handle(event)
    assert dump(third) == dump(first.engine)


def test_too_many_failures_in_a_row_close_the_search() -> None:
    play = Search(searching(failures=2, parallel=1))
    play.try_out(1, status=256)
    play.try_out(2, 0.5)
    play.try_out(3, status=256)
    assert play.search["state"] == "running"
    play.try_out(4, status=256)
    assert (play.search["state"], play.search["reason"]) == ("done", "failures")


def test_no_points_and_nothing_under_way_is_the_end() -> None:
    play = Search(searching())
    play.answers = False
    play.try_out(1, 0.5)
    play.answer(play.of(Ask)[-1], 0)
    # One is under way: the end of it may bring another point.
    asks = len(play.of(Ask))
    play.try_out(2, 0.5)
    assert len(play.of(Ask)) == asks + 1
    play.answer(play.of(Ask)[-1], 0)
    assert (play.search["state"], play.search["reason"]) == ("done", "exhausted")


def test_points_are_asked_for_three_times_and_then_on_error_says_what_follows() -> None:
    play = Search(searching(), start=False)
    play.answers = False
    play.post(Started(play.t))
    for delay in (1.0, 2.0):
        play.failed(play.of(Ask)[-1], "search 'hpo': its sampler raised ValueError: no")
        assert play.of(StartTimer)[-1] == StartTimer("ask:hpo", delay)
        assert not play.of(Finish)
        play.timer("ask:hpo")
    assert len({(one.first, one.count, one.ended) for one in play.of(Ask)}) == 1
    play.failed(play.of(Ask)[-1], "search 'hpo': its sampler raised ValueError: no")
    assert play.recorded("rule-disabled")[0]["rule"] == "rule-0"
    assert play.search["reason"] == "error"
    assert [one.state for one in play.of(Finish)] == ["completed"]


def test_a_search_whose_ask_failed_is_over_with_an_ensemble_that_ends() -> None:
    play = Search(searching(failures=1, batch=2, parallel=3), start=False)
    play.engine.stats.keep_values()
    play.answers = False
    play.post(Started(play.t))
    play.answer(play.of(Ask)[-1])
    play.begin(1)
    play.failed(play.of(Ask)[-1], "no points")
    play.request("terminate", cancel=True)
    snapshot = dump(play.engine)
    restored = restore(play.engine.spec, snapshot, [play.engine.stats.take_values()])
    assert not restored.pending_table.busy_of("a")
    assert dump(restored) == snapshot
    play.end(1, 256)
    assert play.search["state"] != "running"


def test_a_trial_that_a_shutdown_cancelled_runs_again_with_the_same_parameters() -> None:
    play = Search(searching())
    play.begin(1)
    play.post(Interrupted(play.tick(), (1,)))
    play.event(1, "exception", type="cancel", severity=0)
    play.end(1, 15)
    assert play.points == [0.01, 0.02, 0.01]
    assert play.search["canceled"] == play.search["failed"] == 0


def lost(play: Search, job: int) -> None:
    """The job of a trial is gone with its node."""
    play.event(job, "exception", type="exec", severity=0, note="node failure on n3 (rank 3)")
    play.event(job, "clean")


@pytest.mark.parametrize("given", [{}, {"on_failure": "retry"}, {"on_failure": {"penalty": 9.0}}])
def test_a_trial_whose_node_fails_runs_again_and_has_not_failed(given: dict[str, Any]) -> None:
    play = Search(searching(failures=1, **given))
    for job in (1, 2):
        play.begin(job)
        lost(play, job)
    for job in range(3, 7):
        play.try_out(job, loss=job)
    assert play.points == [0.01, 0.02, 0.01, 0.02, 0.03, 0.04]
    assert (play.search["complete"], play.search["failed"]) == (4, 0)
    assert (play.search["state"], play.search["reason"]) == ("done", "trials")
    assert play.recorded("trial-failed") == []


def test_a_trial_that_runs_again_triggers_no_rule_on_what_its_search_has_found() -> None:
    rule = {"id": "seen", "trigger": "metric", "when": "search.hpo.complete >= 1",
            "action": {"name": "refresh", "label": "hpo", "repetitions": 9}}  # fmt: skip
    play = Search(searching([rule]))

    def fired() -> int:
        return sum(one["rule"] == "seen" for one in play.recorded("fire"))

    play.try_out(1, loss=1)
    assert fired() == 1
    play.begin(2)
    lost(play, 2)
    assert fired() == 1
    play.try_out(3, loss=2)
    assert fired() == 2


def test_the_time_per_trial_is_of_those_that_were_not_interrupted() -> None:
    play = Search(searching(trials=2, parallel=1))
    play.begin(1)
    lost(play, 1)
    # As if its run went on the next morning.
    play.t += 40_000
    play.try_out(2, loss=1)
    assert play.search["trial_seconds"] is None
    play.try_out(3, loss=2)
    seconds: Any = play.search["trial_seconds"]
    assert 0 < seconds < 60


def test_it_takes_none_of_the_times_that_a_failed_trial_runs_again() -> None:
    play = Search(searching(on_failure="retry", trials=1, parallel=1))
    play.begin(1)
    lost(play, 1)
    for job in (2, 3, 4, 5):
        play.try_out(job, status=256)
    assert [entry["attempt"] for entry in play.recorded("retry")] == [0, 1, 2, 3]
    assert play.search["failed"] == 1


@pytest.mark.parametrize("given", [{}, {"on_failure": "retry"}])
def test_a_trial_that_is_lost_each_time_is_given_up_and_closes_no_search(
    given: dict[str, Any],
) -> None:
    play = Search(searching(failures=1, trials=2, parallel=1, **given))
    for job in range(1, 5):
        play.begin(job)
        lost(play, job)
    play.try_out(5, loss=1)
    assert (play.search["complete"], play.search["failed"]) == (1, 1)
    assert (play.search["state"], play.search["reason"]) == ("done", "trials")
    assert [entry["trial"] for entry in play.recorded("trial-failed")] == [0]
    assert len(play.recorded("gave-up")) == 1


def test_a_trial_of_a_group_that_does_not_begin_twice_runs_again_all_the_same() -> None:
    document = searching(failures=1)
    document["jobs"][0]["on-lost"] = "fail"
    play = Search(document)
    play.begin(1)
    lost(play, 1)
    assert play.points == [0.01, 0.02, 0.01]
    assert play.status()["groups"]["a"]["failed"] == 0


def test_a_restored_engine_knows_how_often_a_trial_was_lost() -> None:
    play = Search(searching(trials=1, parallel=1))
    play.engine.stats.keep_values()
    values = []
    for job in range(1, 5):
        play.begin(job)
        values.append(play.engine.stats.take_values())
        play.engine = restore(play.engine.spec, json.loads(json.dumps(dump(play.engine))), values)
        play.engine.stats.keep_values()
        play.handle = play.engine.handle
        lost(play, job)
    assert len(play.recorded("gave-up")) == 1


def test_a_trial_that_is_lost_while_its_ensemble_ends_is_canceled() -> None:
    play = Search(searching([{"trigger": "job-start", "action": {"name": "terminate"}}]))
    for job in (1, 2):
        play.begin(job)
        lost(play, job)
    assert play.engine.state == "completed"
    assert (play.search["canceled"], play.search["active"]) == (2, 0)
    assert [entry["reason"] for entry in play.recorded("trial-failed")] == ["interrupted"] * 2


def test_a_trial_that_a_shutdown_ends_with_a_failed_ensemble_is_canceled() -> None:
    play = Search(searching(on_failure="retry"))
    play.engine.stats.keep_values()
    play.begin(1)
    play.post(Interrupted(play.tick(), (1,)))
    play.engine.fail("no more")
    play.event(1, "exception", type="cancel", severity=0)
    play.end(1, 15)
    assert play.search["canceled"] == 1
    state = json.loads(json.dumps(dump(play.engine)))
    restored = restore(play.engine.spec, state, [play.engine.stats.take_values()])
    assert search_state(restored, "hpo").trials.counts["canceled"] == 1


def test_a_trial_of_a_paused_ensemble_that_is_lost_waits_to_run_again() -> None:
    play = Search(searching())
    play.begin(1)
    play.request("pause")
    lost(play, 1)
    assert (play.search["active"], play.search["canceled"]) == (2, 0)


def test_what_a_trial_that_runs_again_had_published_is_not_its_value() -> None:
    play = Search(searching(trials=1, parallel=1))
    play.begin(1)
    play.event(1, "memo", loss=-5)
    lost(play, 1)
    play.try_out(2, loss=3)
    assert [best["value"] for best in play.search["best"]] == [3]


def test_cancelled_trials_are_over_and_others_take_their_places() -> None:
    play = Search({**searching(parallel=2), "limits": {"active-jobs": 1}})
    # The first is in the queue, the second waits in the service.
    play.begin(1)
    play.request("cancel", group="a")
    assert play.search["canceled"] == 1
    play.event(1, "exception", type="cancel", severity=0)
    play.end(1, 15)
    assert play.search["canceled"] == 2
    assert play.points == [0.01, 0.03]


@pytest.mark.parametrize("late", [False, True])
def test_a_trial_whose_job_was_never_accepted_is_over_and_another_takes_its_place(
    late: bool,
) -> None:
    play = Search(searching(), accept=not late)
    play.queued[1] = Tag("a", "search:hpo", 0, 0)
    for name in ("submit", "invalidate", "clean"):
        play.event(1, name)
    if late:
        play.done(next(one for one in play.commands if isinstance(one, SubmitJobs)), ids=[1])
    assert play.search["canceled"] == 1
    assert play.search["active"] == 2


def test_a_pause_sends_no_trials_and_the_resume_goes_on() -> None:
    play = Search(searching())
    play.request("pause")
    play.try_out(1, 0.5)
    assert play.points == [0.01, 0.02]
    play.request("resume")
    assert play.points == [0.01, 0.02, 0.03]


def test_points_are_in_stock_where_asks_take_as_long_as_trials() -> None:
    play = Search(searching(trials=100, parallel=2))
    play.answers = False
    for job in (1, 2):
        play.begin(job)
        play.t += 1.0
        play.event(job, "memo", loss=0.5)
        play.event(job, "finish", status=0)
        play.t += 10.0
        play.answer(play.of(Ask)[-1])
    # Two have ended and two are active: the others are for those that end next.
    ask = play.of(Ask)[-1]
    assert ask.first + ask.count > 2 + 2


def test_points_that_depend_on_no_trial_are_asked_for_long_before_they_are_wanted() -> None:
    play = Search(searching(sampler="random", trials=100))
    for job in range(1, 101):
        play.try_out(job, 0.5)
    # The others were asked for when fewer points than slots were left.
    assert [(one.first, one.count, one.ended) for one in play.of(Ask)] == [(0, 64, 0), (64, 36, 61)]
    assert play.search["complete"] == 100
    each = Search(searching(sampler="random", trials=100, sequential=True))
    assert [one.count for one in each.of(Ask)] == [2]


def test_a_search_with_one_slot_keeps_no_stock_so_that_each_point_knows_all() -> None:
    play = Search(searching(parallel=1))
    play.answers = False
    play.begin(1)
    play.event(1, "memo", loss=0.5)
    play.event(1, "finish", status=0)
    play.t += 100.0
    play.answer(play.of(Ask)[-1])
    assert (play.search["stock"], play.search["active"]) == (0, 1)
    assert len(play.of(Ask)) == 2


def test_rules_that_start_and_close_a_search_for_ever_are_a_chain_that_ends() -> None:
    again = {
        "trigger": "search-done",
        "actions": [
            {"name": "search", "label": "hpo", "repetitions": "unlimited"},
            {"name": "close", "label": "hpo"},
        ],
    }
    play = Search(searching([again]))
    play.request("action", action={"name": "close", "label": "hpo"})
    play.try_out(1, 0.5)
    play.try_out(2, 0.5)
    assert [one.state for one in play.of(Finish)] == ["failed"]
    assert "rules fire each other" in play.status()["reason"]


@pytest.mark.parametrize("points", [None, 1, 3])
@pytest.mark.parametrize("objectives", [["loss"], ["loss", "seconds"]])
@pytest.mark.parametrize("stop", range(0, 26, 2))
def test_an_engine_that_is_restored_goes_on_as_the_first_would_have(
    stop: int, objectives: list[str], points: int | None
) -> None:
    """At each event, and with the same commands since."""
    rule = {"trigger": "search-done", "action": submit("b")}
    given = {"points": GIVEN[:points]} if points else {}
    document = searching([rule], minimize=objectives, **given)
    first = Search(document)
    handled: list[Any] = []
    handle = first.engine.handle
    first.handle = lambda event: handled.append(event) or handle(event)  # type: ignore[func-returns-value]
    for job, loss in ((1, 0.5), (2, None), (3, 0.1), (4, 0.7)):
        first.try_out(job, loss)
    spec = first.engine.spec
    second = Search(document).engine
    second.stats.keep_values()
    for event in handled[:stop]:
        second.handle(event)
    snapshot = json.loads(json.dumps(dump(second)))
    third = restore(spec, snapshot, [second.stats.take_values()])
    assert dump(third) == dump(second)
    assert third.pending == second.pending
    for event in handled[stop:]:
        assert third.handle(event) == second.handle(event)
    assert dump(third) == dump(first.engine)


def test_a_search_that_was_not_started_yet_may_have_more_trials() -> None:
    document = searching(trials=1)
    document["rules"] = [
        {"trigger": "timer", "after": 9, "action": {"name": "search", "label": "hpo"}}
    ]
    play = Search(document)
    # The reply goes through a snapshot.
    assert more(play, more=1)["trials"] == 2
    play.timer("rule:rule-0")
    assert play.points == [0.01, 0.02]


def test_a_document_without_a_search_says_nothing_of_one() -> None:
    play = Play({"name": "test", "jobs": [{"name": "a", "command": "true"}], "rules": []})
    assert "searches" not in play.status()
    assert "searches" not in dump(play.engine)["state"]


@pytest.mark.parametrize(
    ("memo", "sentence"),
    [
        ({"los": 1.0}, "as it published no number 'loss', but los"),
        ({"loss": float("nan")}, "as it published no number 'loss'"),
        ({"loss": "low"}, "as it published no number 'loss'"),
        (None, "the last trial failed"),
    ],
)
def test_a_search_that_found_nothing_says_so_and_why(
    memo: dict[str, Any] | None, sentence: str
) -> None:
    play = Search(searching(trials=3, parallel=1))
    assert play.search["trouble"] is None
    for job in (1, 2, 3):
        play.begin(job)
        if memo is not None:
            play.event(job, "memo", **memo)
        play.end(job, 0 if memo is not None else 256)
    trouble = play.search["trouble"] or ""
    assert trouble.startswith("search 'hpo' found nothing in 3 trials: ")
    assert trouble.endswith(sentence)


def test_a_search_that_gave_up_says_so_also_after_a_restore() -> None:
    play = Search(searching(trials=9, parallel=1, failures=2))
    play.engine.stats.keep_values()
    play.try_out(1, loss=1.0)
    for job in (2, 3):
        play.try_out(job)
    trouble = "search 'hpo' gave up after 2 failed trials in a row: "
    trouble += "the last trial failed, as it published no number 'loss'"
    assert play.search["trouble"] == trouble
    values = [play.engine.stats.take_values()]
    play.engine = restore(play.engine.spec, dump(play.engine), values)
    assert play.search["trouble"] == trouble


def test_a_search_that_found_something_has_no_trouble_though_trials_failed() -> None:
    play = Search(searching(trials=3, parallel=1))
    play.try_out(1)
    play.try_out(2, loss=1.0)
    play.try_out(3, status=256)
    assert play.search["trouble"] is None


def test_a_rule_about_another_search_is_not_triggered() -> None:
    rule = {"trigger": "search-done", "name": "other", "action": submit("b")}
    given = searching([rule])
    given["search"].append({**given["search"][0], "id": "other", "group": "c"})
    given["jobs"].append({"name": "c", "command": "true {x} {kind}"})
    play = Search(given)
    for job, loss in ((1, 0.5), (2, 0.1), (3, 0.1), (4, 0.2)):
        play.try_out(job, loss)
    assert len(play.recorded("search-done")) == 1
    assert play.submitted("b") == 0
