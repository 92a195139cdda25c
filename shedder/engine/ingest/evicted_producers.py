"""Evicted producers of one stream: the numbers and the fingerprint of the newest push of each."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shedder.engine.ingest.producer_sequences import Content, PushProgress

_EVICTED: Final = np.dtype(
    [
        ("name", "<u8"),
        ("epoch", "<i8"),
        ("sequence", "<i8"),
        ("position", "<i8"),
        ("rows", "<i8"),
        ("flags", "<i8"),
        ("evicted_us", "<i8"),
        ("fingerprint", "<u8"),
    ]
)
_OPEN: Final = 1  # A flag: the end of its newest push is not stored.
_OWN: Final = 2  # A flag: a client has drawn the name for one process.
_FINGERPRINT: Final = 4  # A flag: the fingerprint of its newest push is known.
_OWN_RETRY_US: Final = 86_400_000_000  # A client tries a push for its patience, 30 s by default.
_MARKS_SHARE: Final = 8  # Marks for each evicted name, a byte each; most other names have none.
PLACE_BYTES: Final = _EVICTED.itemsize + _MARKS_SHARE
"""Bytes of an evicted producer."""


class EvictedProducers:
    """Places for evicted producers, by the hashes of their names. The oldest is overwritten."""

    def __init__(self, data: bytes) -> None:
        """data: of `to_bytes`."""
        self._entries: NDArray[Any] = np.frombuffer(data, _EVICTED).copy()
        self._size = len(self._entries)
        self._next = 0  # The oldest entry, once there is no more room.
        self._marks = self._marked()
        self._stale_marks = 0
        self._first_past_us = 0  # No name of one process is past before this time.

    def __len__(self) -> int:
        return self._size

    @property
    def size_bytes(self) -> int:
        """Bytes of all places, taken or not."""
        return self._entries.nbytes + self._marks.nbytes

    def to_bytes(self) -> bytes:
        """Return the producers, the oldest first."""
        return self._in_order().tobytes()

    def get(self, hashed: int) -> PushProgress | None:
        """Return the progress of a producer; None: it was not evicted, or is forgotten."""
        place = self._place_of(hashed) if self._size else None
        if place is None:
            return None
        _, epoch, sequence, position, rows, flags, _, fingerprint = self._entries[place].tolist()
        is_whole = not flags & _OPEN
        contents = (Content(sequence, rows, fingerprint),) if flags & _FINGERPRINT else ()
        return PushProgress(
            epoch, sequence, position, None if rows < 0 else rows, is_whole, contents
        )

    def has_room_for(self, hashed: int) -> bool:
        """Return whether a producer has a place, or one is free."""
        return self._size < len(self._entries) or self._place_of(hashed) is not None

    def widen(self, places: int) -> None:
        """Provide so many places."""
        room = np.zeros(places, _EVICTED)
        room[: self._size] = self._in_order()
        self._entries, self._next = room, 0
        self._marks, self._stale_marks = self._marked(), 0

    def put(
        self, hashed: int, progress: PushProgress, now_us: int, *, is_own: bool
    ) -> tuple[int, int] | None:
        """Store the progress of a producer. There are places.

        Args:
          hashed: hash of its name.
          is_own: a client has drawn the name for one process.

        Returns:
          The hash and the epoch of a producer that was overwritten and may push again.
        """
        forgotten = None
        place = self._place_of(hashed)
        if place is None:
            place, forgotten = self._free_place(now_us)
            self._marks[hashed % len(self._marks)] = True
        rows = -1 if progress.rows is None else progress.rows
        flags = _OPEN * (not progress.is_whole) | _OWN * is_own
        flags |= _FINGERPRINT * (progress.fingerprint is not None)
        self._entries[place] = (
            hashed,
            progress.epoch,
            progress.sequence,
            progress.position,
            rows,
            flags,
            now_us,
            progress.fingerprint or 0,
        )
        return forgotten

    def _free_place(self, now_us: int) -> tuple[int, tuple[int, int] | None]:
        """Return a place, and the producer there that is forgotten from now on."""
        if self._size < len(self._entries):
            self._size += 1
            return self._size - 1, None
        place, self._next = self._next, (self._next + 1) % self._size
        entry = self._entries[place]
        is_own = bool(int(entry["flags"]) & _OWN)
        is_past = is_own and now_us - int(entry["evicted_us"]) > _OWN_RETRY_US
        forgotten = None if is_past else (int(entry["name"]), int(entry["epoch"]))
        self._stale_marks += 1
        if self._stale_marks > self._size:
            self._marks, self._stale_marks = self._marked(), 0
        return place, forgotten

    def drop_past(self, now_us: int) -> None:
        """Drop names of one process of which no client sends a push again."""
        if now_us < self._first_past_us:
            return
        entries = self._in_order()
        own = (entries["flags"] & _OWN) > 0
        past = own & (now_us - entries["evicted_us"] > _OWN_RETRY_US)
        waiting = entries["evicted_us"][own & ~past]
        self._first_past_us = int(waiting.min(initial=now_us)) + _OWN_RETRY_US
        kept = entries[~past]
        self._entries[: len(kept)], self._size, self._next = kept, len(kept), 0
        self._marks, self._stale_marks = self._marked(), 0

    def _in_order(self) -> NDArray[Any]:
        return np.roll(self._entries[: self._size], -self._next)

    def _marked(self) -> NDArray[np.bool_]:
        """Return marks at the hashes of the names."""
        marks = np.zeros(max(1, _MARKS_SHARE * len(self._entries)), np.bool_)
        names = self._entries["name"][: self._size]
        marks[names % np.uint64(len(marks))] = True
        return marks

    def _place_of(self, hashed: int) -> int | None:
        if not self._marks[hashed % len(self._marks)]:
            return None
        [found] = np.nonzero(self._entries["name"][: self._size] == np.uint64(hashed))
        return int(found[-1]) if found.size else None
