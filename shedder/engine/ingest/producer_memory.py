"""Memory for known producers: its limits, and what all streams use of it."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass


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
