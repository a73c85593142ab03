"""The status of an Ensemble, in the style of kstatus, and the events of its changes; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flux_ensemble.k8s import reports
from flux_ensemble.k8s.operator.members import OVER

#: Longest message of a condition, in characters.
_LONGEST = 32000

#: Reasons: the cluster has failed a request; pods of the gRPC service cannot run.
FAILURE = "ClusterFailure"
TROUBLE = "PodsWait"


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """The facts that a status is made of.

    Args:
        generation: of the Ensemble that was read.
        problems: why it is not accepted; sentences.
        refused: changes that are not applied to running members; sentences.
        failure: why the cluster is not as it should be yet; "" if it is.
        suspended: the Ensemble has been suspended.
        service: whether the gRPC service is ready, the reason, and a sentence.
        members: their states: `name` and the result of `members.Kind.status`.
        waits: objects that have to be gone before something can be created; sentences.
        checked: False if a failure came before the Ensemble was checked: then `Accepted` stays.
    """

    generation: int
    problems: Sequence[str]
    refused: Sequence[str]
    failure: str
    suspended: bool
    service: tuple[bool, str, str]
    members: Sequence[Mapping[str, Any]]
    waits: Sequence[str] = ()
    checked: bool = True


@dataclass(frozen=True, slots=True)
class Event:
    """An event to be written about an Ensemble."""

    reason: str
    message: str
    warning: bool = False


def status(view: StatusFacts, before: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return the status of an Ensemble.

    Args:
        view: the facts.
        before: the current status.
        now: the time, as Kubernetes writes it.

    Returns:
        The whole status; equal to `before` if nothing has changed.
    """
    states = Counter(str(member["state"]) for member in view.members)
    phase = _phase(view, states)
    conditions = _conditions(view, phase)
    old = {one["type"]: one for one in before.get("conditions") or ()}
    if not view.checked:
        known = [dict(old["Accepted"])] if "Accepted" in old else []
        conditions = known + [one for one in conditions if one["type"] != "Accepted"]
    for condition in conditions:
        same = old.get(condition["type"], {})
        changed = same.get("status") != condition["status"]
        condition["lastTransitionTime"] = now if changed else same["lastTransitionTime"]
        condition["observedGeneration"] = view.generation
    result = {
        "observedGeneration": view.generation,
        "phase": phase,
        "summary": ", ".join(f"{states[state]} {state.lower()}" for state in sorted(states)),
        "size": sum(member["size"] for member in view.members),
        "conditions": conditions,
        "members": [dict(member) for member in view.members],
        **reports.total([member["flux"] for member in view.members if "flux" in member]),
    }
    if over(result):
        same = over(before) and _which(before) == _which(result)
        result["completionTime"] = before.get("completionTime", now) if same else now
    return result


def known_service(before: Mapping[str, Any]) -> tuple[bool, str, str]:
    """Return the state of the gRPC service in a status, for `StatusFacts.service`."""
    for condition in before.get("conditions") or ():
        if condition["type"] == "ServiceReady":
            return condition["status"] == "True", condition["reason"], condition["message"]
    return False, "NotReady", "its Deployment is not made yet"


def _which(status: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Return the uids of the objects that the members of a status were made of, with the names."""
    return [(member["name"], member.get("uid")) for member in status["members"]]


def over(status: Mapping[str, Any]) -> bool:
    """Return True if all members have ended."""
    members = status.get("members") or ()
    return bool(members) and all(member["state"] in OVER for member in members)


def events(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Event]:
    """Yield the events of a change of status."""
    was = {one["type"]: one for one in before.get("conditions") or ()}
    for condition in after["conditions"]:
        old = was.get(condition["type"], {})
        if all(old.get(key) == condition[key] for key in ("status", "reason", "message")):
            continue
        good = condition["status"] == "True"
        if condition["type"] == "Accepted" or condition["reason"] == FAILURE:
            yield Event(condition["reason"], condition["message"], warning=not good)
        elif condition["type"] == "ServiceReady" and condition["reason"] == TROUBLE:
            yield Event("ServiceWaits", condition["message"], warning=True)
    members = {member["name"]: member for member in before.get("members") or ()}
    for member in after["members"]:
        yield from _of_member(member, members.get(member["name"], {}))
    if before.get("phase") != after["phase"] and after["phase"] in OVER:
        troubles = _troubles(after["members"])
        yield Event(
            after["phase"],
            ": ".join(filter(None, (after["summary"], troubles))),
            warning=bool(troubles) or after["phase"] != "Completed",
        )


def _of_member(now: Mapping[str, Any], was: Mapping[str, Any]) -> Iterator[Event]:
    name = f"member {now['name']!r}"
    if now.get("uid") not in (None, was.get("uid")):
        yield Event("MemberCreated", f"{name}: its MiniCluster is made")
    if was.get("wanted", now["wanted"]) != now["wanted"] and was.get("uid") == now.get("uid"):
        yield Event("Resized", f"{name}: from {was['wanted']} to {now['wanted']} nodes")
    if was.get("state") != now["state"] and was:
        yield Event(
            f"Member{now['state']}",
            ": ".join(filter(None, (name, _said(now)))),
            warning=bool(now.get("trouble")) or now["state"] in ("Failed", "Canceled"),
        )
    elif was and now.get("reason") not in ("", was.get("reason")) and now["state"] != "Ending":
        yield Event("MemberWaits", f"{name}: {now['reason']}", warning=True)


def _said(member: Mapping[str, Any]) -> str:
    """Return what went wrong in a member, and the reason of its state."""
    return ": ".join(filter(None, (member.get("trouble"), member["reason"])))


def _troubles(members: Iterable[Mapping[str, Any]]) -> str:
    """Return what went wrong in members, although they may have completed."""
    return "; ".join(
        f"{member['name']}: {member['trouble']}" for member in members if member.get("trouble")
    )


def _phase(view: StatusFacts, states: Counter[str]) -> str:
    if view.problems and not set(states) - {"Pending"}:
        return "Rejected"
    if view.suspended:
        return "Suspended"
    if states and not set(states) - OVER:
        for worst in ("Failed", "Canceled"):
            if states[worst]:
                return worst
        return "Completed"
    return "Running" if states["Running"] else "Pending"


def _conditions(view: StatusFacts, phase: str) -> list[dict[str, Any]]:
    ended = phase in OVER
    accepted = not view.problems and not view.refused
    if view.problems:
        why = "Invalid", "\n".join(view.problems)
    elif view.refused:
        why = "ChangeRefused", "\n".join(view.refused)
    else:
        why = "Accepted", "the Ensemble and its documents are valid"
    if ended:
        service = True, "NotNeeded", "all members have ended"
    elif view.suspended:
        service = False, "Suspended", "the Ensemble is suspended"
    else:
        service = view.service
    lacking = _lacking(view, phase)
    failed = phase in ("Failed", "Canceled")
    reasons = "; ".join(
        f"{member['name']}: {_said(member)}"
        for member in view.members
        if member["state"] in ("Failed", "Canceled")
    )
    troubles = _troubles(view.members) if ended else ""
    all_over = "all members have " + ("completed" if phase == "Completed" else "ended")
    all_over = ": ".join(filter(None, (all_over * ended, troubles)))
    conditions = [
        _condition("Accepted", accepted, *why),
        _condition("ServiceReady", *service),
        _condition(
            "Ready",
            not lacking,
            phase if not lacking or failed else _reason(view),
            lacking or _short(view) or troubles,
        ),
        _condition("Completed", phase == "Completed", phase, all_over),
        _condition("Failed", failed, phase, reasons),
    ]
    queued = [member for member in view.members if "queue" in member]
    if queued:
        conditions.append(_admitted(queued))
    return conditions


def _admitted(queued: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the condition of members that queues of Kueue start."""
    waits = [member for member in queued if not member["admitted"] and member["state"] not in OVER]
    said = "; ".join(f"{member['name']}: {member['reason'] or 'it waits'}" for member in waits)
    everywhere = "the queues have admitted all members"
    return _condition("Admitted", not waits, "Queued" if waits else "Admitted", said or everywhere)


def _reason(view: StatusFacts) -> str:
    if view.problems:
        return "Invalid"
    if view.failure:
        return FAILURE
    return "Suspended" if view.suspended else "Progressing"


def _lacking(view: StatusFacts, phase: str) -> str:
    """Return why the Ensemble is not ready; "" if it is."""
    if view.problems:
        return "; ".join(view.problems)
    if phase == "Completed":
        return ""
    if view.failure:
        return view.failure
    if view.suspended:
        return "the Ensemble is suspended"
    bad = [*view.waits] + [
        f"{member['name']}: {_said(member) or member['state'].lower()}"
        for member in view.members
        if member["state"] not in ("Running", "Completed")
    ]
    if not view.service[0] and phase not in OVER:
        bad.insert(len(view.waits), f"the gRPC service: {view.service[2]}")
    return "; ".join(bad)


def _short(view: StatusFacts) -> str:
    """Return what keeps running members from their wanted size."""
    return "; ".join(
        f"{member['name']}: {member['reason']}"
        for member in view.members
        if member["state"] == "Running" and member["reason"]
    )


def _condition(name: str, holds: bool, reason: str, message: str) -> dict[str, Any]:
    return {
        "type": name,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message[:_LONGEST],
    }
