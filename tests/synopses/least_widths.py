"""Least widths that intervals can have: bounds beside the widths of ours, for docs/coverage.md.

Nothing that is bounded here calls the intervals. Probabilities are of SciPy's log-gamma function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from synopses.intervals.covariance import sampled_correlation
from synopses.intervals.linearised_pairs import certified_correlation
from synopses.intervals.quantiles import rank_bounds
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.sampled_pairs import CertainPairs, SampledPairs
from synopses.intervals.variance import sampled_variance
from tests.synopses.kept_rows import KeptRows
from tests.synopses.least_correlation import Pairs, least_half

Values = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Values]

DELTA: Final = 0.05
SIZES: Final = ((20_000, 1_000), (800, 100))  # N, n: the whole of a stream, a group of an archive.
_CORR_SIZES: Final = ((200_000, 10_000), *SIZES)
_RANGE_OF: Final = 40_000  # Tuples of the stream of a group; they make the known range.
# Rows kept at each end of both columns, of a stream with four numeric columns; 4,000 sampled rows.
_KEPT: Final = {1_000: 3, 100: 15}
_HEIGHTS: Final = (0.25, 1.75)  # No whole numbers: that there are only two is not known.
_NORMAL: Final = 1.96


class Ranks(NamedTuple):
    """Ranks between the ends of an interval of the median, over those of the ideal interval."""

    least: float
    ours: float


def median_ranks(size: int, read: int) -> Ranks:
    """Compare our two order statistics with the two nearest ones that hold for every column.

    The population's ranks from one sampled rank to the next are (N + 1)/(n + 1) on average.
    """
    middle = (size + 1) // 2
    first = np.arange(1, read + 1)
    below = _at_least(first, size, middle - 1, read)  # The first-th is below the median.
    reached = _at_least(first, size, middle, read)  # The first-th is not above it.
    held = reached[:, None] - below[None, :]  # [a, b]: the a-th is not above, the b-th not below.
    apart = first[None, :] - first[:, None]
    least = apart[(held >= 1 - DELTA) & (apart >= 0)].min()
    low, high = rank_bounds(
        np.array([read]),
        members=np.array([size]),
        members_known=True,
        rank_share=0.5,
        confidence=1 - DELTA,
    )
    ideal = 2 * _NORMAL * np.sqrt(size * (size / read - 1) / 4)
    step = (size + 1) / (read + 1)
    return Ranks(float(least * step / ideal), float((high[0] - low[0]) * step / ideal))


def _at_least(counts: NDArray[np.int64], size: int, marked: int, read: int) -> Values:
    each = _hypergeometric(np.arange(read + 1), size, marked, read)
    return np.asarray(np.cumsum(each[::-1])[::-1][counts])


def least_variance(size: int, read: int, cells: int = 40, splits: int = 12) -> float:
    """Return the least average half width for VAR of two equal heights, 1 apart, in doubles.

    M tuples, chosen at random, are moved to the middle, where no sample without them tells. A
    variance must be allowed in 1 - delta of the samples of its population (Pratt 1961).
    The heights' shares are 1/2 ± h besides, each sign as likely. Of the samples without a moved
    tuple those count that are least probable for equal shares (Neyman and Pearson). The variance is
    less than 1/4 by s/4 + (1 - s)^2 h^2, where s is M/N. Each cell of it has its best (s, h).
    """
    ones = np.arange(read + 1)
    equal = _hypergeometric(ones, size, size // 2, read)
    most = 2.5 * np.log(1 / DELTA) / read
    step, width = most / cells, 0.0
    for less in step * (np.arange(cells) + 1):
        best = 0.0
        for part in np.linspace(0.0, 1.0, splits):
            moved = int(4 * less * part * size)
            share = moved / size
            away = np.sqrt(max(less - share / 4, 0.0)) / (1 - share)
            heights, larger = size - moved, round((size - moved) * (0.5 + away))
            if larger > heights:
                continue
            other = _hypergeometric(ones, heights, larger, read)
            unseen = float(_unseen(size, np.array([moved]), read)[0])
            other = unseen * (other + other[::-1]) / 2
            best = max(best, _least_held(equal, other, unseen - DELTA))
        width += best * step
    return width / 2


def _least_held(equal: Values, other: Values, wanted: float) -> float:
    """The least probability by `equal` of a set of outcomes that has `wanted` by `other`."""
    if wanted <= 0.0:
        return 0.0
    order = np.argsort(equal / np.maximum(other, 1e-300))
    gained = np.concatenate([[0.0], np.cumsum(other[order])])
    paid = np.concatenate([[0.0], np.cumsum(equal[order])])
    return float(np.interp(wanted, gained, paid))


def _hypergeometric(
    marked_read: NDArray[np.int64] | int, size: int, marked: NDArray[np.int64] | int, read: int
) -> Values:
    """Probabilities that so many of `read` rows are marked, of `size` tuples."""
    found, among = np.asarray(marked_read), np.asarray(marked)
    others = size - among
    there = (found <= among) & (read - found <= others)
    logs = _choose(among, np.where(there, found, 0))
    logs = logs + _choose(others, np.where(there, read - found, 0))
    return np.where(there, np.exp(logs - _choose(np.asarray(size), np.asarray(read))), 0.0)


def _choose(n: NDArray[np.int64], k: NDArray[np.int64]) -> Values:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def _unseen(size: int, moved: NDArray[np.int64], read: int) -> Values:
    """Probabilities that a sample has none of so many tuples; never 0, to divide by."""
    return np.maximum(_hypergeometric(0, size, moved, read), 1e-300)


class Correlations(NamedTuple):
    """Half widths of r's interval: ours, with the medians of both ends, the bound and the ideal.

    certified: the share of samples with an interval by the influence function.
    """

    ours: float
    least: float
    ideal: float
    certified: float


def correlations(draw: Draw, size: int, read: int, trials: int, *, kept: int = 0) -> Correlations:
    """Measure r of a column and another with half of its variance, on samples of one population.

    kept: rows at each end of both columns that are known for certain.
    """
    rng = np.random.default_rng(size)
    known = draw(rng, size if size >= SIZES[0][0] else _RANGE_OF)
    other = known / known.std() + rng.permutation(known) / known.std()
    extreme = _extreme(known, kept) | _extreme(other, kept)
    x, y, certain = known[:size], other[:size], extreme[:size]
    rows = np.concatenate([rng.choice(size, read, replace=False) for _ in range(trials)])
    ids = np.repeat(np.arange(trials, dtype=np.int32), read)
    pairs = _sampled(x, y, rows, ids, (size, _ends(known), _ends(other)))
    ends = _ends(known[~extreme]), _ends(other[~extreme])
    beside = None
    if kept:
        apart = ~certain[rows]
        population = size - np.count_nonzero(certain)
        others = _sampled(x, y, rows[apart], ids[apart], (population, *ends))
        held = np.tile(np.flatnonzero(certain), trials)
        owners = np.repeat(np.arange(trials), np.count_nonzero(certain))
        beside = CertainPairs.by_group(x[held], y[held], ids=owners, others=others)
    found = sampled_correlation(pairs, confidence=1 - DELTA, certain=beside)
    least = least_half(Pairs.of(x, y, ends, certain), size, read, DELTA)
    a, b = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    influence = a * b - (a * b).mean() / 2 * (a * a + b * b)
    return Correlations(
        float(np.median(found.high) - np.median(found.low)) / 2,
        least,
        _NORMAL * float(influence.std() * np.sqrt((1 - read / size) / read)),
        float(certified_correlation(pairs, confidence=1 - DELTA).holds.mean()),
    )


def _extreme(column: Values, kept: int) -> NDArray[np.bool_]:
    """So many values at each end, without those that are equal to the next one."""
    low, high = np.sort(column)[[kept, -kept - 1]]
    return np.asarray((column < low) | (column > high))


def _ends(column: Values) -> tuple[float, float]:
    return float(column.min()), float(column.max())


def _sampled(
    x: Values,
    y: Values,
    rows: NDArray[np.int64],
    ids: NDArray[np.int32],
    known: tuple[int, tuple[float, float], tuple[float, float]],
) -> SampledPairs:
    """One sample of a population in each group; known: its size, and the ranges of x and y."""
    size, first, second = known
    trials = int(ids.max()) + 1
    return SampledPairs.by_group(
        x[rows],
        y[rows],
        ids=ids,
        groups=trials,
        population=np.full(trials, size),
        read=np.bincount(ids, minlength=trials),
        ranges=(first, second),
        shuffle_seed=len(rows),
    )


def variances(size: int, read: int, trials: int) -> tuple[float, float]:
    """Return the average half width of VAR of two heights, and the least one."""
    rng = np.random.default_rng(size)
    low, high = _HEIGHTS
    column = np.repeat(_HEIGHTS, size // 2)
    halves = []
    for _ in range(trials):
        sample = SampledValues.by_group(
            rng.choice(column, read, replace=False),
            ids=None,
            groups=1,
            population=size,
            read=read,
            low=low,
            high=high,
            everything=True,
        )
        found = sampled_variance(sample, confidence=1 - DELTA)
        halves.append(float(found.high[0] - found.low[0]) / 2)
    return float(np.mean(halves)), least_variance(size, read) * (high - low) ** 2


def _row(draw: Draw, trials: int) -> list[float]:
    """Of each size: the certified share, ideal, least and ours; then least and ours of others."""
    row = []
    for size, read in _CORR_SIZES:
        one = correlations(draw, size, read, trials)
        row += [one.certified, one.ideal, one.least, one.ours]
    for size, read in SIZES:
        one = correlations(draw, size, read, trials, kept=_KEPT[read])
        row += [one.least, one.ours]
    return row


def section(columns: Mapping[str, Draw], kept: KeptRows, trials: int = 20) -> str:
    """The tables with their preface."""
    lines = ["", *_PREFACE.split("\n"), ""]
    lines += [
        "| MEDIAN, VAR: n of N | MEDIAN: least | ours | VAR: least | ours |",
        "|---" * 5 + "|",
    ]
    for size, read in SIZES:
        ranks, (ours, least) = median_ranks(size, read), variances(size, read, 10 * trials)
        cells = (f"{ranks.least:.3f}", f"{ranks.ours:.3f}", f"{least:.5f}", f"{ours:.5f}")
        lines.append(f"| {read:,} of {size:,} | " + " | ".join(cells) + " |")
    heads = [
        f"{read:,} of {size:,}: certified | ideal | least | ours" for size, read in _CORR_SIZES
    ]
    heads += [f"{read:,} of {size:,}, extreme rows: least | ours" for size, read in SIZES]
    lines += ["", "| CORR | " + " | ".join(heads) + " |", "|---" * 17 + "|"]
    for name, draw in columns.items():
        row = kept.row("correlations", name, partial(_row, draw, trials))
        digits = [2, 3, 3, 3] * len(_CORR_SIZES) + [3, 3] * len(SIZES)
        cells = [f"{each:.{many}f}" for each, many in zip(row, digits, strict=True)]
        lines.append("| " + " | ".join((name, *cells)) + " |")
    return "\n".join(lines) + "\n"


_PREFACE: Final = """\
What can be proven, by `tests/synopses/least_widths.py`, at 95 %. No interval that holds for every
distribution on the known range is narrower than *least*, on average or, of `CORR`, in the median.

- `MEDIAN`: ranks between the ends, over those of the ideal interval. Ends that hold for every
  column are order statistics; *least* is the nearest pair of them, by exact hypergeometric
  probabilities. Ours is that pair. The table above has 1.05 and 1.07, of values instead of ranks:
  both are within 5 % of *least*. Of a question `WITHIN` a far target, ranks are 1.042 times the
  ideal: it is asked at 0.9 delta.
- `VAR`: average half width, of the heights 0.25 and 1.75 in equal parts. Only the range is known,
  so this column is further from *least* than others: ours is 2.4 times as wide. Nearer ends are
  neither known nor proven impossible. Of two whole numbers in a row bounds are exact.
- `CORR`: average half width, of the pairs above. *certified* is the share of samples whose interval
  has both ends from the influence function. Ranges are those of all 40,000 tuples for 100 of 800.
  It needs a range that is narrow beside the spread. Elsewhere one pair at a corner of the range is
  too large a part of the spread: ρ is above 0.3, and betting bounds r.
- *least* of `VAR`: some tuples may lie elsewhere in the known range, and a sample may miss them
  all. An interval has to allow for each number of them that a sample misses with a probability
  above delta (Pratt 1961, JASA 56(295)). These are up to 3/n of all tuples.
- *least* of `CORR`, by `tests/synopses/least_correlation.py`: half the sum of the least median
  distances of both ends from r. Each end may miss in its part of delta, of five splits the best.
  For each c there is a population with r = c that is hard to tell from this one: some tuples lie at
  the worst place of the known range, and the others are weighted by the influence of r. An end that
  misses it seldom enough lies beyond c in as many samples as the best test leaves. Both errors
  count, that of the sample and that of what it may have missed. *ours* is made of medians, too.
- `CORR` beside *least*: 1.0 to 1.1 times if both ends are certified. One end may be certified where
  the other one comes from bets. Over columns the median is 1.3 times *least* for 10,000 rows, 1.4
  times for 1,000, and 1.6 times for 100 of 800. Columns with one large value in a thousand are
  farther away, at most 6.5 times. The bound knows the population and one alternative, bets have to
  hold for all of them. Nearer ends are neither known nor proven impossible.
- *extreme rows*: three rows are known at each end of both columns, as of a stream with four
  numeric columns and a sample of 1,000; 15 of the stream of a group. The others have a narrower
  range."""
