"""Coverage cells of thinned panes: how often an interval held the truth, and how wide it was.

A cell is a population in which stretches were read at their own levels, asked of the very parts
that panes answer with (`ThinnedPart`). The trials of a cell are parallel worlds: groups of the same
synopses, of which each has read its own random rows. Given how many rows of a stratum were read,
they are a simple random sample, so that all worlds read the same number.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Column
from shedder.engine.estimates.thinned_estimators import ThinnedPart
from shedder.engine.panes.level_segment import Segment
from shedder.engine.synopsis_plans.synopsis_factory import make
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind, SynopsisSpec
from synopses.intervals.normal import rho_max
from synopses.kernels.hashing import position_keys
from synopses.model.estimate import Bound, Estimates
from synopses.moments.covariance import GroupedCrossMoments
from synopses.theta.theta_sketch import GroupedTheta
from tests.truth import DISTRIBUTIONS, draw, exact_quantile

PROFILES: Mapping[str, tuple[tuple[float, int], ...]] = {
    "1/2": ((1.0, 1),),
    "1/8": ((1.0, 3),),
    "1, 1/8, 1/2": ((1 / 3, 0), (1 / 3, 3), (1 / 3, 1)),
    "one pane of ten at 1/8": ((0.9, 0), (0.1, 3)),
}
"""Stretches of the window in order of time: their part of it, and the level they were read at."""
GROUPINGS = ("of all", "of a group")
"""Whether the filter is a WHERE, so that what passes it is counted, or one group among others."""
SELECTIVITIES = (1.0, 0.1, 0.01, 0.001)
CONFIDENCES = (0.68, 0.95, 0.99)
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the grid."""

    method: str
    distribution: str
    grouping: str
    profile: str
    selectivity: float
    confidence: float

    def __str__(self) -> str:
        return (
            f"{self.method} {self.grouping}, {self.distribution}, {self.profile}, "
            f"filter {self.selectivity:g}, {self.confidence:.0%}"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured in a cell.

    hits of trials held the truth; unbounded: trials without a bound, which are no hits and no
    misses. certain: none may miss. width: mean width over the ideal one; half_width: over twice
    the truth; NaN where unknown. gated: whether the width must stay under 1.5.
    """

    cell: Cell
    trials: int
    hits: int
    unbounded: int
    certain: bool
    width: float
    half_width: float
    gated: bool


@dataclass(frozen=True, slots=True)
class Stratum:
    """A stretch at one level, or several: its rows in order, and which of them each trial read.

    members: rows of the filter among them. read: how many rows each trial has read.
    seen: for each trial the rows that it has read and the filter passes.
    """

    level: int
    rows: Ints
    members: Ints
    read: int
    seen: list[Ints]


@dataclass(slots=True)
class World:
    """A population with its filter, and what each trial has read of it."""

    cell: Cell
    size: int
    trials: int
    rng: np.random.Generator = field(init=False)
    values: Floats = field(init=False)
    match: NDArray[np.bool_] = field(init=False)
    strata: list[Stratum] = field(init=False)

    def __post_init__(self) -> None:
        seed = zlib.crc32(str(self.cell).encode())
        self.rng = np.random.default_rng(seed)
        self.values = draw(self.cell.distribution, seed, self.size)
        self.match = self.rng.random(self.size) < self.cell.selectivity
        edges = np.cumsum([0.0, *(part for part, _ in PROFILES[self.cell.profile])]) * self.size
        cuts = np.rint(edges).astype(int).tolist()
        self.strata = [
            self._stratum(np.arange(first, last), level)
            for (_, level), first, last in zip(
                PROFILES[self.cell.profile], cuts, cuts[1:], strict=False
            )
        ]

    @property
    def grouped(self) -> bool:
        """Whether it is unknown how many rows the filter passes."""
        return self.cell.grouping == GROUPINGS[1]

    @property
    def members(self) -> Floats:
        """The values that the filter passes, in order of time."""
        return self.values[self.match]

    def _stratum(self, rows: Ints, level: int) -> Stratum:
        members = rows[self.match[rows]]
        drawn = rows if self.grouped else members
        read = math.ceil(len(drawn) / 2**level)
        seen = []
        for _ in range(self.trials):
            keys = self.rng.random(len(drawn))
            kept = drawn if read == len(drawn) else drawn[keys <= smallest(keys, read)]
            seen.append(kept[self.match[kept]])
        return Stratum(level, drawn, members, read, seen)

    def ids(self, stratum: Stratum) -> NDArray[np.int32]:
        """The trial of every row that was seen."""
        return np.repeat(np.arange(self.trials), list(map(len, stratum.seen))).astype(np.int32)


def smallest(keys: Floats, rank: int) -> float:
    """Return the key of a rank, from 1 on, of many in [0, 1); only keys near it are sorted."""
    share = rank / len(keys)
    around = 6.0 * math.sqrt(share * (1.0 - share) / len(keys))
    is_low = keys < share - around
    near = keys[~is_low & (keys < share + around)]
    place = rank - 1 - int(np.count_nonzero(is_low))
    if 0 <= place < len(near):
        return float(np.partition(near, place)[place])
    return float(np.partition(keys, rank - 1)[rank - 1])


Feed = Callable[[World, Ints], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Method:
    """An aggregate as panes answer it.

    feed: the columns that the synopsis is given for some rows. beside: what a segment knows beside
    the values. truth: of the members. ideal: the width that a normal interval would have that knew
    all values, and whether it is promised; None where there is none.
    """

    part: SynopsisSpec
    function: AggregateFunction
    truth: Callable[[World], float]
    feed: Feed
    beside: Callable[[World], Floats] | None = None
    parameter: float | None = None
    solo: bool = False
    ideal: Callable[[World], tuple[float, bool]] | None = None


X, Y = Column("x", ColumnType.DOUBLE), Column("y", ColumnType.DOUBLE)


def _values(world: World, rows: Ints) -> tuple[Any, ...]:
    return (world.values[rows],)


def partner(world: World) -> Floats:
    """A second column: half of it is the first one, half noise of the same spread."""
    rng = np.random.default_rng(7)
    spread = float(np.std(world.values)) or 1.0
    return np.asarray(world.values + rng.normal(0.0, spread, world.size))


def _pairs(world: World, rows: Ints) -> tuple[Any, ...]:
    return world.values[rows], partner(world)[rows]


def _in_time(world: World, rows: Ints) -> tuple[Any, ...]:
    return rows, rows, world.values[rows]


def _z(world: World) -> float:
    return float(-ndtri((1.0 - world.cell.confidence) / 2.0))


def _normal(world: World, of: Floats) -> tuple[float, bool]:
    """Of the sum of the members' `of`; promised where it is certified with room.

    What the basics know is the range of all rows, so that counts, too, when there are groups; and
    that a row of another group adds nothing.
    """
    y = np.where(world.match, of, 0.0)
    variance, most = 0.0, 0.0
    for stratum in world.strata:
        some, n, known = y[stratum.rows], stratum.read, of[stratum.rows]
        known = np.append(known, 0.0) if world.grouped else known
        if n == len(some):
            continue
        spread = float(np.var(some, ddof=1)) if len(some) > 1 else 0.0
        left = 1.0 - n / len(some)
        variance += len(some) ** 2 * left * spread / n
        most = max(most, len(some) / n * float(np.abs(known - some.mean()).max()))
    certified = most <= 0.7 * rho_max(world.cell.confidence) * math.sqrt(variance)
    return 2.0 * _z(world) * math.sqrt(variance), certified and variance > 0


def _ideal_sum(world: World) -> tuple[float, bool]:
    return _normal(world, world.values)


def _ideal_mean(world: World) -> tuple[float, bool]:
    members = world.members
    if not len(members):
        return math.nan, False
    width, certified = _normal(world, world.values - members.mean())
    return width / len(members), certified


def _ideal_variance(world: World) -> tuple[float, bool]:
    members = world.members
    if len(members) < 2:
        return math.nan, False
    squares = (world.values - members.mean()) ** 2 - members.var()
    width, certified = _normal(world, squares)
    return width / len(members), certified


def _ideal_count(world: World) -> tuple[float, bool]:
    """Promised where every stratum that was thinned sees enough."""
    thinned = [s for s in world.strata if s.read < len(s.rows)]
    enough = bool(thinned) and all(len(s.members) * s.read >= 30 * len(s.rows) for s in thinned)
    width, _ = _normal(world, np.ones(world.size))
    return width, enough and world.cell.selectivity < 1.0


def _covariance(world: World) -> float:
    return float(np.cov(world.members, partner(world)[world.match])[0, 1])


def _correlation(world: World) -> float:
    x, y = world.members, partner(world)[world.match]
    return float(np.corrcoef(x, y)[0, 1]) if np.ptp(x) and np.ptp(y) else math.nan


def _slope(world: World) -> float:
    y = partner(world)[world.match]
    return _covariance(world) / float(np.var(y, ddof=1)) if np.ptp(y) else math.nan


def _moments(function: AggregateFunction, truth: Any, ideal: Any = None) -> Method:
    return Method(
        SynopsisSpec(SynopsisKind.MOMENTS, X, variance=True),
        function,
        lambda world: float(truth(world.members)),
        _values,
        ideal=ideal,
    )


def _crossed(function: AggregateFunction, truth: Callable[[World], float]) -> Method:
    return Method(
        SynopsisSpec(SynopsisKind.CROSS, X, second=Y), function, truth, _pairs, beside=partner
    )


def _end(function: AggregateFunction, at: int) -> Method:
    return Method(
        SynopsisSpec(SynopsisKind.FIRST_LAST, X),
        function,
        lambda world: float(world.members[at]),
        _in_time,
        beside=lambda world: np.arange(float(world.size)),
    )


def _quantile(share: float) -> Method:
    return Method(
        SynopsisSpec(SynopsisKind.BUCKETS, X),
        AggregateFunction.QUANTILE,
        lambda world: float(exact_quantile(world.members, share)),
        _values,
        parameter=share,
        solo=True,
    )


def _keys(world: World, rows: Ints) -> tuple[Any, ...]:
    """Hashes of whole numbers; those of each trial are others."""
    codes = np.unique(np.floor(world.values), return_inverse=True)[1]
    return (codes[rows],)


_JOIN = Method(
    SynopsisSpec(SynopsisKind.COUNTERS, X, 9),
    AggregateFunction.SELF_JOIN_SIZE,
    lambda world: float((np.unique(np.floor(world.members), return_counts=True)[1] ** 2.0).sum()),
    _keys,
)
_DISTINCT = Method(
    SynopsisSpec(SynopsisKind.DISTINCT, X, 12),
    AggregateFunction.COUNT_DISTINCT,
    lambda world: float(len(np.unique(np.floor(world.members)))),
    _keys,
)
METHODS: Mapping[str, Method] = {
    "count": Method(
        SynopsisSpec(SynopsisKind.COUNT, None),
        AggregateFunction.COUNT,
        lambda world: float(world.match.sum()),
        lambda _world, rows: (len(rows),),
        ideal=_ideal_count,
    ),
    "sum": _moments(AggregateFunction.SUM, math.fsum, _ideal_sum),
    "avg": _moments(AggregateFunction.AVG, np.mean, _ideal_mean),
    "variance": _moments(AggregateFunction.VAR, lambda v: np.var(v, ddof=1), _ideal_variance),
    "max": _moments(AggregateFunction.MAX, np.max),
    "first": Method(
        SynopsisSpec(SynopsisKind.FIRST_LAST, X),
        AggregateFunction.FIRST,
        lambda world: float(world.members[0]),
        lambda world, rows: (rows, rows, world.values[rows]),
        beside=lambda world: np.arange(float(world.size)),
    ),
    "median": _quantile(0.5),
    "p99": _quantile(0.99),
    "covariance": _crossed(AggregateFunction.COVAR_SAMP, _covariance),
    "correlation": _crossed(AggregateFunction.CORR, _correlation),
    "slope": _crossed(AggregateFunction.REGR_SLOPE, _slope),
    "self join": _JOIN,
    "distinct": _DISTINCT,
}


def measure(cell: Cell, *, size: int, trials: int) -> Outcome | None:
    """Run a cell; None where the question has no answer (an average over nothing)."""
    method = METHODS[cell.method]
    world = World(cell, size, trials)
    if len(world.members) < 2:
        return None
    truth = method.truth(world)
    if math.isnan(truth):
        return None
    found = _estimates_of(world, method)
    low, high, bound = (
        np.broadcast_to(np.asarray(part, np.float64), trials)
        for part in (found.low, found.high, found.bound)
    )
    slack = 1e-9 * max(abs(truth), 1e-300) + 1e-9 * _noise(world, method)
    held = (low - slack <= truth) & (truth <= high + slack)
    none = bound == Bound.NONE
    widths = (high - low)[~none]
    ideal, gated = (math.nan, False) if method.ideal is None else method.ideal(world)
    mean = float(widths.mean()) if len(widths) else math.nan
    return Outcome(
        cell,
        trials - int(none.sum()),
        int((held & ~none).sum()),
        int(none.sum()),
        found.confidence == 1.0,
        mean / ideal if ideal else math.nan,
        mean / 2.0 / abs(truth) if truth else math.nan,
        gated and not none.any(),
    )


def _noise(world: World, method: Method) -> float:
    """What squares of numbers far from zero lose to rounding."""
    squared = method.part.kind in (SynopsisKind.MOMENTS, SynopsisKind.CROSS)
    return float(np.abs(world.values).max()) * 1e-3 if squared else 0.0


def _estimates_of(world: World, method: Method) -> Estimates:
    aggregate = Aggregate(
        method.function, X, parameter=method.parameter, type=ColumnType.DOUBLE, second=None
    )
    confidence = world.cell.confidence
    if method.part.kind is SynopsisKind.DISTINCT:
        return _distinct(world, method).estimate(aggregate, confidence)
    parts = []
    for stratum in world.strata:
        rows, ids = np.concatenate(stratum.seen), world.ids(stratum)
        parts.append((stratum, _fed(world, method, rows, ids)))
    if not (method.solo and not world.grouped):
        return _part(world, method, parts).estimate(aggregate, confidence)
    each = []
    for trial in range(world.trials):
        mine = np.array([trial])
        one = _part(world, method, [(stratum, made.select(mine)) for stratum, made in parts])
        each.append(one.estimate(aggregate, confidence))
    columns = (np.concatenate([getattr(e, name) for e in each]) for name in _COLUMNS)
    return Estimates(*columns, each[0].confidence, each[0].source)


_COLUMNS = ("value", "low", "high", "bound", "null")


def _fed(world: World, method: Method, rows: Ints, ids: NDArray[np.int32]) -> Any:
    """A synopsis of all worlds that has read these rows."""
    synopsis = make(method.part, world.trials)
    columns = method.feed(world, rows)
    if method.part.kind is SynopsisKind.COUNTERS:
        columns = (_hashed(world, ids, columns[0]),)
    synopsis.update(ids, *columns)
    return synopsis


def _part(world: World, method: Method, parts: list[tuple[Stratum, Any]]) -> ThinnedPart:
    leveled = [(s.level, _segment(world, method, s, synopsis)) for s, synopsis in parts]
    groups = parts[0][1].groups
    whole = make(method.part, groups)
    return ThinnedPart(method.part.kind, whole, leveled, not world.grouped)


def _segment(world: World, method: Method, stratum: Stratum, synopsis: Any) -> Segment:
    segment = Segment(synopsis, len(stratum.rows), stratum.read)
    if not len(stratum.rows):
        return segment
    values = world.values[stratum.rows]
    if method.part.variance:
        seen = world.values[np.concatenate(stratum.seen)]
        segment.shape = GroupedCrossMoments(synopsis.groups)
        segment.shape.update(world.ids(stratum), seen, seen * seen)
    segment.low, segment.high = float(values.min()), float(values.max())
    if method.beside is not None:
        beside = method.beside(world)[stratum.rows]
        segment.low_beside, segment.high_beside = float(beside.min()), float(beside.max())
    return segment


def _hashed(world: World, ids: NDArray[np.int32], codes: Ints) -> NDArray[np.uint64]:
    """Another hash in every trial."""
    seeds = position_keys(zlib.crc32(str(world.cell).encode()), 0, world.trials)
    width = int(codes.max()) + 1 if len(codes) else 1
    table = np.array([position_keys(int(s >> np.uint64(1)), 0, width) for s in seeds])
    return np.asarray(table[ids, codes])


def _distinct(world: World, method: Method) -> ThinnedPart:
    """Values are kept by their hash: every trial has another one."""
    whole, leveled = make(method.part, world.trials), []
    for stratum in world.strata:
        rows = np.tile(stratum.members, world.trials)
        ids = np.repeat(np.arange(world.trials), len(stratum.members)).astype(np.int32)
        hashes = _hashed(world, ids, method.feed(world, rows)[0])
        kept = hashes < np.uint64(1 << (64 - stratum.level)) if stratum.level else slice(None)
        if not stratum.level:
            whole.update(ids, hashes, _hashed(world, ids, method.feed(world, rows)[0] + 1))
            continue
        theta = GroupedTheta(world.trials, 12)
        theta.update(ids[kept], hashes[kept])
        leveled.append((stratum.level, Segment(theta, len(stratum.members), 0)))
    return ThinnedPart(SynopsisKind.DISTINCT, whole, leveled, whole=True)


# --- the grid ---------------------------------------------------------------------------------


def _axes(confidences: tuple[float, ...] = CONFIDENCES) -> list[list[Any]]:
    axes = METHODS, DISTRIBUTIONS, GROUPINGS, PROFILES, SELECTIVITIES, confidences
    return [list(axis) for axis in axes]


def full_grid(confidences: tuple[float, ...] = CONFIDENCES) -> list[Cell]:
    """Every cell: aggregate, distribution, group or not, profile, filter, confidence."""
    return [Cell(*place) for place in product(*_axes(confidences))]


def pairwise() -> list[Cell]:
    """Few cells in which every two values of different axes meet at least once.

    Methods and distributions are crossed; each cell takes those values of the other axes that
    bring the most pairs that have not met yet, then the most triples.
    """
    methods, distributions, *others = _axes()
    rests = list(product(*others))
    met: set[Meeting] = set()
    chosen = []
    for step, method in enumerate(methods):
        turn = step % len(distributions)
        for distribution in distributions[turn:] + distributions[:turn]:
            best = max(
                ((method, distribution, *rest) for rest in rests),
                key=lambda cell: (len(_meetings(cell, 2) - met), len(_meetings(cell, 3) - met)),
            )
            met |= _meetings(best, 2) | _meetings(best, 3)
            chosen.append(Cell(*best))
    return chosen


def near_ideal() -> list[Cell]:
    """Cells whose intervals are certified, so that they are held to the ideal width."""
    some = product(("sum", "avg", "variance"), CONFIDENCES)
    counts = [Cell("count", "uniform", "of a group", "1, 1/8, 1/2", 0.1, c) for c in CONFIDENCES]
    return [Cell(method, "uniform", "of all", "1/2", 1.0, c) for method, c in some] + counts


Meeting = frozenset[tuple[int, object]]


def _meetings(cell: tuple[object, ...], order: int) -> set[Meeting]:
    """The sets of so many axis values that a cell brings together."""
    return {frozenset(some) for some in combinations(enumerate(cell), order)}


def missing_pairs(cells: list[Cell]) -> set[Meeting]:
    """Pairs of the full grid that none of the cells brings together."""
    wanted = {
        frozenset(((i, a), (j, b)))
        for (i, left), (j, right) in combinations(enumerate(_axes()), 2)
        for a, b in product(left, right)
    }
    for cell in cells:
        wanted -= _meetings(astuple(cell), 2)
    return wanted
