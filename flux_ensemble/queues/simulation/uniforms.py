"""Uniform numbers for the draws of jobs: hashes of a counter, instead of a generator's state.

    seed, group, rule ──hash──► stream ─┐
                        firing, index ──┼──hash──► eight numbers ──► `distributions.Drawable`
                                block ──┘

So the numbers of a job depend on nothing but the seed and the job's tag, and a job without draws
costs nothing. See Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), on
generators of this kind, and RFC 7693 on the hash.

    uniforms = Uniforms(seed=7)
    numbers = uniforms.of(tag)
    next(numbers)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from itertools import count
from struct import Struct

from flux_ensemble.engine.events import Tag

#: Input of the hash: the stream, the firing, the index and the block.
_COUNTER = Struct("<16s3Q")

#: Output of the hash, as numbers.
_BLOCK = Struct("<8Q")


class Uniforms:
    """Uniform numbers for each job.

    Args:
        seed: of all numbers.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[tuple[str, str], bytes] = {}

    def of(self, tag: Tag) -> Iterator[float]:
        """Yield the numbers of one job, without end; each is above 0 and below 1."""
        group, rule, firing, index = tag
        stream = self._streams.get((group, rule)) or self._stream(group, rule)
        for block in count():
            digest = blake2b(_COUNTER.pack(stream, firing, index, block)).digest()
            for number in _BLOCK.unpack(digest):
                yield uniform(number)

    def _stream(self, group: str, rule: str) -> bytes:
        """Return the part of the hashed input that the jobs of a group by one rule share."""
        name = json.dumps([self._seed, group, rule]).encode()
        stream = self._streams[group, rule] = blake2b(name, digest_size=16).digest()
        return stream


def uniform(number: int) -> float:
    """Map 64 bits to a number above 0 and below 1: the middle of one of 2**52 equal parts."""
    # With 53 bits the last middle would be rounded to 1.
    return ((number >> 12) + 0.5) * 2**-52
