"""Keys of jobs: one integer for a member and the id of a job on that member.

Ids of jobs are not unique over several Flux instances. On the enclosing instance the key of a job
is its id, so documents without members need no keys. On another member, the bits above the 64 of
the id hold the member's number, which is not used twice in an ensemble.

    pool.3 (ordinal 4), id 17 ──make──► 4 << 64 | 17 ──split──► (4, 17)
"""

from __future__ import annotations

from collections.abc import Mapping

from flux_ensemble.job_ids import MAX_ID

#: Bits of an id (RFC 19).
_BITS = 64

#: The number of the enclosing instance.
ENCLOSING = 0


def make(ordinal: int, id: int) -> int:
    """Return the key of a job.

    Args:
        ordinal: the number of the member, `ENCLOSING` for the enclosing instance.
        id: the id of the job, 0 to 2**64 - 1.

    >>> make(ENCLOSING, 17), make(2, 17) == make(3, 17)
    (17, False)
    """
    return ordinal << _BITS | id


def split(key: int) -> tuple[int, int]:
    """Return the number of the member, and the id.

    >>> split(make(4, 17))
    (4, 17)
    """
    return key >> _BITS, key & MAX_ID


def ordinal_of(key: int) -> int:
    """Return the number of the member.

    >>> ordinal_of(make(4, 17))
    4
    """
    return key >> _BITS


def members_of(key: int) -> tuple[int, ...]:
    """Return the number of the member as a tuple, which is empty on the enclosing instance.

    >>> members_of(make(4, 17)), members_of(17)
    ((4,), ())
    """
    ordinal = key >> _BITS
    return (ordinal,) if ordinal else ()


def named(members: Mapping[int, str], key: int) -> str:
    """Return a job's name in expressions: the member, and the id on it.

    Args:
        members: the names of members, by their numbers.
        key: the key of a job that is not on the enclosing instance.

    >>> named({4: "pool.3"}, make(4, 17))
    'pool.3:17'
    """
    ordinal, id = split(key)
    return f"{members.get(ordinal, ordinal)}:{id}"
