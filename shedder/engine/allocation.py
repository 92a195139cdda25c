"""The present problem: what all standing queries ask for, as the allocator's demands.

One place for everybody who shares out memory or CPU: who is registered, what it has, what was
measured of it go in; options, readers and a way back from options to sizes and levels come out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from allocator.curves import bound_by_panes, falling, table, thinned
from allocator.demands import Demands, Integers, Readers
from shedder.cql.expression import Aggregate
from shedder.cql.query import BoundQuery
from shedder.cql.shares import LEVEL_MAX
from shedder.cql.statement import Contract, TargetKind
from shedder.engine.asked import Asked, Given
from shedder.engine.costs import costs_ns
from shedder.engine.footprint import (
    GROUP_BYTES_MIN,
    beside_bytes,
    copies_of,
    pane_bytes,
    window_bytes,
)
from shedder.engine.plan import RANKED, Kind, Part, Plan
from shedder.engine.synopsis_curves import SIZED, Curve, curve_of, fixed_error
from shedder.engine.thinning_error import skipping_error
from shedder.engine.weights import present_weights
from shedder.queries.confidence import EXACT_IN_PANES, split_confidence

_MOVING = 0.02  # Of what a synopsis loses now: a change has to be worth so much.
_GROUPS_UNKNOWN = 1 << 20  # Bytes that the groups of a synopsis are taken to need before any came.
_MORE = 16  # A cap that is just enough leaves a part of so many free: what is needed, varies.
_GROWTH = 0.01  # What room counts that groups do not need yet: less than most targets.
_SPARE = 1e-3  # What room beyond the need is worth: it is the first that is taken away.
_ROWS_IN_VALUE = (Kind.COUNT, Kind.MOMENTS, Kind.CROSS, Kind.BUCKETS, Kind.DISTINCT, Kind.THETA)


@dataclass(frozen=True, slots=True)
class Row:
    """One demand: a synopsis, several of one size, or the room that groups have.

    asked: the number of the query. parts: of its plan; empty: the cap on its groups.
    sizes, levels: option i * len(levels) + j has size i (of the cap: bytes) and level j.
    curve: of a synopsis that has a size. more_bytes: by how much the cap on groups is raised with
      each size; empty: by nothing.
    """

    asked: int
    parts: tuple[int, ...]
    sizes: tuple[int, ...]
    levels: tuple[int, ...]
    curve: Curve | None
    more_bytes: tuple[int, ...] = ()

    def size(self, option: int) -> int:
        """Of an option."""
        return self.sizes[option // len(self.levels)]

    def level(self, option: int) -> int:
        """Of an option."""
        return self.levels[option % len(self.levels)]

    def more(self, option: int) -> int:
        """By how much an option raises the cap on groups, in bytes."""
        return self.more_bytes[option // len(self.levels)] if self.more_bytes else 0


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Demands, and what they are about.

    rows: of the demands. readers: (query, aggregate) of each reader; no aggregate: all groups.
    beside_bytes: int64 [queries]; what each takes whatever it is given, not part of any option.
    group_bytes_max: the largest cap on the groups of one synopsis.
    """

    asked: Sequence[Asked]
    rows: Sequence[Row]
    readers: Sequence[tuple[int, Aggregate | None]]
    demands: Demands
    beside_bytes: NDArray[np.int64]
    group_bytes_max: int

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
                caps[row.asked] += row.size(option) - self.asked[row.asked].group_bytes
            elif row.curve is not None:
                caps[row.asked] += row.more(option)
                for part in row.parts:
                    sizes[row.asked][part] = row.size(option)
        return [
            Given(tuple(of), min(cap, max(self.group_bytes_max, asked.group_bytes)))
            for of, cap, asked in zip(sizes, caps, self.asked, strict=True)
        ]

    def levels(self, choice: Integers) -> list[tuple[int, ...]]:
        """The level of each part by a choice, in order of `asked`.

        Rows (part 0) are counted at the smallest level of all parts, because they name the groups.
        """
        found = [list(asked.levels) for asked in self.asked]
        for row, option in zip(self.rows, choice.tolist(), strict=True):
            for part in row.parts:
                found[row.asked][part] = row.level(option)
        return [(min(levels), *levels[1:]) for levels in found]

    def error_now(self, row: Row, error: float, scale: float = 1.0) -> float:
        """What windows err by of a row that errs so in new panes: as the coarsest, till that left.

        scale: of a reader of that row.
        """
        coarsest = self.asked[row.asked].coarsest
        if row.curve is None or not coarsest:
            return error
        of_panes = scale * row.curve.error(coarsest[row.parts[0]])
        return float(bound_by_panes(np.float64(error), of_panes))

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
        group_bytes_max=group_bytes_max,
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
    for parts in tied(plan):
        first = plan.parts[parts[0]]
        readers = readers_of(asked, parts)
        level = asked.levels[parts[0]]
        chosen = (level,) if levels is None else tuple(sorted({level, *levels}))
        assert chosen[0] >= 0
        assert chosen[-1] <= LEVEL_MAX
        factor = asked.factor(parts[0])
        cost = sum(costs_ns(plan.parts[part], grouped=bool(query.groups)) for part in parts)
        confidence = confidences[readers[0]] if readers else query.confidence
        skipped = skipping_error(first.kind, asked.tuples, confidence)
        curve, sizes, error = None, (first.size,), np.full(1, fixed_error(first.kind))
        name = first.kind.value
        if first.kind in SIZED:
            curve = curve_of(query, readers[0], confidence, factor)
            offered = offered_sizes(asked, parts, curve, skipped=float(skipped[level]))
            sizes = tuple(sorted({*offered, *((first.size,) if asked.stands else ())}))
            name = curve.words(first.size)
            error = falling(
                f"{asked.name}: {name}", np.array([curve.error(size) for size in sizes])
            )
        size_bytes = np.zeros(len(sizes), np.int64)
        more_bytes: tuple[int, ...] = ()
        if not query.groups:  # The bytes of groups are in their cap.
            size_bytes += [len(parts) * window_bytes(query, first, size) for size in sizes]
        elif asked.halved and first.kind in SIZED:
            more_bytes = tuple(_more_bytes(asked, parts, size) for size in sizes)
            size_bytes += [len(plan.parts) * more for more in more_bytes]
        drawn = _Drawn(
            Row(number, parts, sizes, chosen, curve, more_bytes),
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


def readers_of(asked: Asked, parts: Collection[int]) -> list[Aggregate]:
    """The aggregates that parts of a query answer."""
    answers = zip(asked.query.aggregates, asked.plan.answers, strict=True)
    return [aggregate for aggregate, part in answers if part in parts]


def offered_sizes(
    asked: Asked, parts: Sequence[int], curve: Curve, *, skipped: float
) -> Sequence[int]:
    """The sizes, ascending, that parts of a query may be given; they are tied."""
    offered = curve.options(roomy=not asked.query.groups, skipped=skipped)
    if asked.limits is None:
        return offered
    return [size for size in offered if size <= asked.limits.sizes[parts[0]]]


def _more_bytes(asked: Asked, parts: Sequence[int], size: int) -> int:
    """What the groups need beyond what they do, where tied parts have a larger size."""
    sizes = list(asked.sizes)
    for part in parts:
        sizes[part] = size
    return round(max(0.0, asked.needed_share(sizes) - 1.0) * asked.needed_bytes)


def tied(plan: Plan) -> list[tuple[int, ...]]:
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
    weights = present_weights([(one.weight, one.active) for one in asked])
    known: list[tuple[int, Aggregate | None]] = []
    for at, drawn in enumerate(rows):
        one = asked[drawn.row.asked]
        for aggregate, by, accepted in drawn.scales:
            wanted = accepted if one.active else np.inf
            synopsis.append(at)
            weight.append(weights[drawn.row.asked])
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
