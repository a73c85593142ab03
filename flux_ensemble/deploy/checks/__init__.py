"""What `doctor` checks in a Flux instance, a function for each check.

Each takes the `InstanceInfo` and returns a `Finding`: what was found, whether that is good, and
what to do if not. If a function raises `OSError`, `doctor.examine` reports a problem.
"""
