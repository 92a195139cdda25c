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
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from shedder.archive.log.records import MADE_PREFIX
from shedder.cql.statements.bound_query import DEFAULT_TENANT
from shedder.engine.ingest.evicted_producers import PLACE_BYTES, EvictedProducers
from shedder.engine.ingest.forgotten_producers import ForgottenProducers
from shedder.engine.ingest.producer_memory import ProducerMemory
from shedder.engine.ingest.producer_sequences import OWN_PREFIX, Content, PushProgress
from shedder.errors import BadSetting, ProducerForgotten, QuotaExceeded

_ROOM_MIN: Final = 64
_ACTIVE_BYTES: Final = 400  # Of an active producer in memory, its name and contents aside.
_CONTENT_BYTES: Final = 150  # Of one content.
_SLOTS_MIN: Final = 1 << 12  # Of the bounds of forgotten producers, however many streams there are.
_EARLIER_COPY: Final = re.compile("(insert/[0-9]+)/[0-9]+/(.*)", re.DOTALL)  # INSERT ... PRODUCER.


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
        self._evicted = EvictedProducers(state.evicted)
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
        return self._evicted.get(_hash(name)) if found is None and len(self._evicted) else found

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
        self._evicted.drop_past(now_us)
        self._account()
        if self._memory.is_full(self._tenant, self._names):
            raise QuotaExceeded(
                f"tenant {self._tenant!r} has {self._memory.names_of(self._tenant):,} producers, "
                f"and producers_max is {self._memory.limits.names_max:,}: {name!r} would be one "
                "more. Use the names that have pushed before, drop a stream, or raise producers_max"
            )

    def note(self, name: str, progress: PushProgress, now_us: int) -> None:
        """Set a producer's progress; evict the producers that were silent longest if needed.

        A standing query, which is no producer, knows its own progress.

        now_us: when its newest batch has come.
        """
        if name.startswith(MADE_PREFIX):
            return
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
        slots, epoch_max = self._forgotten.to_bytes(), self._forgotten.epoch_max
        return ProducerState(dict(self._active), self._evicted.to_bytes(), slots, epoch_max)

    def _grow(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._memory.add(self._tenant, size_bytes=size_bytes)

    def _account(self) -> None:
        """Tell the memory of all streams what has changed of names and remembered bytes."""
        names = len(self._active) + len(self._evicted)
        remembered = self._evicted.size_bytes + self._forgotten.size_bytes
        changes = {"names": names - self._names, "remembered_bytes": remembered - self._remembered}
        if any(changes.values()):
            self._names, self._remembered = names, remembered
            self._memory.add(self._tenant, **changes)

    def _evict(self, name: str, progress: PushProgress, now_us: int) -> None:
        self._grow(-_bytes_of(name, progress))
        hashed = _hash(name)
        if not self._evicted.has_room_for(hashed):
            self._widen()
        is_own = name.startswith(OWN_PREFIX)
        forgotten = self._evicted.put(hashed, progress, now_us, is_own=is_own)
        if forgotten is not None:
            self._forget(*forgotten)
        copied = _EARLIER_COPY.fullmatch(name)
        if copied:  # A repeated statement has another name in this version.
            self._forget(_hash(f"{copied[1]}/from/{copied[2]}"), progress.epoch)

    def _widen(self) -> None:
        """Make room for more evicted producers if memory allows it.

        Without a place there is no eviction, so the first 64 places do not depend on memory.
        """
        now = len(self._evicted)
        places = min(self._memory.limits.evicted_max, max(_ROOM_MIN, 2 * now))
        more_bytes = (places - now) * PLACE_BYTES
        if places <= now or (now and not self._memory.may_remember(self._remembered, more_bytes)):
            return
        self._evicted.widen(places)
        self._account()

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
