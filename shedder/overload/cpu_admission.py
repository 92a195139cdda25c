"""Admission by CPU for synopses that cannot be thinned: a share of the CPU for each tenant.

Synopses with a forced level, and all synopses of a stream whose policy is not to thin, take their
full CPU. Thinning could make room for them only at the cost of other tenants. So their streams are
admitted as far as the CPU shares of their tenants go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from shedder.overload.admission_rate import Door

PART = 0.8  # Of the CPU that is shared out: the rest lets what others have thinned be read in full.
FULL = 0.9  # Held until all together ask for less than this part of that.
_NO_STREAMS: Mapping[str, StreamCost] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StreamCost:
    """What a tuple of a stream takes, in ns.

    pinned_ns: by synopses that load may not thin. full_ns: in all, where nothing is thinned.
    tenant, weight: whose the stream is, and its tenant's share.
    """

    pinned_ns: float
    full_ns: float
    tenant: str
    weight: float


class CpuDoor:
    """Buckets of CPU by stream, shared out by tenant. Safe from any thread."""

    def __init__(self) -> None:
        self._door = Door()
        self._known = self._shared = _NO_STREAMS

    def know(self, costs: Mapping[str, StreamCost]) -> None:
        """Set the costs of each stream's tuples from now on.

        Limits apply only if there are several tenants and some synopses are pinned. A single tenant
        takes CPU from no other tenant, and without pinned synopses thinning makes room.
        """
        self._known = costs
        several = len({cost.tenant for cost in costs.values()}) > 1
        pinned = any(cost.pinned_ns for cost in costs.values())
        self._shared = costs if several and pinned else _NO_STREAMS

    def hold(self, cpu_ns_per_s: float, now_s: float, tick_s: float, *, overloaded: bool) -> None:
        """Share out CPU during overload, and after it until demand is below the CPU shared out."""
        cpu_ns_per_s *= PART
        short = self._door.held and self._door.demand > FULL * cpu_ns_per_s
        held = overloaded or short
        self._door.hold(
            cpu_ns_per_s if held and self._shared else float("inf"),
            dict.fromkeys(self._shared, 1.0),
            now_s,
            tick_s,
            {name: (cost.tenant, cost.weight) for name, cost in self._shared.items()},
        )

    def open(self) -> None:
        """Lift all limits."""
        self.know(_NO_STREAMS)
        self._door.hold(float("inf"), {}, 0.0, 1.0)

    def pinned_ns(self, stream: str, rows: int) -> float:
        """What synopses that load may not thin will take of so many tuples."""
        cost = self._known.get(stream)
        return cost.pinned_ns * rows if cost is not None else 0.0

    def wait_ms(self, stream: str, rows: int, now_s: float, *, reserve: bool = True) -> int:
        """Ask for CPU for a batch; 0: it is let in. Else, and books: as of `Door.wait_ms`."""
        cost = self._shared.get(stream)
        if cost is None:
            return 0
        if not cost.pinned_ns:
            self._door.ask(stream, cost.full_ns * rows)
            return 0
        return self._door.wait_ms(stream, cost.full_ns * rows, now_s, reserve=reserve)

    def give_back(self, stream: str, rows: int) -> None:
        """A batch that was let in has not come after all."""
        cost = self._shared.get(stream)
        if cost is not None and cost.pinned_ns:
            self._door.give_back(stream, cost.full_ns * rows)
