"""Custom functions, called in one process for each ensemble.

A call goes into the queue; the first one starts the process. When the process is ready the calls
are sent to it one at a time, and each ends in one `FunctionResult`: the result of the function, or
a sentence and a traceback. A process that hangs, ends or sends invalid messages is killed with its
descendants, and the next call starts a new one. Callbacks come from the loop only, never from
within `call`.

    caller = caller_of(spec, loop, note, log, environment=..., cwd=...)
    caller.call("f", kwargs, 60.0, done)
    caller.close()
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flux_ensemble.document.plain_data import check_plain
from flux_ensemble.document.problems import Problems, TooMany
from flux_ensemble.runtime.custom.child import MAX_DETAIL
from flux_ensemble.runtime.custom.output import PrintedOutput
from flux_ensemble.runtime.custom.process import FunctionProcess
from flux_ensemble.runtime.custom.state import MAX_STATE
from flux_ensemble.texts import bounded, shown

if TYPE_CHECKING:
    from flux_ensemble.document.model import Spec
    from flux_ensemble.eventlog import Entry
    from flux_ensemble.runtime.ports import Handle, Loop

#: Seconds that a process may take to start and to load the functions.
START_SECONDS = 60.0

#: Number of lines of output that are logged for one call, the last ones.
MAX_LINES = 200


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """The result of a call.

    Args:
        ok: the function returned something usable.
        returned: `{"kind": "action" | "rule", "value": {...}}` for each action and rule.
        state: the new state of the function; None if it has not changed.
        reason: the reason of a failure, as one sentence that names the function.
        detail: a traceback from the first frame of the user's code, or the last output.
    """

    ok: bool
    returned: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""
    detail: str = ""
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call that waits, or is in progress."""

    number: int
    #: None for a check.
    function: str | None
    request: Mapping[str, Any]
    timeout: float
    done: Callable[[Any], None]


class FunctionCaller:
    """The caller of an ensemble's custom functions.

    Args:
        loop: for timers and file descriptors.
        source: the document's `custom:` text, or None.
        source_at: the file of the source and its first line there, if they are known.
        plugins: names of modules with functions.
        environment, cwd: of the user who loaded the document.
        info: the ensemble's `name` and `directory`, which functions receive as `ensemble`.
        log: receives a level ("info", "warning") and a line of output.
        printed: receives a function and all output of one call.
        uri: of the Flux instance to which functions receive a handle; None for no handle.
        states: the states of functions so far, by name.
    """

    #: Name of its output in the log if no function is being called.
    TITLE = "custom"

    def __init__(
        self,
        loop: Loop,
        *,
        source: str | None,
        plugins: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        info: Mapping[str, str],
        log: Callable[[str, str], None],
        printed: Callable[[str, str], None] = lambda function, text: None,
        uri: str | None = None,
        states: Mapping[str, Any] | None = None,
        source_at: tuple[str, int] | None = None,
    ) -> None:
        self._printed = printed
        self._loop = loop
        self._states = dict(states or {})
        self._name = info["name"]
        self._hello = {
            "source": source,
            "source_at": source_at,
            "plugins": list(plugins),
            "ensemble": {"name": info["name"], "directory": info["directory"]},
            "uri": uri,
        }
        self._environment = dict(environment)
        if uri is not None:
            self._environment["FLUX_URI"] = uri
        self._cwd = cwd
        self._log = log
        self._queue: deque[FunctionCall] = deque()
        self._calls = 0
        self._current: FunctionCall | None = None
        self._process: FunctionProcess | None = None
        self._ready = False
        self._deadline: Handle | None = None
        self._wakeup: Handle | None = None
        self._closed = False

    def call(
        self,
        function: str,
        kwargs: Mapping[str, Any],
        timeout: float,
        done: Callable[[FunctionResult], None],
    ) -> None:
        """Call a function after the calls before it.

        Args:
            kwargs: `metrics`, `event`, `rule` and `action` as JSON; `handle` and
                `ensemble` are added.
            timeout: seconds from the time when the process receives the call; 0 is no limit.
            done: receives the result, once, unless this is closed before.
        """
        request = {"function": function, "kwargs": dict(kwargs)}
        self._add(function, request, timeout, done)

    def check(self, functions: Collection[str], done: Callable[[FunctionResult], None]) -> None:
        """Load the source and the plugins, and check that functions of these names exist.

        Args:
            done: receives the result, once, unless this is closed before.
        """
        self._add(None, {"check": list(functions)}, START_SECONDS, done)

    def _add(
        self,
        function: str | None,
        request: Mapping[str, Any],
        timeout: float,
        done: Callable[[Any], None],
    ) -> None:
        self._calls += 1
        self._queue.append(FunctionCall(self._calls, function, request, timeout, done))
        self._wake()

    def close(self) -> None:
        """Kill the process, and drop the calls that have not ended."""
        self._closed = True
        self._queue.clear()
        self._stop_waiting()
        if self._wakeup is not None:
            self._wakeup.cancel()
            self._wakeup = None
        self._drop_process()

    def _wake(self) -> None:
        if self._wakeup is None and not self._closed:
            self._wakeup = self._loop.timer(0.0, self._next)

    def _next(self) -> None:
        """Send the next call, or start the process for it."""
        self._wakeup = None
        if self._current is not None or not self._queue:
            return
        if self._process is None:
            self._start()
        elif self._ready:
            self._current = call = self._queue.popleft()
            self._process.send(self._message(call))
            if call.timeout > 0:
                self._deadline = self._loop.timer(call.timeout, self._timed_out)

    def _message(self, call: FunctionCall) -> dict[str, Any]:
        """Return the message that is sent to the process for a call."""
        message = {"call": call.number, **call.request}
        if call.function is not None:
            message["state"] = self._states.get(call.function, {})
        return message

    def _start(self) -> None:
        try:
            self._process = FunctionProcess(
                self._loop,
                self._name,
                self._environment,
                self._cwd,
                self._received,
                self._ended,
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            self._give_up(f"its process cannot be started in {self._cwd!r}: {why}", "")
            return
        path = [os.path.abspath(entry) for entry in sys.path]
        self._process.send({"path": path, **self._hello})
        self._deadline = self._loop.timer(START_SECONDS, self._timed_out)

    def _received(self, message: dict[str, Any]) -> None:
        call = self._current
        if not self._ready and message.get("ready") is True:
            self._ready = True
            self._stop_waiting()
            self._log_output(self.TITLE)
            self._wake()
        elif not self._ready and message.get("ready") is False:
            self._give_up(_said(message, "reason"), _said(message, "detail"))
        elif call is not None and _answers(message, call):
            self._log_output(call.function or self.TITLE)
            result = self._read(call, message)
            if call.function is not None and result.state is not None:
                self._states[call.function] = result.state
            self._conclude(call, result)
        else:
            self._ended("sent the service something that is no answer")

    def _ended(self, what: str) -> None:
        self._give_up(what if self._ready else f"its process {what}")

    def _timed_out(self) -> None:
        if self._current is not None:
            self._give_up(f"was ended after {self._current.timeout:g} s, its 'timeout'")
        else:
            self._give_up(f"its process was not ready after {START_SECONDS:g} s")

    def _give_up(self, what: str, detail: str | None = None) -> None:
        """End the process, and the call that it was running or was started for.

        Args:
            detail: of the failure; None for the latest output.
        """
        call = self._current
        if call is None and not self._ready:
            call = self._queue.popleft()
            what = f"could not be loaded: {what}"
        output = self._log_output((call and call.function) or self.TITLE)
        self._drop_process()
        if call is None:
            self._log("warning", f"{self.TITLE}: the process {what} between two calls")
        else:
            self._conclude(call, self._failure(call, what, output if detail is None else detail))

    def _conclude(self, call: FunctionCall, result: FunctionResult) -> None:
        self._current = None
        self._stop_waiting()
        self._wake()
        call.done(result)

    def _log_output(self, title: str) -> str:
        """Log the output since the last call of this, and return the end of it."""
        if self._process is None:
            return ""
        text, dropped = self._process.take_output()
        lines = text.splitlines()
        if dropped or len(lines) > MAX_LINES:
            lines = lines[-MAX_LINES:]
            left_out = dropped + len(text.encode()) - sum(len(line.encode()) + 1 for line in lines)
            self._log("warning", f"{title}: {left_out} bytes of output left out before this")
        for line in lines:
            self._log("info", f"{title}: {line}")
        self._printed(title, text)
        return text[-MAX_DETAIL:]

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _drop_process(self) -> None:
        process, self._process = self._process, None
        self._ready = False
        if process is not None:
            process.end()

    def _read(self, call: FunctionCall, message: Mapping[str, Any]) -> Any:
        """Return the result in an answer to `call`, which the user's code may have forged."""
        if message.get("ok") is not True:
            return self._refused(call, message)
        returned, state = message.get("returned"), message.get("state")
        problems = Problems()
        with suppress(TooMany):
            if not check_plain(returned, problems):
                _check_items(returned, problems)
            if not check_plain(state, problems, ("state",)):
                _check_state(state, problems)
        if problems:
            reason = f"returned what cannot be used: {problems.sentences()}"
            return self._failure(call, reason, "")
        return FunctionResult(True, returned, state=state)  # type: ignore[arg-type]

    def _refused(self, call: FunctionCall, message: Mapping[str, Any]) -> Any:
        """Return the result of a call that failed in the process."""
        return self._failure(call, _said(message, "reason"), _said(message, "detail"))

    def _failure(self, call: FunctionCall, what: str, detail: str) -> Any:
        """Return the result of a failed call, with a sentence about the reason."""
        return FunctionResult(False, [], bounded(f"{self._subject(call)} {what}"), bounded(detail))

    def _subject(self, call: FunctionCall) -> str:
        # The user's code can write to the channel, so the name is quoted safely.
        if call.function is None:
            return "custom functions"
        return f"custom function {shown(call.function)}"


def _answers(message: Mapping[str, Any], call: FunctionCall) -> bool:
    number = message.get("call")
    return type(number) is int and number == call.number


def _check_items(returned: Any, problems: Problems) -> None:
    """Check that the returned value is a list of actions and rules."""
    if not isinstance(returned, list):
        problems.add((), f"expected a list of actions and rules, not {shown(returned)}")
        return
    for index, item in enumerate(returned):
        if not isinstance(item, dict) or item.keys() != {"kind", "value"}:
            problems.add((index,), f"expected the keys kind and value, not {shown(item)}")
        elif item["kind"] not in ("action", "rule"):
            problems.add((index, "kind"), f"expected action or rule, not {shown(item['kind'])}")
        elif not isinstance(item["value"], dict):
            problems.add((index, "value"), f"expected a mapping, not {shown(item['value'])}")


def _check_state(state: Any, problems: Problems) -> None:
    """Check that a state is a mapping, and not too large."""
    if state is not None and not isinstance(state, dict):
        problems.add(("state",), f"expected a mapping, not {shown(state)}")
    elif len(json.dumps(state)) > MAX_STATE:
        problems.add(("state",), f"expected at most {MAX_STATE} bytes of JSON")


def _said(message: Mapping[str, Any], key: str) -> str:
    """Return a text of a failure; any other value is shortened, since it may nest too deep."""
    text = message.get(key)
    return text if isinstance(text, str) else f"({key}: expected text, not {shown(text)})"


def caller_of(
    spec: Spec,
    loop: Loop,
    note: Callable[[Entry], None],
    log: Callable[[str, str], None],
    *,
    environment: Mapping[str, str],
    cwd: str,
    uri: str | None = None,
    states: Mapping[str, Any] | None = None,
) -> FunctionCaller:
    """Return the caller of the custom functions of a document.

    Args:
        spec: the document.
        note: receives entries of the eventlog, with the output of calls.
        loop, log, environment, cwd, uri, states: as for `FunctionCaller`.
    """
    return FunctionCaller(
        loop,
        source=spec.custom,
        source_at=spec.custom_at,
        plugins=spec.plugins,
        environment=environment,
        cwd=cwd,
        info={"name": spec.name, "directory": spec.directory},
        log=log,
        printed=PrintedOutput(note).take,
        uri=uri,
        states=states,
    )
