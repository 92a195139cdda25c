"""Worlds of streams whose windows are joined: panes of keys and values, and exact totals."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.interval import Intervals
from synopses.joins.closed_panes import NO_KEYS, ClosedPane, fewer_buckets
from synopses.joins.join_totals import JoinTotals
from synopses.joins.joined_windows import JoinedWindows
from synopses.joins.pane_counts import PaneCounts, PaneRoom, heavy_keys

PANES = 4  # Of a window; one more pane comes before, which names the first heavy keys.
SKEWS = (0.0, 0.5, 0.8, 1.1, 1.4)
CHANGES = ("steady", "bursts", "moving")
VALUES = ("prices", "signed", "tails")
AGGREGATES = ("pairs", "present", "sum", "average")
_UNIT = 8  # Values are multiples of 1/8, so that sums of them are exact.

Keys = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cell:
    """A kind of world.

    same: hot keys of all inputs are the same. change: of the rows from pane to pane; "bursts" have
    1/8 to 8 times as many, so levels differ; with "moving", hot keys are others in each pane.
    values: of the first input. "prices" are positive and depend on the key, "signed" have both
    signs, "tails" are long. inputs: joined windows. resizes: to a quarter of the sizes within the
    third pane, and of these with "twice" to a half within the fourth; "back" is to all of the
    sizes from the fourth pane on.
    """

    skew: float
    same: bool
    change: str
    sizes: PaneRoom
    keys: int = 3_000
    rows: int = 2_000
    values: str = "prices"
    inputs: int = 2
    resizes: str = ""


# Of some 1,500 keys of a pane, 1/64 to all find room.
SIZES = tuple(PaneRoom(1 << lg // 2 + 1, 1 << lg, 1 << lg + 2) for lg in (5, 7, 9, 11))
# Each size is with all values, and in a third of the cells three inputs are joined.
CELLS = [
    Cell(*each, values=VALUES[at // 4 % 3], inputs=3 if at % 9 in (1, 5, 6) else 2)
    for at, each in enumerate(itertools.product(SKEWS, (True, False), CHANGES, SIZES))
]


@dataclass(slots=True, eq=False)
class JoinedPanes:
    """Panes of the windows, with the exact count of each key.

    counts: int64 [keys] of each input. values: of the first input, count and sum in 1/8 of the
    values of each key. totals: the synopsis under test; all aggregates are asked of one.
    """

    secrets: NDArray[np.uint64]
    panes: tuple[list[ClosedPane], ...]
    counts: tuple[Keys, ...]
    values: tuple[Keys, Keys]
    totals: JoinTotals = field(init=False)

    def __post_init__(self) -> None:
        self.totals = JoinTotals(JoinedWindows(self.panes, self.secrets))

    def truth(self, aggregate: str) -> Fraction:
        """An aggregate over all pairs of equal keys."""
        others = [int(each) for each in np.prod(self.counts[1:], axis=0)]
        ours = {"pairs": self.counts[0], "present": self.values[0]}.get(aggregate, self.values[1])
        total = sum(int(each) * other for each, other in zip(ours, others, strict=True))
        match aggregate:
            case "sum":
                return Fraction(total, _UNIT)
            case "average":
                return Fraction(total, _UNIT) / self.truth("present")
            case _:
                return Fraction(total)

    @property
    def level(self) -> int:
        """The highest level of all panes."""
        return max(pane.level for side in self.panes for pane in side)

    def found(self, aggregate: str, confidence: float) -> Intervals:
        """The interval of an aggregate."""
        match aggregate:
            case "pairs":
                return self.totals.pairs(confidence=confidence)
            case "present":
                return self.totals.present(0, 0, confidence=confidence)
            case "sum":
                return self.totals.sum(0, 0, confidence=confidence)
            case _:
                return self.totals.average(0, 0, confidence=confidence)

    def is_held(self, aggregate: str, confidence: float) -> bool:
        """Return whether the interval of an aggregate holds it; NULL is not compared."""
        if aggregate == "average" and not self.truth("present"):
            return True
        found, truth = self.found(aggregate, confidence), self.truth(aggregate)
        return bool(found.low[0] <= truth <= found.high[0])


def hashes_of(keys: Keys) -> NDArray[np.uint64]:
    """Hashes of keys, without collisions."""
    return (keys.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)


def drawn(cell: Cell, seed: int) -> JoinedPanes:
    """A world of a kind."""
    rng = np.random.default_rng(seed)
    secrets = rng.integers(0, 1 << 64, 2, dtype=np.uint64)
    sides: tuple[list[ClosedPane], ...] = tuple([] for _ in range(cell.inputs))
    counts = tuple(np.zeros(cell.keys, np.int64) for _ in sides)
    sums = np.zeros(cell.keys, np.int64), np.zeros(cell.keys, np.int64)
    heavy, centres = NO_KEYS, np.zeros(1)
    sizes = cell.sizes
    for number, keys in enumerate(_panes(cell, rng)):
        values = _values(cell, keys[0], rng)
        if cell.resizes == "back" and number == PANES:
            sizes = sizes.resized(cell.sizes)
        panes = [
            PaneCounts(sizes, secrets, heavy, centres[: int(at == 0)]) for at in range(cell.inputs)
        ]
        cut = rng.random() if cell.resizes and number == PANES - 1 else 1.0
        cut = rng.random() if cell.resizes == "twice" and number == PANES else cut
        for is_late in (False, True):
            for at, (pane, of_side) in enumerate(zip(panes, keys, strict=True)):
                end = int(cut * len(of_side))
                part = slice(end, None) if is_late else slice(end)
                pane.update(hashes_of(of_side[part]), values[part, None] if at == 0 else None)
            if cut < 1.0 and not is_late:
                sizes = sizes.resized(_fewer(sizes, 2 if number == PANES else 4))
                _shrink(sides, panes, sizes, secrets)
        heavy = heavy_keys([pane.heaviest() for pane in panes], sizes.heavy)
        centres = np.rint(panes[0].averages())
        if number:
            for at, of_side in enumerate(keys):
                sides[at].append(panes[at].closed())
                np.add.at(counts[at], of_side, 1)
            valid = ~np.isnan(values)
            np.add.at(sums[0], keys[0][valid], 1)
            np.add.at(sums[1], keys[0][valid], (values[valid] * _UNIT).astype(np.int64))
    return JoinedPanes(secrets, sides, counts, sums)


def _fewer(sizes: PaneRoom, parts: int) -> PaneRoom:
    return PaneRoom(
        max(sizes.heavy // parts, 1), max(sizes.keys // parts, 1), sizes.buckets // parts
    )


def _shrink(
    sides: tuple[list[ClosedPane], ...],
    panes: list[PaneCounts],
    sizes: PaneRoom,
    secrets: NDArray[np.uint64],
) -> None:
    """Bring closed and open panes into fewer bytes."""
    for side in sides:
        buckets = [fewer_buckets(len(each.sums), sizes.buckets) for each in side]
        side[:] = [
            each.shrunk(secrets, heavy=sizes.heavy, keys=sizes.keys, buckets=number)
            for each, number in zip(side, buckets, strict=True)
        ]
    for pane in panes:
        pane.shrink(sizes)


def _panes(cell: Cell, rng: np.random.Generator) -> Iterator[list[Keys]]:
    weights = np.cumsum(1.0 / np.arange(1, cell.keys + 1) ** cell.skew)
    names = [rng.permutation(cell.keys) for _ in range(cell.inputs)]
    for _ in range(PANES + 1):
        if cell.change == "moving":
            names = [np.roll(each, cell.keys // 50) for each in names]
        found = []
        for side in range(cell.inputs):
            rows = cell.rows
            if cell.change == "bursts":
                rows = int(rows * 8.0 ** rng.uniform(-1, 1))
            ranks = np.searchsorted(weights, rng.random(rows) * weights[-1])
            found.append(names[0 if cell.same else side][ranks])
        yield found


def _values(cell: Cell, keys: Keys, rng: np.random.Generator) -> Values:
    match cell.values:
        case "prices":
            values = 90.0 + 10.0 * rng.random(len(keys)) + keys % 20
        case "signed":
            values = rng.normal(keys % 7 - 3.0, 2.0)
        case _:
            values = rng.choice([-1.0, 1.0], len(keys), p=[0.2, 0.8]) * rng.pareto(1.1, len(keys))
    values = np.round(values * _UNIT) / _UNIT
    values[rng.random(len(keys)) < 0.05] = np.nan
    return values
