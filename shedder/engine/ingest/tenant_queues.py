"""Shares of the apply queue by tenant: one tenant's backlog leaves room for the others."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable


class TenantQueues:
    """Bytes of each tenant that are admitted and not applied yet. Safe from any thread.

    The log is one sequence, and batches are applied in its order. So the bytes of one tenant in it
    bound how long another one's batch is queued. Each tenant that has streams gets a share by
    weight. A single tenant has the whole queue.
    """

    def __init__(self, weight_of: Callable[[str], float] = lambda _: 1.0) -> None:
        self._weight_of = weight_of
        self._lock = threading.Lock()
        self._streams: Counter[str] = Counter()
        self._queued: Counter[str] = Counter()

    def add_stream(self, tenant: str) -> None:
        """A tenant has one more stream."""
        with self._lock:
            self._streams[tenant] += 1

    def drop_stream(self, tenant: str) -> None:
        """... or one less."""
        with self._lock:
            self._streams[tenant] -= 1
            self._streams += Counter()

    def came(self, tenant: str, size_bytes: int) -> None:
        """A batch was handed to the log."""
        with self._lock:
            self._queued[tenant] += size_bytes

    def left(self, tenant: str, size_bytes: int) -> None:
        """It was applied, or will never be."""
        with self._lock:
            self._queued[tenant] -= size_bytes

    def queued_bytes(self, tenant: str) -> int:
        """What a tenant has in the queue."""
        return self._queued[tenant]

    def share(self, tenant: str) -> float:
        """A tenant's part of what all have room for, in (0, 1]."""
        with self._lock:
            owners = [*self._streams]
        if owners == [tenant] or tenant not in owners:
            return 1.0
        return self._weight_of(tenant) / sum(self._weight_of(owner) for owner in owners)
