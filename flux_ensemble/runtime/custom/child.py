"""The process that runs the custom functions of one ensemble, or the sampler of one search.

`runtime.custom.process` starts it as `python -E -P child.py CHANNEL LIFELINE NAME`.
CHANNEL is the file descriptor of a stream socket that carries one JSON object a line:

    service → process   {"path", "source", "source_at", "plugins", "ensemble", "uri"}   once
                       {"call": n, "function", "kwargs", "state"}, or {"call": n, "check"}
                       {"path", "module", "search", ...}, {"call": n, "count", ...}  of a search
    process → service   {"ready": true} or {"ready": false, "reason", "detail"}
                       {"call": n, "ok": true, "returned": [{"kind", "value"}], "state"?}
                       {"call": n, "ok": false, "reason", "detail"}

LIFELINE is the read end of a pipe that the service holds open: when the service is gone, for
whatever reason, the kernel kills this process and its descendants. Standard output and error go to
the service's log. The file is run by path, before anything but the standard library can be found,
so it imports nothing else until the service has sent its `path`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import importlib
import importlib.metadata
import inspect
import json
import linecache
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType, TracebackType
from typing import Any, BinaryIO

#: The file name in tracebacks for a `custom:` source without a known file.
SOURCE_NAME = "custom"

#: The module of the `custom:` source, under which pickle and dataclasses find its names.
SOURCE_MODULE = "ensemble_custom"

#: Entry points of this group are custom functions under their own names.
ENTRY_POINTS = "flux_ensemble.actions"

#: Largest reply in bytes; the service reads no more.
MAX_REPLY = 1 << 20

#: Greatest length of a reason and of a detail, in characters.
MAX_REASON, MAX_DETAIL = 400, 16 << 10

#: Lower descriptors are left to the user: a function may close all of them, as daemons do.
FIRST_FD = 100

#: Makes the answer to a request; raises if that is impossible.
Answer = Callable[[Mapping[str, Any]], dict[str, Any]]


class ReportedFailure(Exception):
    """A failure that is reported: a phrase such as "raised ValueError: no", and a traceback."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = clip(reason.replace("\n", " "), MAX_REASON)
        self.detail = clip(detail, MAX_DETAIL)

    @classmethod
    def of(cls, error: BaseException) -> ReportedFailure:
        """Make the report of an exception in the user's code."""
        try:
            if isinstance(error, SystemExit):
                reason = f"called sys.exit({'' if error.code is None else repr(error.code)})"
            else:
                text = f": {error}" if str(error) else ""
                reason = f"raised {type(error).__name__}{text}"
            return cls(reason, users_traceback(error))
        except BaseException:
            # The exception's own __str__ or __repr__ fails.
            return cls(f"raised {type(error).__name__}")


def clip(text: str, limit: int) -> str:
    """Shorten a text to about `limit` characters, by leaving out its middle."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]} ... {len(text) - 2 * half} characters left out ... {text[-half:]}"
    return text.encode("utf-8", "replace").decode()


def users_traceback(error: BaseException) -> str:
    """Return the traceback of an exception, from the first frame of the user's code."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _is_ours(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")


@contextlib.contextmanager
def reported(subject: str) -> Iterator[None]:
    """Turn exceptions of users' code, even `SystemExit`, into a `ReportedFailure` of `subject`."""
    try:
        yield
    except ReportedFailure:
        raise
    except BaseException as error:
        problem = ReportedFailure.of(error)
        raise ReportedFailure(f"{subject} {problem.reason}", problem.detail) from None


class Functions:
    """The functions that an ensemble can call: its source's, its plugins', the entry points.

    Args:
        source: the document's `custom:` text, or None.
        plugins: names of modules.
        at: the file of the source and its first line there, for tracebacks; None if they are not
            known.

    Raises:
        ReportedFailure: the source or a plugin cannot be loaded.
    """

    def __init__(
        self, source: str | None, plugins: list[str], at: tuple[str, int] | None = None
    ) -> None:
        self._source = ModuleType(SOURCE_MODULE)
        self._plugins: list[ModuleType] = []
        if source is not None:
            with reported("the custom source"):
                self._execute(source, at or (SOURCE_NAME, 1))
        for name in plugins:
            with reported(f"plugin {name!r}"):
                self._plugins.append(_imported(name))

    def _execute(self, source: str, at: tuple[str, int]) -> None:
        from flux_ensemble.custom import Action, Rule

        namespace = vars(self._source)
        namespace.update(Action=Action, Rule=Rule, __file__=SOURCE_NAME)
        sys.modules[SOURCE_MODULE] = self._source
        name, line = at
        source = "\n" * (line - 1) + source
        # An entry without a modification time is never looked up on the disk.
        lines = source.splitlines(keepends=True)
        linecache.cache[name] = (len(source), None, lines, name)
        exec(compile(source, name, "exec", dont_inherit=True), namespace)

    def find(self, name: str) -> Callable[..., Any]:
        """Return the function called `name`.

        Raises:
            ReportedFailure: there is none, or its entry point cannot be loaded.
        """
        function = getattr(self._source, name, None)
        if callable(function):
            return function
        if not name.startswith("_"):
            for plugin in self._plugins:
                function = getattr(plugin, name, None)
                if callable(function):
                    return function
        points = importlib.metadata.entry_points(group=ENTRY_POINTS)
        for point in points:
            if point.name == name:
                with reported("could not be loaded: its entry point"):
                    return point.load()
        from flux_ensemble.suggestions import hint

        known = sorted({*self._names(), *(point.name for point in points)})
        raise ReportedFailure(
            f"does not exist ({hint(name, known)}functions: {', '.join(known) or 'none'})"
        )

    def check(self, names: Iterable[str]) -> None:
        """Check that functions of these names exist and can be called, without calling any.

        Raises:
            ReportedFailure: one of them does not exist, or cannot be called.
        """
        wrong: list[str] = []
        for name in names:
            try:
                objection = self._objection(self.find(name))
            except ReportedFailure as problem:
                objection = problem.reason
            if objection is not None:
                wrong.append(f"{name!r} {objection}")
        if wrong:
            raise ReportedFailure(f"cannot be called: {'; '.join(wrong)}")

    @staticmethod
    def _objection(function: Callable[..., Any]) -> str | None:
        from flux_ensemble.document.functions import objection_to

        if inspect.iscoroutinefunction(function):
            return "is asynchronous: functions are called, not awaited"
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return None  # unknown, as for some builtins
        return objection_to(signature)

    def _names(self) -> Iterator[str]:
        for module in (self._source, *self._plugins):
            for name, value in vars(module).items():
                if isinstance(value, FunctionType) and not name.startswith("_"):
                    yield name


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ReportedFailure(
                f"plugin {name!r} is not there ({error}): modules are looked for where "
                "flux-ensemble is installed, in PYTHONPATH and in the document's directory"
            ) from None
        raise


def entries(returned: Any) -> list[dict[str, Any]]:
    """Convert the result of a function to `{"kind": "action" | "rule", "value": {...}}` items.

    Raises:
        ReportedFailure: it is not None, an Action, a Rule or a list of these, or it is not JSON.
    """
    from flux_ensemble.custom import Action, Rule

    result = []
    for item in returned if isinstance(returned, list | tuple) else (returned,):
        if item is None:
            continue
        if not isinstance(item, Action | Rule):
            if isinstance(item, dict):
                raise ReportedFailure(
                    "returned a plain dict: wrap it as Action({...}) or Rule({...})"
                )
            raise ReportedFailure(
                f"returned {clip(repr(item), 60)} ({type(item).__name__}), "
                "expected None, an Action, a Rule or a list of these"
            )
        kind = "action" if isinstance(item, Action) else "rule"
        try:
            json.dumps(item, allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ReportedFailure(
                f"returned {kind} {clip(repr(item), 60)}, not JSON: {error}"
            ) from None
        result.append({"kind": kind, "value": item})
    return result


class FunctionLoop:
    """The loop that answers the service's calls, one at a time, until the channel is closed."""

    def __init__(self, channel: int, lifeline: int) -> None:
        self._pid = os.getpid()
        self._cwd = os.getcwd()
        self._fd = fcntl.fcntl(channel, fcntl.F_DUPFD_CLOEXEC, FIRST_FD)
        os.close(channel)
        self._channel: BinaryIO = os.fdopen(self._fd, "rb", closefd=False)
        # A process that the user's code forks must neither hold the channel open nor use it.
        os.register_at_fork(after_in_child=lambda: os.close(self._fd))
        self._tie_to(lifeline)

    @staticmethod
    def _tie_to(lifeline: int) -> None:
        """Have the kernel kill this process group once `lifeline` has no writer any more.

        A thread could not do so: it does not run while an extension holds the interpreter's lock.
        Only Linux can choose the signal; elsewhere an idle process ends, and a hung one stays.
        """
        fd = fcntl.fcntl(lifeline, fcntl.F_DUPFD_CLOEXEC, FIRST_FD)
        os.close(lifeline)
        if sys.platform == "linux":
            fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
            fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        if select.select([fd], [], [], 0)[0]:  # The service had gone before: there is no signal.
            os.killpg(0, signal.SIGKILL)

    def run(self) -> None:
        """Load the functions, then answer calls."""
        hello = self._receive()
        try:
            sys.path[:] = self._search_path(hello)
            answer = self._sampler(hello) if "search" in hello else self._functions(hello)
        except ReportedFailure as problem:
            self._send({"ready": False, "reason": problem.reason, "detail": problem.detail})
            return
        self._send({"ready": True})
        while True:
            request = self._receive()
            self._send({"call": request["call"], **self._answer(answer, request)})

    def _functions(self, hello: Mapping[str, Any]) -> Answer:
        handle = None
        functions = Functions(hello["source"], hello["plugins"], hello["source_at"])
        if hello["uri"] is not None:
            with reported("opening a Flux handle"):
                import flux

                handle = flux.Flux(hello["uri"])
        given = {"handle": handle, "ensemble": hello["ensemble"]}
        return lambda request: self._call(functions, request, given)

    @staticmethod
    def _sampler(hello: Mapping[str, Any]) -> Answer:
        with reported("the sampler"):
            # A generator's GeneratorError has to be a ReportedFailure of this module.
            sys.modules["flux_ensemble.runtime.custom.child"] = sys.modules[__name__]
            answer: Answer = _imported(hello["module"]).suggesting(hello["search"]).answer
            return answer

    @staticmethod
    def _search_path(hello: Mapping[str, Any]) -> list[str]:
        """Return the service's search path, the user's PYTHONPATH and the document's directory."""
        users = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        package = str(Path(__file__).parents[2])
        path = [*hello["path"], package, *users, hello["ensemble"]["directory"]]
        return list(dict.fromkeys(entry for entry in path if entry))

    @staticmethod
    def _answer(answer: Answer, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            answered = answer(request)
        except BaseException as error:
            problem = error if isinstance(error, ReportedFailure) else ReportedFailure.of(error)
            return {"ok": False, "reason": problem.reason, "detail": problem.detail}
        return {"ok": True, **answered}

    def _call(
        self, functions: Functions, request: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        from flux_ensemble.custom import Action, Metrics, Rule
        from flux_ensemble.runtime.custom.state import state_text, takes_state

        if "check" in request:
            functions.check(request["check"])
            return {"returned": []}
        name = request["function"]
        function = functions.find(name)
        kwargs = {**request["kwargs"], **arguments}
        kwargs["action"] = Action(kwargs["action"])
        kwargs["rule"] = Rule(kwargs["rule"])
        kwargs["metrics"] = Metrics(kwargs["metrics"])
        kwargs["event"] = self._located(kwargs["event"])
        state = request.get("state", {})
        before = json.dumps(state, sort_keys=True)
        if takes_state(function):
            kwargs["state"] = state
        try:
            returned = function(**kwargs)
        finally:
            if os.getpid() != self._pid:
                # A child that the function forked has returned to this code.
                os._exit(0)
        try:
            after = state_text(state)
        except ValueError as error:
            raise ReportedFailure(f"left a state {error}") from None
        changed = {"state": json.loads(after)} if after != before else {}
        return {"returned": entries(returned), **changed}

    def _located(self, event: dict[str, Any]) -> dict[str, Any]:
        """Make the paths of an event absolute; paths with Flux's templates stay as they are."""
        if "workdir" in event:
            workdir = os.path.join(self._cwd, event["workdir"] or "")
            event["workdir"] = workdir
            if event["output"] is not None and not event["output"].startswith("{{"):
                event["output"] = os.path.join(workdir, event["output"])
        return event

    def _receive(self) -> dict[str, Any]:
        while True:
            try:
                line = self._channel.readline()
            except KeyboardInterrupt:
                continue
            if not line:
                # The service has gone or needs no more: end the descendants of this process, too.
                os.killpg(0, signal.SIGKILL)
            message: dict[str, Any] = json.loads(line)
            return message

    def _send(self, message: Mapping[str, Any]) -> None:
        for stream in (sys.stdout, sys.stderr):
            # The user's code may have replaced or closed them.
            with contextlib.suppress(Exception):
                stream.flush()
        data = json.dumps(message, allow_nan=False).encode() + b"\n"
        if len(data) > MAX_REPLY:
            reason = f"returned {len(data)} bytes of JSON, more than {MAX_REPLY}"
            message = {"call": message["call"], "ok": False, "reason": reason, "detail": ""}
            data = json.dumps(message).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            # The service is gone, or a function closed the channel: there is no receiver.
            os._exit(1)


def main() -> None:
    """Run the process; the arguments are CHANNEL, LIFELINE and the ensemble's name."""
    # The service's handling of signals, and the user's locale, must have no effect.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(  # type: ignore[union-attr]
            encoding="utf-8", errors="backslashreplace", line_buffering=True
        )
    faulthandler.enable()
    FunctionLoop(int(sys.argv[1]), int(sys.argv[2])).run()


if __name__ == "__main__":
    main()
