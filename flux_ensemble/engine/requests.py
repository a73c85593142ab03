"""Requests: what users ask a running ensemble for, each answered with one `Reply`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flux_ensemble.engine.commands import Reply
from flux_ensemble.engine.events import Request
from flux_ensemble.spec.model import SCALE_ACTIONS, Action
from flux_ensemble.spec.rules import parse_action

if TYPE_CHECKING:
    from flux_ensemble.engine.engine import Engine


class Refused(Exception):
    """A request that is answered with an error.

    Args:
        errno: the errno's name.
        reason: one sentence.
    """

    def __init__(self, errno: str, reason: str) -> None:
        super().__init__(reason)
        self.errno = errno
        self.reason = reason


def answer(engine: Engine, request: Request) -> None:
    """Handle a request."""
    operation = _OPERATIONS.get(request.op)
    try:
        if operation is None:
            raise Refused("EINVAL", f"no request named {request.op!r}")
        result = operation(engine, request, request.args)
    except Refused as refused:
        engine.emit(Reply(request.request, errno=refused.errno, reason=refused.reason))
    else:
        if result is not None:
            engine.emit(Reply(request.request, result))


def _running(engine: Engine) -> None:
    if not engine.acting:
        raise Refused("EINVAL", f"ensemble {engine.spec.name!r} has ended ({engine.state})")
    if engine.state == "paused":
        raise Refused("EAGAIN", f"ensemble {engine.spec.name!r} is paused; resume it first")
    if engine.t_start is None:
        raise Refused("EAGAIN", f"ensemble {engine.spec.name!r} is starting; try again")


def _known_group(engine: Engine, group: Any) -> str:
    if group not in engine.spec.groups:
        names = ", ".join(sorted(engine.spec.groups))
        raise Refused("ENOENT", f"no job group named {group!r} (groups: {names})")
    return str(group)


def _submit(engine: Engine, request: Request, args: Mapping[str, Any]) -> None:
    _running(engine)
    group = _known_group(engine, args.get("group"))
    action = Action("submit", group, count=args.get("count"), params=args.get("params"))
    _room_for(engine, action)
    engine.actions.request(action, request.request, {"trigger": "request"})


def _room_for(engine: Engine, action: Action) -> None:
    """Refuse a submission that would have to wait or go past a cap."""
    try:
        size = len(engine.spec.groups[action.label or ""].submission(action.count, action.params))
    except ValueError as error:
        raise Refused("EINVAL", str(error)) from None
    limits, workload = engine.spec.limits, engine.workload
    if workload.busy + size > limits.active_jobs:
        raise Refused(
            "EAGAIN",
            f"{size} more jobs would make {workload.busy + size} active, "
            f"and limits.active-jobs is {limits.active_jobs}",
        )
    if workload.total + size > limits.jobs:
        raise Refused(
            "EAGAIN",
            f"{size} more jobs would make {workload.total + size} in all, "
            f"and limits.jobs is {limits.jobs}",
        )


def _cancel(engine: Engine, request: Request, args: Mapping[str, Any]) -> Mapping[str, Any]:
    group = args.get("group")
    if group is not None:
        groups = [_known_group(engine, group)]
        jobs = engine.actions.cancel_jobs(groups, "a request")
        engine.record("request", op="cancel", group=group, jobs=jobs)
    elif engine.acting:
        engine.record("request", op="cancel")
        engine.end("canceled", "canceled by the user", cancel=True)
    else:
        engine.actions.cancel_jobs(list(engine.spec.groups), "a request")
    return {"state": engine.state}


def _terminate(engine: Engine, request: Request, args: Mapping[str, Any]) -> Mapping[str, Any]:
    if engine.acting:
        engine.record("request", op="terminate", cancel=bool(args.get("cancel")))
        engine.end("completed", "terminated by the user", cancel=bool(args.get("cancel")))
    return {"state": engine.state}


def _pause(engine: Engine, request: Request, args: Mapping[str, Any]) -> Mapping[str, Any]:
    if engine.state != "paused":
        _running(engine)
        engine.state = "paused"
        engine.record("pause")
    return {"state": engine.state}


def _resume(engine: Engine, request: Request, args: Mapping[str, Any]) -> Mapping[str, Any]:
    if engine.state == "paused":
        engine.state = "running"
        engine.record("resume")
        engine.actions.resume()
    else:
        _running(engine)
    return {"state": engine.state}


def _rules(engine: Engine, request: Request, args: Mapping[str, Any]) -> Mapping[str, Any]:
    if not engine.acting:
        _running(engine)
    state = engine.rules.states.get(args.get("id", ""))
    if state is None:
        ids = ", ".join(engine.rules.states)
        raise Refused("ENOENT", f"no rule with id {args.get('id')!r} (rules: {ids})")
    was = state.enabled
    engine.set_enabled(state, bool(args.get("enabled")), "a request")
    if state.enabled and not was:
        engine.evaluate_now(state, {"trigger": "enabled"}, ())
    return {}


def _action(engine: Engine, request: Request, args: Mapping[str, Any]) -> Mapping[str, Any] | None:
    _running(engine)
    try:
        action = parse_action(args.get("action", {}), engine.spec, engine.rules.states)
    except ValueError as error:
        raise Refused("EINVAL", str(error)) from None
    if action.name in SCALE_ACTIONS and not engine.scaling.elastic():
        reason = f"action: {action.name!r} needs a member that can change its size"
        raise Refused("EINVAL", reason)
    if action.name == "submit":
        _room_for(engine, action)
    origin = engine.actions.request(action, request.request, {"trigger": "request"})
    return None if action.name == "submit" else {"firing": origin.number}


_OPERATIONS: Mapping[
    str, Callable[[Engine, Request, Mapping[str, Any]], Mapping[str, Any] | None]
] = {
    "submit": _submit,
    "cancel": _cancel,
    "terminate": _terminate,
    "pause": _pause,
    "resume": _resume,
    "rules": _rules,
    "action": _action,
}
