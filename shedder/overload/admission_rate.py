"""Admission rate: byte buckets per stream, for when even the thinnest reading is too slow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from shedder.overload.retry_slots import Slots
from shedder.overload.token_bucket import TokenBucket

BURST_S = 0.1  # Seconds of its rate that a stream may send at once while admission is limited.
TICK_S = 0.1  # Assumed time to drain a batch while no drain rate is known.
ALPHA = 0.5  # Weight of the newest tick in a stream's demand.
_LIGHTEST = 1e-12  # Least weight, as a share of the largest; smaller weights count as this.
_IDLE_SHARE = 0.05  # Part of the admission rate that is reserved for a stream without arrivals.


def weighted_shares(
    demand: NDArray[np.float64], weight: NDArray[np.float64], budget: float
) -> NDArray[np.float64]:
    """Split a budget by weight; no share exceeds its demand, and unused parts go to the others.

    Args:
      demand: [n], >= 0. weight: [n], > 0. budget: >= 0.

    Returns:
      share: [n]; share <= demand, share.sum() == min(budget, demand.sum()) up to rounding. A
      share below its demand is no smaller per weight than any other share.
    """
    share = np.zeros_like(demand)
    part = np.maximum(weight / weight.max(), _LIGHTEST)  # Sums of these are finite, and no zero.
    order = np.argsort(demand / part, kind="stable")
    left = np.cumsum(part[order[::-1]])[::-1]  # Each sum anew: nothing cancels.
    for one, rest in zip(order, left, strict=True):
        share[one] = min(demand[one], budget * (part[one] / rest))
        budget -= share[one]
    return share


def _all_of(demand: Sequence[float], weight: Sequence[float], budget: float) -> list[float]:
    """Split a budget by weight; the part beyond all demands is split by weight, too."""
    by = np.array(weight) / max(weight)
    shares = weighted_shares(np.maximum(demand, _IDLE_SHARE * budget), by, budget)
    found: list[float] = (shares + (budget - shares.sum()) * by / by.sum()).tolist()
    return found


@dataclass(slots=True)
class _LimitedStream:
    """Admission of one stream.

    bucket: bytes that the stream may send now.
    rate: bytes/s.
    requested_bytes: bytes asked for since the last tick.
    slots: times at which callers retry that found no tokens.
    full: times at which callers retry that found no room in the queue.
    """

    weight: float = 1.0
    owner: tuple[str, float] = ("", 1.0)
    bucket: TokenBucket = field(default_factory=TokenBucket)
    rate: float = float("inf")
    requested_bytes: float = 0.0
    demand: float = 0.0
    unheld: bool = False
    slots: Slots = field(default_factory=Slots)
    full: Slots = field(default_factory=Slots)


class Door:
    """One bucket of bytes per stream. Safe from any thread; decides by sizes alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[str, _LimitedStream] = {}
        self._held = False
        self._times_later = 1.0  # The rate once the queue is short, over the present rate.
        self._waiting_bytes_max = float("inf")

    @property
    def demand(self) -> float:
        """What all streams have asked for, per second."""
        with self._lock:
            return sum(stream.demand for stream in self._streams.values())

    @property
    def held(self) -> bool:
        """Return whether anything is refused."""
        return self._held

    def hold(
        self,
        admit_bytes_per_s: float,
        weights: Mapping[str, float],
        now_s: float,
        tick_s: float,
        owners: Mapping[str, tuple[str, float]] = MappingProxyType({}),
        *,
        works_bytes_per_s: float = 0.0,
        waiting_bytes_max: float = float("inf"),
        unheld: Collection[str] = (),
    ) -> None:
        """Limit admission from now on.

        Args:
          admit_bytes_per_s: rate of all streams together, split by weight and demand; inf: no
            limit.
          weights: weight of each stream.
          now_s: time of a clock that never goes back.
          tick_s: time since the last call.
          owners: tenant of each stream, and the tenant's weight. Tenants get their shares first,
            then the streams of each tenant. A stream that is missing here is of the tenant "".
          works_bytes_per_s: rate of all streams once no more waits than is wanted; a smaller one
            than `admit_bytes_per_s` counts as that.
          waiting_bytes_max: a tenant with more queued bytes than this is refused.
          unheld: streams that are limited by `waiting_bytes_max` only, and have no part in the
            rate.
        """
        with self._lock:
            self._waiting_bytes_max = waiting_bytes_max
            self._streams = {name: self._streams.get(name, _LimitedStream()) for name in weights}
            began = not self._held
            self._held = admit_bytes_per_s != float("inf")
            self._times_later = max(works_bytes_per_s / max(admit_bytes_per_s, 1.0), 1.0)
            for name, stream in self._streams.items():
                stream.weight = weights[name]
                stream.owner = owners.get(name, ("", 1.0))
                stream.unheld = name in unheld
                stream.demand += ALPHA * (stream.requested_bytes / tick_s - stream.demand)
                stream.requested_bytes = 0.0
                if began:
                    stream.bucket = TokenBucket(at_s=now_s)
            if self._held:
                self._share_out(admit_bytes_per_s)

    def _share_out(self, admit_bytes_per_s: float) -> None:
        owned: dict[tuple[str, float], list[_LimitedStream]] = {}
        for stream in self._streams.values():
            if not stream.unheld:
                owned.setdefault(stream.owner, []).append(stream)
        if not owned:
            return
        demand = [sum(stream.demand for stream in streams) for streams in owned.values()]
        shares = _all_of(demand, [weight for _, weight in owned], admit_bytes_per_s)
        for streams, share in zip(owned.values(), shares, strict=True):
            demands, weights = [each.demand for each in streams], [each.weight for each in streams]
            for stream, rate in zip(streams, _all_of(demands, weights, share), strict=True):
                stream.rate = rate

    def ask(self, stream: str, size_bytes: float) -> None:
        """A batch comes in whatever there is; it counts in what its stream asks for."""
        with self._lock:
            limited = self._streams.get(stream)
            if limited is not None:
                limited.requested_bytes += size_bytes

    def wait_ms(
        self,
        stream: str,
        size_bytes: float,
        now_s: float,
        queue_bytes: float = 0.0,
        *,
        drain_s: Callable[[float], float] = lambda _: TICK_S,
        reserve: bool = True,
    ) -> int:
        """Ask for room for a batch.

        Args:
          stream: whose. size_bytes: of the batch. now_s: of a clock that never goes back.
          queue_bytes: of its tenant, that have come and wait to be applied; over its share of room.
          drain_s: how long it takes to apply so many bytes.
          reserve: it comes back when it is told to, and others are told another time.

        Returns:
          0: it is let in. Else when to come back, and nothing was taken. Where more is let in once
          the queue has been worked off, that is the time at that rate, after the drain.
        """
        with self._lock:
            limited = self._streams.get(stream)
            if limited is None:
                return 0
            limited.requested_bytes += size_bytes
            if queue_bytes > self._waiting_bytes_max:
                free_s, takes_s = (
                    drain_s(queue_bytes - self._waiting_bytes_max),
                    drain_s(size_bytes),
                )
                return limited.full.next_ms(now_s, free_s=free_s, takes_s=takes_s, reserve=reserve)
            if not self._held or limited.unheld:
                return 0
            rate, bucket = max(limited.rate, 1.0), limited.bucket
            burst = max(rate * BURST_S, 1.0)
            bucket.refill(now_s, rate=rate, burst=burst)
            free_s = bucket.wait_s(rate=rate, wanted=1.0)
            if not free_s:
                if bucket.tokens == burst:  # The caller with a slot has not come.
                    limited.slots.free(now_s)
                bucket.take(size_bytes)
                return 0
            free_s = min(free_s, drain_s(queue_bytes) + free_s / self._times_later)
            takes_s = size_bytes / (rate * self._times_later)
            return limited.slots.next_ms(now_s, free_s=free_s, takes_s=takes_s, reserve=reserve)

    def give_back(self, stream: str, size_bytes: float) -> None:
        """A batch that was let in has not come after all."""
        with self._lock:
            limited = self._streams.get(stream)
            if limited is not None and self._held:
                limited.bucket.give_back(size_bytes)
