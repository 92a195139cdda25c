"""The profile of frequent items: how large its tables get, and what they forget at most."""

from __future__ import annotations

from typing import Final

from synopses.frequent.counter_kernels import ROOM_MIN
from synopses.model.profile import Cost, Profile, Share, Statistics, Thinning

ENTRIES_MIN: Final = 8
ENTRIES_MAX: Final = 1 << 20
# 28 in the table, 28 in the room to move it, 22 for values and their numbers; texts come on top.
_ENTRY_BYTES: Final = 78
_GROUP_BYTES: Final = 40


def _error_of(entries: int, _statistics: Statistics, _confidence: float) -> float:
    """The largest share of a group's total by which a count can be too low, for certain.

    Of small batches, which are counted key by key; of large ones it is much less.
    """
    return 8 / (3 * entries)


def _bytes_of(entries: int, statistics: Statistics) -> int:
    room = entries
    while room > ROOM_MIN and room * 3 // 8 >= statistics.tuples:
        room //= 2
    return _GROUP_BYTES + _ENTRY_BYTES * room


FREQUENT: Final = Profile(
    question="TOP(x, k), FREQUENT(x, share)",
    size="entries",
    sizes=tuple(1 << lg for lg in range(3, 21)),
    default=1024,
    linear=False,
    thinning=Thinning.ROWS,
    thinned="bounds on what was read, hypergeometric from there to all, union bound",
    share=Share.TUPLES,
    error_of=_error_of,
    bytes_of=_bytes_of,
    grows=True,
    cost=Cost(read=7.5, read_grouped=20.4, kept=7.6, kept_grouped=19.4, always=1.2),
)
