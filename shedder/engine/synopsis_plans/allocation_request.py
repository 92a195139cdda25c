"""A query's request to the allocator, and the synopsis sizes that it was granted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from shedder.cql.statements.bound_query import BoundQuery
from shedder.engine.synopsis_plans.error_curves import SIZED
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisPlan, SynopsisSpec

_BYTES_SPARE = 1 / 32  # Of what groups need: so much too much is still what they need.
_PACE_NOISE = 1 / 16  # Of a stream's pace: errors go by the root of it.
_ERROR_NOISE = 1 / 32  # Of a factor, or of a share.


@dataclass(frozen=True, slots=True, eq=False)
class AllocationRequest:
    """A query's request to the allocator: its plan, its state and what was measured of it.

    plan: plan with the sizes of new panes.
    levels: level in force of each part; the share 2^-level is read.
    weight: present weight of the query.
    active: False: the query keeps only what costs other queries nothing.
    stands: False: the query is to be registered.
    group_bytes: cap on the groups of each part; 0 without GROUP BY, or before there is a cap.
    held_bytes, needed_bytes, grown_bytes: bytes of the groups of its heaviest part: held, foreseen
      at the present size, and possible; 0: not known.
    foreseen: bytes that the groups of each part will hold; empty: not known.
    halved: share of `foreseen` that stays if the part has half of its size; 1: halving is no use.
    tuples_per_s: tuples that arrive at its stream.
    tuples: tuples of a group in a window that pass the WHERE; 0: not known.
    factors: measured error divided by predicted error, of each part; empty: 1 for all.
    skipping: the same factor for the error of skipped tuples.
    limits: most that the query may be given; None: no limit but the budget.
    coarsest: least size of each part in a live pane; empty: the size in new panes.
    measured: newest error of each part's answers, nan without one; empty: nothing was measured.
    """

    name: str
    query: BoundQuery
    plan: SynopsisPlan
    levels: tuple[int, ...]
    weight: float
    active: bool = True
    stands: bool = True
    group_bytes: int = 0
    held_bytes: int = 0
    needed_bytes: int = 0
    grown_bytes: int = 0
    foreseen: tuple[int, ...] = ()
    halved: tuple[float, ...] = ()
    tuples_per_s: float = 0.0
    tuples: float = 0.0
    factors: tuple[float, ...] = ()
    skipping: tuple[float, ...] = ()
    limits: SynopsisSizes | None = None
    coarsest: tuple[int, ...] = ()
    measured: tuple[float, ...] = ()

    @classmethod
    def new(cls, name: str, query: BoundQuery, plan: SynopsisPlan) -> AllocationRequest:
        """Of a query that is to be registered, to read what it asks to.

        plan: with the sizes that it wants.
        """
        levels = (query.thinning,) * len(plan.parts)
        return cls(name, query, plan, levels, query.weight, stands=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of each part; 0 where it has none."""
        return self.plan.sizes

    def factor(self, part: int) -> float:
        """Measured error by predicted error of a part."""
        return self.factors[part] if self.factors else 1.0

    def skipping_factor(self, part: int) -> float:
        """Measured by predicted error of what skipped tuples cost a part."""
        return self.skipping[part] if self.skipping else 1.0

    def needed_share(self, sizes: Sequence[int]) -> float:
        """What its groups would need with parts of other sizes, by what they need as they are."""
        if not self.halved or max(self.foreseen, default=0) == 0:
            return 1.0
        then = [
            of * share ** _halvings(part, size)
            for of, share, part, size in zip(
                self.foreseen, self.halved, self.plan.parts, sizes, strict=True
            )
        ]
        return float(max(then)) / max(self.foreseen)


def steadied(now: AllocationRequest, before: AllocationRequest | None) -> AllocationRequest:
    """A query as it is, with the statistics of an earlier look where they have hardly changed.

    What demands rest on is then the very same, and they need not be drawn again. What groups hold
    and need is never taken to be less than it is.
    """
    if before is None or before.query is not now.query:
        return now
    if _statistics(before) == _statistics(now):
        return now
    kept: dict[str, Any] = {}
    bytes_then = (before.held_bytes, before.needed_bytes, before.grown_bytes, *before.foreseen)
    bytes_now = (now.held_bytes, now.needed_bytes, now.grown_bytes, *now.foreseen)
    if _all(_covers, bytes_then, bytes_now) and _all(_like, before.halved, now.halved):
        kept |= {field: getattr(before, field) for field in _OF_GROUPS}
    if _all(_paced_like, (before.tuples, before.tuples_per_s), (now.tuples, now.tuples_per_s)):
        kept |= {"tuples": before.tuples, "tuples_per_s": before.tuples_per_s}
    for field in ("factors", "skipping"):
        if _all(_like, getattr(before, field), getattr(now, field)):
            kept[field] = getattr(before, field)
    return replace(now, **kept)


_OF_GROUPS = ("held_bytes", "needed_bytes", "grown_bytes", "foreseen", "halved")
_statistics = attrgetter(*_OF_GROUPS, "tuples", "tuples_per_s", "factors", "skipping")


def _all(
    alike: Callable[[float, float], bool], then: Sequence[float], now: Sequence[float]
) -> bool:
    return len(then) == len(now) and all(map(alike, then, now))


def _covers(then: float, now: float) -> bool:
    return now <= then <= now * (1 + _BYTES_SPARE)


def _paced_like(then: float, now: float) -> bool:
    return abs(then - now) <= _PACE_NOISE * now


def _like(then: float, now: float) -> bool:
    return abs(then - now) <= _ERROR_NOISE * now


def _halvings(part: SynopsisSpec, size: int) -> float:
    """Return the halvings from a part's size to this one; below 0: it is larger.

    Not of its bytes: those of its profile are of an open pane, most groups are in closed ones.
    """
    if part.kind not in SIZED:
        return 0.0
    if SIZED[part.kind].in_powers:
        return float(part.size - size)
    return math.log2(part.size / size)


@dataclass(frozen=True, slots=True)
class SynopsisSizes:
    """What one query gets: the size of each part (0: it has none), and the cap on its groups."""

    sizes: tuple[int, ...]
    group_bytes: int

    @classmethod
    def stored(cls, fields: Mapping[str, Any]) -> SynopsisSizes:
        """From its fields, as JSON has them."""
        return cls(tuple(fields["sizes"]), fields["group_bytes"])
