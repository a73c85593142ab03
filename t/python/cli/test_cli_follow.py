"""Following an ensemble: what ends `run` and `watch`, and with which exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
import types
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from flux_ensemble.cli.commands.run import canceled_as
from flux_ensemble.cli.common import Failure
from flux_ensemble.cli.session import follow, target
from flux_ensemble.cli.session.follow import Follower
from flux_ensemble.cli.session.log_reader import LogReader
from flux_ensemble.client import Client, EnsembleError, connection
from flux_ensemble.client import reconnect as outage
from flux_ensemble.client.reconnect import FIRST_PAUSE, GROWTH, LOOK_INTERVAL, LOOK_TIMEOUT
from flux_ensemble.client.responses import Entry
from flux_ensemble.run_names import begun_as
from flux_ensemble.words import Line, plain

COUNTS = dict.fromkeys(
    ("waiting", "pending", "running", "submitted", "finished", "success", "failed", "canceled"), 0
)
STATUS = {
    "name": "a",
    "state": "running",
    "groups": {"g": {**COUNTS, "timeout": 0}},
    "jobs": {"waiting": 2, "active": 1, "total": 10},
}
ANSWER = {"service": {"t_start": 1.0}, "ensembles": [STATUS]}


class Future:
    """A future that a step of the reactor answers."""

    def __init__(self, handle: Handle, op: str) -> None:
        self._handle = handle
        self._op = op
        self._callback: Callable[..., None] | None = None
        self._response: Any = None

    def then(self, callback: Callable[..., None], *args: Any, timeout: float = -1.0) -> None:
        self._callback = lambda future: callback(future, *args)
        self._handle.waiting[self._op].append(self)

    def reset(self) -> None:
        self._handle.waiting[self._op].append(self)

    def answer(self, response: Any) -> None:
        self._response = response
        assert self._callback is not None
        self._callback(self)

    def wait_for(self, seconds: float) -> None:
        """All of the answers that are waited for are there."""

    def get(self) -> Any:
        response = self._handle.answers[self._op] if self._callback is None else self._response
        if isinstance(response, Exception):
            raise response
        return response


class Timer:
    """A timer of the handle, as a context manager or not."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def destroy(self) -> None:
        pass


class Handle:
    """A Flux handle whose reactor runs given steps, and fails a test that would hang."""

    def __init__(self, *steps: Callable[[Handle], None]) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.waiting: defaultdict[str, deque[Future]] = defaultdict(deque)
        self.answers: dict[str, Any] = {
            "status": ANSWER,
            "metrics": {},
            "ensemble-keeper.stats-get": OSError(errno.ENOSYS, "No service matching it"),
        }
        self.timers: dict[float, Callable[..., None]] = {}
        self.readers: list[Callable[..., None]] = []
        self.attributes: dict[str, str] = {"instance-level": "0"}
        self._steps = deque(steps)
        self._running = False

    def rpc(self, topic: str, payload: dict[str, Any], flags: int = 0, nodeid: int = 0) -> Future:
        op = topic.removeprefix("ensemble.")
        self.sent.append((op, payload))
        return Future(self, op)

    def attr_get(self, name: str) -> str | None:
        return self.attributes.get(name)

    def reactor_run(self) -> int:
        self._running = True
        while self._running:
            assert self._steps, "the reactor would wait for ever"
            self._steps.popleft()(self)
        return 0

    def reactor_stop(self) -> None:
        self._running = False

    def timer_watcher_create(
        self, after: float, callback: Callable[..., None], repeat: float = 0.0
    ) -> Timer:
        self.timers[after] = callback
        return Timer()

    @contextmanager
    def fd_watcher_create(self, fd: int, callback: Callable[..., None]) -> Iterator[None]:
        self.readers.append(callback)
        yield

    def ops(self) -> list[str]:
        return [op for op, _ in self.sent]


class View:
    """A view that keeps what it is told."""

    interval = 0.2

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.progressed = 0
        self.closed = False

    def line(self, line: Line) -> None:
        self.lines.append(plain(line))

    def progress(self, status: Any) -> None:
        self.progressed += 1

    def close(self) -> None:
        self.closed = True


Step = Callable[[Handle], None]


def answer(op: str, response: Any) -> Step:
    return lambda handle: handle.waiting[op].popleft().answer(response)


def entry(name: str, /, **context: Any) -> Step:
    return answer("log", {"timestamp": 1.0, "name": name, "context": context})


def finish(state: str) -> Step:
    return entry("finish", state=state, reason="because")


def timer(after: float) -> Step:
    return lambda handle: handle.timers[after](handle)


def send_signal(number: int) -> Step:
    def step(handle: Handle) -> None:
        os.kill(os.getpid(), number)
        for reader in handle.readers:
            reader(handle)

    return step


def interrupt(handle: Handle) -> None:
    raise KeyboardInterrupt


LOADED = answer("load", {"name": "a", "state": "running"})
REQUEST = {"text": "jobs: []"}


@pytest.fixture(autouse=True)
def _no_flux(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = types.SimpleNamespace(FLUX_RPC_STREAMING=4)
    monkeypatch.setattr(connection, "require_flux", lambda: None)
    monkeypatch.setitem(sys.modules, "flux", types.SimpleNamespace(constants=constants))
    monkeypatch.setitem(sys.modules, "flux.constants", constants)
    monkeypatch.setattr(Client, "label", staticmethod(str))
    monkeypatch.setattr(follow, "summarize", lambda view, *_: view.close())


def follower(*steps: Step, owner: bool = True, **options: Any) -> tuple[Follower, Handle, View]:
    handle, view = Handle(*steps), View()
    return Follower(Client(handle), view, owner=owner, **options), handle, view


@pytest.mark.parametrize(("state", "code"), [("completed", 0), ("failed", 1), ("canceled", 3)])
def test_the_state_in_which_the_ensemble_ends_is_the_exit_code(state: str, code: int) -> None:
    runs, handle, view = follower(LOADED, entry("start"), finish(state))
    assert runs.load(REQUEST, "a", []) == code
    assert handle.ops() == ["load", "status", "log", "status", "metrics"]
    assert view.closed


def test_the_counts_are_asked_for_one_answer_at_a_time() -> None:
    tick = timer(0.2)
    runs, handle, view = follower(
        tick,
        LOADED,
        tick,
        tick,
        answer("status", ANSWER),
        tick,
        finish("failed"),
    )
    runs.load(REQUEST, "a", [])
    assert handle.ops() == ["load", "claim", "status", "log", "status", "status", "metrics"]
    assert view.progressed == 1


def waits(kind: str, jobs: int) -> Step:
    """The status says that jobs wait."""
    reason = "the queue is stopped: later"
    wait = {"group": "g", "kind": kind, "reason": reason, "text": f"{jobs} jobs wait: {reason}"}
    return answer("status", {**ANSWER, "ensembles": [{**STATUS, "waits": [wait]}]})


def test_what_jobs_in_the_queue_wait_for_is_said_once_and_again_when_it_is_back() -> None:
    tick = timer(0.2)
    runs, _, view = follower(
        LOADED,
        tick,
        waits("stopped", 3),
        tick,
        waits("stopped", 2),
        tick,
        answer("status", ANSWER),
        tick,
        waits("stopped", 1),
        tick,
        waits("disabled", 1),
        finish("completed"),
    )
    assert runs.load(REQUEST, "a", []) == 0
    # The log has what keeps jobs from being submitted.
    said = [line for line in view.lines if "wait" in line]
    assert said == [
        "   3 jobs wait: the queue is stopped: later",
        "   1 jobs wait: the queue is stopped: later",
    ]


@pytest.mark.parametrize(
    ("strict", "failed", "jobs", "code"),
    [(True, 1, 1, 1), (True, 1, 0, 0), (True, 0, 0, 0), (False, 1, 1, 0)],
)
def test_a_job_that_failed_is_a_failure_where_that_was_asked_for(
    strict: bool, failed: int, jobs: int, code: int
) -> None:
    kinds = frozenset({"job"} if strict else ())
    runs, handle, _ = follower(LOADED, finish("completed"), fail_on=kinds)
    groups = {"g": {**COUNTS, "timeout": 0, "failed": failed}}
    status = {**STATUS, "groups": groups, "failed": jobs}
    handle.answers["status"] = {**ANSWER, "ensembles": [status]}
    assert runs.load(REQUEST, "a", []) == code


def test_job_events_are_printed_where_they_are_asked_for() -> None:
    event = entry("job-event", id=7, name="alloc", context={})
    runs, handle, view = follower(LOADED, event, finish("completed"), events=True)
    runs.load(REQUEST, "a", [])
    assert handle.sent[2] == ("log", {"name": "a", "follow": True, "events": True})
    assert view.lines == ["   7 alloc"]


def test_a_document_that_is_refused_is_an_error() -> None:
    runs, _, view = follower(answer("load", OSError(errno.EINVAL, "a.yaml:1: no")))
    with pytest.raises(EnsembleError, match=r"a\.yaml:1: no"):
        runs.load(REQUEST, "a", [])
    assert view.closed


@pytest.mark.parametrize("stop", [interrupt, send_signal(signal.SIGTERM)])
def test_a_signal_cancels_the_ensemble_that_is_run_and_waits_for_its_end(stop: Step) -> None:
    runs, handle, view = follower(
        LOADED,
        stop,
        answer("cancel", {"state": "ending"}),
        entry("request", op="cancel"),
        finish("canceled"),
    )
    assert runs.load(REQUEST, "a", []) == 130
    assert ("cancel", {"name": "a"}) in handle.sent
    assert view.lines == [
        "   interrupted: cancelling its jobs (again to leave at once)",
        f"   'rerun a' runs the rest of it later; {follow.INSTEAD}",
    ]


def test_a_terminal_that_is_closed_leaves_the_ensemble_to_the_service() -> None:
    runs, handle, view = follower(LOADED, send_signal(signal.SIGHUP))
    assert runs.load(REQUEST, "a", []) == 130
    assert "cancel" not in handle.ops()
    assert view.lines == ["   left 'a' to the service"]


def test_what_is_left_to_an_instance_that_ends_with_the_command_is_said_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow, "ends_with_us", lambda _: True)
    runs, _, view = follower(LOADED, send_signal(signal.SIGHUP))
    assert runs.load(REQUEST, "a", []) == 130
    ends = ": its instance ends with this command, and so do its jobs"
    assert view.lines == [f"   left 'a'{ends}"]


def test_a_signal_before_the_load_is_answered_cancels_what_it_loads() -> None:
    runs, handle, _ = follower(interrupt, LOADED, finish("canceled"))
    assert runs.load(REQUEST, "a", []) == 130
    assert handle.ops()[:4] == ["load", "status", "log", "cancel"]


def test_a_second_signal_leaves_at_once() -> None:
    runs, handle, view = follower(LOADED, interrupt, interrupt)
    assert runs.load(REQUEST, "a", []) == 130
    assert handle.ops() == ["load", "status", "log", "cancel"]
    assert view.lines[-1] == "   left 'a' to the service"


def test_a_hangup_after_an_interrupt_is_no_second_signal() -> None:
    # `flux start flux ensemble run`: the terminal sends SIGINT, and the broker SIGHUP at once.
    hangup = send_signal(signal.SIGHUP)
    runs, handle, view = follower(
        LOADED, interrupt, hangup, answer("cancel", {"state": "ending"}), finish("canceled")
    )
    assert runs.load(REQUEST, "a", []) == 130
    assert "status" in handle.ops()[4:]
    assert "   left 'a' to the service" not in view.lines
    runs, _, view = follower(LOADED, interrupt, hangup, interrupt, hangup)
    assert runs.load(REQUEST, "a", []) == 130
    assert view.lines[-1] == "   left 'a' to the service"


def test_the_timeout_cancels_the_ensemble_and_exits_with_124() -> None:
    runs, handle, _ = follower(LOADED, timer(9.0), finish("canceled"), timeout=9.0)
    assert runs.load(REQUEST, "a", []) == 124
    reason = "the time is up (--timeout 9.000s)"
    assert ("cancel", {"name": "a", "reason": reason}) in handle.sent


WALLTIME = entry("walltime", t_expires=9.0, active=1, waiting=2)


@pytest.mark.parametrize(
    "end",
    [
        (send_signal(signal.SIGALRM),),
        (WALLTIME, send_signal(signal.SIGTERM)),
        (WALLTIME, send_signal(signal.SIGHUP)),
    ],
)
@pytest.mark.parametrize("owner", [True, False])
def test_the_end_of_the_allocation_cancels_nothing_and_says_what_is_left(
    end: tuple[Step, ...], owner: bool
) -> None:
    runs, handle, view = follower(LOADED, *end, owner=owner)
    assert runs.load(REQUEST, "a", []) == 1
    assert "cancel" not in handle.ops()
    left = "the allocation has expired, 3 of 10 jobs are left: a later instance would go on with"
    assert view.lines[-1].startswith(left)


def at(clock: list[float], t: float) -> Step:
    """It is `t` now, and the counts are asked for."""

    def step(handle: Handle) -> None:
        clock[0] = t
        timer(0.2)(handle)

    return step


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the command, which begins at 1."""
    now = [1.0]
    monkeypatch.setattr(follow, "time", types.SimpleNamespace(time=lambda: now[0]))
    return now


@pytest.mark.parametrize("owner", [True, False])
def test_it_leaves_by_itself_before_the_allocation_expires(owner: bool, clock: list[float]) -> None:
    early, due = at(clock, 4.9), at(clock, 5.1)
    runs, handle, view = follower(LOADED, WALLTIME, early, due, owner=owner)
    assert runs.load(REQUEST, "a", []) == 1
    assert "cancel" not in handle.ops()
    assert view.lines[-1].startswith("the allocation is about to expire, 3 of 10 jobs are left: ")


def test_where_little_time_is_left_it_stays_for_half_of_that(clock: list[float]) -> None:
    clock[0] = 8.0
    runs, _, view = follower(LOADED, WALLTIME, at(clock, 8.4), at(clock, 8.6))
    assert runs.load(REQUEST, "a", []) == 1
    assert view.lines[-1].startswith("the allocation is about to expire")


def test_it_stays_where_the_allocation_was_extended_in_time(clock: list[float]) -> None:
    extended = entry("allocation", t_expires=None)
    runs, _, view = follower(LOADED, WALLTIME, extended, at(clock, 8.0), finish("completed"))
    assert runs.load(REQUEST, "a", []) == 0
    assert not any("about to expire" in line for line in view.lines)


def test_the_end_of_an_earlier_allocation_makes_nobody_leave(clock: list[float]) -> None:
    clock[0] = 10.0
    runs, _, view = follower(LOADED, WALLTIME, at(clock, 11.0), finish("completed"))
    assert runs.load(REQUEST, "a", []) == 0
    assert not any("about to expire" in line for line in view.lines)


def test_where_the_state_is_kept_it_says_what_goes_on() -> None:
    handle = Handle(LOADED, send_signal(signal.SIGALRM))
    handle.attributes["statedir"] = "/kept"
    view = View()
    assert Follower(Client(handle), view, owner=True).load(REQUEST, "a", []) == 1
    assert view.lines[-1].endswith("an instance with the statedir /kept goes on with them")


def test_an_interrupt_cancels_also_when_the_allocation_is_about_to_end() -> None:
    runs, handle, _ = follower(LOADED, WALLTIME, send_signal(signal.SIGINT), finish("canceled"))
    assert runs.load(REQUEST, "a", []) == 130
    assert "cancel" in handle.ops()


@pytest.mark.parametrize("owner", [True, False])
def test_in_a_job_of_a_batch_system_sigterm_cancels_nothing(
    owner: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "batch_system", lambda attr_get: "Slurm")
    runs, handle, view = follower(LOADED, send_signal(signal.SIGTERM), owner=owner)
    assert runs.load(REQUEST, "a", []) == 1
    assert "cancel" not in handle.ops()
    assert "   SIGTERM, with which Slurm ends a job: nothing is cancelled" in view.lines
    assert view.lines[-1].startswith("the allocation ends, 3 of 10 jobs are left: ")


def test_where_slurm_has_ended_the_service_first_it_says_what_goes_on_without_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(follow, "batch_system", lambda attr_get: "Slurm")
    handle = Handle(LOADED, send_signal(signal.SIGTERM))
    handle.attributes["statedir"] = "/kept"
    handle.answers["status"] = OSError(errno.ENOSYS, "No service matching it")
    view = View()
    assert Follower(Client(handle), view, owner=True).load(REQUEST, "a", []) == 1
    left = "the allocation ends, and jobs are left: an instance with the statedir /kept goes on"
    assert view.lines[-1].startswith(left)
    assert capsys.readouterr().err == ""


def test_in_a_job_of_a_batch_system_an_interrupt_cancels_and_sigterm_leaves_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow, "batch_system", lambda attr_get: "Slurm")
    runs, handle, view = follower(LOADED, interrupt, send_signal(signal.SIGTERM))
    assert runs.load(REQUEST, "a", []) == 130
    assert "cancel" in handle.ops()
    assert view.lines[-1] == "   left 'a' to the service"


def test_where_there_is_time_again_a_signal_cancels() -> None:
    again = entry("allocation", t_expires=None)
    end = send_signal(signal.SIGTERM)
    runs, handle, view = follower(LOADED, WALLTIME, again, end, finish("canceled"))
    assert runs.load(REQUEST, "a", []) == 130
    assert "cancel" in handle.ops()
    assert "   there is time again: what was left goes on" in view.lines


def test_signals_have_their_handlers_back_afterwards() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    runs, _, _ = follower(LOADED, finish("completed"))
    runs.load(REQUEST, "a", [])
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.set_wakeup_fd(-1) == -1


def test_watch_leaves_the_ensemble_to_the_service_at_a_signal() -> None:
    watches, handle, view = follower(entry("start"), interrupt, owner=False)
    assert watches.follow("a") == 130
    assert handle.ops() == ["status", "log"]
    assert view.lines == ["   left 'a' to the service"]


def test_an_ensemble_that_is_unloaded_is_an_error() -> None:
    runs, _, _ = follower(LOADED, answer("log", OSError(errno.ENODATA, "No data")))
    with pytest.raises(Failure, match="ensemble 'a' was unloaded before it ended"):
        runs.load(REQUEST, "a", [])


def test_a_service_that_has_too_many_followers_is_an_error() -> None:
    runs, _, _ = follower(LOADED, answer("log", OSError(errno.EAGAIN, "too many")))
    with pytest.raises(EnsembleError, match="too many"):
        runs.load(REQUEST, "a", [])


@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.ESHUTDOWN, errno.ENOSYS])
def test_a_service_that_goes_away_before_the_first_entry_is_waited_for(number: int) -> None:
    gone = answer("log", OSError(number, os.strerror(number)))
    runs, handle, _ = follower(LOADED, gone, LOOK, BACK, finish("completed"))
    assert runs.load(REQUEST, "a", []) == 0
    assert handle.ops().count("log") == 2


def test_a_service_that_dies_of_the_request_for_the_log_is_waited_for() -> None:
    lost = lambda handle: handle.waiting["log"].popleft()  # noqa: E731
    late = timer(LOOK_TIMEOUT)
    runs, handle, _ = follower(LOADED, lost, late, LOOK, BACK, finish("completed"))
    assert runs.load(REQUEST, "a", []) == 0
    assert handle.ops() == ["load", "status", "log", "list", "status", "log", "status", "metrics"]


DIED = answer("log", OSError(errno.EHOSTUNREACH, "No route to host"))
LOOK = timer(FIRST_PAUSE)
ABSENT = answer("list", OSError(errno.ENOSYS, "No service matching ensemble.list is registered"))
ABSENT_CLAIM = answer("claim", OSError(errno.ENOSYS, "No service matching ensemble.claim"))
BACK = answer("list", {"ensembles": []})


def test_a_service_that_comes_back_is_followed_on_with_what_is_new(
    capsys: pytest.CaptureFixture[str],
) -> None:
    again = timer(FIRST_PAUSE * GROWTH)
    runs, handle, view = follower(
        LOADED,
        entry("start"),
        entry("pause"),
        DIED,
        LOOK,
        ABSENT,
        again,
        BACK,
        entry("pause"),  # its log had been cut short before it was read
        entry("resume"),
        finish("completed"),
    )
    assert runs.load(REQUEST, "a", []) == 0
    logs = [payload.get("skip") for op, payload in handle.sent if op == "log"]
    assert logs == [None, 2]
    assert [line.strip() for line in view.lines] == ["paused", "resumed"]
    assert capsys.readouterr().err.splitlines() == [
        "flux-ensemble: the ensemble service went away; waiting for it to come back",
        "flux-ensemble: the ensemble service is back",
    ]


def status(t_start: float) -> Step:
    return answer("status", {"service": {"t_start": t_start}, "ensembles": [STATUS]})


def test_another_service_than_before_is_asked_for_the_log_once_more() -> None:
    tick = timer(0.2)
    late = answer("log", OSError(errno.EHOSTUNREACH, "No route to host"))
    old_and_new = (late, finish("completed"))
    runs, handle, _ = follower(
        *(LOADED, entry("start"), tick, status(1.0), tick, status(2.0)), LOOK, BACK, *old_and_new
    )
    assert runs.load(REQUEST, "a", []) == 0
    assert handle.ops().count("log") == 2


def test_another_service_than_before_is_asked_for_each_log_once_more() -> None:
    tick = timer(LOOK_INTERVAL)
    handle = Handle(
        *(entry("start"), status(1.0), tick, status(2.0)),
        *(LOOK, BACK, answer("log", OSError(errno.EHOSTUNREACH, "late")), entry("b")),
    )
    assert read(handle, "a", want=2) == (True, [("a", "start"), ("a", "b")])


def test_a_service_that_does_not_come_back_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "PATIENCE", 0.0)
    runs, _, view = follower(LOADED, entry("start"), DIED)
    with pytest.raises(EnsembleError, match=r"did not come back within .* 'a' had not ended"):
        runs.load(REQUEST, "a", [])
    assert view.closed


def test_a_service_that_comes_back_without_the_ensemble_is_an_error() -> None:
    unknown = answer("log", OSError(errno.ENOENT, "no ensemble named 'a'"))
    runs, _, _ = follower(LOADED, entry("start"), DIED, LOOK, BACK, unknown)
    with pytest.raises(EnsembleError, match="the ensemble service came back without ensemble 'a'"):
        runs.load(REQUEST, "a", [])


def test_a_signal_to_watch_leaves_a_service_that_is_away() -> None:
    watches, _, _ = follower(entry("start"), DIED, interrupt, owner=False)
    assert watches.follow("a") == 130


def test_a_signal_to_run_cancels_the_ensemble_when_the_service_is_back() -> None:
    runs, handle, view = follower(
        LOADED, entry("start"), DIED, interrupt, LOOK, BACK, finish("canceled")
    )
    assert runs.load(REQUEST, "a", []) == 130
    assert handle.ops() == ["load", "status", "log", "list", "log", "cancel", "status", "metrics"]
    assert view.lines == [
        "   interrupted: its jobs are cancelled when the service is back (again to leave at once)",
        f"   'rerun a' runs the rest of it later; {follow.INSTEAD}",
    ]


def test_a_cancel_that_the_service_died_of_is_sent_again() -> None:
    died = answer("cancel", OSError(errno.EHOSTUNREACH, "No route to host"))
    runs, handle, _ = follower(
        LOADED, entry("start"), interrupt, died, DIED, LOOK, BACK, finish("canceled")
    )
    assert runs.load(REQUEST, "a", []) == 130
    assert handle.ops().count("cancel") == 2


def test_a_second_signal_leaves_a_service_that_is_away() -> None:
    runs, handle, _ = follower(LOADED, entry("start"), DIED, interrupt, interrupt)
    assert runs.load(REQUEST, "a", []) == 130
    assert "cancel" not in handle.ops()


def test_a_signal_is_the_exit_code_where_the_service_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    died = answer("cancel", OSError(errno.EHOSTUNREACH, "No route to host"))
    monkeypatch.setattr(outage, "PATIENCE", 0.0)
    runs, _, _ = follower(LOADED, entry("start"), interrupt, died, DIED)
    assert runs.load(REQUEST, "a", []) == 130
    assert "its jobs are not cancelled" in capsys.readouterr().err


def test_a_service_that_dies_at_the_end_costs_the_table_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs, handle, _ = follower(LOADED, entry("start"), finish("completed"))
    handle.answers["metrics"] = OSError(errno.EHOSTUNREACH, "No route to host")
    assert runs.load(REQUEST, "a", []) == 0
    assert "there is no table of the jobs of 'a'" in capsys.readouterr().err


UNANSWERED = answer("load", OSError(errno.EHOSTUNREACH, "No route to host"))
LOADED_LATER: Step = lambda handle: handle.waiting["load"].pop().answer({"name": "a"})  # noqa: E731
YOUNG, OLD = (answer("claim", {"age": age}) for age in (0.0, 1e9))
TICK = timer(0.2)


def there(*known: tuple[str, float]) -> Step:
    ensembles = [{"name": name, "t_start": t_start} for name, t_start in known]
    return answer("list", {"ensembles": ensembles})


def test_a_service_that_dies_while_it_loads_and_stays_away_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outage, "PATIENCE", 0.0)
    runs, _, _ = follower(UNANSWERED)
    with pytest.raises(EnsembleError, match=r"went away while it loaded .* `flux ensemble list`"):
        runs.load(REQUEST, "a", [])


def test_what_a_module_has_loaded_that_died_is_followed_when_it_is_back() -> None:
    runs, handle, _ = follower(UNANSWERED, TICK, there(("a", 2.0)), finish("completed"))
    assert runs.load(REQUEST, "a", []) == 0
    assert handle.ops()[:4] == ["load", "list", "status", "log"]


def test_what_a_process_has_loaded_that_died_is_followed_when_it_is_back() -> None:
    found = (TICK, OLD, TICK, YOUNG, there(("a", 2.0), ("b", 1.0)))
    runs, handle, _ = follower(*found, finish("completed"))
    assert runs.load(REQUEST, "a", [("a", 1.0), ("b", 1.0)]) == 0
    assert handle.ops()[:6] == ["load", "claim", "claim", "list", "status", "log"]


def test_what_was_not_loaded_is_loaded_once_more() -> None:
    absent = (TICK, ABSENT_CLAIM, ABSENT, TICK, there(("a", 1.0)))
    runs, handle, _ = follower(*absent, LOADED_LATER, finish("completed"))
    assert runs.load(REQUEST, "a", [("a", 1.0)]) == 0
    assert handle.ops()[:5] == ["load", "claim", "list", "list", "load"]


def test_what_was_not_loaded_is_not_loaded_after_a_signal() -> None:
    runs, handle, _ = follower(interrupt, TICK, YOUNG, there())
    assert runs.load(REQUEST, "a", []) == 130
    assert handle.ops() == ["load", "claim", "list"]


def test_a_load_that_is_answered_late_is_one() -> None:
    runs, handle, _ = follower(TICK, YOUNG, LOADED, there(("a", 2.0)), finish("completed"))
    assert runs.load(REQUEST, "a", []) == 0
    assert handle.ops().count("log") == 1


def test_a_connection_that_is_lost_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, handle, _ = follower()
    monkeypatch.setattr(handle, "reactor_run", lambda: -1)
    with pytest.raises(EnsembleError, match="the connection to Flux was lost"):
        runs.load(REQUEST, "a", [])


def test_an_output_that_nobody_reads_is_as_good_as_a_hangup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs, handle, view = follower(LOADED, entry("pause"))

    def line(_line: Line) -> None:
        monkeypatch.setattr(view, "line", view.lines.append)
        raise BrokenPipeError

    dropped: list[bool] = []
    monkeypatch.setattr(view, "line", line)
    monkeypatch.setattr(follow, "drop_output", lambda: dropped.append(True))
    assert runs.load(REQUEST, "a", []) == 130
    assert dropped == [True]
    assert "cancel" not in handle.ops()


def read(
    handle: Handle, *names: str, timeout: float = 0.0, want: int = 2
) -> tuple[bool, list[tuple[str, str]]]:
    seen: list[tuple[str, str]] = []

    def note(name: str, one: Entry) -> bool:
        seen.append((name, one["name"]))
        return len(seen) >= want

    in_time = LogReader(Client(handle), names, note, follow=True).read(timeout)
    return in_time, seen


def test_a_log_is_read_until_no_more_is_wanted() -> None:
    handle = Handle(entry("start"), entry("pause"))
    assert read(handle, "a") == (True, [("a", "start"), ("a", "pause")])


def test_a_log_is_read_to_its_end() -> None:
    handle = Handle(entry("start"), answer("log", OSError(errno.ENODATA, "No data")))
    assert read(handle, "a") == (True, [("a", "start")])


def test_several_logs_are_read_at_the_same_time() -> None:
    handle = Handle(entry("start"), entry("start"))
    in_time, seen = read(handle, "a", "b", want=1)
    assert in_time
    assert sorted(seen) == [("a", "start"), ("b", "start")]


def test_what_follows_the_wanted_entry_of_a_log_is_left_out() -> None:
    handle = Handle(finish("failed"), entry("start"), entry("pause"), finish("failed"))
    seen: list[tuple[str, str]] = []

    def note(name: str, one: Entry) -> bool:
        seen.append((name, one["name"]))
        return one["name"] == "finish"

    assert LogReader(Client(handle), ["a", "b"], note, follow=True).read()
    assert seen == [("a", "finish"), ("b", "start"), ("b", "finish")]


def test_logs_are_read_on_when_the_service_is_back() -> None:
    died = answer("log", OSError(errno.ESHUTDOWN, "shutting down"))
    ends = [finish("completed"), finish("failed")]
    handle = Handle(entry("start"), entry("start"), died, died, LOOK, BACK, *ends)
    seen: list[tuple[str, str]] = []

    def note(name: str, one: Entry) -> bool:
        seen.append((name, one["name"]))
        return one["name"] == "finish"

    assert LogReader(Client(handle), ["a", "b"], note, follow=True).read()
    assert seen == [("a", "start"), ("b", "start"), ("a", "finish"), ("b", "finish")]
    assert handle.ops() == ["status", "log", "log", "list", "log", "log"]


def test_a_service_that_was_not_there_is_not_waited_for() -> None:
    handle = Handle(answer("log", OSError(errno.ENOSYS, "No service matching ensemble.log")))
    with pytest.raises(EnsembleError, match="not loaded"):
        read(handle, "a")


def test_the_time_goes_on_while_the_service_is_away() -> None:
    handle = Handle(entry("start"), DIED, timer(7.0))
    assert read(handle, "a", timeout=7.0) == (False, [("a", "start")])


def test_reading_a_log_ends_when_the_time_is_up() -> None:
    handle = Handle(entry("start"), timer(7.0))
    assert read(handle, "a", timeout=7.0) == (False, [("a", "start")])


def test_a_log_that_is_refused_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = OSError(errno.ENOENT, "no ensemble named 'a'")
    handle = Handle(answer("log", refusal))
    handle.answers["list"] = {"ensembles": [{"name": "aa"}]}
    with pytest.raises(EnsembleError, match="no ensemble named 'a'; did you mean 'aa'"):
        read(handle, "a")


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["completed", "completed"], 0),
        (["completed", "canceled"], 3),
        (["canceled", "failed"], 1),
    ],
)
def test_wait_exits_as_the_worst_of_them(
    states: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from flux_ensemble.cli.main import run_command

    handle = Handle(*map(finish, states))
    monkeypatch.setattr(target, "Client", lambda: Client(handle))
    assert run_command(["wait", "a", "b"]) == code
    assert all(state in capsys.readouterr().out for state in states[:1])


def test_wait_exits_with_124_when_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flux_ensemble.cli.main import run_command

    handle = Handle(timer(30.0))
    monkeypatch.setattr(target, "Client", lambda: Client(handle))
    assert run_command(["wait", "a", "--timeout", "0.5m"]) == 124
    assert "the time is up and 'a' had not ended" in capsys.readouterr().err


def test_log_prints_lines_or_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flux_ensemble.cli.main import run_command

    for arguments, printed in (
        (["log", "a"], "      0.000s  pause\n"),
        (["log", "a", "--json"], '{"timestamp": 1.0, "name": "pause", "context": {}}\n'),
    ):
        handle = Handle(entry("pause"), answer("log", OSError(errno.ENODATA, "No data")))
        monkeypatch.setattr(target, "Client", lambda handle=handle: Client(handle))
        assert run_command(arguments) == 0
        assert capsys.readouterr().out == printed
        assert handle.sent == [("log", {"name": "a", "follow": False})]


@pytest.mark.parametrize(
    ("ensembles", "name"),
    [
        ("", None),
        ("hunt:running", "hunt"),
        ("hunt:completed", "hunt"),
        ("hunt:completed hunt-9:failed hunt-10:completed", "hunt-10"),
        ("hunt:running hunt-2:running", "hunt"),
        ("hunt:failed hunt-2:canceled hunt-9:paused hunt-10:running hunt-x:running", "hunt-10"),
        # Without the first one it is unknown by what name that was requested.
        ("hunt-2:running", None),
    ],
)
def test_a_run_goes_on_with_the_newest_of_its_name_that_has_not_ended(
    ensembles: str, name: str | None
) -> None:
    pairs = [one.split(":") for one in ensembles.split()]
    listed: Any = [{"name": name, "state": state} for name, state in pairs]
    assert begun_as("hunt", listed) == name


@pytest.mark.parametrize(
    ("ensembles", "name"),
    [
        ("", None),
        ("hunt:canceled", "hunt"),
        ("hunt:completed hunt-9:failed hunt-10:canceled hunt-x:running", "hunt-10"),
        ("hunt:canceled hunt-2:completed", None),
        ("hunt:running hunt-2:canceled", None),
    ],
)
def test_a_run_that_was_canceled_is_named_to_who_would_resume_it(
    ensembles: str, name: str | None
) -> None:
    pairs = [one.split(":") for one in ensembles.split()]
    listed: Any = [{"name": name, "state": state} for name, state in pairs]
    assert canceled_as("hunt", listed) == name
