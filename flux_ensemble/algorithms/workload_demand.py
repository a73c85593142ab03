"""The algorithm `workload-demand`: the instance grows for jobs that wait, and shrinks after them.

It is the algorithm of the first ensemble-operator, made of rules: nothing polls the queue.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from flux_ensemble.algorithms.algorithm import Algorithm, ArgumentError, Plain

#: The most groups: each is compared with all others, in one expression.
_MOST_GROUPS = 32

#: The most submissions by which jobs are mixed.
_MOST_SUBMISSIONS = 1000

_ARGUMENTS: dict[str, dict[str, Any]] = {
    "groups": {
        "type": "array",
        "items": {"type": "string", "format": "group", "title": "the name of a job group"},
        "minItems": 1,
        "maxItems": _MOST_GROUPS,
        "uniqueItems": True,
        "title": f"a list of 1 to {_MOST_GROUPS} job groups",
        "description": "The groups that are submitted at the start. The default is all groups.",
        "examples": [["small", "large"]],
    },
    "order": {
        "type": "string",
        "enum": ["given", "random", "ascending", "descending"],
        "title": "an order",
        "description": "The order of the jobs: as in the document, mixed by its seed, or by nodes.",
        "default": "given",
    },
    "scale-up": {
        "type": "string",
        "enum": ["next-job", "smallest-job", "largest-job"],
        "title": "a job",
        "description": "The waiting job for which the instance grows: the one that has waited "
        "longest, or one with the fewest or the most nodes.",
        "default": "next-job",
    },
    "scale-down": {
        "type": "string",
        "enum": ["excess-nodes", "never"],
        "title": "excess-nodes or never",
        "description": "Whether free nodes are given back when no job waits.",
        "default": "excess-nodes",
    },
    "patience": {
        "type": ["number", "string"],
        "format": "duration",
        "title": "a duration",
        "description": "How long a job waits before the instance grows for it, and the time "
        "between two requests.",
        "default": 50,
    },
}


def _expand(arguments: Plain, document: Plain) -> Plain:
    id = arguments["id"]
    entries = document.get("jobs", ())
    names = arguments.get("groups") or list(dict.fromkeys(entry["name"] for entry in entries))
    if not 0 < len(names) <= _MOST_GROUPS:
        raise ArgumentError("groups", f"expected 1 to {_MOST_GROUPS} job groups, not {len(names)}")
    groups = {name: [entry for entry in entries if entry["name"] == name] for name in names}
    nodes = {name: _nodes(name, own) for name, own in groups.items()}
    strategy = arguments.get("scale-up", "next-job")
    patience = arguments.get("patience", 50)
    order = arguments.get("order", "given")
    bounds = document.get("scaling") or {}
    top = bounds.get("max-nodes", bounds.get("max-size"))
    # Without bounds that the document knows, those of the instance deny what is too much.
    room = f" and nodes.size < {top}" if isinstance(top, int) else ""
    rules: list[dict[str, Any]] = [
        {
            "id": f"{id}-start",
            "trigger": "start",
            "actions": [
                {"name": "submit", "label": name, **count}
                for name, count in _ordered(groups, nodes, order, f"{document.get('seed', 0)}/{id}")
            ],
        }
    ]
    again = {"repetitions": "unlimited", "cooldown": patience}
    for name, size in nodes.items():
        when = [
            f'max["{name}-waiting"] > {patience:g}',
            f'queue["pending-nodes"] >= {size}',
            f"nodes.free < {size}{room}",
            *_before(name, nodes, strategy),
        ]
        rules.append(
            {
                "id": f"{id}-up-{name}",
                "trigger": "metric",
                "when": " and ".join(when),
                "action": {"name": "grow", "value": f"{{{size} - nodes.free}}", **again},
            }
        )
    if arguments.get("scale-down", "excess-nodes") == "excess-nodes":
        low = bounds.get("min-nodes", bounds.get("min-size", 1))
        when = ['queue["pending-nodes"] == 0', "nodes.free > 0", f"nodes.size > {low}"]
        if document.get("finish") != "never":
            # When the last job has ended, so does the ensemble, and its nodes need not go first.
            active = (f'count["{name}"].submitted - count["{name}"].attempts' for name in names)
            when.append(f"{' + '.join(active)} > 0")
        rules.append(
            {
                "id": f"{id}-down",
                "trigger": "metric",
                "when": " and ".join(when),
                "action": {"name": "shrink", "value": "{nodes.free}", **again},
            }
        )
    return {"rules": rules}


def _nodes(name: str, entries: Iterable[Plain]) -> int:
    """Return the nodes of a job of a group, the most of its entries."""
    most = 1
    for entry in entries:
        nodes = entry.get("nodes", 1)
        if "jobspec" in entry or not isinstance(nodes, int):
            raise ArgumentError("groups", f"expected groups with a number of nodes, not {name!r}")
        most = max(most, nodes)
    return most


def _before(name: str, nodes: dict[str, int], strategy: str) -> Iterator[str]:
    """Yield the conditions by which no other group's job is to be grown for first.

    The metric of a group of which no job waits is empty, so a comparison with it is false.
    """
    names = list(nodes)
    for other in names:
        if other == name:
            continue
        earlier = names.index(other) < names.index(name)
        if strategy == "next-job":
            relation = ">=" if earlier else ">"
            yield f'not max["{other}-waiting"] {relation} max["{name}-waiting"]'
            continue
        difference = nodes[other] - nodes[name]
        if strategy == "largest-job":
            difference = -difference
        if difference < 0 or (difference == 0 and earlier):
            yield f'not max["{other}-waiting"] > 0'


def _ordered(
    groups: dict[str, list[Plain]], nodes: dict[str, int], order: str, seed: str
) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the groups in the order of their submission, each with a `count` if it is split."""
    if order != "random":
        direction = {"given": 0, "ascending": 1, "descending": -1}[order]
        for name in sorted(groups, key=lambda name: direction * nodes[name]):
            yield name, {}
        return
    # A group of several entries is submitted at once: one count would replace those of all.
    counts = {name: own[0].get("count", 1) if len(own) == 1 else 1 for name, own in groups.items()}
    portion = -(-sum(counts.values()) // _MOST_SUBMISSIONS)
    portions = [
        (name, min(portion, count - at))
        for name, count in counts.items()
        for at in range(0, count, portion)
    ]
    random.Random(seed).shuffle(portions)
    for name, run in groupby(portions, key=lambda one: one[0]):
        count = sum(one[1] for one in run)
        yield name, {} if count == counts[name] else {"count": count}


WORKLOAD_DEMAND = Algorithm(
    "All jobs are submitted at the start. The instance grows for a job that waits too long, and "
    "gives free nodes back when none waits.",
    _ARGUMENTS,
    (),
    _expand,
)
