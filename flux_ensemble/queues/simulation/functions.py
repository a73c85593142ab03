"""Custom functions in a simulation.

Functions of flux-ensemble's own algorithms are called; due calls of the user's are only counted.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.custom import Action, Rule
from flux_ensemble.document.functions import defined_names
from flux_ensemble.runtime.custom.child import entries


@dataclass(frozen=True, slots=True)
class SimulatedResult:
    """The result of a call: a `runtime.ports.CallResult`."""

    ok: bool = True
    returned: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""
    detail: str = ""
    state: Mapping[str, Any] | None = None


class Caller:
    """A caller of functions: a `runtime.ports.Caller`.

    Args:
        packaged: the source of the functions that flux-ensemble's algorithms made.
        calls: counts the calls of other functions, which are treated as if they returned nothing.
    """

    def __init__(self, packaged: str | None, calls: Counter[str]) -> None:
        self._functions: dict[str, Any] = {"Action": Action, "Rule": Rule}
        self._names: frozenset[str] = frozenset()
        if packaged is not None:
            exec(compile(packaged, "custom", "exec", dont_inherit=True), self._functions)
            self._names = defined_names(packaged)
        self._states: dict[str, dict[str, Any]] = {}
        self._calls = calls

    def call(
        self,
        function: str,
        kwargs: Mapping[str, Any],
        timeout: float,
        done: Callable[[Any], None],
    ) -> None:
        """Call a function of an algorithm, or count the call of another one."""
        if function not in self._names:
            self._calls[function] += 1
            done(SimulatedResult())
            return
        state = deepcopy(self._states.get(function, {}))
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                returned = entries(self._functions[function](**{**kwargs, "state": state}))
        except Exception as error:
            reason = f"custom function {function!r} raised {type(error).__name__}: {error}"
            done(SimulatedResult(False, reason=reason))
            return
        self._states[function] = state
        # Plain JSON, as from the process that calls functions in a run.
        done(SimulatedResult(**json.loads(json.dumps({"returned": returned, "state": state}))))

    def close(self) -> None:
        """Do nothing: no process runs."""
