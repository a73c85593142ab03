"""Keys of jobs: one integer for a member and the id that a job has there.

Ids of jobs are not unique over several Flux instances. The key of a job is its id on the enclosing
instance, so without members nothing changes; on another member that member's number, which is not
used twice in an ensemble, is in the bits above the 64 of an id.

    pool.3 (ordinal 4), id 17 ──make──► 4 << 64 | 17 ──split──► (4, 17)
"""

from __future__ import annotations

#: Bits of an id (RFC 19).
_BITS = 64
_IDS = (1 << _BITS) - 1

#: The number of the enclosing instance.
ENCLOSING = 0


def make(ordinal: int, id: int) -> int:
    """The key of a job.

    Args:
        ordinal: the number of the member, `ENCLOSING` for the enclosing instance.
        id: of the job, 0 to 2**64 - 1.

    >>> make(ENCLOSING, 17), make(2, 17) == make(3, 17)
    (17, False)
    """
    return ordinal << _BITS | id


def split(key: int) -> tuple[int, int]:
    """The number of the member, and the id.

    >>> split(make(4, 17))
    (4, 17)
    """
    return key >> _BITS, key & _IDS


def ordinal_of(key: int) -> int:
    """The number of the member.

    >>> ordinal_of(make(4, 17))
    4
    """
    return key >> _BITS


def shown(member: str, id: str) -> str:
    """A job as people see it.

    >>> shown("pool.3", "ƒ7")
    'pool.3:ƒ7'
    """
    return f"{member}:{id}"
