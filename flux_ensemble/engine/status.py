"""The status of one ensemble, as `ensemble.status` reports it."""

from __future__ import annotations

import math
from typing import Any

from flux_ensemble.document.members import Pool
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.jobs import Phase
from flux_ensemble.engine.member import Member
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.rule_state import RuleState


def status(engine: Engine) -> dict[str, Any]:
    """Return the status of an ensemble as JSON (docs/rpc.md, `ensemble.status`)."""
    workload = engine.workload
    return {
        "name": engine.spec.name,
        "state": engine.state,
        "reason": engine.reason,
        "t_start": engine.t_start,
        "t_end": engine.t_end,
        "finish": engine.spec.finish,
        "groups": {group: _group(engine, group) for group in engine.spec.groups},
        "rules": [_rule(engine, state) for state in engine.rules.states.values()],
        "jobs": {
            "waiting": workload.busy - len(workload.jobs),
            "active": len(workload.jobs),
            "total": workload.total,
        },
        "queue": engine.nodes.queue(),
        # The former name of `queue`.
        "members": engine.nodes.report(),
        "firings": engine.firings,
        "failed": engine.failed,
        "timed_out": engine.timed_out,
        "interrupted": engine.interrupted,
        "retries": engine.pending_table.jobs_again,
        **_absences(engine),
        **({"best": engine.stats.bests.report()} if engine.stats.bests.kept else {}),
        **({"units": dict(engine.spec.units)} if engine.spec.units else {}),
        **{
            key: value
            for feature in engine.hooks.features
            if feature.status is not None
            for key, value in feature.status().items()
        },
        **({"pools": _pools(engine, engine.members)} if engine.members is not None else {}),
    }


def _absences(engine: Engine) -> dict[str, Any]:
    """Return the spans in which the ensemble did not run, and how long they are together."""
    absences = engine.workload.absences
    spans = absences.dump()
    return {"away": absences.seconds, "absences": spans} if spans else {}


def _pools(engine: Engine, members: Members) -> dict[str, Any]:
    """Return the pools, with their members that have not ended."""
    return {
        pool.name: {
            "min": pool.low,
            "max": pool.high,
            "runs": pool.runs,
            "service": "child" if pool.calls else "parent",
            "ended": members.gone[pool.name],
            "lost": members.lost[pool.name],
            **_node_hours(members, pool),
            **({"spared": members.spared[pool.name]} if pool.name in members.spared else {}),
            "members": [_member(member) for member in members.of(pool.name)],
        }
        for pool in engine.spec.members
    }


def _node_hours(members: Members, pool: Pool) -> dict[str, float]:
    """Return how many node hours a pool has used or asked for, and the most; {} if unlimited."""
    most = pool.limits.node_hours
    if most == math.inf:
        return {}
    return {"node_hours": members.node_hours(pool), "most_node_hours": most}


def _member(member: Member) -> dict[str, Any]:
    up = member.up
    return {
        "name": member.name,
        "state": member.state,
        "reason": member.reason,
        "nodes": None if up is None else up.nodes,
        "cores": None if up is None else up.cores,
        "t_up": None if up is None else up.t,
        "t_expires": None if up is None else up.t_expires,
        "jobs": member.busy,
    }


def _group(engine: Engine, group: str) -> dict[str, int]:
    phases = [job.phase for job in engine.workload.active(group)]
    unsent = sum(rest.waiting for rest in engine.left() if rest.group == group)
    return {
        "waiting": engine.workload.waiting(group),
        "pending": phases.count(Phase.NEW) + phases.count(Phase.PENDING),
        "running": phases.count(Phase.RUNNING),
        **_counts(engine, group),
        **({"refused": engine.refused[group]} if group in engine.refused else {}),
        **({"unsent": unsent} if unsent else {}),
    }


def _counts(engine: Engine, group: str) -> dict[str, int]:
    """Return the counts of a group without attempts whose jobs a user has run again.

    These are no failures of now, also while the jobs run; statistics and rules have all attempts.
    """
    counts = dict(engine.stats.counts[group])
    for outcome, number in engine.replaced.get(group, {}).items():
        counts[outcome] -= number
        counts["attempts"] -= number
    return counts


def _rule(engine: Engine, state: RuleState) -> dict[str, Any]:
    rule = state.rule
    more: dict[str, Any] = {}
    if state.of_member:
        # Only members that have not ended are listed.
        each = {name: turns.fired for name, turns in state.turns.items()}
        names = engine.member_names.values()
        more["members"] = {name: each[name] for name in names if name in each}
        more["each"] = rule.action.repetitions
    return {
        "id": rule.id,
        "trigger": rule.title,
        "after": rule.after,
        "every": rule.every,
        "action": rule.action.name,
        "label": rule.action.label,
        "actions": rule.named_actions,
        "enabled": state.enabled,
        "fired": state.fired,
        "repetitions": state.repetitions,
        "error": state.error,
        **more,
    }
