"""The check that ssh reaches an instance's other nodes, as `service: parent` of members needs.

`doctor` and the service run the same command, and say the same of its failure.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from flux.hostlist import Hostlist

from flux_ensemble.queues.nested.proxy import proxy_environment
from flux_ensemble.texts import bounded

#: Seconds until ssh to another node is given up.
SECONDS = 10.0


def probe(hostlist: str, here: str) -> list[str] | None:
    """Return a command that succeeds if ssh reaches another node of an instance.

    Args:
        hostlist: of the instance's brokers.
        here: the node from which members are reached.

    Returns:
        None if all brokers are here.
    """
    others = [host for host in dict.fromkeys(Hostlist(hostlist)) if host != here]
    if not others:
        return None
    return [*shlex.split(proxy_environment()["FLUX_SSH"]), others[-1], "true"]


def failed(command: Sequence[str], said: str, status: int | None) -> str:
    """Return the sentence about a probe that failed.

    Args:
        command: the probe.
        said: its standard error.
        status: its exit status; None if it was given up.

    >>> failed(["ssh", "n2", "true"], "a banner\\nn2: no route to host\\n", 255)
    '`ssh n2 true` fails: n2: no route to host'
    >>> failed(["ssh", "n2", "true"], "", None)
    '`ssh n2 true` fails: no answer within 10 s'
    """
    lines = said.strip().splitlines() or [f"exit code {status}"]
    why = f"no answer within {SECONDS:g} s" if status is None else bounded(lines[-1])
    return f"`{shlex.join(command)}` fails: {why}"
