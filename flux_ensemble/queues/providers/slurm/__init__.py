"""Members that are jobs of Slurm: its commands, what they tell, and what becomes of each member."""

from flux_ensemble.queues.providers.slurm.provider import SlurmProvider

__all__ = ["SlurmProvider"]
