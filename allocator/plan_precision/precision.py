"""Precision of a stream of tuples: false positives and false negatives, and what they come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.special import betaincinv

from allocator.demands import Booleans, Floats
from allocator.errors import BadPrecision
from allocator.plan_precision.rate_covariance import CORRECT, KEPT, PRODUCED, TuplePairs, outer


@dataclass(frozen=True, eq=False)
class Precision:
    """How a produced stream differs from the correct one, in the mean over time.

    All arrays have one shape: one entry per allocation that is looked at.
    recall: in [0, 1]; the share of correct tuples that are produced.
    spurious: >= 0; produced tuples that are not correct, per correct tuple.
    counted_pairs: what recall and false positives vary by, from window to window; it takes several
      times as long as the means, so it is asked for only where it matters.

    Counts per correct tuple compose where rates do not: of a union, a join, a difference they are
    sums and products. The rates that users speak of follow from them.
    Source of the model: Motwani et al. 2003, Query Processing, Resource Management, and
    Approximation in a Data Stream Management System (CIDR), section 5.3.
    """

    recall: Floats
    spurious: Floats
    counted_pairs: Callable[[], TuplePairs]

    @cached_property
    def pairs(self) -> TuplePairs:
        """Return how the numbers of tuples vary together."""
        return self.counted_pairs()

    @classmethod
    def of(cls, recall: Floats | float, spurious: Floats | float) -> Precision:
        """Of tuples that are missed one by one, and spurious ones that come one by one.

        Raises:
          BadPrecision: a number that is no share, or no count.
        """
        of_recall, of_spurious = np.asarray(recall, np.float64), np.asarray(spurious, np.float64)
        _require("recall", "in [0, 1]", of_recall, (of_recall >= 0) & (of_recall <= 1))
        good = (of_spurious >= 0) & np.isfinite(of_spurious)
        _require("spurious", ">= 0 and finite", of_spurious, good)
        return cls.one_by_one(of_recall, of_spurious)

    @classmethod
    def one_by_one(cls, recall: Floats, spurious: Floats) -> Precision:
        """As `of`, of what is known to be shares and counts."""
        return cls(recall, spurious, partial(TuplePairs.one_by_one, recall, spurious))

    @classmethod
    def of_rates(
        cls, false_positives: Floats | float, false_negatives: Floats | float
    ) -> Precision:
        """From (FP, FN), as the literature gives it.

        Raises:
          BadPrecision: a rate that is none; FP = 1 would be nothing but errors, and FN = 1 with any
            other FP than 0 would be, too.
        """
        positives, negatives = np.asarray(false_positives), np.asarray(false_negatives)
        _require("FP", "in [0, 1)", positives, (positives >= 0) & (positives < 1))
        _require("FN", "in [0, 1]", negatives, (negatives >= 0) & (negatives <= 1))
        some = (negatives < 1) | (positives == 0)
        _require("FP", "0 where FN is 1", np.broadcast_to(positives, some.shape), some)
        recall = 1.0 - negatives
        return cls.of(recall, recall * positives / (1.0 - positives))

    @property
    def false_negatives(self) -> Floats:
        """The probability that a correct tuple is missed."""
        return np.asarray(1.0 - self.recall)

    @property
    def false_positives(self) -> Floats:
        """The probability that a produced tuple is incorrect; 0 where nothing is produced."""
        produced = self.recall + self.spurious
        return np.asarray(self.spurious / np.where(produced > 0, produced, 1.0))

    @property
    def produced(self) -> Floats:
        """Produced tuples, of both kinds, per correct one."""
        return np.asarray(self.recall + self.spurious)

    @property
    def means(self) -> Floats:
        """Tuples of each kind of `pairs`, per correct one, [..., 3]."""
        recall, produced = np.broadcast_arrays(self.recall, self.produced)
        return np.stack([np.ones_like(recall), recall, produced], -1)

    @property
    def shared(self) -> Floats:
        """Tuples that are of two kinds of `pairs` at once, per correct one, [..., 3, 3]."""
        means = self.means
        found = np.broadcast_to(means[..., KEPT, None, None], (*means.shape[:-1], 3, 3)).copy()
        found[..., CORRECT, CORRECT] = means[..., CORRECT]
        found[..., PRODUCED, PRODUCED] = means[..., PRODUCED]
        return found

    def densities(self, share: float) -> Floats:
        """Pairs of different tuples, [..., 3, 3], per square of the number of correct ones.

        share: of a window, that one correct tuple is.
        """
        return np.asarray(outer(self.means) + self.pairs.together + share * self.pairs.alone)

    def covariances(self, tuples: float) -> Floats:
        """Of the numbers of tuples of each kind of `pairs`, per correct tuple, [..., 3, 3].

        tuples: correct ones in a window, in the mean, > 0.
        """
        return self.pairs.covariances(self.means, self.shared, tuples)

    def recall_deviation(self, tuples: float) -> Floats:
        """The standard deviation, from window to window, of the recall of windows of a size.

        To first order in what the numbers of correct and of produced tuples vary by.

        tuples: correct ones in a window, in the mean, > 0.
        """
        slope = np.stack(np.broadcast_arrays(-self.recall, 1.0, 0.0), -1)
        return _deviation(self.covariances(tuples), slope)

    def recall_quantile(self, share: float, tuples: float) -> Floats:
        """The recall that this share of all windows stays below.

        A Beta distribution with the mean and the variance of recalls: they are between 0 and 1, and
        nearly normal in large windows.

        Args:
          share: in (0, 1). tuples: correct ones in a window, > 0.
        """
        return _beta_quantile(self.recall, self.recall_deviation(tuples), share)

    def false_positives_deviation(self, tuples: float) -> Floats:
        """The standard deviation, from window to window, of FP = spurious / produced.

        To first order in what the two counts vary by; 0 where nothing is produced.

        tuples: correct ones in a window, in the mean, > 0.
        """
        produced = np.where(self.produced > 0, self.produced, 1.0)
        of_kept, of_produced = -1.0 / produced, self.recall / np.square(produced)
        slope = np.stack(np.broadcast_arrays(0.0, of_kept, of_produced), -1)
        return _deviation(self.covariances(tuples), slope)

    def false_positives_quantile(self, share: float, tuples: float) -> Floats:
        """The FP that this share of all windows stays below; as `recall_quantile`."""
        deviation = self.false_positives_deviation(tuples)
        return _beta_quantile(self.false_positives, deviation, share)


def _deviation(covariances: Floats, slope: Floats) -> Floats:
    """Of a function of the numbers of tuples that has a slope, [..., 3], with their covariances."""
    variance = np.einsum("...i,...ij,...j->...", slope, covariances, slope)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


def _beta_quantile(mean: Floats, deviation: Floats, share: float) -> Floats:
    """Of a Beta distribution with this mean and deviation; the mean where it does not vary."""
    _require("share", "in (0, 1)", np.asarray(share), np.asarray(0 < share < 1))
    variance, inside = np.square(deviation), np.clip(mean, 1e-12, 1 - 1e-12)
    most = inside * (1 - inside)
    steady = np.maximum(most / np.maximum(variance, 1e-12 * most) - 1, 1e-9)
    quantile = betaincinv(inside * steady, (1 - inside) * steady, share)
    return np.asarray(np.where(variance > 0, quantile, mean), np.float64)


def _require(field: str, rule: str, value: Floats, good: Booleans) -> None:
    if not np.all(good):
        raise BadPrecision(field, rule, float(np.ravel(value)[int(np.argmin(np.ravel(good)))]))


EXACT = Precision.of(1.0, 0.0)
