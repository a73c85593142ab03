"""The checks of `doctor` in a Flux instance, a function for each.

Each takes the `InstanceInfo` and returns a `Finding`: what was found, whether that is good, and the
remedy if not. If a function raises `OSError`, `doctor.examine` reports a problem.
"""
