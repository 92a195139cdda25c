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
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from shedder.cql.statements.bound_query import DEFAULT_TENANT
from shedder.engine.ingest.forgotten_producers import ForgottenProducers
from shedder.engine.ingest.producer_sequences import OWN_PREFIX, Content, PushProgress
from shedder.errors import BadSetting, ProducerForgotten, QuotaExceeded

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
_MARKS_SHARE: Final = 8  # Marks for each evicted name, a byte each; most other names have none.
_SLOTS_MIN: Final = 1 << 12  # Of the bounds of forgotten producers, however many streams there are.
_EARLIER_COPY: Final = re.compile("(insert/[0-9]+)/[0-9]+/(.*)", re.DOTALL)  # INSERT ... PRODUCER.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLimits:
    """Limits of the memory for known producers.

    bytes_max: of the active producers of all streams.
    evicted_max: evicted producers of one stream; 72 bytes each.
    forgotten_bytes: of the bounds of one stream's forgotten producers, at most.
    remembered_bytes_max: of the evicted and forgotten producers of all streams.
    names_max: active and evicted producers of all streams of one tenant.
    """

    bytes_max: int = 32 << 20
    evicted_max: int = 1 << 17
    forgotten_bytes: int = 1 << 22
    remembered_bytes_max: int = 64 << 20
    names_max: int = 1 << 20


class ProducerMemory:
    """Bytes and names of the producers of all streams. Safe from any thread.

    size_bytes: of active producers. remembered_bytes: of evicted and forgotten ones.
    """

    def __init__(self, limits: ProducerLimits) -> None:
        self.limits = limits
        self.size_bytes = 0
        self.remembered_bytes = 0
        self._streams: Counter[str] = Counter()  # By tenant,
        self._names: Counter[str] = Counter()  # ... and so are names.
        self._lock = threading.Lock()

    def join(self, tenant: str) -> None:
        """Count one more stream of a tenant."""
        with self._lock:
            self._streams[tenant] += 1

    def leave(self, tenant: str) -> None:
        """Count one stream of a tenant less; its bytes and names have been taken off."""
        with self._lock:
            self._streams[tenant] -= 1

    def add(
        self, tenant: str, *, size_bytes: int = 0, remembered_bytes: int = 0, names: int = 0
    ) -> None:
        """Add the changes of a stream's bytes and names; they may be negative."""
        with self._lock:
            self.size_bytes += size_bytes
            self.remembered_bytes += remembered_bytes
            self._names[tenant] += names

    def names_of(self, tenant: str) -> int:
        """Return the number of active and evicted producers of a tenant."""
        return self._names[tenant]

    def is_full(self, tenant: str, own_names: int) -> bool:
        """Return whether a stream with own_names takes no new name.

        Its tenant has as many names as it may have, and the stream at least its even share.
        """
        most = self.limits.names_max
        share = most // max(1, self._streams[tenant])
        return self._names[tenant] >= most and own_names >= share

    def may_remember(self, own_bytes: int, more_bytes: int) -> bool:
        """Return whether a stream may keep more bytes of evicted and forgotten producers."""
        over = self.remembered_bytes + more_bytes > self.limits.remembered_bytes_max
        return not over or own_bytes + more_bytes <= self.remembered_share

    @property
    def remembered_share(self) -> int:
        """An even share of the bytes for evicted and forgotten producers."""
        return self.limits.remembered_bytes_max // max(1, self._streams.total())

    def is_over(self, own_bytes: int) -> bool:
        """Return whether a stream with own_bytes has to evict: it has more than its even share."""
        share = self.limits.bytes_max // max(1, self._streams.total())
        return self.size_bytes > self.limits.bytes_max and own_bytes > share


@dataclass(frozen=True, slots=True)
class ProducerState:
    """Producers of a stream as a checkpoint stores them.

    active: in order of their last activity. evicted: the bytes of their numbers. forgotten: the
    slots of their bounds. epoch_max: the largest epoch that a client may use; 0: that of no count.
    """

    active: Mapping[str, PushProgress] = field(default_factory=dict)
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

    def __init__(
        self,
        memory: ProducerMemory,
        state: ProducerState | None = None,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> None:
        """state: of a checkpoint. tenant: that owns the stream."""
        state = ProducerState() if state is None else state
        self._memory = memory
        self._tenant = tenant
        self._active = dict(state.active)
        self._forgotten = ForgottenProducers(state.forgotten, state.epoch_max)
        self._evicted: NDArray[Any] = np.frombuffer(state.evicted, _EVICTED).copy()
        self._size = len(self._evicted)
        self._next = 0  # The oldest of the evicted, once there is no more room.
        self._marks = self._marked()
        self._stale_marks = 0
        self._first_past_us = 0  # No name of one process is past before this time.
        self._bytes = self._remembered = self._names = 0
        memory.join(tenant)
        self._grow(sum(_bytes_of(name, each) for name, each in self._active.items()))
        self._account()

    def close(self) -> None:
        """Release the memory of a dropped stream."""
        self._memory.add(
            self._tenant,
            size_bytes=-self._bytes,
            remembered_bytes=-self._remembered,
            names=-self._names,
        )
        self._memory.leave(self._tenant)

    @property
    def active(self) -> Mapping[str, PushProgress]:
        """The producers with full progress."""
        return self._active

    def get(self, name: str) -> PushProgress | None:
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

    def check_epoch(self, name: str, known: PushProgress | None, epoch: int) -> None:
        """Check that a producer may push in an epoch. known: its progress.

        Raises:
          ProducerForgotten: it is not known, and may have been forgotten.
          BadSetting: the epoch is too large.
        """
        if epoch > self._forgotten.epoch_max:
            raise BadSetting(f"epoch {epoch} of producer {name!r}; it must be from 0 to 2^62")
        if known is None and epoch < (epoch_min := self.epoch_min(name)):
            raise ProducerForgotten(name, epoch, epoch_min)

    def check_room(self, name: str, known: PushProgress | None, now_us: int) -> None:
        """Check that a producer may push although its tenant has many. known: its progress.

        Names of one process that are past make room first.

        Raises:
          QuotaExceeded: it is not known, the tenant has as many producers as it may have, and this
            stream its share of them.
        """
        if known is not None or not self._memory.is_full(self._tenant, self._names):
            return
        self._forget_past(now_us)
        if self._memory.is_full(self._tenant, self._names):
            raise QuotaExceeded(
                f"tenant {self._tenant!r} has {self._memory.names_of(self._tenant):,} producers, "
                f"and producers_max is {self._memory.limits.names_max:,}: {name!r} would be one "
                "more. Use the names that have pushed before, drop a stream, or raise producers_max"
            )

    def note(self, name: str, progress: PushProgress, now_us: int) -> None:
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
        self._account()

    def state(self) -> ProducerState:
        """Return the state for a checkpoint."""
        order = np.roll(self._evicted[: self._size], -self._next)
        slots, epoch_max = self._forgotten.to_bytes(), self._forgotten.epoch_max
        return ProducerState(dict(self._active), order.tobytes(), slots, epoch_max)

    def _grow(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._memory.add(self._tenant, size_bytes=size_bytes)

    def _account(self) -> None:
        """Tell the memory of all streams what has changed of names and remembered bytes."""
        names = len(self._active) + self._size
        remembered = self._evicted.nbytes + self._marks.nbytes + self._forgotten.size_bytes
        changes = {"names": names - self._names, "remembered_bytes": remembered - self._remembered}
        if any(changes.values()):
            self._names, self._remembered = names, remembered
            self._memory.add(self._tenant, **changes)

    def _evict(self, name: str, progress: PushProgress, now_us: int) -> None:
        self._grow(-_bytes_of(name, progress))
        hashed = _hash(name)
        place = self._place_of(hashed)
        if place is None:
            place = self._free_place(now_us)
            self._marks[hashed % len(self._marks)] = True
        copied = _EARLIER_COPY.fullmatch(name)
        if copied:  # A repeated statement has another name in this version.
            self._forget(_hash(f"{copied[1]}/from/{copied[2]}"), progress.epoch)
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
        if self._size < len(self._evicted) or self._has_widened():
            self._size += 1
            return self._size - 1
        place, self._next = self._next, (self._next + 1) % self._size
        if not self._is_past(place, now_us):
            forgotten = self._evicted[place]
            self._forget(int(forgotten["name"]), int(forgotten["epoch"]))
        self._stale_marks += 1
        if self._stale_marks > self._size:
            self._marks, self._stale_marks = self._marked(), 0
        return place

    def _has_widened(self) -> bool:
        """Make room for more evicted producers; return whether there is any.

        Without a place there is no eviction, so the first 64 places do not depend on memory.
        """
        size = min(self._memory.limits.evicted_max, max(_ROOM_MIN, 2 * self._size))
        more_bytes = (size - self._size) * (_EVICTED.itemsize + _MARKS_SHARE)
        if size <= self._size:
            return False
        if self._size and not self._memory.may_remember(self._remembered, more_bytes):
            return False
        room = np.zeros(size, _EVICTED)
        room[: self._size] = np.roll(self._evicted[: self._size], -self._next)
        self._evicted, self._next = room, 0
        self._marks, self._stale_marks = self._marked(), 0
        self._account()
        return True

    def _forget(self, hashed: int, epoch: int) -> None:
        """Keep a bound of an epoch; the first name decides how many slots there are."""
        slots = self._forgotten.size_bytes or self._slots_now()
        self._forgotten.add(hashed, epoch, slots=slots)

    def _slots_now(self) -> int:
        """Return the power of two of slots that fits into the memory of all streams."""
        slots, most = 1, self._memory.limits.forgotten_bytes
        least = min(_SLOTS_MIN, most)
        while slots < most:
            if slots >= least and not self._memory.may_remember(self._remembered, 2 * slots):
                break
            slots *= 2
        return slots

    def _forget_past(self, now_us: int) -> None:
        """Drop evicted names of one process of which no client sends a push again."""
        if now_us < self._first_past_us:
            return
        entries = np.roll(self._evicted[: self._size], -self._next)
        own = (entries["flags"] & _OWN) > 0
        past = own & (now_us - entries["evicted_us"] > _OWN_RETRY_US)
        waiting = entries["evicted_us"][own & ~past]
        self._first_past_us = int(waiting.min(initial=now_us)) + _OWN_RETRY_US
        kept = entries[~past]
        self._evicted[: len(kept)], self._size, self._next = kept, len(kept), 0
        self._marks, self._stale_marks = self._marked(), 0
        self._account()

    def _is_past(self, place: int, now_us: int) -> bool:
        """Return whether no client can send a push of an evicted producer again."""
        entry = self._evicted[place]
        is_own = bool(int(entry["flags"]) & _OWN)
        return is_own and now_us - int(entry["evicted_us"]) > _OWN_RETRY_US

    def _marked(self) -> NDArray[np.bool_]:
        """Return marks at the hashes of the evicted names."""
        marks = np.zeros(max(1, _MARKS_SHARE * len(self._evicted)), np.bool_)
        names = self._evicted["name"][: self._size]
        marks[names % np.uint64(len(marks))] = True
        return marks

    def _place_of(self, hashed: int) -> int | None:
        if not self._marks[hashed % len(self._marks)]:
            return None
        [found] = np.nonzero(self._evicted["name"][: self._size] == np.uint64(hashed))
        return int(found[-1]) if found.size else None

    def _evicted_progress(self, name: str) -> PushProgress | None:
        place = self._place_of(_hash(name))
        if place is None:
            return None
        _, epoch, sequence, position, rows, flags, _, fingerprint = self._evicted[place].tolist()
        is_whole = not flags & _OPEN
        contents = (Content(sequence, rows, fingerprint),) if flags & _FINGERPRINT else ()
        return PushProgress(
            epoch, sequence, position, None if rows < 0 else rows, is_whole, contents
        )


def _bytes_of(name: str, progress: PushProgress) -> int:
    return _ACTIVE_BYTES + len(name) + _CONTENT_BYTES * len(progress.contents)


def _hash(name: str) -> int:
    """Return 64 bits. A new name collides with one of 2^17 evicted names with probability 7e-15."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _progress_to_json(progress: PushProgress) -> dict[str, Any]:
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


def _progress_from_json(said: Mapping[str, Any]) -> PushProgress:
    contents = tuple(Content(*each) for each in said.get("contents", ()))
    return PushProgress(**{**said, "contents": contents})
