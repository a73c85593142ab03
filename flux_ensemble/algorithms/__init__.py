"""Packaged algorithms: functions that make job groups and rules, for `use:` in a document.

    arguments, document ──expand──► Expansion: plain groups, rules, searches, functions

The package defines algorithms (`algorithm`), lists those that come with flux-ensemble (`builtin`),
and finds and runs those of other packages (`packages`), each in its own process (`child`).
`document.use` checks the arguments, merges the expansion into the document, and notes its origin.
docs/algorithms.md explains how to write an algorithm.

>>> from flux_ensemble.algorithms.builtin import SHIPPED, shipped
>>> "retry-with-more" in SHIPPED and shipped("retry-with-more").summary.endswith(".")
True
"""

from flux_ensemble.algorithms.algorithm import Algorithm, ArgumentError

__all__ = ["Algorithm", "ArgumentError"]
