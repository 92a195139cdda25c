"""Places of table changes in the log: how far each stream was when a table changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PLACE_BYTES = 384  # Memory of a change beside its positions: two arrays, and what holds them.

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Moved:
    """Positions of the streams that went on before a change.

    number: of the change. ids, positions: int64 [streams].
    """

    number: int
    ids: Int64s
    positions: Int64s

    @classmethod
    def of(cls, number: int, positions: Mapping[int, int]) -> _Moved:
        """Keep positions by id of a stream."""
        size = len(positions)
        ids = np.fromiter(positions.keys(), np.int64, size)
        return cls(number, ids, np.fromiter(positions.values(), np.int64, size))

    @property
    def size_bytes(self) -> int:
        """Bytes of the change and of its positions."""
        return PLACE_BYTES + self.ids.nbytes + self.positions.nbytes

    def items(self) -> list[tuple[int, int]]:
        """The id and the position of each stream."""
        return list(zip(self.ids.tolist(), self.positions.tolist(), strict=True))


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
        self._moved: deque[_Moved] = deque()  # By rising number.
        self._before: dict[int, int] = {}  # Positions at the last change that was forgotten.

    def next(self) -> int:
        """Return the number of a change that is applied now."""
        self.newest += 1
        known = self._newest_positions
        moved = {id_: at for id_, at in self._positions().items() if known.get(id_) != at}
        known.update(moved)
        self._moved.append(_Moved.of(self.newest, moved))
        self.size_bytes += self._moved[-1].size_bytes
        return self.newest

    @property
    def first(self) -> int:
        """The number of the oldest change that is not forgotten; of the next one: all are."""
        return self._moved[0].number if self._moved else self.newest + 1

    def forget(self, first: int) -> None:
        """Forget the changes before a number."""
        while self._moved and self._moved[0].number < first:
            moved = self._moved.popleft()
            self._before.update(moved.items())
            self.size_bytes -= moved.size_bytes

    def of(self, stream_id: int, numbers: Int64s) -> Int64s:
        """Return the position of a stream at some changes.

        Of a change that was forgotten, it is that of a later one which was forgotten, too.
        """
        before = _Moved.of(0, {stream_id: self._before.get(stream_id, 0)})
        parts = [before, *self._moved]
        is_of = np.concatenate([each.ids for each in parts]) == stream_id
        every = np.repeat([each.number for each in parts], [len(each.ids) for each in parts])
        positions = np.concatenate([each.positions for each in parts])[is_of]
        places: Int64s = positions[np.searchsorted(every[is_of], numbers, side="right") - 1]
        return places

    def to_json(self) -> list[Any]:
        """The changes as lists."""
        moved = [(each.number, each.items()) for each in self._moved]
        return [self.newest, list(self._before.items()), moved]

    def restore(self, stored: list[Any]) -> None:
        """Go on from what `to_json` gave."""
        self.newest, before, moved = stored
        self._before = dict(before)
        self._moved = deque(_Moved.of(number, dict(positions)) for number, positions in moved)
        self._newest_positions = dict(self._before)
        for each in self._moved:
            self._newest_positions.update(each.items())
        self.size_bytes = sum(each.size_bytes for each in self._moved)
