"""Runs on the local queue, while something is done to them.

    seen = Local(directory, features, commands).play([SITUATIONS["killed"]], [2])

A run has a *gate* (see `job.py`): when so many jobs have begun, those that begin now are held, and
with jobs under way for certain something is done. Then the gate opens, for the next or for good.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .commands import PATIENCE, Commands, Done
from .evidence import Evidence, collect
from .features import Feature, build
from .judge import Happened, judge

sys.path.append(str(Path(__file__).parents[1] / "fault"))

from scenario import children
from second_user import NoSecondUserError, made_user

ROOT = Path(__file__).parents[2]

#: Seconds between looks at what has no event to wait for.
TICK = 0.005

NAME = "study"

#: All jobs of all features can run at once, so that what happens to a run happens to all of them.
SIZE = (4, 32)


class Local:
    """A document on the local queue, in a directory of its own.

    Args:
        directory: its own, empty.
        features: what the document is made of.
        cold: commands are Pythons of their own.
        size: nodes of the queue, and cores of each.

    Attributes:
        commands: in that directory.
        happened: what was done to it.
        problems: what was wrong while it ran.
        met: how many situations found it running.
        reran: jobs of it were run again after its end.
        recorded: the run that goes on, or has ended, is recorded from its beginning.
    """

    #: Of all commands on a run, and whether runs are recorded.
    options: Sequence[str] = ("--queue", "local")
    records = True

    def __init__(
        self,
        directory: Path,
        features: Sequence[Feature],
        *,
        cold: bool = False,
        size: tuple[int, int] = SIZE,
    ) -> None:
        self.directory = directory
        self.features = features
        self.size: Sequence[str] = ("--nodes", str(size[0]), "--cores", str(size[1]))
        # No Flux is looked for, and what it keeps is here.
        variables = {"XDG_STATE_HOME": str(directory / "state"), "FLUX_URI": None}
        self.commands = Commands(directory, variables, cold)
        self.interrupted = False
        self.reran = False
        self.problems: list[str] = []
        self.met = 0
        self.recorded = False
        document, files = build(features, NAME)
        files[f"{NAME}.yaml"] = json.dumps(document, indent=1)
        for name, text in files.items():
            (directory / name).write_text(text)
        self._gate = directory / "gate"
        self._witness = directory / "witness"

    @property
    def state_dir(self) -> Path:
        """Where the local queue keeps its files."""
        return self.directory / "state" / "flux-ensemble"

    def play(
        self, situations: Sequence[Situation], at: Sequence[int]
    ) -> list[tuple[Evidence, Happened]]:
        """Run it once, with all that is to happen.

        Args:
            situations: what happens.
            at: for each of them that happens meanwhile, after how many jobs have begun.

        Returns:
            What is known of each ensemble in the end.
        """
        process = self._run([one.during for one in situations if one.during], at)
        done = self.commands.end(process)
        seen = [self._collect(NAME, done)]
        # A rerun changes what others look at, and a second run writes its recording and its report
        # over those of the first.
        last = ("reran", "again")
        for situation in sorted(
            situations, key=lambda one: last.index(one.name) if one.name in last else -1
        ):
            if situation.after is not None:
                seen += situation.after(self, seen)
        return seen

    def _run(self, happens: Sequence[During], at: Sequence[int]) -> subprocess.Popen[str]:
        """Run it, and have things happen; the process with which it ends."""
        place, *later = sorted(at[: len(happens)]) or [0]
        if happens:
            self.gate(place)
        process = self.start()
        try:
            for during in happens:
                if not self.await_begun(place + 1, process):
                    break
                self.met += 1
                process = during(self, process)
                if later:
                    # With one that begins after that, what goes on is there for certain.
                    place = max(later.pop(0), self.begun() + 1)
                    self.gate(place)
        except BaseException:
            process.kill()
            self.commands.end(process)
            raise
        self.open()
        return process

    # -- for situations ---------------------------------------------------------------------

    def start(self, *more: str, commands: Commands | None = None) -> subprocess.Popen[str]:
        """Start a run, or go on with one."""
        # A run that goes on is not recorded: that would miss the beginning.
        self.recorded = self.records and "--resume" not in more
        record = ["--record", f"{NAME}.recording"] if self.recorded else []
        words = ["run", *self.options, *self.size, *record,
                 "--summary", f"{NAME}.summary", *more, f"{NAME}.yaml"]  # fmt: skip
        return (commands or self.commands).start(*words)

    def ask(self, *words: str) -> Done:
        """Run another command on it."""
        return self.commands.run(words[0], *self.options, *words[1:])

    def gate(self, many: int) -> None:
        """Hold back all jobs but the first so many."""
        temporary = self.directory / "gate.new"
        temporary.write_text(str(many))
        temporary.rename(self._gate)

    def open(self) -> None:
        """Hold back no job any more."""
        with contextlib.suppress(FileNotFoundError):
            self._gate.unlink()

    def begun(self) -> int:
        """How many jobs have begun."""
        try:
            return self._witness.read_text().count('"what": "begin"')
        except FileNotFoundError:
            return 0

    def await_begun(self, many: int, process: subprocess.Popen[str]) -> bool:
        """Wait until so many jobs have begun; False if the run ends before."""
        deadline = time.monotonic() + PATIENCE
        while self.begun() < many:
            if process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                process.kill()
                raise RuntimeError(f"no more than {self.begun()} of {many} jobs begin")
            time.sleep(TICK)
        return True

    def end_by(self, process: subprocess.Popen[str], number: int) -> Done:
        """Send a run a signal that ends it; how it has ended."""
        process.send_signal(number)
        return self.commands.end(process)

    def collect_again(
        self, name: str, done: Done | None, witness: str
    ) -> tuple[Evidence, Happened]:
        """Ask once more for all of an ensemble, of which the witness is elsewhere now."""
        seen = collect(self.commands, name, *self.options, run=done, witness=witness)
        return seen, Happened(interrupted=self.interrupted, reran=self.reran)

    def _collect(self, name: str, done: Done) -> tuple[Evidence, Happened]:
        # `watch`, by which some situations go on, writes none.
        files = {"summary": f"{NAME}.summary"} if "run" in done.words else {}
        if self.recorded:
            files["recording"] = f"{NAME}.recording"
        try:
            seen = collect(self.commands, name, *self.options, run=done, **files)
        except (OSError, RuntimeError) as error:
            raise RuntimeError(f"{error}\n{done.out[-2000:]}\n{done.err[-2000:]}") from None
        return seen, Happened(interrupted=self.interrupted)


#: What is done while a run is held at its gate; the process that it goes on with.
During = Callable[[Local, "subprocess.Popen[str]"], "subprocess.Popen[str]"]

#: What is done after it has ended; what is known of ensembles besides.
After = Callable[[Local, Sequence[tuple[Evidence, Happened]]], list[tuple[Evidence, Happened]]]


@dataclass(frozen=True)
class Situation:
    """Something that happens to a run.

    Args:
        name: its own.
        says: what happens, in a sentence.
        during: what is done while jobs are under way.
        after: what is done when it is over.
        without: by feature, why it makes no sense.
        missing: why it cannot happen on this machine; empty where it can.
    """

    name: str
    says: str
    during: During | None = None
    after: After | None = None
    without: dict[str, str] = field(default_factory=dict)
    missing: Callable[[], str] = lambda: ""


def _resumed(local: Local, done: Done, *, code: int | None = None) -> subprocess.Popen[str]:
    """Go on with a run that has ended before the ensemble has."""
    local.interrupted = True
    if code is not None and done.code != code:
        local.problems.append(f"the run exits with {done.code}, not {code}: {done.err[-500:]}")
    return local.start("--resume")


def _killed(local: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    return _resumed(local, local.end_by(process, signal.SIGKILL))


def _all_killed(local: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """As when the machine is switched off."""
    family = [process.pid]
    for pid in family:
        family += children(pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    return _resumed(local, local.commands.end(process))


def _helper_killed(local: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """As when the kernel needs memory: what starts the jobs is killed."""
    victim = next(pid for pid in children(process.pid) if not _suggests(pid))
    os.kill(victim, signal.SIGKILL)
    return _resumed(local, local.commands.end(process))


def _suggests(pid: int) -> bool:
    """Whether a process runs functions, or suggests points."""
    with contextlib.suppress(OSError):
        return b"runtime/custom/child.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _closed(local: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    return _resumed(local, local.end_by(process, signal.SIGHUP))


def _terminated(local: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    return _resumed(local, local.end_by(process, signal.SIGTERM))


def _paused(local: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    for command, state in (("pause", "paused"), ("resume", "running")):
        done = local.ask(command, NAME)
        if done.out.strip() != f"{NAME}: {state}":
            local.problems.append(f"{command} says {done.out!r}, {done.err!r}")
    return process


#: What a second user tries, given the directory, where state is, and where sockets are. Each
#: line that it prints is something that has worked; "look" is that it gets there.
_ATTEMPTS = """
import json, pathlib, socket, sys
directory, state, temporary = map(pathlib.Path, sys.argv[1:])
def attempt(what, do):
    try:
        do()
    except OSError:
        return
    print(what)
def tell(path, kind, data):
    with socket.socket(socket.AF_UNIX, kind) as out:
        out.connect(str(path))
        out.send(data)
attempt("look", lambda: list(directory.iterdir()))
attempt("list the state", lambda: list(state.iterdir()))
for name in ("document", "eventlog", "events", "jobs", "status.json"):
    attempt("read " + name, lambda: (state / name).read_bytes())
    attempt("write " + name, lambda: (state / name).open("ab"))
for name in ("gate", "witness", "mine"):
    attempt("write " + name, lambda: (directory / name).open("ab"))
for op in ("pause", "cancel", "terminate"):
    request = op.encode() + b' {"name": "study"}\\n'
    attempt(op, lambda: tell(state / "control", socket.SOCK_STREAM, request))
memo = json.dumps({"id": 1, "memo": {"fom": -1e9, "loss": -1e9}}).encode()
for path in temporary.glob("flux-ensemble-*"):
    attempt("publish", lambda: tell(path / "memo", socket.SOCK_DGRAM, memo))
"""


def _second_user(local: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """A second user of the machine finds the directory, and can do nothing there."""
    local.directory.chmod(0o755)
    worked = other_user_can(local.directory, local.state_dir / NAME)
    if "look" not in worked:
        raise RuntimeError("the second user does not get there")
    local.problems += [f"a second user may {what}" for what in worked if what != "look"]
    return process


def other_user_can(directory: Path, state: Path) -> list[str]:
    """What a second user of the machine can do to a run, by trying.

    Args:
        directory: where it runs.
        state: where it keeps its files.
    """
    places = (directory, state, tempfile.gettempdir())
    with made_user() as user:
        done = user.run_python(_ATTEMPTS, *map(str, places))
    if done.returncode:
        raise RuntimeError(f"a second user cannot try: {done.stderr}")
    return done.stdout.splitlines()


@functools.cache
def _no_second_user() -> str:
    try:
        with made_user():
            return ""
    except NoSecondUserError as reason:
        return str(reason)


def _other_python(local: Local, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """The run is killed, and one under another Python goes on with it."""
    local.interrupted = True
    local.end_by(process, signal.SIGKILL)
    return local.start("--resume", commands=_elsewhere(local))


def _elsewhere(local: Local) -> Commands:
    command = next(iter(other_pythons()))
    return Commands(local.directory, local.commands.environment, command=[str(command)])


def _looked_at_elsewhere(
    local: Local, seen: Sequence[tuple[Evidence, Happened]]
) -> list[tuple[Evidence, Happened]]:
    """The other Python says the same of it, and replays what this one has recorded."""
    first, other = seen[0][0], _elsewhere(local)
    for words, known in (
        (["status"], {"ensembles": [first.status]}),
        (["jobs", "--interrupted"], {"jobs": list(first.rows)}),
        (["metrics"], first.metrics),
    ):
        done = other.run(*words, *local.options, "--json", NAME)
        if done.code or json.loads(done.out) != known:
            local.problems.append(f"{words[0]} under another Python: {done.out}{done.err}")
    for recorder, player in ((local.commands, other), (other, local.commands)):
        recording = f"{id(player)}.recording"
        for commands, words in (
            (recorder, ["simulate", *local.size, "--record", recording, f"{NAME}.yaml"]),
            (player, ["replay", recording]),
        ):
            done = commands.run(*words)
            if done.code:
                local.problems.append(f"{words[0]} exits with {done.code}: {done.out}{done.err}")
    return []


def other_pythons() -> list[Path]:
    """The commands of the environments of other Pythons that `make check-pythons` keeps."""
    mine = f"{sys.version_info[0]}-{sys.version_info[1]}"
    return sorted(
        path for path in (ROOT / ".nox").glob("short-3-*/bin/flux-ensemble")
        if path.parent.parent.name != f"short-{mine}"
    )  # fmt: skip


def _no_other_python() -> str:
    return "" if other_pythons() else "other Python: `nox --install-only` makes an environment"


def _again(
    local: Local, seen: Sequence[tuple[Evidence, Happened]]
) -> list[tuple[Evidence, Happened]]:
    """The same command once more: the first run is kept, and the second is like it."""
    for path in [local.directory / "witness", *local.directory.glob("mark-*")]:
        path.rename(path.with_name(f"first-{path.name}"))
    interrupted, local.interrupted = local.interrupted, False
    done = local.commands.end(local.start())
    name = json.loads((local.directory / f"{NAME}.summary").read_text()).get("name")
    second = local._collect(name, done)
    if name == NAME:
        local.problems.append("the second run has the name of the first, which is gone")
        return [second]
    local.interrupted = interrupted
    return [second, local.collect_again(NAME, seen[0][0].run, "first-witness")]


def reran(
    local: Local, seen: Sequence[tuple[Evidence, Happened]]
) -> list[tuple[Evidence, Happened]]:
    """The jobs that have not succeeded run again, in the same record, and fare as before."""
    done = local.ask("rerun", NAME)
    none = "nothing runs again" in done.out
    if none:
        problem = f"nothing runs again: {done.out!r}"
        local.problems += [problem] * bool(seen[0][0].status["failed"])
    again = collect(local.commands, NAME, *local.options, run=None if none else done)
    local.reran = not none
    return [(again, Happened(interrupted=local.interrupted, reran=not none, stated=not none))]


def _replayed(
    local: Local, seen: Sequence[tuple[Evidence, Happened]]
) -> list[tuple[Evidence, Happened]]:
    """The recording is replayed, is what the report says, and makes the same report."""
    if not local.recorded:
        return []
    first = seen[0][0]
    done = local.commands.run("replay", "--report", f"{NAME}.html", f"{NAME}.recording")
    if done.code:
        local.problems.append(f"replay --report exits with {done.code}: {done.out}{done.err}")
    done = local.commands.run("report", "--force", "-o", "recorded.html",
                              "--recording", f"{NAME}.recording")  # fmt: skip
    if done.code:
        local.problems.append(f"report --recording exits with {done.code}: {done.out}{done.err}")
        return []
    from .evidence import report

    recorded = report(local.directory / "recorded.html")
    for name in ("rows", "outcomes", "said", "headline", "best"):
        one, other = getattr(first.report, name), getattr(recorded, name)
        if one != other:
            local.problems.append(f"{name} of the report of the recording: {other}, not {one}")
    return []


#: Why what runs again fares otherwise.
NOT_AGAIN = {"smaller": "a job runs again as its last attempt was, which is small enough soon"}


#: Why a simulation says nothing of features.
_NO_FUNCTIONS = {"custom": "a simulation calls no functions of users"}


def _simulated(
    local: Local, seen: Sequence[tuple[Evidence, Happened]]
) -> list[tuple[Evidence, Happened]]:
    """A simulation has the jobs that the run has had."""
    real = seen[0][0].status
    done = local.commands.run("simulate", "--json", *local.size,
                              "--record", "simulated.recording", f"{NAME}.yaml")  # fmt: skip
    if done.code:
        local.problems.append(f"simulate exits with {done.code}: {done.err}")
        return []
    found = json.loads(done.out)["status"]
    note = local.problems.append
    if found["state"] != real["state"]:
        note(f"the simulation is {found['state']}")
    for feature in local.features:
        if feature.name in _NO_FUNCTIONS:
            continue
        for group, many in feature.ends.items():
            one, wanted = found["groups"][group], {**feature.succeeded, **feature.simulated}
            if one["finished"] != many and group not in feature.simulated:
                note(f"the simulation has {one['finished']} jobs of {group}, not {many}")
            if group in wanted and one["success"] != wanted[group]:
                note(f"in the simulation {one['success']} jobs of {group} succeed, "
                     f"not {wanted[group]}")  # fmt: skip
        for name in feature.trials:
            one, other = (next(each for each in status["searches"] if each["id"] == name)
                          for status in (found, real))  # fmt: skip
            # Jobs have other ids there.
            best, real_best = ([{**trial, "job": None} for trial in each["best"]]
                               for each in (one, other))  # fmt: skip
            if other["sampler"] == "random" and best != real_best:
                note(f"the simulated search {name} has the best trials {best}, not {real_best}")
            for key in ("state", "reason", "failed", "canceled"):
                if one[key] != other[key]:
                    note(f"{key} of the simulated search {name}: {one[key]}, not {other[key]}")
    done = local.commands.run("replay", "simulated.recording")
    if done.code:
        note(f"replay of the simulation exits with {done.code}: {done.out}{done.err}")
    return []


SITUATIONS = {
    situation.name: situation
    for situation in (
        Situation("killed", "kill -9 of the run, which goes on with --resume", _killed),
        Situation("switched-off", "kill -9 of all its processes; it goes on with --resume",
                  _all_killed),
        Situation("helper-killed", "kill -9 of what starts its jobs; it goes on with --resume",
                  _helper_killed),
        Situation("terminal-closed", "SIGHUP; it goes on with --resume", _closed),
        Situation("terminated", "SIGTERM; it goes on with --resume", _terminated),
        Situation("paused", "it is paused, and goes on", _paused),
        Situation("other-user", "another user of the machine tries to look, and to steer it",
                  _second_user, missing=_no_second_user),
        Situation("other-python", "kill -9; a run under another Python goes on with it",
                  _other_python, _looked_at_elsewhere, missing=_no_other_python),
        Situation("again", "it is run a second time, under the same name", after=_again),
        Situation("reran", "what has not succeeded runs again, in the same record", after=reran,
                  without=NOT_AGAIN),
        Situation("replayed", "its recording is replayed", after=_replayed),
        Situation("simulated", "the document is simulated, too", after=_simulated,
                  without=_NO_FUNCTIONS),
    )
}  # fmt: skip


def play(
    directory: Path,
    features: Sequence[Feature],
    situations: Sequence[Situation],
    at: Sequence[int],
    *,
    cold: bool = False,
    must_meet: bool = True,
    size: tuple[int, int] = SIZE,
) -> list[str]:
    """Run a document in situations, and judge it.

    Args:
        directory: an empty one.
        features: of the document.
        situations: what happens to it.
        at: when that happens, see `Local.play`.
        cold: commands are Pythons of their own.
        must_meet: it is wrong if it has ended before something could happen.
        size: nodes of the queue, and cores of each.

    Returns:
        What is wrong.
    """
    local = Local(directory, features, cold=cold, size=size)
    try:
        seen = local.play(situations, at)
    except (RuntimeError, OSError, ValueError) as error:
        return [*local.problems, f"{type(error).__name__}: {error}"]
    problems = list(local.problems)
    wanted = sum(one.during is not None for one in situations)
    if must_meet and local.met < wanted:
        problems.append(f"it has ended before {wanted} things could happen to it")
    for number, (evidence, happened) in enumerate(seen):
        prefix = "" if number == 0 else f"{evidence.name}, looked at later: "
        problems += [prefix + problem for problem in judge(features, evidence, happened)]
    return problems
