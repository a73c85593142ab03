"""A queue on a virtual cluster, with a scheduler of its own, for `local` and `simulation`.

It starts nothing: a runner that is given to it does.
"""
