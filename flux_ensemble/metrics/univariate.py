"""River's statistics of one variable, which also work without numpy, scipy and narwhals.

River imports these packages, 220 MB in all, for its other parts; statistics of one variable use
none of them. They are not installed where documents are only read, as in the image for Kubernetes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

#: Packages that River imports and its univariate statistics do not use.
UNUSED = ("numpy", "scipy", "narwhals")


class _Anything:
    """A stand-in for names that River mentions in annotations, defaults and types only."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def _self(self, *_: Any) -> Any:
        return self

    __getitem__ = __or__ = __ror__ = _self


class _Hollow(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_Anything(), name)


class _Hollows(MetaPathFinder, Loader):
    """Finds hollow packages in place of those that are not installed."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if not self.has(fullname):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def has(self, fullname: str) -> bool:
        return fullname.partition(".")[0] in self._packages

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Hollow(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: a hollow module has no code."""


@contextmanager
def _hollow(packages: Sequence[str]) -> Iterator[None]:
    """Let imports within the context find hollow packages, and forget these afterwards."""
    finder = _Hollows(packages)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if finder.has(name)]:
            del sys.modules[name]


with _hollow([name for name in UNUSED if find_spec(name) is None]):
    from river import stats

__all__ = ["stats"]
