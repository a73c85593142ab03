"""Parameter sweeps: the combinations of parameter values that a job set runs.

A sweep is a lazy sequence: combination `i` is computed from `i`, so a million combinations
take no memory.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flux_ensemble.document.texts import NUMBERS, has_numbers, sizes
from flux_ensemble.document.values import FileColumn, texts_among
from flux_ensemble.texts import shown

#: Most combinations of a sweep, or to draw samples from.
MAX_COMBINATIONS = 2**53

#: Most parameters of a sweep. Each job has a value for every one of them.
MAX_PARAMETERS = 1000


@dataclass(frozen=True)
class Sweep:
    """The combinations of some parameters.

    Args:
        params: parameter name -> its values, in document order. Empty: one combination,
            without parameters.
        kind: "product" (the last parameter varies fastest), "zip" (values side by side;
            a parameter of one value is repeated), or "sample" (`samples` different
            combinations of the product). Columns of one file are side by side in all of them.
        samples: how many combinations to draw.
        seed: the same seed draws the same combinations.

    >>> sweep = Sweep({"t": (300, 310), "p": (1, 2)})
    >>> len(sweep), sweep[1]
    (4, {'t': 300, 'p': 2})
    >>> list(Sweep({"t": (300, 310), "p": (1, 2)}, "zip"))
    [{'t': 300, 'p': 1}, {'t': 310, 'p': 2}]
    """

    params: Mapping[str, Sequence[Any]] | None = None
    kind: str = "product"
    samples: int = 0
    seed: str = ""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The declared parameters, in document order."""
        return tuple(self.params or ())

    @cached_property
    def numbered(self) -> tuple[str, ...]:
        """The parameters with values that have a job's number in them, `{index}` or `{number}`."""
        return tuple(name for name, texts in self._texts.items() if any(map(has_numbers, texts)))

    @cached_property
    def tells_numbers(self) -> bool:
        """True if a value has `{number}`."""
        return any(NUMBERS in text for texts in self._texts.values() for text in texts)

    @property
    def _texts(self) -> dict[str, list[str]]:
        """The values that are texts, by parameter."""
        return {
            name: [text for text in texts_among(values) if isinstance(text, str)]
            for name, values in self._items
        }

    @property
    def _items(self) -> Iterable[tuple[str, Sequence[Any]]]:
        return (self.params or {}).items()

    @cached_property
    def _only(self) -> dict[str, Any] | None:
        """The one combination where each parameter has one value, as those of a trial have."""
        if self.kind == "sample" or any(len(values) != 1 for _, values in self._items):
            return None
        return {name: values[0] for name, values in self._items}

    @cached_property
    def _lengths(self) -> tuple[int, ...]:
        return tuple(len(values) for _, values in self._items)

    @cached_property
    def _axes(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """The factors of the product: a number of values, and the parameters that share them."""
        together: dict[str | tuple[str], list[str]] = {}
        for name, values in self._items:
            # No key of a single parameter is the name of a file.
            key = values.file if isinstance(values, FileColumn) else (name,)
            together.setdefault(key, []).append(name)
        lengths = dict(zip(self.names, self._lengths, strict=True))
        return tuple((lengths[names[0]], tuple(names)) for names in together.values())

    @cached_property
    def combinations(self) -> int:
        """The number of combinations in the product of all values."""
        return math.prod(length for length, _ in self._axes)

    @cached_property
    def _chosen(self) -> tuple[int, ...]:
        return tuple(random.Random(self.seed).sample(range(self.combinations), self._length))

    @cached_property
    def _length(self) -> int:
        if self._only is not None:
            return 1
        if self.kind == "zip":
            return max(self._lengths, default=1)
        if self.kind == "sample":
            return min(self.samples, self.combinations)
        return self.combinations

    def __len__(self) -> int:
        return self._length

    def check(self) -> None:
        """Check that the values fit together.

        Raises:
            ValueError: too many parameters or combinations, or "zip" with different numbers of
                values.
        """
        if len(self.params or ()) > MAX_PARAMETERS:
            raise ValueError(
                f"expected at most {MAX_PARAMETERS} parameters, not {len(self.params or ())}"
            )
        if self._only is not None:
            return
        if self.kind == "zip" and len(set(self._lengths) - {1}) > 1:
            counts = ", ".join(f"{name} has {len(values)}" for name, values in self._items)
            raise ValueError(f"'zip' needs equally many values of each parameter ({counts})")
        if self.kind != "zip" and self.combinations > MAX_COMBINATIONS:
            raise ValueError(
                f"expected at most {MAX_COMBINATIONS} combinations, not {shown(self.combinations)}"
            )

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The values of combination `index`, by parameter."""
        if not 0 <= index < self._length:
            raise IndexError(f"sweep has no combination {index}")
        if self._only is not None:
            return dict(self._only)
        params = self.params or {}
        if self.kind == "zip":
            return {
                name: values[index if len(values) > 1 else 0] for name, values in params.items()
            }
        if self.kind == "sample":
            index = self._chosen[index]
        combination = {}
        for length, names in reversed(self._axes):
            index, digit = divmod(index, length)
            for name in names:
                combination[name] = params[name][digit]
        return {name: combination[name] for name in self.names}

    def tally(self, names: Collection[str]) -> Iterator[tuple[dict[str, Any], int]]:
        """The values that some parameters have together, and how many combinations have them.

        Values may come several times, for example where a parameter has equal ones.

        Args:
            names: of declared parameters.

        >>> sweep = Sweep({"t": (300, 310), "seed": range(1000)})
        >>> list(sweep.tally(["t"]))
        [({'t': 300}, 1000), ({'t': 310}, 1000)]
        """
        if self.kind == "product":
            part = Sweep({name: (self.params or {})[name] for name in names})
            each = len(self) // len(part)
            yield from ((part[index], each) for index in range(len(part)))
        else:
            for index in range(len(self)):
                values = self[index]
                yield {name: values[name] for name in names}, 1

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The bytes of the longest value of each parameter, as text."""
        return sizes(self.params or {})

    def override(self, params: Mapping[str, Sequence[Any]]) -> Sweep:
        """The sweep with the values of some parameters replaced.

        Args:
            params: parameter -> values, as `parse_values` gives them. Parameters that the
                sweep does not declare are ignored.

        Raises:
            ValueError: the values do not fit together.
        """
        own = self.params or {}
        changed = {name: values for name, values in params.items() if name in own}
        if not changed:
            return self
        other = Sweep({**own, **changed}, self.kind, self.samples, self.seed)
        other.check()
        return other
