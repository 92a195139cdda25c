"""Widths of variances beside the ideal: the second table of the section of `width_table`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.interval import Intervals
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.variance import sampled_variance
from synopses.strata.stratified import stratified_mean, stratified_sum
from synopses.strata.stratified_variance import stratified_variance
from synopses.strata.stratum import SquareMoments, Stratum
from tests.synopses.kept_rows import KeptRows

Values = NDArray[np.float64]
Ids = NDArray[np.int64]
Draw = Callable[[np.random.Generator, int], Values]

_DELTA: Final = 0.05
_NORMAL: Final = 1.96
_GROUPS: Final = 50
_WHOLE: Final = (20_000, 1_000)  # N, n.
_GROUPED: Final = (40_000, 4_000)
_THINNED: Final = (40_000, ((1.0, 8),))  # N; of each stratum its share of N, and N/n.
_MIXED: Final = (40_000, ((0.5, 8), (0.5, 2)))
# The same widths when samples had three bounds at delta/3 each, and strata had mean squares about
# three fixed numbers: whole, by group, thinned, mixed.
BEFORE: Final[Mapping[str, tuple[float, float, float, float]]] = {
    "uniform": (1.05, 3.65, 1.23, 7.10),
    "normal": (3.26, 4.54, 6.16, 11.43),
    "exponential": (2.84, 6.71, 12.77, 28.32),
    "lognormal, σ = 1": (3.21, 22.25, 34.24, 77.88),
    "lognormal, σ = 2": (4.20, 184.67, 261.98, 502.21),
    "0/1, half ones": (4.67, 5.48, 12.15, 33.60),
    "0/1, 5 % ones": (1.05, 1.17, 1.86, 3.28),
    "0/1, 0.1 % ones": (1.57, 2.91, 4.03, 10.24),
    "spikes of 10⁵, 0.1 %": (2.00, 4.44, 4.99, 12.69),
    "Pareto, 2.1": (4.40, 140.70, 153.23, 386.06),
    "Pareto, 1.1, to 10⁶": (4.91, 4115.51, 3759.81, 8429.49),
    "Beta, 0.3, 0.3": (1.07, 1.46, 1.37, 1.26),
    "Student, 3": (4.02, 43.09, 52.74, 108.64),
    "two heights": (258.77, 29.24, 12.55, 35.78),
    "Zipf, 1.5, to 10⁴": (1.79, 2.23, 2.62, 5.54),
}
PREFACE: Final = f"""\
Variances, in the same way: the ideal is that of the average of e = (y − μ)².

- *Whole*: n = {_WHOLE[1]:,} of {_WHOLE[0]:,} tuples. *By group*: n = {_GROUPED[1]:,} of \
{_GROUPED[0]:,} in {_GROUPS} groups.
- *Thinned*: {_THINNED[0]:,} tuples in {_GROUPS} groups of which one in 8 is read; only moments are
  kept. *Mixed*: {_MIXED[0]:,} tuples, one half read at 1/8, the other at 1/2.
- *before*: three bounds at delta/3 each; of thinned panes, mean squares about three fixed numbers.
- *range*: as above, of e."""
_OTHERS_PREFACE: Final = """\
Sums and averages of the same thinned and mixed panes. *range*: as above, of AVG thinned."""


def whole(draw: Draw, rng: np.random.Generator) -> tuple[list[float], list[float]]:
    """Half widths over the ideal, and the part of the range, of a column's variance."""
    size, read = _WHOLE
    return _sampled(draw(rng, size), np.zeros(size, np.int64), read, 1, rng)


def by_group(draw: Draw, rng: np.random.Generator) -> tuple[list[float], list[float]]:
    """The same of every group."""
    size, read = _GROUPED
    return _sampled(draw(rng, size), rng.integers(0, _GROUPS, size), read, _GROUPS, rng)


def thinned(draw: Draw, rng: np.random.Generator) -> Strata:
    """What every group's answers are made of where all was read at one level."""
    return Strata.of(draw, _THINNED, rng)


def mixed(draw: Draw, rng: np.random.Generator) -> Strata:
    """The same at two levels."""
    return Strata.of(draw, _MIXED, rng)


def _sampled(
    column: Values, ids: Ids, read: int, groups: int, rng: np.random.Generator
) -> tuple[list[float], list[float]]:
    size = len(column)
    rows = rng.choice(size, read, replace=False)
    sample = SampledValues.by_group(
        column[rows], ids=ids[rows].astype(np.int32) if groups > 1 else None, groups=groups,
        population=size, read=read, low=column.min(), high=column.max(), everything=groups == 1,
        whole_numbers=bool((column == np.rint(column)).all()),
    )  # fmt: skip
    mean, variance, spread = _truths(column, ids, groups)
    each, found = np.bincount(ids, minlength=groups), np.bincount(ids[rows], minlength=groups)
    ideals = _NORMAL * spread * np.sqrt((1 - read / size) / np.maximum(found, 1))
    reach = np.maximum(column.max() - mean, mean - column.min()) ** 2
    missed = math.log(2 * _DELTA) / np.log1p(-np.minimum(found / each, 0.5))
    floors = missed / each * np.maximum(reach - variance, variance) / 2
    there = ideals > 0
    halves = _halves(sampled_variance(sample, confidence=1 - _DELTA), ideals)
    return halves, (floors[there] / ideals[there]).tolist()


@dataclass(frozen=True, slots=True, eq=False)
class Strata:
    """Moments of groups that were read by levels, and how far ideal answers are off.

    ids: int64 [tuples]. unread: float64 [tuples], N/n - 1 of the stratum of each.
    """

    strata: list[Stratum]
    column: Values
    ids: Ids
    unread: Values

    @classmethod
    def of(
        cls,
        draw: Draw,
        world: tuple[int, tuple[tuple[float, int], ...]],
        rng: np.random.Generator,
    ) -> Strata:
        """Draw a column of random groups, and read each stratum at its share."""
        size, parts = world
        column, ids = draw(rng, size), rng.integers(0, _GROUPS, size)
        strata, unread, first = [], np.zeros(size), 0
        for share, one_in in parts:
            last = first + round(share * size)
            rows = first + rng.choice(last - first, (last - first) // one_in, replace=False)
            strata.append(_stratum(column, ids, rows, last - first))
            unread[first:last] = one_in - 1
            first = last
        return cls(strata, column, ids, unread)

    def sums(self) -> list[float]:
        """Half widths of the sums of groups over the ideal ones."""
        each = _totals(self.ids, self.column) / len(self.column)
        squares = _totals(self.ids, self.unread * self.column**2)
        ideals = _NORMAL * np.sqrt(np.maximum(squares - each**2 * self.unread.sum(), 0.0))
        return _halves(stratified_sum(self.strata, confidence=1 - _DELTA), ideals)

    def means(self) -> list[float]:
        """Likewise of averages."""
        mean, _, _ = _truths(self.column, self.ids, _GROUPS)
        away = (self.column - mean[self.ids]) ** 2
        return _halves(stratified_mean(self.strata, confidence=1 - _DELTA), self._ideals(away))

    def variances(self) -> list[float]:
        """Likewise of variances."""
        _, _, spread = _truths(self.column, self.ids, _GROUPS)
        ideals = self._ideals((spread**2)[self.ids])
        return _halves(stratified_variance(self.strata, confidence=1 - _DELTA), ideals)

    def floors(self) -> list[float]:
        """The part of the range of averages that were read at one level."""
        mean, _, _ = _truths(self.column, self.ids, _GROUPS)
        reach = np.maximum(self.column.max() - mean, mean - self.column.min())
        [unread] = np.unique(self.unread)
        missed = math.log(2 * _DELTA) / math.log1p(-1.0 / (unread + 1.0))
        ideals = self._ideals((self.column - mean[self.ids]) ** 2)
        there = ideals > 0
        counts = np.bincount(self.ids, minlength=_GROUPS)
        return list((missed / counts * reach / 2)[there] / ideals[there])

    def _ideals(self, squares: Values) -> Values:
        """Of averages of values with these squared distances from their mean."""
        counts = np.bincount(self.ids, minlength=_GROUPS)
        return _NORMAL * np.sqrt(_totals(self.ids, self.unread * squares)) / counts


def _stratum(column: Values, ids: Ids, rows: Ids, population: int) -> Stratum:
    values, groups = column[rows], ids[rows]
    counts = np.bincount(groups, minlength=_GROUPS)
    means = _totals(groups, values) / np.maximum(counts, 1)
    away, squares = values - means[groups], values**2
    squares -= (_totals(groups, squares) / np.maximum(counts, 1))[groups]
    shape = SquareMoments(_totals(groups, away * squares), _totals(groups, squares**2))
    ends = float(column.min()), float(column.max())
    spread = _totals(groups, away**2)
    return Stratum(population, len(rows), counts, means, spread, *ends, False, shape)


def _truths(column: Values, ids: Ids, groups: int) -> tuple[Values, Values, Values]:
    """Of each group: the mean, the variance, and the standard deviation of squared distances."""
    each = np.maximum(np.bincount(ids, minlength=groups), 1)
    mean = np.bincount(ids, column, minlength=groups) / each
    squares = (column - mean[ids]) ** 2
    variance = np.bincount(ids, squares, minlength=groups) / each
    fourth = np.bincount(ids, (squares - variance[ids]) ** 2, minlength=groups) / each
    return mean, variance, np.sqrt(fourth)


def _totals(ids: Ids, values: Values) -> Values:
    return np.asarray(np.bincount(ids, values, minlength=_GROUPS), np.float64)


def _halves(found: Intervals, ideals: Values) -> list[float]:
    half = (found.high - found.low) / 2
    there = (ideals > 0) & np.isfinite(half)
    return list(half[there] / ideals[there])


def measured(draw: Draw, trials: int) -> tuple[list[float], list[float]]:
    """Medians of variances: whole, its range's part; by group, its range's part; thinned; mixed.

    And of thinned and mixed: sums, averages and the range's part of these; sums, averages.
    """
    found: tuple[list[float], ...] = tuple([] for _ in range(11))
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        level, levels = _widths_of(draw, rng, found)
        widths = level.variances(), levels.variances()
        others = level.sums(), level.means(), level.floors(), levels.sums(), levels.means()
        for into, more in zip(found[4:], (*widths, *others), strict=True):
            into.extend(more)
    medians = [median(each) for each in found]
    return medians[:6], medians[6:]


def _widths_of(
    draw: Draw, rng: np.random.Generator, found: tuple[list[float], ...]
) -> tuple[Strata, Strata]:
    """Add the widths of samples to the first four lists; return what was thinned, and mixed."""
    for at, (halves, floors) in enumerate((whole(draw, rng), by_group(draw, rng))):
        found[2 * at].extend(halves)
        found[2 * at + 1].extend(floors)
    return thinned(draw, rng), mixed(draw, rng)


def _row(draw: Draw, trials: int) -> list[float]:
    ours, others = measured(draw, trials)
    return [*ours, *others]


def table(columns: Mapping[str, Draw], trials: int, kept: KeptRows) -> list[str]:
    """The lines of the tables: of variances, then of sums and averages of thinned panes."""
    rows, others = {}, {}
    for name, draw in columns.items():
        found = kept.row("variances", name, partial(_row, draw, trials))
        all_of_it, its_range, group, group_range, level, levels = found[:6]
        others[name] = found[6:]
        before = BEFORE[name]
        sampled = before[0], all_of_it, its_range, before[1], group, group_range
        rows[name] = [*sampled, before[2], level, before[3], levels]
    return [
        *("", *PREFACE.split("\n"), ""),
        (
            "| column | whole: before | now | range | by group: before | now | range "
            "| thinned: before | now | mixed: before | now |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *_lines(rows),
        *("", *_OTHERS_PREFACE.split("\n"), ""),
        "| column | thinned: SUM | AVG | range | mixed: SUM | AVG |",
        "|---|---|---|---|---|---|",
        *_lines(others),
    ]


def _lines(rows: Mapping[str, list[float]]) -> list[str]:
    medians = [median(each) for each in zip(*rows.values(), strict=True)]
    return [
        f"| {name} | " + " | ".join(f"{width:,.2f}" for width in widths) + " |"
        for name, widths in {**rows, "median over columns": medians}.items()
    ]
