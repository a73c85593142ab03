"""Packaged algorithms: functions that make job groups and rules, for `use:` in a document.

    arguments, document ──expand──► Expansion: plain groups, rules, searches, functions

Here is what an algorithm is (`algorithm`), those that come with flux-ensemble (`shipped`), and how
those of other packages are found and run (`packages`, in a process of their own, `child`).
`document.use` checks the arguments, puts what is made into the document, and says where it came
from. docs/algorithms.md says how to write one.

>>> from flux_ensemble.algorithms.builtin import SHIPPED, shipped
>>> "retry-with-more" in SHIPPED and shipped("retry-with-more").summary.endswith(".")
True
"""

from flux_ensemble.algorithms.algorithm import Algorithm, ArgumentError

__all__ = ["Algorithm", "ArgumentError"]
