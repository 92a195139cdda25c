"""Places of table changes in the log: how far each stream was when a table changed."""

from __future__ import annotations

from collections import deque
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
        self._moved: deque[tuple[int, dict[int, int]]] = deque()  # With numbers, which rise.
        self._before: dict[int, int] = {}  # Positions at the last change that was forgotten.

    def next(self) -> int:
        """Return the number of a change that is applied now."""
        self.newest += 1
        known = self._newest_positions
        moved = {id_: at for id_, at in self._positions().items() if known.get(id_) != at}
        known.update(moved)
        self._moved.append((self.newest, moved))
        self.size_bytes += _size_bytes(moved)
        return self.newest

    @property
    def first(self) -> int:
        """The number of the oldest change that is not forgotten; of the next one: all are."""
        return self._moved[0][0] if self._moved else self.newest + 1

    def forget(self, first: int) -> None:
        """Forget the changes before a number."""
        while self._moved and self._moved[0][0] < first:
            _, moved = self._moved.popleft()
            self._before.update(moved)
            self.size_bytes -= _size_bytes(moved)

    def of(self, stream_id: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position of a stream at some changes.

        Of a change that was forgotten, it is that of a later one which was forgotten, too.
        """
        found = [(0, self._before.get(stream_id, 0))]
        found += [(it, moved[stream_id]) for it, moved in self._moved if stream_id in moved]
        known, positions = np.array(found, np.int64).T
        places: NDArray[np.int64] = positions[np.searchsorted(known, numbers, side="right") - 1]
        return places

    def to_json(self) -> list[Any]:
        """The changes as lists."""
        moved = [(number, list(positions.items())) for number, positions in self._moved]
        return [self.newest, list(self._before.items()), moved]

    def restore(self, stored: list[Any]) -> None:
        """Go on from what `to_json` gave."""
        self.newest, before, moved = stored
        self._before = dict(before)
        self._moved = deque((number, dict(positions)) for number, positions in moved)
        self._newest_positions = dict(self._before)
        for _, positions in self._moved:
            self._newest_positions.update(positions)
        self.size_bytes = sum(_size_bytes(positions) for _, positions in self._moved)


def _size_bytes(moved: Mapping[int, int]) -> int:
    return PLACE_BYTES + POSITION_BYTES * len(moved)
