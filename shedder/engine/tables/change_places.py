"""Places of table changes in the log: how far each stream was when a table changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Memory of a change, and of each position that it has: entries of dicts, and their integers
# (sys.getsizeof; a dict takes up to 100 bytes for an entry).
PLACE_BYTES = 256
POSITION_BYTES = 100


class ChangePlaces:
    """Numbers of the changes of all tables, from 1, with the positions of streams.

    A change has the positions of the streams that went on since the change before it.

    newest: number of the newest change.
    size_bytes: of the changes that are not forgotten.
    """

    def __init__(self, positions: Callable[[], Mapping[int, int]]) -> None:
        """No changes. positions: of all streams now, by id."""
        self._positions = positions
        self.newest = 0
        self.size_bytes = 0
        self._newest_positions: dict[int, int] = {}
        self._moved: dict[int, dict[int, int]] = {}  # By number, rising.
        self._before: dict[int, int] = {}  # Positions at the last change that was forgotten.

    def next(self) -> int:
        """Return the number of a change that is applied now."""
        self.newest += 1
        known = self._newest_positions
        moved = {id_: at for id_, at in self._positions().items() if known.get(id_) != at}
        known.update(moved)
        self._moved[self.newest] = moved
        self.size_bytes += _size_bytes(moved)
        return self.newest

    @property
    def first(self) -> int:
        """The number of the oldest change that is not forgotten; of the next one: all are."""
        return next(iter(self._moved), self.newest + 1)

    def forget(self, first: int) -> None:
        """Forget the changes before a number."""
        for number in [number for number in self._moved if number < first]:
            moved = self._moved.pop(number)
            self._before.update(moved)
            self.size_bytes -= _size_bytes(moved)

    def of(self, stream_id: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position of a stream at some changes.

        Of a change that was forgotten, it is that of a later one which was forgotten, too.
        """
        found = [(0, self._before.get(stream_id, 0))]
        found += [(it, moved[stream_id]) for it, moved in self._moved.items() if stream_id in moved]
        known, positions = np.array(found, np.int64).T
        places: NDArray[np.int64] = positions[np.searchsorted(known, numbers, side="right") - 1]
        return places

    def to_json(self) -> list[Any]:
        """The changes as lists."""
        return [self.newest, list(self._before.items()), _items(self._moved)]

    def restore(self, stored: list[Any]) -> None:
        """Go on from what `to_json` gave."""
        self.newest, before, moved = stored
        self._before = dict(before)
        self._moved = {number: dict(positions) for number, positions in moved}
        self._newest_positions = dict(self._before)
        for positions in self._moved.values():
            self._newest_positions.update(positions)
        self.size_bytes = sum(map(_size_bytes, self._moved.values()))


def _size_bytes(moved: Mapping[int, int]) -> int:
    return PLACE_BYTES + POSITION_BYTES * len(moved)


def _items(moved: Mapping[int, Mapping[int, int]]) -> list[Any]:
    return [(number, list(positions.items())) for number, positions in moved.items()]
