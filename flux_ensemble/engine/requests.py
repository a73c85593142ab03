"""Users' requests to a running ensemble, each answered with one `Reply`."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from flux_ensemble import eventlog
from flux_ensemble.document.actions import parse_action
from flux_ensemble.document.keys.overrides import read_overrides
from flux_ensemble.document.model import REQUEST_RULE, Action
from flux_ensemble.engine.actions import Actions
from flux_ensemble.engine.commands import Reply
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.events import Request
from flux_ensemble.engine.feature import CheckedRequest
from flux_ensemble.engine.pending import Origin
from flux_ensemble.engine.reruns import Reruns
from flux_ensemble.engine.trigger_queue import TriggerQueue
from flux_ensemble.metrics.paths import no_group
from flux_ensemble.words import counted


class Requests:
    """Handles the requests to one engine.

    Each operation sends its own reply, after its effects, or raises `RequestError`.
    """

    def __init__(self, core: Core, actions: Actions, reruns: Reruns) -> None:
        self._core = core
        self._reruns = reruns
        self._actions = actions
        self._operations: Mapping[str, Callable[[Request], Iterable[TriggerQueue]]] = {
            "submit": self._submit,
            "cancel": self._cancel,
            "terminate": self._terminate,
            "pause": self._pause,
            "resume": self._resume,
            "rules": self._rules,
            "action": self._action,
            "rerun": self._rerun,
        }
        self._of_features: Mapping[str, Callable[[Mapping[str, Any]], CheckedRequest]] = {
            op: check for feature in core.hooks.features for op, check in feature.requests.items()
        }

    def on_request(self, request: Request) -> Iterator[TriggerQueue]:
        """Perform a request, or reply with the error."""
        operation = self._operations.get(request.op)
        try:
            if request.op in self._of_features:
                self._go_on(request)
                return
            if operation is None:
                raise RequestError(errno.EINVAL, f"no request named {request.op!r}")
            yield from operation(request)
        except RequestError as refusal:
            # The name of the errno means the same on every system; its number does not.
            name = errno.errorcode[refusal.errno]
            self._core.emit(Reply(request.request, errno=name, reason=str(refusal)))

    def _reply(self, request: Request, result: Mapping[str, Any]) -> None:
        self._core.emit(Reply(request.request, result))

    def _reply_state(self, request: Request) -> Iterable[TriggerQueue]:
        """Reply with the current state of the ensemble."""
        self._reply(request, {"state": self._core.state})
        return ()

    # -- checks ---------------------------------------------------------------------

    def _check_running(self) -> None:
        core = self._core
        if core.state == "ending":
            jobs = counted(len(core.workload.jobs), "job")
            raise RequestError(
                errno.EAGAIN,
                f"ensemble {core.spec.name!r} is about to end, as soon as {jobs} that it cancels "
                f"{'is' if jobs == '1 job' else 'are'} gone; try again then",
            )
        if not core.acting:
            raise RequestError(
                errno.EINVAL, f"ensemble {core.spec.name!r} has ended ({core.state})"
            )
        if core.state == "paused":
            raise RequestError(
                errno.EAGAIN, f"ensemble {core.spec.name!r} is paused; resume it first"
            )
        if core.t_start is None:
            raise RequestError(errno.EAGAIN, f"ensemble {core.spec.name!r} is starting; try again")

    def _check_group(self, group: Any) -> str:
        """Return the name of an existing group, or raise `RequestError`."""
        groups = self._core.spec.groups
        if group not in groups:
            raise RequestError(errno.ENOENT, no_group(str(group), groups))
        return str(group)

    def _check_room(self, action: Action) -> None:
        """Raise `RequestError` if a submission would exceed a limit."""
        spec, workload = self._core.spec, self._core.workload
        try:
            group = spec.groups[action.label or ""]
            size = len(group.submission(action.count, action.params, action.overrides))
        except ValueError as error:
            raise RequestError(errno.EINVAL, str(error)) from None
        active, total = workload.busy + size, workload.total + size
        if active > spec.limits.active_jobs:
            raise RequestError(
                errno.EAGAIN,
                f"{size} more jobs would make {active} active, "
                f"and limits.active-jobs is {spec.limits.active_jobs}",
            )
        bound = workload.backlog.bounds.get(action.label or "")
        busy = workload.busy_of(action.label) + size
        if bound is not None and busy > bound:
            raise RequestError(
                errno.EAGAIN,
                f"{size} more jobs would make {busy} active in group {action.label!r}, "
                f"and its max-active is {bound}",
            )
        if total > spec.limits.jobs:
            raise RequestError(
                errno.EAGAIN,
                f"{size} more jobs would make {total} in all, "
                f"and limits.jobs is {spec.limits.jobs}",
            )

    # -- jobs and actions -----------------------------------------------------------

    def _submit(self, request: Request) -> Iterable[TriggerQueue]:
        self._check_running()
        args = request.args
        group = self._check_group(args.get("group"))
        if group in self._core.too_long():
            raise RequestError(errno.EAGAIN, f"group {group!r}: {self._core.why_not(group)}")
        try:
            overrides = read_overrides(args.get("overrides") or {}) or None
        except ValueError as error:
            raise RequestError(errno.EINVAL, str(error)) from None
        action = Action(
            "submit",
            group,
            count=args.get("count"),
            params=args.get("params"),
            overrides=overrides,
        )
        self._check_room(action)
        # The reply follows when the ids of the jobs are known.
        return self._run(self._origin(request), action)

    def _action(self, request: Request) -> Iterator[TriggerQueue]:
        self._check_running()
        core = self._core
        try:
            action = parse_action(request.args.get("action", {}), core.spec, core.rules.states)
        except ValueError as error:
            raise RequestError(errno.EINVAL, str(error)) from None
        refuses = core.hooks.refuses.get(action.name)
        if refuses is not None and (reason := refuses(action)) is not None:
            raise RequestError(errno.EINVAL, f"action: {reason}")
        if action.name == "submit":
            self._check_room(action)
        origin = self._origin(request)
        yield from self._run(origin, action)
        if action.name != "submit":
            self._reply(request, {"firing": origin.number})

    def _rerun(self, request: Request) -> Iterable[TriggerQueue]:
        if self._core.t_end is None:
            self._check_running()
        args = request.args
        unsent = args.get("unsent", False)
        self._reply(request, self._reruns.run(args.get("firings", ()), unsent=unsent))
        return ()

    def check(self, op: str, args: Mapping[str, Any]) -> CheckedRequest:
        """Check a request of a feature, also after the end; return what performs it.

        Raises:
            RequestError: it cannot be performed.
        """
        if self._core.t_end is None:
            self._check_running()
        return self._of_features[op](args)

    def _go_on(self, request: Request) -> None:
        """Perform a request of a feature; an ensemble that has ended goes on."""
        checked, ended = self.check(request.op, request.args), self._core.t_end is not None
        if ended:
            self._reruns.reopen((checked.group,), eventlog.Reopen)
        self._reply(request, {**checked.perform(ended), "reopened": ended})

    def _origin(self, request: Request) -> Origin:
        number = self._core.pending_table.next_number(REQUEST_RULE)
        return Origin(REQUEST_RULE, number, (), request.request)

    def _run(self, origin: Origin, action: Action) -> Iterable[TriggerQueue]:
        return self._actions.run(origin, action, REQUEST_RULE, {"trigger": "request"})

    # -- the whole ensemble -----------------------------------------------------------

    def _cancel(self, request: Request) -> Iterable[TriggerQueue]:
        core, group = self._core, request.args.get("group")
        if group is not None:
            jobs = core.cancel_jobs([self._check_group(group)], "a request")
            core.record(eventlog.Request(op="cancel", group=group, jobs=jobs))
            self._reply(request, {"state": core.state, "jobs": jobs})
            return ()
        reason = request.args.get("reason")
        if core.acting:
            core.record(eventlog.Request(op="cancel", reason=reason or None))
            core.end("canceled", reason or "canceled by the user", cancel=True)
        else:
            core.cancel_jobs(list(core.spec.groups), "a request")
        return self._reply_state(request)

    def _terminate(self, request: Request) -> Iterable[TriggerQueue]:
        core, cancel = self._core, bool(request.args.get("cancel"))
        if core.acting:
            core.record(eventlog.Request(op="terminate", cancel=cancel))
            core.end("completed", "terminated by the user", cancel=cancel)
        return self._reply_state(request)

    def _pause(self, request: Request) -> Iterable[TriggerQueue]:
        if self._core.state != "paused":
            self._check_running()
            self._core.enter("paused")
            self._core.record(eventlog.Pause())
        return self._reply_state(request)

    def _resume(self, request: Request) -> Iterator[TriggerQueue]:
        if self._core.state == "paused":
            self._core.enter("running")
            self._core.record(eventlog.Resume())
            yield from self._actions.resume()
        else:
            self._check_running()
        self._reply_state(request)

    def _rules(self, request: Request) -> Iterator[TriggerQueue]:
        core = self._core
        if not core.acting:
            self._check_running()
        id = request.args.get("id", "")
        state = core.rules.states.get(id)
        if state is None:
            ids = ", ".join(core.rules.states)
            raise RequestError(
                errno.ENOENT, f"no rule with id {request.args.get('id')!r} (rules: {ids})"
            )
        if bool(request.args.get("enabled")):
            yield from core.enable(state, "a request", ())
        else:
            core.disable(state, "a request")
        self._reply(request, {})
