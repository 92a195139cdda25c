"""Known producers of one stream: active, evicted and forgotten ones, in bounded memory.

An evicted producer must not look like a new one, or its retry would be stored twice. So a producer
has three stages. An active producer has its full progress. Of an evicted producer, a hash of its
name and the numbers and the fingerprint of its newest push are kept. Of a forgotten producer, an
upper bound of its epoch is kept: it must begin above.

Names that clients draw for one process are an exception. A day after the eviction of such a name,
no client retries its pushes. So nothing is kept of the name.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from shedder.engine.ingest.forgotten_producers import ForgottenProducers
from shedder.engine.ingest.producer_sequences import OWN_PREFIX, Content, Progress
from shedder.errors import BadSetting, ProducerForgotten

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
_ROOM_MIN: Final = 64
_ACTIVE_BYTES: Final = 400  # Of an active producer in memory, its name and contents aside.
_CONTENT_BYTES: Final = 150  # Of one content.
_MARKS: Final = 1 << 20  # Bits of hashes that tell most names apart from the evicted ones.
_EARLIER_COPY: Final = re.compile("(insert/[0-9]+)/[0-9]+/(.*)", re.DOTALL)  # INSERT ... PRODUCER.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLimits:
    """Limits of the memory for known producers.

    bytes_max: of the active producers of all streams.
    evicted_max: evicted producers of one stream; 64 bytes each, and 1 MiB for all.
    forgotten_bytes: of the bounds of one stream's forgotten producers.
    """

    bytes_max: int = 32 << 20
    evicted_max: int = 1 << 17
    forgotten_bytes: int = 1 << 22


class ProducerMemory:
    """Bytes of the active producers of all streams. Safe from any thread."""

    def __init__(self, limits: ProducerLimits) -> None:
        self.limits = limits
        self.size_bytes = 0
        self._streams = 0
        self._lock = threading.Lock()

    def join(self) -> None:
        """Count one more stream."""
        with self._lock:
            self._streams += 1

    def leave(self, size_bytes: int) -> None:
        """Remove a dropped stream and its bytes."""
        with self._lock:
            self._streams -= 1
            self.size_bytes -= size_bytes

    def add(self, size_bytes: int) -> None:
        """Add the change of a stream's bytes; it may be negative."""
        with self._lock:
            self.size_bytes += size_bytes

    def is_over(self, own_bytes: int) -> bool:
        """Return whether a stream with own_bytes has to evict: it has more than its even share."""
        share = self.limits.bytes_max // max(1, self._streams)
        return self.size_bytes > self.limits.bytes_max and own_bytes > share


@dataclass(frozen=True, slots=True)
class ProducerState:
    """Producers of a stream as a checkpoint stores them.

    active: in order of their last activity. evicted: the bytes of their numbers. forgotten: the
    slots of their bounds. epoch_max: the largest epoch that a client may use; 0: that of no count.
    """

    active: Mapping[str, Progress] = field(default_factory=dict)
    evicted: bytes = b""
    forgotten: bytes = b""
    epoch_max: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return all but the bytes. Fields that earlier versions lack are left out if possible."""
        active = {name: _progress_to_json(each) for name, each in self.active.items()}
        said: dict[str, Any] = {"producers": active}
        if self.forgotten:
            said["epoch_max"] = self.epoch_max
        return said

    @classmethod
    def from_json(cls, said: Mapping[str, Any], evicted: bytes, forgotten: bytes) -> Self:
        """The inverse of to_json, of this version or an earlier one."""
        active = {name: _progress_from_json(each) for name, each in said["producers"].items()}
        return cls(active, evicted, forgotten, said.get("epoch_max", 0))


class KnownProducers:
    """Progress of each producer of a stream, by name. For one thread."""

    def __init__(self, memory: ProducerMemory, state: ProducerState | None = None) -> None:
        """state: of a checkpoint."""
        state = ProducerState() if state is None else state
        self._memory = memory
        self._active = dict(state.active)
        slots_max = memory.limits.forgotten_bytes
        self._forgotten = ForgottenProducers(slots_max, state.forgotten, state.epoch_max)
        self._evicted: NDArray[Any] = np.frombuffer(state.evicted, _EVICTED).copy()
        self._size = len(self._evicted)
        self._next = 0  # The oldest of the evicted, once there is no more room.
        self._marks = self._marked()
        self._stale_marks = 0
        self._bytes = sum(_bytes_of(name, each) for name, each in self._active.items())
        memory.join()
        memory.add(self._bytes)

    def close(self) -> None:
        """Release the memory of a dropped stream."""
        self._memory.leave(self._bytes)

    @property
    def active(self) -> Mapping[str, Progress]:
        """The producers with full progress."""
        return self._active

    def get(self, name: str) -> Progress | None:
        """Return a producer's progress; None: the producer is not active or evicted."""
        found = self._active.get(name)
        if found is None and self._size:
            return self._evicted_progress(name)
        return found

    def epoch_min(self, name: str) -> int:
        """Return the smallest epoch in which an unknown producer may begin.

        0: it was certainly not forgotten.
        """
        return self._forgotten.epoch_min(_hash(name))

    def check_epoch(self, name: str, known: Progress | None, epoch: int) -> None:
        """Check that a producer may push in an epoch. known: its progress.

        Raises:
          ProducerForgotten: it is not known, and may have been forgotten.
          BadSetting: the epoch is too large.
        """
        if epoch > self._forgotten.epoch_max:
            raise BadSetting(f"epoch {epoch} of producer {name!r}; it must be from 0 to 2^62")
        if known is None and epoch < (epoch_min := self.epoch_min(name)):
            raise ProducerForgotten(name, epoch, epoch_min)

    def note(self, name: str, progress: Progress, now_us: int) -> None:
        """Set a producer's progress; evict the producers that were silent longest if needed.

        now_us: when its newest batch has come.
        """
        before = self._active.pop(name, None)
        self._active[name] = progress
        change = _bytes_of(name, progress)
        change -= 0 if before is None else _bytes_of(name, before)
        self._grow(change)
        while len(self._active) > 1 and self._memory.is_over(self._bytes):
            oldest = next(iter(self._active))
            self._evict(oldest, self._active.pop(oldest), now_us)

    def state(self) -> ProducerState:
        """Return the state for a checkpoint."""
        order = np.roll(self._evicted[: self._size], -self._next)
        slots, epoch_max = self._forgotten.to_bytes(), self._forgotten.epoch_max
        return ProducerState(dict(self._active), order.tobytes(), slots, epoch_max)

    def _grow(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._memory.add(size_bytes)

    def _evict(self, name: str, progress: Progress, now_us: int) -> None:
        self._grow(-_bytes_of(name, progress))
        hashed = _hash(name)
        place = self._place_of(hashed)
        if place is None:
            place = self._free_place(now_us)
            self._marks[hashed % len(self._marks)] = True
        copied = _EARLIER_COPY.fullmatch(name)
        if copied:  # A repeated statement has another name in this version.
            self._forgotten.add(_hash(f"{copied[1]}/from/{copied[2]}"), progress.epoch)
        rows = -1 if progress.rows is None else progress.rows
        flags = _OPEN * (not progress.is_whole) | _OWN * name.startswith(OWN_PREFIX)
        flags |= _FINGERPRINT * (progress.fingerprint is not None)
        self._evicted[place] = (
            hashed,
            progress.epoch,
            progress.sequence,
            progress.position,
            rows,
            flags,
            now_us,
            progress.fingerprint or 0,
        )

    def _free_place(self, now_us: int) -> int:
        """Return the place of the next evicted producer; forget the oldest if all are taken."""
        most = self._memory.limits.evicted_max
        if self._size < most:
            if not self._size:
                self._marks = np.zeros(_MARKS, np.bool_)
            if self._size == len(self._evicted):
                room = np.zeros(min(most, max(_ROOM_MIN, 2 * self._size)), _EVICTED)
                room[: self._size] = np.roll(self._evicted[: self._size], -self._next)
                self._evicted, self._next = room, 0
            self._size += 1
            return self._size - 1
        place, self._next = self._next, (self._next + 1) % self._size
        if not self._is_past(place, now_us):
            forgotten = self._evicted[place]
            self._forgotten.add(int(forgotten["name"]), int(forgotten["epoch"]))
        self._stale_marks += 1
        if self._stale_marks > most:
            self._marks, self._stale_marks = self._marked(), 0
        return place

    def _is_past(self, place: int, now_us: int) -> bool:
        """Return whether no client can send a push of an evicted producer again."""
        entry = self._evicted[place]
        is_own = bool(int(entry["flags"]) & _OWN)
        return is_own and now_us - int(entry["evicted_us"]) > _OWN_RETRY_US

    def _marked(self) -> NDArray[np.bool_]:
        """Return marks at the hashes of the evicted names."""
        marks = np.zeros(_MARKS if self._size else 1, np.bool_)
        names = self._evicted["name"][: self._size]
        marks[names % np.uint64(len(marks))] = True
        return marks

    def _place_of(self, hashed: int) -> int | None:
        if not self._marks[hashed % len(self._marks)]:
            return None
        [found] = np.nonzero(self._evicted["name"][: self._size] == np.uint64(hashed))
        return int(found[-1]) if found.size else None

    def _evicted_progress(self, name: str) -> Progress | None:
        place = self._place_of(_hash(name))
        if place is None:
            return None
        _, epoch, sequence, position, rows, flags, _, fingerprint = self._evicted[place].tolist()
        is_whole = not flags & _OPEN
        contents = (Content(sequence, rows, fingerprint),) if flags & _FINGERPRINT else ()
        return Progress(epoch, sequence, position, None if rows < 0 else rows, is_whole, contents)


def _bytes_of(name: str, progress: Progress) -> int:
    return _ACTIVE_BYTES + len(name) + _CONTENT_BYTES * len(progress.contents)


def _hash(name: str) -> int:
    """Return 64 bits. A new name collides with one of 2^17 evicted names with probability 7e-15."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _progress_to_json(progress: Progress) -> dict[str, Any]:
    said: dict[str, Any] = {
        "epoch": progress.epoch,
        "sequence": progress.sequence,
        "position": progress.position,
        "rows": progress.rows,
    }
    if not progress.is_whole:
        said["is_whole"] = False
    if progress.contents:
        said["contents"] = progress.contents
    return said


def _progress_from_json(said: Mapping[str, Any]) -> Progress:
    contents = tuple(Content(*each) for each in said.get("contents", ()))
    return Progress(**{**said, "contents": contents})
