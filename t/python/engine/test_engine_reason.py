"""`job.reason`: why an attempt did not succeed, in a word."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from play import Play, document, on_start, submit

from flux_ensemble.document.loading import DocumentError, load_mapping
from flux_ensemble.metrics.names import REASONS

SIGKILL, SIGSEGV = int(signal.SIGKILL), int(signal.SIGSEGV)


def cancelled(p: Play) -> None:
    p.request("cancel", group="a")
    p.event(1, "exception", type="cancel", severity=0)
    p.end(1, status=SIGKILL)


def excepted(kind: str, note: str = "", status: int = SIGKILL) -> Callable[[Play], None]:
    def end(p: Play) -> None:
        p.event(1, "exception", type=kind, severity=0, note=note)
        p.end(1, status=status)

    return end


def ended(status: int) -> Callable[[Play], None]:
    return lambda p: p.end(1, status=status)


@pytest.mark.parametrize(
    ("end", "word"),
    [
        (ended(3 << 8), "exit"),
        (ended(SIGSEGV), "signal"),
        (ended(139 << 8), "signal"),
        (ended(SIGKILL), "oom"),
        (ended(137 << 8), "oom"),
        (excepted("timeout"), "timeout"),
        (cancelled, "canceled"),
        (excepted("exec", "node failure on n3 (rank 3)"), "node"),
        (excepted("lost"), "node"),
        (excepted("exec", "task 0 (host n3): start failed: md: No such file", 127 << 8), "start"),
        (excepted("exec", "task 0: start failed: md: Permission denied", 126 << 8), "start"),
        (excepted("exec", "shell_init: Invalid argument", 1 << 8), "start"),
        (excepted("exec", "rank 0 exited and exit-timeout=30s has expired", 1 << 8), "exit"),
        (ended(127 << 8), "exit"),
        (ended(0), None),
    ],
)
def test_the_reason_is_the_same_in_rules_and_in_rows(end, word):
    """A rule sees what the row says, while the job is active and when it is gone."""
    rules = [
        on_start("a", count=1),
        {
            "trigger": ["job-fail", "job-timeout", "job-cancel"],
            "group": "a",
            "when": f'job.reason == "{word}"',
            "action": submit("b"),
        },
    ]
    jobs = [{"name": "a", "command": "true", "on-lost": "fail"}, {"name": "b", "command": "true"}]
    p = Play(document(jobs=jobs, rules=rules[: 1 if word is None else 2], finish="never"))
    p.begin(1)
    job = p.engine.workload.jobs[1]
    assert job.reason is None
    end(p)
    assert job.reason == word
    assert word is None or word in REASONS
    assert p.submitted("b") == (word is not None)


def test_a_job_that_never_ran_has_a_reason_too():
    p = Play(document(rules=[on_start("a", count=1)], finish="never"))
    p.event(1, "submit")
    p.event(1, "validate")
    job = p.engine.workload.jobs[1]
    p.event(1, "exception", type="alloc", severity=0, note="unsatisfiable request")
    p.event(1, "clean")
    assert job.reason == "start"


def test_a_job_that_ran_out_of_memory_runs_again_and_one_that_crashed_does_not():
    retries = {"times": 2, "on": 'job.reason == "oom"'}
    jobs = [
        {"name": "a", "command": "true", "count": 2, "retries": retries},
        {"name": "b", "command": "true"},
    ]
    p = Play(document(jobs=jobs, rules=[on_start("a")]))
    p.run(1, status=SIGKILL)
    p.run(2, status=SIGSEGV)
    assert p.submitted("a") == 3
    assert p.queued[3].index == 0


def test_a_reason_that_there_is_not_is_an_error():
    rule = {"trigger": "job-fail", "when": 'job.reason == "memory"', "action": submit("b")}
    with pytest.raises(DocumentError, match=r"'job.reason' is never 'memory'"):
        load_mapping(document(rules=[rule]))
