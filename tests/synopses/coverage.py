"""Coverage cells: how often an interval held, and how wide it was, against exact truth.

A cell is one population and filter, sampled many times with fresh seeds by the real samples; the
trials of a cell are given to the interval functions as if they were groups. `METHODS` names the
interval functions that answers from a sample are made with. MIN, MAX, TOP and whole answers are
measured in tests/queries/test_coverage_of_answers.py.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri

from synopses.intervals.distinct import distinct_by_hash, distinct_by_rows
from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.interval import Intervals
from synopses.intervals.means import sampled_mean
from synopses.intervals.quantiles import sampled_quantile
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.sums import sampled_sum
from synopses.intervals.unseen_groups import missing_group_rows
from synopses.intervals.variance import sampled_deviation, sampled_variance
from synopses.intervals.weighted import WeightedMatches, signed_sum, weighted_sum
from synopses.kernels.hashing import position_keys, uniforms
from synopses.samples.bottom_k import HashSample, WeightedBottomK
from tests.truth import DISTRIBUTIONS, draw, exact_quantile

RATES = (1 / 2, 1 / 8, 1 / 64, 1 / 512)
SELECTIVITIES = (1.0, 0.1, 0.01, 0.001)
CONFIDENCES = (0.95, 0.99)
ALL_CONFIDENCES = (0.68, *CONFIDENCES)  # Of the full grid.


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the grid."""

    method: str
    distribution: str
    rate: float
    selectivity: float
    confidence: float

    def __str__(self) -> str:
        return (
            f"{self.method}, {self.distribution}, rate 1/{round(1 / self.rate)}, "
            f"filter {self.selectivity:g}, {self.confidence:.0%}"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured in a cell.

    hits of trials held the truth; certified_hits of certified those with a normal interval.
    width: mean width over the ideal one; NaN where no ideal is known.
    gated: whether that must stay under 1.5.
    """

    cell: Cell
    trials: int
    hits: int
    certified: int
    certified_hits: int
    width: float
    gated: bool


@dataclass(slots=True)
class World:
    """A population with its filter, and how much of it is read."""

    cell: Cell
    size: int
    trials: int
    rng: np.random.Generator = field(init=False)
    values: NDArray[np.float64] = field(init=False)
    match: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        seed = zlib.crc32(str(self.cell).encode())
        self.rng = np.random.default_rng(seed)
        self.values = draw(self.cell.distribution, seed, self.size)
        self.match = self.rng.random(self.size) < self.cell.selectivity

    @property
    def everything(self) -> bool:
        """Whether there is no filter."""
        return self.cell.selectivity == 1.0

    @property
    def read(self) -> int:
        """How many rows each sample holds."""
        return max(1, round(self.size * self.cell.rate))

    def rows_read(self) -> NDArray[np.int64]:
        """One trial's sample: the rows with the smallest keys."""
        keys = position_keys(int(self.rng.integers(2**63)), 0, self.size)
        # Keys are uniform: few beyond those that are read are below this one.
        share = (self.read + 8 * math.sqrt(self.read)) / self.size
        small = np.flatnonzero(keys < np.uint64(min(share, 0.999) * 2.0**64))
        if len(small) < self.read:
            small = np.arange(self.size)
        return small[np.argpartition(keys[small], self.read - 1)[: self.read]]

    def sample(self) -> SampledValues:
        """What all trials saw: the trials are the groups."""
        low, high = np.full(self.trials, self.values.min()), np.full(self.trials, self.values.max())
        parts = []
        for _ in range(self.trials):
            kept = self.rows_read()
            parts.append(self.values[kept[self.match[kept]]])
        starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        return SampledValues(
            self.size, self.read, starts, np.concatenate(parts), low, high, self.everything
        )


@dataclass(frozen=True, slots=True, eq=False)
class Trials:
    """Intervals of all trials, the truth, and the width that an ideal interval would have.

    gated: whether the method promises to be near the ideal here.
    """

    intervals: Intervals
    truth: float
    ideal: float = math.nan
    gated: bool = False


Method = Callable[[World], Trials]


def _z(world: World) -> float:
    return float(-ndtri((1.0 - world.cell.confidence) / 2.0))


def _matching(world: World) -> NDArray[np.float64]:
    return world.values[world.match]


def _total_error(world: World, y: NDArray[np.float64]) -> float:
    """True standard error of the expansion estimate of sum(y)."""
    size, read = world.size, world.read
    return size * math.sqrt((1 - read / size) * float(np.var(y, ddof=1)) / read)


def count(world: World) -> Trials:
    sample = world.sample()
    intervals = matching_count(
        population=sample.population,
        read=sample.read,
        matched=sample.matched,
        confidence=world.cell.confidence,
    )
    many = world.read * world.cell.selectivity >= 30 and not world.everything
    ideal = 2 * _z(world) * _total_error(world, world.match.astype(float))
    return Trials(intervals, float(world.match.sum()), ideal, gated=many)


def total(world: World) -> Trials:
    intervals = sampled_sum(world.sample(), confidence=world.cell.confidence)
    y = np.where(world.match, world.values, 0.0)
    ideal = 2 * _z(world) * _total_error(world, y)
    return Trials(intervals, math.fsum(y), ideal, gated=bool(intervals.certified.all()))


def mean(world: World) -> Trials:
    truth = float(_matching(world).mean()) if world.match.any() else math.nan
    return Trials(sampled_mean(world.sample(), confidence=world.cell.confidence), truth)


def variance(world: World) -> Trials:
    sample = world.sample()
    matching = _matching(world)
    truth = float(matching.var(ddof=1)) if len(matching) > 1 else math.nan
    return Trials(sampled_variance(sample, confidence=world.cell.confidence), truth)


def deviation(world: World) -> Trials:
    sample = world.sample()
    matching = _matching(world)
    truth = float(matching.std(ddof=1)) if len(matching) > 1 else math.nan
    return Trials(sampled_deviation(sample, confidence=world.cell.confidence), truth)


def quantile(world: World, share: float) -> Trials:
    sample = world.sample()
    matching = np.sort(_matching(world))
    truth = float(exact_quantile(matching, share)) if len(matching) else math.nan
    found = sampled_quantile(sample, rank_share=share, confidence=world.cell.confidence)
    seen = round(len(matching) * sample.read / sample.population)
    if seen * min(share, 1 - share) < 30:
        return Trials(found, truth)
    ideal = ideal_width(matching, seen, share=share, confidence=world.cell.confidence)
    return Trials(found, truth, ideal, gated=True)


def ideal_width(
    members: NDArray[np.float64], seen: int, *, share: float, confidence: float
) -> float:
    """The mean width that intervals are held to: the narrowest; of an atom, the shortest."""
    is_atom = int(np.count_nonzero(members == exact_quantile(members, share))) > 1
    width = shortest_width if is_atom else narrowest_width
    return width(members, seen, share=share, confidence=confidence)


def narrowest_width(
    members: NDArray[np.float64], seen: int, *, share: float, confidence: float
) -> float:
    """The smallest mean width of an interval whose ends are sampled values, whatever was sampled.

    The ends are the a-th and the b-th smallest of `seen` of the members. Of all pairs that hold
    the quantile of any population of this size with this confidence (without ties, which only
    help, and which no method may hope for) it is the pair that is narrowest among these members,
    on average over all samples: the a-th sampled value is the j-th member with the probability of
    the negative hypergeometric distribution. So steps in the data are in the ideal, too.
    Source: David & Nagaraja 2003, Order Statistics, 3.7.

    Args:
      members: all of them, sorted.
      seen: how many a sample holds; 1 to len(members).
      share: q in (0, 1).
      confidence: in (0, 1).
    """
    widths = [
        _mean_of_rank(members, seen, high) - _mean_of_rank(members, seen, low)
        for low, high, _ in _honest_pairs(len(members), seen, share, confidence)
    ]
    return min(widths, default=math.inf)


def shortest_width(
    members: NDArray[np.float64], seen: int, *, share: float, confidence: float
) -> float:
    """The mean width of the pair with the fewest ranks between its ends, of the same pairs.

    It is the ideal where the quantile is an atom, a value of several members. Then an end that
    stands on the atom adds nothing to the width, and the mean width is no length that shrinks with
    the root of the sample: it is the steps to the neighbouring atoms times the probabilities that
    the ends fall off. The narrowest pair spends the whole error on the end that is far from the
    atom's edge, and of two probabilities that both vanish exponentially, at different rates, the
    ratio grows without limit with the sample. A method that does not know where the edges are
    cannot follow. The ranks do not show which end is which. A pair must be fixed before the
    values are seen (chosen after, it holds less often). The pair that is narrowest here is wider
    than the shortest for a population whose steps lie the other way. The shortest pair in ranks
    is what every method can know, and the narrowest itself where members are evenly spaced.

    Args and Returns: those of `narrowest_width`; of several pairs that are as short, the one whose
    ends err most evenly.
    """
    pairs = _honest_pairs(len(members), seen, share, confidence)
    if not pairs:
        return math.inf
    low, high, _ = min(pairs, key=lambda pair: (pair[1] - pair[0], pair[2]))
    return _mean_of_rank(members, seen, high) - _mean_of_rank(members, seen, low)


def _honest_pairs(
    size: int, seen: int, share: float, confidence: float
) -> list[tuple[int, int, float]]:
    """Ranks, from 1, of all pairs that may be narrowest, and the larger error of both ends."""
    delta = 1 - confidence
    target = max(1, math.ceil(share * size - 1e-9))
    ranks = np.arange(1, seen + 1)
    above = np.cumsum(_shares_drawn(size, target, seen)[:-1])  # The a-th is above the quantile.
    # The b-th is below it.
    below = np.cumsum(_shares_drawn(size, target - 1, seen)[:0:-1])[::-1]
    # An end that errs a thousand times less often than it may is in no narrowest pair.
    lows = ranks[(above < delta) & (above > delta / 1000)]
    # below falls with the rank: the first b that leaves a and b together within delta.
    highs = seen - np.searchsorted(below[::-1], delta - above[lows - 1], side="right") + 1
    lows, highs = lows[highs <= seen], highs[highs <= seen]
    errors = np.maximum(above[lows - 1], below[highs - 1])
    return list(zip(lows.tolist(), highs.tolist(), errors.tolist(), strict=True))


def _shares_drawn(size: int, marked: int, seen: int) -> NDArray[np.float64]:
    """Return the hypergeometric probabilities of 0 to `seen` marked members in a sample."""
    counts = np.arange(seen + 1)
    logs = (
        log_choose(np.array([marked]), counts)
        + log_choose(np.array([size - marked]), seen - counts)
        - log_choose(np.array([size]), seen)
    )
    return np.exp(logs)


def _mean_of_rank(members: NDArray[np.float64], seen: int, rank: int) -> float:
    """The mean of the rank-th smallest of so many of the members, drawn without replacement."""
    size = len(members)
    likely, spread = rank / (seen + 1) * (size + 1), 12 * size / math.sqrt(seen)
    first = max(rank, math.floor(likely - spread))
    places = np.arange(first, min(size - seen + rank, math.ceil(likely + spread)) + 1)
    logs = (
        log_choose(places - 1, rank - 1)
        + log_choose(size - places, seen - rank)
        - log_choose(np.array([size]), seen)
    )
    return float(np.exp(logs) @ members[places - 1])


def log_choose(n: NDArray[np.int64], k: int | NDArray[np.int64]) -> NDArray[np.float64]:
    """Logarithm of the binomial coefficient; k may exceed n."""
    found: NDArray[np.float64] = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    return found


def distinct_hash(world: World) -> Trials:
    codes = np.unique(np.floor(world.values), return_inverse=True)[1]
    truth = len(np.unique(codes[world.match]))
    kept, shares = [], []
    for _ in range(world.trials):
        hashes = position_keys(int(world.rng.integers(2**63)), 0, int(codes.max()) + 1)[codes]
        sample = HashSample(world.read)
        held = np.arange(world.size)[sample.update(hashes).new]
        settled = sample.settle().old
        held = held if settled is None else held[settled]
        kept.append(len(np.unique(codes[held[world.match[held]]])))
        shares.append(sample.share)
    found = distinct_by_hash(
        kept=np.array(kept), share=np.array(shares), confidence=world.cell.confidence
    )
    return Trials(found, float(truth))


def distinct_rows(world: World) -> Trials:
    codes = np.floor(world.values)
    truth = len(np.unique(codes[world.match]))
    seen, once, matched = [], [], []
    for _ in range(world.trials):
        kept = world.rows_read()
        times = np.unique(codes[kept[world.match[kept]]], return_counts=True)[1]
        seen.append(len(times))
        once.append(int((times == 1).sum()))
        matched.append(int(times.sum()))
    found = distinct_by_rows(
        seen=np.array(seen), once=np.array(once), matched=np.array(matched),
        population=world.size, read=world.read, confidence=world.cell.confidence,
    )  # fmt: skip
    return Trials(found, float(truth))


def _weighted(world: World, weights: NDArray[np.float64]) -> list[WeightedMatches]:
    """What each trial's weighted sample holds of the matching rows."""
    found = []
    for _ in range(world.trials):
        keys = position_keys(int(world.rng.integers(2**63)), 0, world.size)
        sample = WeightedBottomK(max(10, world.read))
        kept = sample.update(weights, uniforms(keys)).new
        settled = sample.settle().old
        kept = kept if settled is None else kept[settled]
        found.append(
            WeightedMatches.by_group(
                sample.weights[world.match[kept]], tau=sample.tau, ids=None, groups=1
            )
        )
    return found


def _per_trial(world: World, answer: Callable[[int], Intervals]) -> Intervals:
    """Intervals whose tau differs from trial to trial, put together."""
    parts = [answer(trial) for trial in range(world.trials)]
    return Intervals.of(
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.low for part in parts]),
        np.concatenate([part.high for part in parts]),
    )


def weighted(world: World) -> Trials:
    weights = np.abs(world.values)
    seen = _weighted(world, weights)
    found = _per_trial(world, lambda t: weighted_sum(seen[t], confidence=world.cell.confidence))
    light = np.array([matches.light[0] for matches in seen])
    taus = np.array([matches.tau for matches in seen])
    ideal = 2 * _z(world) * float((taus * np.sqrt(light)).mean())
    return Trials(found, math.fsum(weights[world.match]), ideal, gated=light.mean() >= 30)


def signed(world: World) -> Trials:
    centred = world.values - np.median(world.values)
    plus = _weighted(world, np.maximum(centred, 0.0))
    minus = _weighted(world, np.maximum(-centred, 0.0))
    found = _per_trial(
        world, lambda t: signed_sum(plus[t], minus[t], confidence=world.cell.confidence)
    )
    return Trials(found, math.fsum(centred[world.match]))


def _bounded_by(excess: NDArray[np.float64]) -> Trials:
    """Held where nothing exceeds its bound: an interval [excess, inf] around 0."""
    return Trials(Intervals.of(excess, excess, np.full(len(excess), np.inf)), 0.0)


def missing_rows(world: World) -> Trials:
    """The largest missing group of each trial against the bound for all groups."""
    codes = np.unique(np.floor(world.values), return_inverse=True)[1]
    sizes = np.bincount(codes)
    bound = missing_group_rows(
        population=world.size, read=world.read, confidence=world.cell.confidence
    )
    worst = []
    for _ in range(world.trials):
        missed = sizes[np.bincount(codes[world.rows_read()], minlength=len(sizes)) == 0]
        worst.append(missed.max(initial=0))
    return _bounded_by(np.array(worst, float) - bound)


METHODS: Mapping[str, Method] = {
    "count": count,
    "sum": total,
    "avg": mean,
    "variance": variance,
    "stddev": deviation,
    "median": lambda world: quantile(world, 0.5),
    "p99": lambda world: quantile(world, 0.99),
    "distinct by hash": distinct_hash,
    "distinct by rows": distinct_rows,
    "weighted sum": weighted,
    "signed weighted sum": signed,
    "missing rows": missing_rows,
}


def measure(cell: Cell, *, size: int, trials: int) -> Outcome | None:
    """Run a cell; None where the question has no answer (an average over nothing)."""
    world = World(cell, size, trials)
    found = METHODS[cell.method](world)
    if math.isnan(found.truth):
        return None
    slack = 1e-9 * max(abs(found.truth), 1e-300)  # Sums of doubles differ in their last bits.
    intervals = found.intervals
    held = (intervals.low <= found.truth + slack) & (found.truth - slack <= intervals.high)
    certified = intervals.certified
    width = math.nan
    if not math.isnan(found.ideal) and found.ideal > 0:
        width = float((intervals.high - intervals.low).mean() / found.ideal)
    return Outcome(
        cell,
        trials,
        int(held.sum()),
        int(certified.sum()),
        int((held & certified).sum()),
        width,
        found.gated and not math.isnan(width),
    )


def full_grid(confidences: tuple[float, ...] = ALL_CONFIDENCES) -> list[Cell]:
    """Every cell: aggregate and source, distribution, rate, filter, confidence."""
    return [
        Cell(method, distribution, rate, selectivity, confidence)
        for method in METHODS
        for distribution in DISTRIBUTIONS
        for rate in RATES
        for selectivity in SELECTIVITIES
        for confidence in confidences
    ]


def pairwise() -> list[Cell]:
    """Few cells in which every two values of different axes meet at least once.

    Methods and distributions are crossed, and each cell takes those values of the other axes
    that bring the most pairs, then the most triples, that have not met yet.
    """
    rests = list(product(RATES, SELECTIVITIES, CONFIDENCES))
    met: set[Meeting] = set()
    chosen = []
    for step, method in enumerate(METHODS):
        names = list(DISTRIBUTIONS)
        for distribution in names[step % len(names) :] + names[: step % len(names)]:
            cells = [(method, distribution, *rest) for rest in rests]
            best = max(
                cells,
                key=lambda cell: (len(_meetings(cell, 2) - met), len(_meetings(cell, 3) - met)),
            )
            met |= _meetings(best, 2) | _meetings(best, 3)
            chosen.append(Cell(*best))
    return chosen


def near_ideal() -> list[Cell]:
    """Cells where intervals promise to be near the ideal width, which pairs seldom reach."""
    methods = ("count", "sum", "avg", "median", "weighted sum")
    populations = (("uniform", 1 / 8), ("exponential", 1 / 2))
    return [
        Cell(method, distribution, rate, selectivity, 0.95)
        for method, (distribution, rate), selectivity in product(methods, populations, (1.0, 0.1))
    ]


Meeting = frozenset[tuple[int, object]]


def _meetings(cell: tuple[object, ...], order: int) -> set[Meeting]:
    """The sets of so many axis values that a cell brings together."""
    return {frozenset(some) for some in combinations(enumerate(cell), order)}


def missing_pairs(cells: list[Cell]) -> set[Meeting]:
    """Pairs of the full grid that none of the cells brings together."""
    axes = [METHODS, DISTRIBUTIONS, RATES, SELECTIVITIES, CONFIDENCES]
    wanted = {
        frozenset(((i, a), (j, b)))
        for (i, left), (j, right) in combinations(enumerate(axes), 2)
        for a, b in product(left, right)
    }
    for cell in cells:
        wanted -= _meetings(astuple(cell), 2)
    return wanted
