"""What the jobs of firings are is looked up, and not made again for each event."""

from __future__ import annotations

from play import document

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.submissions import KEPT, Submissions


def made() -> Submissions:
    jobs = [{"name": "a", "command": "a {x}", "params": {"x": 0}}]
    return Submissions(load_mapping(document(jobs=jobs)).groups)


def firing(number: int, jobs: int = 3) -> Firing:
    values = {"x": list(range(number, number + jobs))}
    return Firing("r", number, "a", 0, jobs, params=values, overrides={"nodes": number + 1})


def test_jobs_of_several_firings_that_take_turns_are_made_once() -> None:
    submissions, firings = made(), [firing(number) for number in range(KEPT)]
    first = [submissions.of(one) for one in firings]
    for _ in range(3):
        for one, submission in zip(firings, first, strict=True):
            assert submissions.of(one) is submission
    assert [(job_set.nodes, params) for job_set, params in first[2]] == [
        (3, {"x": 2}),
        (3, {"x": 3}),
        (3, {"x": 4}),
    ]


def test_those_that_were_not_asked_for_longest_are_dropped() -> None:
    # Small ones are kept by their group too.
    submissions, firings = made(), [firing(number, 100) for number in range(KEPT + 1)]
    first = [submissions.of(one) for one in firings[:KEPT]]
    assert submissions.of(firings[0]) is first[0]
    submissions.of(firings[KEPT])
    assert submissions.of(firings[0]) is first[0]
    assert submissions.of(firings[1]) is not first[1]


def test_a_small_submission_is_the_same_for_all_who_ask_for_it() -> None:
    (group,) = load_mapping(
        document(jobs=[{"name": "a", "command": "a {x}", "params": {"x": 0}}])
    ).groups.values()
    params = {"x": 5}
    once = group.submission(None, params)
    assert group.submission(None, params) is once
    assert group.submission(2, params) is not once
    for number in range(2000):
        assert group.submission(None, {"x": number})[0][1] == {"x": number}
    assert group.submission(None, params) is not once
    assert group.submission(None, params)[0][1] == params
