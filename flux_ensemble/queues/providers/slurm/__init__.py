"""Members that are jobs of Slurm: its commands, what they tell, and what becomes of each member."""
