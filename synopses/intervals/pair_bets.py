"""Covariance, slope and correlation of sampled pairs by betting, whatever the distribution.

A random eighth of the rows, the pilot sample, says about where the means, the spreads and the line
are. With u, v, s_x and s_y of the pilot, a = (x - u)/s_x and b = (y - v)/s_y are fixed functions of
the other rows, which are a simple random sample of the rest of the tuples. So the means of products
and squares of a and b are bounded as those of any column (`sampled_mean`). The pilot misses the
means of x and y a little; this enters as a product of two small numbers, which are bounded, too,
at a small part of delta. By the union bound all hold at once.

  covariance   mean of a b, less the product of the means of a and b
  slope        t + C/V: t of the pilot, C the covariance of a - t b and b, V the variance of b

The mean over all K pairs is that of the pilot's k, and of the others, with weights k/K and 1 - k/K.
Correlations need no pilot sample: see correlation_bets.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.betting import mean_of_matches
from synopses.intervals.correlation_bets import correlations_by_bets
from synopses.intervals.from_moments import Ends, Floats
from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.linearised_pairs import reach_of_slope
from synopses.intervals.means import sampled_mean
from synopses.intervals.range_arithmetic import minus, quotient, squared, times
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.sampled_pairs import CertainPairs, SampledPairs
from synopses.model.parameters import error_share

_PILOT: Final = 8  # One row in so many is the pilot's.
_PILOT_MIN: Final = 4  # Pairs; of fewer the pilot says nothing, and the known ranges stand in.
_COUNT: Final = 0.02  # Part of delta for the number K of pairs; all parts are at most 1 in sum.
_MEAN: Final = 0.02  # Part of delta for each interval of a mean that a correlation needs.
_WITHOUT_MEANS: Final = 1.0 - 2.0 * _MEAN
_FLAT: Final = 1e-12  # A spread below this part of the range is rounding.

Chosen = NDArray[np.bool_]


@np.errstate(over="ignore", invalid="ignore")
def bounded_covariance(pairs: SampledPairs, *, wanted: Chosen, confidence: float) -> Ends:
    """The covariance with the number of pairs below the line.

    Args:
      wanted: bool [groups]; of the others nothing is known afterwards.
    """
    pilot = PilotSample.of(pairs, wanted, error_share(confidence))
    a, b = pilot.a, pilot.b
    products = pilot.mean(a * b, times(pilot.range_a, pilot.range_b), part=0.78)
    missed = times(pilot.mean(a, pilot.range_a, part=0.1), pilot.mean(b, pilot.range_b, part=0.1))
    low, high = minus(products, missed)
    scale = pilot.scales[0] * pilot.scales[1]
    return low * scale, high * scale


@np.errstate(over="ignore", invalid="ignore")
def bounded_slope(pairs: SampledPairs, *, wanted: Chosen, confidence: float) -> Ends:
    """The slope of the least-squares line of x over y; infinite where y may be constant."""
    pilot = PilotSample.of(pairs, wanted, error_share(confidence))
    a, b, slope = pilot.a, pilot.b, pilot.slope
    rest = a - slope[pilot.owners] * b
    range_rest = minus(pilot.range_a, times((slope, slope), pilot.range_b))
    lowest, highest = reach_of_slope(pilot.range_a, pilot.range_b, slope)
    products = pilot.mean(rest * b, (-lowest, highest), part=0.6)
    mean = pilot.mean(b, pilot.range_b, part=0.08)
    missed = times(pilot.mean(rest, range_rest, part=0.08), mean)
    square = squared(pilot.range_b)
    low, high = minus(pilot.mean(b * b, square, part=0.1), squared(mean))
    least = pilot.least(_apart(b, pilot.owners, mean), square[1], part=0.12)
    low, high = quotient(minus(products, missed), (np.maximum(low, least), high))
    scale = pilot.scales[0] / pilot.scales[1]
    return (slope + low) * scale, (slope + high) * scale


def bounded_correlation(
    pairs: SampledPairs,
    *,
    parts: Floats,
    confidence: float,
    certain: CertainPairs | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Pearson's correlation, in [-1, 1] (correlation_bets.py).

    Args:
      pairs: the sample. certain: pairs that are known; None: no pair is.
      parts: float64 [groups, 2], of delta, for the lower end and the upper one; 0: an end is not
        wanted; NaN in both: as is narrowest.

    Returns:
      Both ends, and the estimate: float64 [groups] each.
    """
    delta = error_share(confidence)
    known = certain or CertainPairs.none(pairs)
    x, y = known.others.first, known.others.second
    ranges = np.stack([_stacked(column.low, column.high) for column in (x, y)], axis=1)
    some = (parts != 0.0).any(axis=1)
    ranges[~some] = 0.0  # Nothing is computed.
    means = [
        mean_of_matches(
            column,
            low=column.low,
            high=column.high,
            wanted=some,
            confidence=1.0 - _MEAN * delta,
            learning=False,
        )
        for column in (pairs.first, pairs.second)
    ]
    found = correlations_by_bets(
        x.starts,
        x.values,
        y.values,
        x.reads - x.matched,
        ranges,
        np.stack([_stacked(*ends) for ends in means], axis=1),
        x.populations.copy(),
        (known.starts, known.pairs),
        (_WITHOUT_MEANS * delta, _of_the_rest(parts), np.uint64(x.shuffle_seed)),
    )
    return found[:, 0], found[:, 1], found[:, 2]


def _of_the_rest(parts: Floats) -> Floats:
    """Parts of delta without both means' part, as parts of what is left; 0 and NaN stay."""
    rest = (parts - (1.0 - _WITHOUT_MEANS)) / _WITHOUT_MEANS
    return np.where(parts > 0.0, rest, parts)


def _stacked(low: Floats, high: Floats) -> Floats:
    """float64 [groups, 2], both ends of each."""
    return np.stack([low, high], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class PilotSample:
    """What a random part of the sampled rows says, and the others.

    a, b: float64 [matches], all pairs, shifted and scaled by what the pilot sample says.
    owners: int64 [matches], the group of each. chosen: bool [matches], those of the pilot.
    rest: the sample of the others; its values stand for any. range_a, range_b: of a and b.
    slope: float64 [groups], that of the pilot, of a over b.
    scales: what x and y were divided by. shares: ends of k/K. delta: of the whole answer.
    """

    a: Floats
    b: Floats
    owners: NDArray[np.int64]
    chosen: Chosen
    rest: SampledValues
    range_a: Ends
    range_b: Ends
    slope: Floats
    scales: tuple[Floats, Floats]
    shares: Ends
    wanted: Chosen
    delta: float

    @classmethod
    def of(cls, pairs: SampledPairs, wanted: Chosen, delta: float) -> PilotSample:
        """Choose the pilot at random, by the sample's shuffle seed.

        An eighth of the n rows has a hypergeometric number of the m that match, at random places.
        """
        sample, owners, groups = pairs.first, pairs.owners, pairs.groups
        taken, matched = sample.reads // _PILOT, sample.matched
        rng = np.random.default_rng(sample.shuffle_seed)
        kept = rng.hypergeometric(matched, sample.reads - matched, taken)
        order = np.lexsort((rng.random(len(owners)), owners))
        chosen = np.empty(len(owners), np.bool_)
        chosen[order] = np.arange(len(owners)) - sample.starts[owners] < kept[owners]
        known = kept >= _PILOT_MIN
        (a, range_a, scale_a), (b, range_b, scale_b) = (
            _standardised(column, owners, chosen, known) for column in (pairs.first, pairs.second)
        )
        cross, square = (
            np.bincount(owners[chosen], product, groups)
            for product in (a[chosen] * b[chosen], b[chosen] ** 2)
        )
        flat = ~known | (square == 0.0)
        rest = SampledValues(
            sample.populations - taken,
            sample.reads - taken,
            np.concatenate([[0], np.cumsum(matched - kept)]),
            a[~chosen],
            *range_a,
            everything=False,
            shuffle_seed=sample.shuffle_seed,
        )
        others = matching_count(
            population=rest.populations,
            read=rest.reads,
            matched=rest.matched,
            confidence=1.0 - _COUNT * delta,
        )
        return cls(
            a,
            b,
            owners,
            chosen,
            rest,
            range_a,
            range_b,
            np.where(flat, 0.0, cross / np.where(flat, 1.0, square)),
            (scale_a, scale_b),
            (kept / np.maximum(kept + others.high, 1.0), kept / np.maximum(kept + others.low, 1.0)),
            wanted,
            delta,
        )

    def mean(self, values: Floats, ends: Ends, *, part: float) -> Ends:
        """Bounds for the mean over all pairs, read or not.

        Args:
          values: float64 [matches], a function of a, b and what the pilot says.
          ends: a range that holds all of them.
          part: of delta, that the bounds may miss with.
        """
        # Of groups that are not wanted the range is a point: nothing is computed.
        high = np.where(self.wanted, ends[1], ends[0])
        sample = self.rest.with_values(values[~self.chosen], ends[0], high)
        found = sampled_mean(sample, confidence=1.0 - part * self.delta)
        return self._joined(values, found.low)[0], self._joined(values, found.high)[1]

    def least(self, values: Floats, most: Floats, *, part: float) -> Floats:
        """A lower bound for the mean of numbers in [0, most], from lower bounds of each.

        values: float64 [matches], such bounds; they may depend on the whole sample.
        """
        nothing = np.zeros_like(most)
        low, _ = mean_of_matches(
            self.rest.with_values(values[~self.chosen], nothing, most),
            low=nothing,
            high=most,
            wanted=self.wanted,
            confidence=1.0 - 2.0 * part * self.delta,  # Only one end of the two is used.
            learning=False,
        )
        return self._joined(values, low)[0]

    def _joined(self, values: Floats, mean: Floats) -> Ends:
        """The range of the mean of all pairs, from that of the others."""
        kept, groups = self.owners[self.chosen], self.rest.groups
        count = np.maximum(np.bincount(kept, minlength=groups), 1)
        pilot = np.bincount(kept, values[self.chosen], groups) / count
        least, most = (share * pilot + (1.0 - share) * mean for share in self.shares)
        return np.minimum(least, most), np.maximum(least, most)


def _standardised(
    column: SampledValues, owners: NDArray[np.int64], chosen: Chosen, known: Chosen
) -> tuple[Floats, Ends, Floats]:
    """A column less the pilot's mean, over the pilot's spread; its range; and that spread."""
    groups, kept, values = column.groups, owners[chosen], column.values[chosen]
    count = np.maximum(np.bincount(kept, minlength=groups), 1)
    middle = np.where(
        known, np.bincount(kept, values, groups) / count, column.low / 2.0 + column.high / 2.0
    )
    spread = np.sqrt(np.bincount(kept, (values - middle[kept]) ** 2, groups) / count)
    width = column.high - column.low
    spread = np.where(known & (spread > _FLAT * width), spread, width / 4.0)
    spread = np.where(spread > 0.0, spread, 1.0)
    ends = (column.low - middle) / spread, (column.high - middle) / spread
    return (column.values - middle[owners]) / spread[owners], ends, spread


def _apart(values: Floats, owners: NDArray[np.int64], ends: Ends) -> Floats:
    """The least (t - u)^2 for u in the group's range."""
    below, above = ends[0][owners] - values, values - ends[1][owners]
    return np.maximum(np.maximum(below, above), 0.0) ** 2
