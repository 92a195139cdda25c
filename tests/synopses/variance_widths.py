"""Widths of variances beside the ideal: the second table of the section of `width_table`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.interval import Intervals
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.variance import sampled_variance
from synopses.strata.stratified_variance import stratified_variance
from synopses.strata.stratum import SquareMoments, Stratum

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


def whole(draw: Draw, rng: np.random.Generator) -> tuple[list[float], list[float]]:
    """Half widths over the ideal, and the part of the range, of a column's variance."""
    size, read = _WHOLE
    return _sampled(draw(rng, size), np.zeros(size, np.int64), read, 1, rng)


def by_group(draw: Draw, rng: np.random.Generator) -> tuple[list[float], list[float]]:
    """The same of every group."""
    size, read = _GROUPED
    return _sampled(draw(rng, size), rng.integers(0, _GROUPS, size), read, _GROUPS, rng)


def thinned(draw: Draw, rng: np.random.Generator) -> list[float]:
    """Half widths over the ideal of every group that was read at one level."""
    return _stratified(draw, _THINNED, rng)


def mixed(draw: Draw, rng: np.random.Generator) -> list[float]:
    """The same at two levels."""
    return _stratified(draw, _MIXED, rng)


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


def _stratified(
    draw: Draw, world: tuple[int, tuple[tuple[float, int], ...]], rng: np.random.Generator
) -> list[float]:
    size, parts = world
    column, ids = draw(rng, size), rng.integers(0, _GROUPS, size)
    _, _, spread = _truths(column, ids, _GROUPS)
    strata, square, first = [], np.zeros(_GROUPS), 0
    for share, one_in in parts:
        last = first + round(share * size)
        rows = first + rng.choice(last - first, (last - first) // one_in, replace=False)
        strata.append(_stratum(column, ids, rows, last - first))
        square += np.bincount(ids[first:last], minlength=_GROUPS) * spread**2 * (one_in - 1)
        first = last
    ideals = _NORMAL * np.sqrt(square) / np.bincount(ids, minlength=_GROUPS)
    return _halves(stratified_variance(strata, confidence=1 - _DELTA), ideals)


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


def measured(draw: Draw, trials: int) -> tuple[float, float, float, float, float, float]:
    """Medians: whole, its range's part; by group, its range's part; thinned; mixed."""
    found: tuple[list[float], ...] = ([], [], [], [], [], [])
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        for at, (halves, floors) in enumerate((whole(draw, rng), by_group(draw, rng))):
            found[2 * at].extend(halves)
            found[2 * at + 1].extend(floors)
        found[4].extend(thinned(draw, rng))
        found[5].extend(mixed(draw, rng))
    one, two, three, four, five, six = (median(each) for each in found)
    return one, two, three, four, five, six


def table(columns: Mapping[str, Draw], trials: int) -> list[str]:
    """The lines of the table."""
    lines = [
        "",
        *PREFACE.split("\n"),
        "",
        (
            "| column | whole: before | now | range | by group: before | now | range "
            "| thinned: before | now | mixed: before | now |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows = []
    for name, draw in columns.items():
        all_of_it, its_range, group, group_range, level, levels = measured(draw, trials)
        before = BEFORE[name]
        sampled = before[0], all_of_it, its_range, before[1], group, group_range
        rows.append((*sampled, before[2], level, before[3], levels))
        lines.append(_row(name, rows[-1]))
    return [*lines, _row("median over columns", [median(each) for each in zip(*rows, strict=True)])]


def _row(name: str, widths: tuple[float, ...] | list[float]) -> str:
    return f"| {name} | " + " | ".join(f"{width:,.2f}" for width in widths) + " |"
