"""Declares what documents may say of members that the enclosing Flux instance starts."""

from __future__ import annotations

from flux_ensemble.document.keys.provider import PoolProvider

PROVIDER = PoolProvider(
    site="Flux",
    starts="the enclosing Flux instance",
    refuses={
        "limits": "'limits' are on what another system is asked for ('from'); for members that "
        "Flux starts there is 'count'",
        "options": "'options' are those of sbatch, for members 'from: slurm'; for one of Flux "
        "there are 'queue', 'bank', 'constraint' and 'attributes'",
    },
    idle=0.0,
    enclosing=True,
)
