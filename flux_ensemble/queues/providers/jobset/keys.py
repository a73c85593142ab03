"""Declares what documents may say of members in Kubernetes."""

from __future__ import annotations

from flux_ensemble.document.keys.forms import Key, text
from flux_ensemble.document.keys.provider import PoolProvider

#: Keys whose matters are those of a JobSet.
_IN_TEMPLATE = (
    "options", "exclusive", "cores", "gpus", "queue", "bank", "constraint", "attributes", "service"
)  # fmt: skip

PROVIDER = PoolProvider(
    site="Kubernetes",
    starts="Kubernetes, in a JobSet for each",
    page="[workers in Kubernetes](jobset-members.md)",
    refuses={
        key: f"{key!r} is not of members in Kubernetes; write what their pods are to have into the "
        "JobSet that 'template' names"
        for key in _IN_TEMPLATE
    },
    needs={
        "template": "the key 'template' is missing: it names a file with a JobSet (workers.yaml)"
    },
    workers="members in Kubernetes are workers, which need no Flux: write 'runs: tasks'",
    keys=(
        Key(
            "template",
            text("a file with a JobSet"),
            "A file with the JobSet that each member is made of; only with `from: jobset`.",
            ("workers.yaml",),
            read=None,
            more="See [the template](jobset-members.md#the-template).",
        ),
    ),
    elsewhere={
        "template": "'template' is a JobSet, for members 'from: jobset'; leave out one, or give "
        "the other"
    },
)
