"""The present problem: what all standing queries ask for, as the allocator's demands.

One place for everybody who shares out memory or CPU: who is registered, what it has, what was
measured of it go in; options, readers and a way back from options to sizes and levels come out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from allocator.curves import falling, table, thinned
from allocator.demands import Demands, Integers, Readers
from shedder.cql.expression import Aggregate
from shedder.cql.query import BoundQuery
from shedder.cql.shares import LEVEL_MAX
from shedder.cql.statement import Contract, TargetKind
from shedder.engine.costs import costs_ns
from shedder.engine.footprint import (
    GROUP_BYTES_MIN,
    beside_bytes,
    copies_of,
    pane_bytes,
    window_bytes,
)
from shedder.engine.plan import RANKED, Kind, Part, Plan
from shedder.engine.synopsis_curves import SIZED, Curve, curve_of
from shedder.engine.thinning_error import skipping_error
from shedder.queries.confidence import EXACT_IN_PANES, split_confidence

NEGLIGIBLE = 1e-6
"""Of its weight that a query which is not active has."""
_MOVING = 0.02  # Of what a synopsis loses now: a change has to be worth so much.
_GROUPS_UNKNOWN = 1 << 20  # Bytes that the groups of a synopsis are taken to need before any came.
_MORE = 16  # A cap that is just enough leaves a part of so many free: what is needed, varies.
_GROWTH = 0.01  # What room counts that groups do not need yet: less than most targets.
_SPARE = 1e-3  # What room beyond the need is worth: it is the first that is taken away.
_ROWS_IN_VALUE = (Kind.COUNT, Kind.MOMENTS, Kind.CROSS, Kind.BUCKETS, Kind.DISTINCT, Kind.THETA)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A standing query as the allocator sees it.

    plan: with the sizes of new panes. levels: in force, of each part; 2^-level is read.
    weight: of the query now. active: False keeps what costs nobody else anything.
    stands: False for one that is to be registered.
    group_bytes: the cap on the groups of each part; 0 without GROUP BY, or before there is one.
    held_bytes, needed_bytes, grown_bytes: what the groups of its heaviest part hold, what they will
      as they are, and what they might come to; 0: not known.
    tuples_per_s: that arrive at its stream. tuples: of a group in a window; 0: not known.
    factors: measured error by predicted error, of each part; empty: 1 for all.
    limits: it is given no more than that; None: what there is.
    coarsest: the least size of each part in a live pane; empty: that of new ones.
    measured: the newest error of each part's answers, nan where there is none; empty: nothing was.
    """

    name: str
    query: BoundQuery
    plan: Plan
    levels: tuple[int, ...]
    weight: float
    active: bool = True
    stands: bool = True
    group_bytes: int = 0
    held_bytes: int = 0
    needed_bytes: int = 0
    grown_bytes: int = 0
    tuples_per_s: float = 0.0
    tuples: float = 0.0
    factors: tuple[float, ...] = ()
    limits: Given | None = None
    coarsest: tuple[int, ...] = ()
    measured: tuple[float, ...] = ()

    @classmethod
    def new(cls, name: str, query: BoundQuery, plan: Plan) -> Asked:
        """Of a query that is to be registered; its plan has the sizes that it wants."""
        return cls(name, query, plan, (0,) * len(plan.parts), query.weight, stands=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of each part; 0 where it has none."""
        return tuple(part.size for part in self.plan.parts)


@dataclass(frozen=True, slots=True)
class Row:
    """One demand: a synopsis, several of one size, or the room that groups have.

    asked: the number of the query. parts: of its plan; empty: the cap on its groups.
    sizes, levels: option i * len(levels) + j has size i (of the cap: bytes) and level j.
    curve: of a synopsis that has a size.
    """

    asked: int
    parts: tuple[int, ...]
    sizes: tuple[int, ...]
    levels: tuple[int, ...]
    curve: Curve | None

    def size(self, option: int) -> int:
        """Of an option."""
        return self.sizes[option // len(self.levels)]

    def level(self, option: int) -> int:
        """Of an option."""
        return self.levels[option % len(self.levels)]


@dataclass(frozen=True, slots=True)
class Given:
    """What one query gets: the size of each part (0: it has none), and the cap on its groups."""

    sizes: tuple[int, ...]
    group_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Demands, and what they are about.

    rows: of the demands. readers: (query, aggregate) of each reader; no aggregate: all groups.
    beside_bytes: int64 [queries]; what each takes whatever it is given, not part of any option.
    """

    asked: Sequence[Asked]
    rows: Sequence[Row]
    readers: Sequence[tuple[int, Aggregate | None]]
    demands: Demands
    beside_bytes: NDArray[np.int64]

    @property
    def present_bytes(self) -> int:
        """What those take who stand, as they are."""
        options, present = self.demands.options, self.demands.present
        standing = np.flatnonzero(present >= 0)
        of_rows = int(options.size_bytes[standing, present[standing]].sum())
        stands = np.array([asked.stands for asked in self.asked], bool)
        return of_rows + int(self.beside_bytes[stands].sum())

    def given(self, choice: Integers) -> list[Given]:
        """What every query gets by a choice of options, in order of `asked`."""
        sizes = [list(asked.sizes) for asked in self.asked]
        caps = [asked.group_bytes for asked in self.asked]
        for row, option in zip(self.rows, choice.tolist(), strict=True):
            if not row.parts:
                caps[row.asked] = row.size(option)
            elif row.curve is not None:
                for part in row.parts:
                    sizes[row.asked][part] = row.size(option)
        return [Given(tuple(of), cap) for of, cap in zip(sizes, caps, strict=True)]

    def levels(self, choice: Integers) -> list[tuple[int, ...]]:
        """The level of each part by a choice, in order of `asked`.

        Rows (part 0) are counted at the smallest level of all parts, because they name the groups.
        """
        found = [list(asked.levels) for asked in self.asked]
        for row, option in zip(self.rows, choice.tolist(), strict=True):
            for part in row.parts:
                found[row.asked][part] = row.level(option)
        return [(min(levels), *levels[1:]) for levels in found]

    def rows_of(self, asked: Collection[int]) -> Integers:
        """The rows of some queries, by their numbers."""
        return np.array([at for at, row in enumerate(self.rows) if row.asked in asked], np.int64)


def problem(
    asked: Sequence[Asked], *, group_bytes_max: int, levels: Sequence[int] | None = None
) -> Problem:
    """The demands of standing queries.

    Args:
      asked: each query; one that `stands` prefers to stay what it is.
      group_bytes_max: the largest cap on the groups of one synopsis.
      levels: that every synopsis may be thinned to; None: only those in force. The present level
        is always one of them.
    """
    rows: list[_Drawn] = []
    for number, one in enumerate(asked):
        rows += _rows_of(number, one, levels)
        if one.query.groups:
            rows.append(_room(number, one, group_bytes_max))
    options = table(
        [f"{asked[d.row.asked].name}: {d.name}" for d in rows],
        [d.size_bytes for d in rows],
        [d.cost_ns for d in rows],
        [d.error for d in rows],
    )
    readers, known = _readers(asked, rows)
    demands = Demands.new(options, readers)
    lost = demands.loss()
    present = np.array([d.present for d in rows], np.int64)
    standing = np.flatnonzero(present >= 0)
    moving = np.zeros(len(rows))
    moving[standing] = _MOVING * np.minimum(lost[standing, present[standing]], 1e6)
    return Problem(
        asked=asked,
        rows=[d.row for d in rows],
        readers=known,
        demands=replace(demands, present=present, moving=moving),
        beside_bytes=np.array([beside_bytes(one.query, one.plan) for one in asked], np.int64),
    )


@dataclass(slots=True, eq=False)
class _Drawn:
    """A row with its options: sizes [k], cost [levels], error [k, levels], and who reads it."""

    row: Row
    name: str
    size_bytes: Integers
    cost_ns: NDArray[np.float64]
    error: NDArray[np.float64]
    present: int
    scales: list[tuple[Aggregate | None, float, float]] = field(default_factory=list)


def _rows_of(number: int, asked: Asked, levels: Sequence[int] | None) -> Iterator[_Drawn]:
    query, plan = asked.query, asked.plan
    confidences = split_confidence(query, EXACT_IN_PANES)
    for parts in _tied(plan):
        first = plan.parts[parts[0]]
        readers = [
            aggregate
            for aggregate, part in zip(query.aggregates, plan.answers, strict=True)
            if part in parts
        ]
        level = asked.levels[parts[0]]
        chosen = (level,) if levels is None else tuple(sorted({level, *levels}))
        assert chosen[0] >= 0
        assert chosen[-1] <= LEVEL_MAX
        factor = asked.factors[parts[0]] if asked.factors else 1.0
        cost = sum(costs_ns(plan.parts[part], grouped=bool(query.groups)) for part in parts)
        confidence = confidences[readers[0]] if readers else query.confidence
        skipped = skipping_error(first.kind, asked.tuples, confidence)
        curve, sizes, error = None, (first.size,), np.zeros(1)
        name = first.kind.value
        if first.kind in SIZED:
            curve = curve_of(query, readers[0], confidence, factor)
            offered = curve.options(roomy=not query.groups, skipped=float(skipped[level]))
            if asked.limits is not None:
                most = asked.limits.sizes[parts[0]]
                offered = [size for size in offered if size <= most]
            sizes = tuple(sorted({*offered, *((first.size,) if asked.stands else ())}))
            name = curve.words(first.size)
            error = falling(name, np.array([curve.error(size) for size in sizes]))
        size_bytes = np.zeros(len(sizes), np.int64)
        if not query.groups:  # The bytes of groups are in their cap.
            size_bytes += [len(parts) * window_bytes(query, first, size) for size in sizes]
        drawn = _Drawn(
            Row(number, parts, sizes, chosen, curve),
            name,
            size_bytes,
            np.asarray(cost, np.float64)[list(chosen)] * asked.tuples_per_s,
            thinned(error, skipped[list(chosen)]),
            sizes.index(first.size) * len(chosen) + chosen.index(level) if asked.stands else -1,
        )
        for aggregate in readers:
            scale, target = 1.0, _target(query, aggregate, first)
            if curve is not None:
                own = curve_of(query, aggregate, confidences[aggregate], factor)
                at = curve.sizes.profile.default
                scale = own.error(at) / curve.error(at) if curve.error(at) > 0 else 1.0
            drawn.scales.append((aggregate, scale, target))
        yield drawn


def _tied(plan: Plan) -> list[tuple[int, ...]]:
    """The parts of a plan; those that are compared with each other are one: they have one size."""
    home = list(range(len(plan.parts)))
    for first, second in zip(plan.answers, plan.partners, strict=True):
        if second is not None:
            old, new = home[second], home[first]
            home = [new if each == old else each for each in home]
    return [
        tuple(part for part, each in enumerate(home) if each == root) for root in sorted(set(home))
    ]


def _target(query: BoundQuery, aggregate: Aggregate, part: Part) -> float:
    """The error that an aggregate accepts, in the unit of its synopsis' error; inf: any."""
    if query.target is None:
        return np.inf
    by_rank = part.kind in RANKED and query.target.kind is TargetKind.RANK
    sized = curve_of(query, aggregate, query.confidence).target if part.kind in SIZED else None
    relative = query.target.kind is TargetKind.RELATIVE and part.kind in _ROWS_IN_VALUE
    return query.target.size if by_rank or relative or sized is not None else np.inf


def _room(number: int, asked: Asked, most: int) -> _Drawn:
    """The cap on the groups of a query's synopses, which is one for each of them.

    Its error is the share of what the groups need that finds no room, and a little of what they
    might come to need: a target that is missed for certain is worth more than that.
    """
    if asked.limits is not None:
        most = min(most, asked.limits.group_bytes)
    parts = len(asked.plan.parts)
    sized = copies_of(asked.query) * sum(
        pane_bytes(part, part.size) for part in asked.plan.parts if part.kind in SIZED
    )
    least = min(max(GROUP_BYTES_MIN, asked.held_bytes), max(most, asked.group_bytes))
    caps = {least, most, *(1 << lg for lg in range(least.bit_length(), most.bit_length()))}
    needed = max(asked.needed_bytes or min(_GROUPS_UNKNOWN, most), 1)
    caps.add(max(least, min(needed + needed // _MORE, most)))
    if asked.group_bytes:
        caps.add(asked.group_bytes)
    sizes = np.array(sorted(cap for cap in caps if cap >= least or cap == asked.group_bytes))
    error = np.maximum(0.0, 1.0 - sizes / needed) + _SPARE * (1.0 - sizes / sizes[-1])
    error += _GROWTH * np.maximum(0.0, 1.0 - sizes / max(needed, asked.grown_bytes))
    return _Drawn(
        Row(number, (), tuple(sizes.tolist()), (0,), None),
        "room for groups",
        np.maximum(sized, sizes * parts).astype(np.int64),
        np.zeros(1),
        error[:, None],
        sizes.tolist().index(asked.group_bytes) if asked.stands else -1,
        [(None, 1.0, np.inf)],
    )


def _readers(
    asked: Sequence[Asked], rows: Sequence[_Drawn]
) -> tuple[Readers, list[tuple[int, Aggregate | None]]]:
    """Every aggregate reads its synopsis."""
    synopsis, weight, scale, target, forfeit, promised = [], [], [], [], [], []
    known: list[tuple[int, Aggregate | None]] = []
    for at, drawn in enumerate(rows):
        one = asked[drawn.row.asked]
        for aggregate, by, accepted in drawn.scales:
            wanted = accepted if one.active else np.inf
            synopsis.append(at)
            weight.append(one.weight * (1.0 if one.active else NEGLIGIBLE))
            scale.append(by)
            target.append(wanted)
            forfeit.append(_forfeit(one.query.contract, wanted))
            promised.append(one.query.contract is Contract.FAIL and np.isfinite(wanted))
            known.append((drawn.row.asked, aggregate))
    readers = Readers(
        synopsis=np.array(synopsis, np.int64),
        weight=np.array(weight, np.float64),
        scale=np.array(scale, np.float64),
        target=np.array(target, np.float64),
        forfeit=np.array(forfeit, np.float64),
        promised=np.array(promised, np.bool_),
    )
    return readers, known


def _forfeit(contract: Contract, target: float) -> float:
    """What a missed target counts: an answer that is left out is lost as a whole."""
    if not np.isfinite(target):
        return 0.0
    return 1.0 if contract is Contract.OMIT else target
