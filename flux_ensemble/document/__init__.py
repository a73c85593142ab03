"""Reads an ensemble document: YAML in, a `Spec` or a list of its problems out.

No queue, no network, no clock. What a value means at run time belongs in `engine`.
"""
