"""A queue on a virtual cluster, with a scheduler of its own, for `local` and `simulation`.

The queue starts no processes: a runner that is given to it does.
"""
