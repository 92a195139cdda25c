"""Widths of sums, averages and variances beside the ideal: `python -m tests.synopses.width_table`.

Writes the section of docs/coverage.md again, which `coverage_grid` writes with the rest. It takes
four minutes of a core. Rows are kept as they come (kept_rows.py), so a run that was ended goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.certain_stratum import (
    NARROWED_MAX,
    CertainValues,
    mean_with_certain,
    sum_with_certain,
    variance_with_certain,
)
from synopses.intervals.interval import Intervals
from synopses.intervals.means import sampled_mean
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.sums import sampled_sum
from synopses.intervals.variance import sampled_variance
from tests.engine.one_time_queries.output_widths import section as whole_answers
from tests.engine.thinned_width_table import section as take_all_rows
from tests.synopses.kept_rows import FILE, KeptRows
from tests.synopses.least_widths import section as least_widths
from tests.synopses.thinned_correlations import section as thinned_correlations
from tests.synopses.variance_widths import table as variances

PAGE: Final = Path(__file__).parents[2] / "docs" / "coverage.md"
TITLE: Final = "## Widths beside the ideal"
_NEXT: Final = "\n## Sketches"
_TRIALS: Final = 20
_DELTA: Final = 0.05
_NORMAL: Final = 1.96
_WHOLE: Final = (20_000, 1_000)  # N, n.
_GROUPED: Final = (40_000, 4_000, 50)  # N, n, groups.

Values = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Values]

COLUMNS: Final[Mapping[str, Draw]] = {
    "uniform": lambda rng, size: rng.random(size),
    "normal": lambda rng, size: rng.normal(10.0, 2.0, size),
    "exponential": lambda rng, size: rng.exponential(1.0, size),
    "lognormal, σ = 1": lambda rng, size: rng.lognormal(0.0, 1.0, size),
    "lognormal, σ = 2": lambda rng, size: rng.lognormal(0.0, 2.0, size),
    "0/1, half ones": lambda rng, size: (rng.random(size) < 0.5) * 1.0,
    "0/1, 5 % ones": lambda rng, size: (rng.random(size) < 0.05) * 1.0,
    "0/1, 0.1 % ones": lambda rng, size: (rng.random(size) < 0.001) * 1.0,
    "spikes of 10⁵, 0.1 %": lambda rng, size: np.where(
        rng.random(size) < 0.001, 1e5, rng.uniform(9.0, 11.0, size)
    ),
    "Pareto, 2.1": lambda rng, size: rng.pareto(2.1, size) + 1.0,
    "Pareto, 1.1, to 10⁶": lambda rng, size: np.minimum(rng.pareto(1.1, size) + 1.0, 1e6),
    "Beta, 0.3, 0.3": lambda rng, size: rng.beta(0.3, 0.3, size),
    "Student, 3": lambda rng, size: rng.standard_t(3, size),
    "two heights": lambda rng, size: rng.choice([-1.0, 1.0], size) * (1 + 1e-6 * rng.random(size)),
    "Zipf, 1.5, to 10⁴": lambda rng, size: np.minimum(rng.zipf(1.5, size), 10_000) * 1.0,
}
# The same widths when betting was a mixture that hedged for every variance, half of the capital
# each for fixed bets and for bets by the variance of earlier blocks: whole, SUM and AVG by group.
BEFORE: Final[Mapping[str, tuple[float, float, float]]] = {
    "uniform": (1.00, 1.00, 1.02),
    "normal": (1.00, 1.00, 1.77),
    "exponential": (1.43, 1.88, 2.16),
    "lognormal, σ = 1": (1.73, 3.86, 4.47),
    "lognormal, σ = 2": (2.49, 17.92, 18.20),
    "0/1, half ones": (1.00, 1.00, 1.02),
    "0/1, 5 % ones": (1.01, 1.70, 1.61),
    "0/1, 0.1 % ones": (1.51, 3.56, 3.41),
    "spikes of 10⁵, 0.1 %": (1.27, 3.69, 3.93),
    "Pareto, 2.1": (2.79, 8.89, 11.95),
    "Pareto, 1.1, to 10⁶": (3.44, 86.04, 87.30),
    "Beta, 0.3, 0.3": (1.00, 1.00, 1.02),
    "Student, 3": (2.25, 8.95, 7.53),
    "two heights": (1.00, 1.00, 1.02),
    "Zipf, 1.5, to 10⁴": (1.54, 1.86, 1.83),
}
_PREFACE: Final = f"""\
Written by `python -m tests.synopses.width_table`, at 95 %: half of an interval's width over
1.96·σ/√n·√(1 − n/N), the median over {_TRIALS} samples.

- *Whole*: n = {_WHOLE[1]:,} of {_WHOLE[0]:,} tuples; SUM and AVG are alike.
- *By group*: n = {_GROUPED[1]:,} of {_GROUPED[0]:,} tuples in {_GROUPED[2]} groups, so 80 rows of
  each are read. The range is that of the whole column.
- *before*: betting as a mixture over bets. Certified normal intervals are the same.
- *range*: what the range alone costs. In about half of all samples no interval that holds for every
  distribution on the range is narrower: so many values may lie at its far end that a sample misses
  them all with probability 2·delta."""

_PER_END: Final = 32  # Rows of the sample for a row of an end: as of a stream with one number.
_PER_END_MAX: Final = 128
_EXTREMES_HEAD: Final = (
    "| column | AVG, whole: without | with | SUM by group: without | with "
    "| AVG by group: without | with | VAR by group: without | with |"
)
_EXTREMES_PREFACE: Final = f"""\
The same beside the extreme rows of a stream with one numeric column. *Whole* has
{_WHOLE[1] // _PER_END} rows at each end, *by group* has {_GROUPED[1] // _PER_END}.
A width may be below 1, because the ideal is that of a sample alone."""


def measured(name: str, trials: int) -> tuple[float, float, float, float, float]:
    """Whole, its range's part; SUM by group, AVG by group, its range's part."""
    whole, sums, means = [], [], []
    floors: tuple[list[float], list[float]] = ([], [])
    for trial in range(trials):
        rng = np.random.default_rng([trial, len(name)])
        size, read = _WHOLE
        column = COLUMNS[name](rng, size)
        sample = _sample(rng.permutation(column)[:read], None, 1, column, read)
        ideal = _ideal(column.std(), size, read)
        whole += _halves(sampled_mean(sample, confidence=1 - _DELTA), ideal)
        floors[0].append(_floor(column, column.mean(), size, read) / ideal)
        size, read, groups = _GROUPED
        column, ids = COLUMNS[name](rng, size), rng.integers(0, groups, size).astype(np.int32)
        rows = rng.choice(size, read, replace=False)
        sample = _sample(column[rows], ids[rows], groups, column, read)
        found, each = np.bincount(ids[rows], minlength=groups), np.bincount(ids, minlength=groups)
        total = np.bincount(ids, column, minlength=groups)
        squares = np.bincount(ids, column**2, minlength=groups)
        spread = np.sqrt(np.maximum(squares / size - (total / size) ** 2, 0.0))
        sums += _halves(
            sampled_sum(sample, confidence=1 - _DELTA), size * _ideal(spread, size, read)
        )
        spread = np.sqrt(np.maximum(squares / each - (total / each) ** 2, 0.0))
        ideals = _ideal(spread, size, read) * np.sqrt(read / np.maximum(found, 1))
        means += _halves(sampled_mean(sample, confidence=1 - _DELTA), ideals)
        floors[1].extend(
            _floor(column, mean, many, few) / ideal
            for mean, many, few, ideal in zip(total / each, each, found, ideals, strict=True)
            if ideal > 0
        )
    return median(whole), median(floors[0]), median(sums), median(means), median(floors[1])


def section(kept: KeptRows, trials: int = _TRIALS) -> str:
    """The section of the page."""
    lines = [
        "",
        TITLE,
        "",
        *_PREFACE.split("\n"),
        "",
        (
            "| column | whole: before | now | range | SUM by group: before | now "
            "| AVG by group: before | now | range |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows = []
    for name in COLUMNS:
        whole, floor, sums, means, group_floor = kept.row(
            "sums, averages", name, partial(measured, name, trials)
        )
        before = BEFORE[name]
        rows.append((before[0], whole, floor, before[1], sums, before[2], means, group_floor))
        lines.append(_row(name, rows[-1]))
    lines.append(_row("median over columns", [median(each) for each in zip(*rows, strict=True)]))
    lines += variances(COLUMNS, trials, kept)
    first = "\n".join(lines) + "\n" + _extremes_section(trials, kept)
    tables = take_all_rows(COLUMNS, trials, kept) + whole_answers(COLUMNS, kept)
    return first + tables + least_widths(COLUMNS, kept) + thinned_correlations(COLUMNS, kept)


def _extremes_section(trials: int, kept: KeptRows) -> str:
    lines = ["", *_EXTREMES_PREFACE.split("\n"), "", _EXTREMES_HEAD, "|---" * 9 + "|"]
    rows = []
    for name in COLUMNS:
        rows.append(kept.row("extreme rows", name, partial(with_extremes, name, trials)))
        lines.append(_row(name, rows[-1]))
    lines.append(_row("median over columns", [median(each) for each in zip(*rows, strict=True)]))
    return "\n".join(lines) + "\n"


def with_extremes(name: str, trials: int) -> list[float]:
    """Widths without and with extreme rows: AVG whole, then SUM, AVG and VAR by group."""
    found: list[list[float]] = [[] for _ in range(8)]
    for trial in range(trials):
        rng = np.random.default_rng([trial, len(name)])
        size, read = _WHOLE
        whole = _Split(COLUMNS[name](rng, size), np.zeros(size, np.int32), read, rng)
        size, read, groups = _GROUPED
        ids = rng.integers(0, groups, size).astype(np.int32)
        grouped = _Split(COLUMNS[name](rng, size), ids, read, rng)
        answers = (
            (whole, sampled_mean, mean_with_certain, whole.ideal_mean),
            (grouped, sampled_sum, sum_with_certain, grouped.ideal_sum),
            (grouped, sampled_mean, mean_with_certain, grouped.ideal_mean),
            (grouped, sampled_variance, variance_with_certain, grouped.ideal_variance),
        )
        for at, (split, without, beside, ideal) in enumerate(answers):
            found[2 * at] += _halves(without(split.sample, confidence=1 - _DELTA), ideal)
            if split.is_narrowed:
                apart = beside(split.others, split.certain, confidence=1 - _DELTA)
            else:
                apart = without(split.sample, confidence=1 - _DELTA)
            found[2 * at + 1] += _halves(apart, ideal)
    return [median(each) for each in found]


class _Split:
    """A column in groups, a sample of it, and the same sample beside the extreme rows."""

    def __init__(
        self, column: Values, ids: NDArray[np.int32], read: int, rng: np.random.Generator
    ) -> None:
        size, groups, k = len(column), int(ids.max()) + 1, min(_PER_END_MAX, read // _PER_END)
        rows = rng.choice(size, read, replace=False)
        ends = np.sort(column)[[k, -k - 1]]
        extreme = (column < ends[0]) | (column > ends[1])
        apart = rows[~extreme[rows]]
        own = None if groups == 1 else ids
        self.sample = _sample(
            column[rows], None if own is None else own[rows], groups, column, read
        )
        others = _sample(
            column[apart], None if own is None else own[apart], groups, column[~extreme], len(apart)
        )
        self.others = others
        self.certain = CertainValues.of(
            column[extreme], ids=ids[extreme].astype(np.int64), groups=groups
        )
        self.is_narrowed = ends[1] - ends[0] < NARROWED_MAX * (column.max() - column.min())
        each = np.maximum(np.bincount(ids, minlength=groups), 1)
        found = np.maximum(np.bincount(ids[rows], minlength=groups), 1)
        total = np.bincount(ids, column, minlength=groups)
        away = (column - (total / each)[ids]) ** 2
        variance = np.bincount(ids, away, minlength=groups) / each
        kurtosis = np.bincount(ids, away**2, minlength=groups) / each - variance**2
        spread = np.bincount(ids, column**2, minlength=groups) / size - (total / size) ** 2
        if groups == 1:
            spread = variance
        shares = np.sqrt(read / found)
        self.ideal_sum = size * _ideal(np.sqrt(np.maximum(spread, 0.0)), size, read)
        self.ideal_mean = _ideal(np.sqrt(variance), size, read) * shares
        self.ideal_variance = _ideal(np.sqrt(np.maximum(kurtosis, 0.0)), size, read) * shares


def _row(name: str, widths: tuple[float, ...] | list[float]) -> str:
    return f"| {name} | " + " | ".join(f"{width:.2f}" for width in widths) + " |"


def _sample(
    values: Values, ids: NDArray[np.int32] | None, groups: int, column: Values, read: int
) -> SampledValues:
    return SampledValues.by_group(
        values,
        ids=ids,
        groups=groups,
        population=len(column),
        read=read,
        low=column.min(),
        high=column.max(),
        everything=ids is None,
    )


def _ideal(spread: Values | float, size: int, read: int) -> Values:
    return np.asarray(_NORMAL * spread * math.sqrt((1 - read / size) / read), np.float64)


def _halves(found: Intervals, ideal: Values) -> list[float]:
    half, ideals = (found.high - found.low) / 2, np.broadcast_to(ideal, found.high.shape)
    there = (ideals > 0) & np.isfinite(half)
    return (half[there] / ideals[there]).tolist()


def _floor(column: Values, mean: float, size: int, read: int) -> float:
    """Half of the width that the range costs: see the section's preface."""
    if not 0 < read < size:
        return 0.0
    missed = math.log(2 * _DELTA) / math.log(1 - read / size)
    return missed / size * max(column.max() - mean, mean - column.min()) / 2


def main() -> None:
    """Measure, and write the section again."""
    page = PAGE.read_text(encoding="utf-8")
    start, end = page.find("\n" + TITLE), page.index(_NEXT)
    first = page[: start if start >= 0 else end]
    PAGE.write_text(first + section(KeptRows(FILE)) + page[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
