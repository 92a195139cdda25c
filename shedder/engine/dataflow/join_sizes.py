"""Bytes of a join whose keys are sampled: they change while it runs, and are stored before.

A change has an instant. Tuples before it are counted in the bytes before it, so a restart makes
the same rows again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from shedder.errors import BudgetExceeded

SAMPLING = "sampling"  # Of the parameters of a query in the catalog.
RESIZES_MAX = 64  # Changes within the event time that a restart reads.


@dataclass(frozen=True, slots=True)
class JoinSampling:
    """Seed and bytes of a sampled join.

    seed: of the keys. bytes_max: as the query was registered.
    resizes: first instant, in µs, and bytes from then on, in the order in which they were made.
    """

    seed: int
    bytes_max: int
    resizes: tuple[tuple[int, int], ...] = ()

    @property
    def newest_bytes_max(self) -> int:
        """Bytes behind the newest change."""
        return self.resizes[-1][1] if self.resizes else self.bytes_max

    def to_json(self) -> Any:
        """Return what the catalog keeps. Versions that know no resizes cannot read them."""
        if not self.resizes:
            return [self.seed, self.bytes_max]
        resizes = [[*each] for each in self.resizes]
        return {"seed": self.seed, "bytes_max": self.bytes_max, "resizes": resizes}

    @classmethod
    def from_json(cls, stored: Any) -> JoinSampling:
        """Read what `to_json` wrote."""
        if isinstance(stored, list):
            return cls(stored[0], stored[1])
        resizes = tuple((first_us, bytes_max) for first_us, bytes_max in stored["resizes"])
        return cls(stored["seed"], stored["bytes_max"], resizes)

    def with_resize(
        self, first_us: int, bytes_max: int, *, from_us: int | None
    ) -> JoinSampling | None:
        """Return the same with other bytes from an instant on; None: there were too many changes.

        from_us: no earlier tuple is read again; None: any may be.
        """
        made = self.resizes
        while len(made) > 1 and from_us is not None and made[1][0] <= from_us:
            made = made[1:]
        if len(made) == RESIZES_MAX:
            return None
        return replace(self, resizes=(*made, (first_us, bytes_max)))


class SampledAggregates(Protocol):
    """Aggregates of a sampled join, as its sizes change."""

    @property
    def size_bytes(self) -> int:
        """Bytes that are held."""
        ...

    @property
    def bytes_max(self) -> int:
        """Bytes that may be held."""
        ...

    @property
    def bytes_min(self) -> int:
        """The least bytes that the aggregates need."""
        ...


class SizeStore(Protocol):
    """Where the sizes of a query are made durable before rows depend on them."""

    @property
    def is_new(self) -> bool:
        """Return whether the query is being registered."""
        ...

    def needs_from_us(self) -> int | None:
        """Return the event time before which no restart reads tuples; None: it is not known."""
        ...

    def put_sizes(self, sampling: JoinSampling) -> bool:
        """Store sizes; return False if they may not change now.

        Raises:
          DiskFull, StorageFailed: nothing was stored.
        """
        ...


class JoinSizes:
    """Bytes of the sampled join of one query. Used by the apply thread."""

    def __init__(self, sampling: JoinSampling, store: SizeStore) -> None:
        """sampling: as it was stored. store: for later bytes."""
        self._sampling = sampling
        self._store = store

    def put(self, first_us: int, bytes_max: int, resize: Callable[[int, int], None]) -> bool:
        """Store other bytes from an instant on, and resize; return False if that may not be now.

        The bytes that the query has are no change.

        Raises:
          BudgetExceeded: the query has been resized too often. DiskFull, StorageFailed.
        """
        if bytes_max == self._sampling.newest_bytes_max:
            return True
        from_us = self._store.needs_from_us()
        changed = self._sampling.with_resize(first_us, bytes_max, from_us=from_us)
        if changed is None:
            raise BudgetExceeded(
                f"its bytes have changed {RESIZES_MAX} times within the event time that a restart "
                "reads; change them again when its windows have moved on"
            )
        if self._store.is_new or not self._store.put_sizes(changed):
            return False
        self._sampling = changed
        resize(first_us, bytes_max)
        return True

    def relieved(self, join: SampledAggregates, excess_bytes: int) -> int | None:
        """Return bytes with which a join holds less by this excess; None: there are none."""
        if self._store.is_new:
            return None
        wanted, bytes_max = join.size_bytes - excess_bytes, join.bytes_max
        if wanted < join.bytes_min:  # Less than nothing, if the tuples that wait are too many.
            return None
        while bytes_max > wanted:
            bytes_max //= 2
        return bytes_max if bytes_max >= join.bytes_min else None
