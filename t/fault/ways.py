"""Scenarios in which the way to members is lost, to an instance elsewhere or to a service."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from urllib.parse import urlparse

from instance import Instance
from members import Stage, stopped
from nested import Member, Standing
from scenario import Context, descendants, words
from scene import within
from workloads import Workload, shared

#: Jobs of a sweep for each fault: more than run at once. They end when that is about to happen.
_JOBS = 16
_JOB = f"sh -c 'until test -e go.$(({{s}}/{_JOBS})); do sleep 0.1; done'"

#: Cores of the instance that is elsewhere.
_CORES = 4

#: Its name as a member.
_OTHER = "other.0"

#: Stands in for ssh: what is to run on a host runs here.
_SSH = '#!/bin/sh\nshift\nexec sh -c "$*"\n'


class _Elsewhere(Stage):
    """A stage, and an instance that the service reaches by ssh."""

    def __init__(self, context: Context) -> None:
        self._tools = tempfile.TemporaryDirectory(prefix="fault-")
        ssh = Path(self._tools.name) / "ssh"
        ssh.write_text(_SSH)
        ssh.chmod(0o700)
        self._before = os.environ.get("FLUX_SSH")
        # Services have it from here.
        os.environ["FLUX_SSH"] = str(ssh)
        super().__init__(context)
        directory = self.directory / "other"
        directory.mkdir()
        self._other = Instance(directory, cores=_CORES)
        self._other.start()
        self.uri = f"ssh://elsewhere.invalid{urlparse(self._other.uri).path}"

    def watch(self, workload: Workload) -> Member:
        """Watch what it does as a member of an ensemble."""
        member = Standing(workload.name, _OTHER, self._other.uri)
        self.members.add(member)
        return member

    def ways(self) -> dict[int, list[int]]:
        """The ways there are: processes of `ssh`, by those of `flux proxy`."""
        found: dict[int, list[int]] = {}
        for proxy in descendants(self.service.pid):
            if b"proxy" in words(proxy):
                commands = {one: b" ".join(words(one)) for one in descendants(proxy)}
                # It says where its socket is when it is through.
                if any(command.startswith(b"cat") for command in commands.values()):
                    found[proxy] = [one for one in commands if b"flux relay" in commands[one]]
        return found

    def close(self) -> None:
        """Take everything down."""
        if self._before is None:
            del os.environ["FLUX_SSH"]
        else:
            os.environ["FLUX_SSH"] = self._before
        super().close()
        self._other.stop()
        self._tools.cleanup()


def _lose(stage: _Elsewhere, proxy: int, ssh: Sequence[int], kind: int) -> None:
    """Do something to the way, and to the service.

    Args:
        proxy, ssh: the processes by which the service reaches the instance.
        kind: what, 0 to 3.
    """
    if kind == 0:
        _kill(proxy)
    elif kind == 1:
        _kill(*ssh)
    elif kind == 2:
        _kill(proxy, *ssh)
        stage.kill()
    else:
        with contextlib.ExitStack() as stack:
            for one in ssh:
                stack.enter_context(stopped(one))
            time.sleep(10.0 if stage.long else 1.0)
    stage.service.await_answer(stage.handle)


#: How many kinds there are.
_KINDS = 4


def _kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def way_lost(context: Context) -> None:
    """The way to an instance elsewhere is lost, with the service or without; nothing runs again.

    The proxy is killed, or ssh is; both are with the service; ssh says nothing for a while.
    """
    with within(_Elsewhere(context)) as stage:
        times = _KINDS * max(1, context.wanted)
        other = {"name": "other", "uri": stage.uri}
        workload = shared("way", _JOBS * (times + 1), members=1, command=_JOB, others=[other])
        name = workload.name
        stage.load(workload)
        member = stage.watch(workload)
        before: dict[int, list[int]] = {}
        for number in range(times):

            def is_used(before: Collection[int] = tuple(before)) -> bool:
                """Jobs run there, and there is a way, which is another one if that was lost."""
                return bool(stage.ways().keys() - before) and member.running(name) > 0

            stage.await_("there is a way", is_used)
            before = stage.ways()
            _let_go(stage, number)
            ((proxy, ssh),) = before.items()
            _lose(stage, proxy, ssh, number % _KINDS)
            if number % _KINDS == _KINDS - 1:
                before = {}
        _let_go(stage, times)
        again = stage.verify_shared(workload, losses=range(1))
        if again:
            context.row.problems.append(f"{again} jobs ran again")


def _let_go(stage: Stage, number: int) -> None:
    """Let jobs of a sweep end."""
    (stage.directory / f"go.{number}").touch()


def _child(member: Member) -> int:
    """The process of the service in a member; 0 while there is none."""
    return next((one for one in descendants(member.pid) if b"--attach" in words(one)), 0)


def child_services(context: Context) -> None:
    """SIGKILL of the services in members, of that of the ensemble, and of both; none runs again."""
    with within(Stage(context)) as stage:
        times = 3 * max(1, context.wanted)
        pool = {"service": "child"}
        workload = shared("child", _JOBS * (times + 1), command=_JOB, pool=pool)
        name = workload.name
        stage.load(workload)
        killed = 0
        for number in range(times):
            victims = stage.busiest(name, many=2)
            stage.await_("their services run", lambda: all(map(_child, victims)))  # noqa: B023
            _let_go(stage, number)
            if number % 3 != 1:
                # All of them, now and then.
                several = victims if stage.random.random() < 0.5 else victims[:1]
                _kill(*filter(None, map(_child, several)))
                killed += 1
            if number % 3:
                stage.kill()
                stage.service.await_answer(stage.handle)
        _let_go(stage, times)
        context.row.reached["services of members killed"] = killed
        again = stage.verify_shared(workload, losses=range(1))
        if again:
            context.row.problems.append(f"{again} jobs ran again")
