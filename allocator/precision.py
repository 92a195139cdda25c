"""Precision of a stream of tuples: false positives and false negatives, and what they come from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.stats import beta

from allocator.demands import Booleans, Floats
from allocator.errors import BadPrecision


def _nothing() -> Floats:
    return np.zeros(())


@dataclass(frozen=True, slots=True, eq=False)
class Precision:
    """How a produced stream differs from the correct one, in the mean over time.

    All arrays have one shape: one entry per allocation that is looked at.
    recall: in [0, 1]; the share of correct tuples that are produced.
    spurious: >= 0; produced tuples that are not correct, per correct tuple.
    clustered: the mean covariance of two different correct tuples being produced; 0 where tuples
      are missed one by one. It is what keeps the recall of a large window from being steady.
    mixed, crowded: the same of a correct one and any other that is produced, and of any two, per
      pair of correct ones; 0 where tuples go wrong one by one.

    Counts per correct tuple compose where rates do not: of a union, a join, a difference they are
    sums and products. The rates that users speak of follow from them.
    Source of the model: Motwani et al. 2003, Query Processing, Resource Management, and
    Approximation in a Data Stream Management System (CIDR), section 5.3.
    """

    recall: Floats
    spurious: Floats
    clustered: Floats
    mixed: Floats = field(default_factory=_nothing)
    crowded: Floats = field(default_factory=_nothing)

    @classmethod
    def of(cls, recall: Floats | float, spurious: Floats | float) -> Precision:
        """Of tuples that are missed one by one.

        Raises:
          BadPrecision: a number that is no share, or no count.
        """
        of_recall, of_spurious = np.asarray(recall, np.float64), np.asarray(spurious, np.float64)
        _require("recall", "in [0, 1]", of_recall, (of_recall >= 0) & (of_recall <= 1))
        good = (of_spurious >= 0) & np.isfinite(of_spurious)
        _require("spurious", ">= 0 and finite", of_spurious, good)
        return cls(of_recall, of_spurious, np.zeros_like(of_recall))

    @classmethod
    def of_rates(
        cls, false_positives: Floats | float, false_negatives: Floats | float
    ) -> Precision:
        """From (FP, FN), as the literature gives it.

        Raises:
          BadPrecision: a rate that is none; FP = 1 would be nothing but errors.
        """
        positives, negatives = np.asarray(false_positives), np.asarray(false_negatives)
        _require("FP", "in [0, 1)", positives, (positives >= 0) & (positives < 1))
        _require("FN", "in [0, 1]", negatives, (negatives >= 0) & (negatives <= 1))
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

    def recall_deviation(self, tuples: float) -> Floats:
        """The standard deviation, from window to window, of the recall of windows of a size.

        tuples: correct ones in a window, > 0.
        """
        alone = self.recall * (1.0 - self.recall) / tuples
        return np.asarray(np.sqrt(np.maximum(alone + self.clustered, 0.0)))

    def recall_quantile(self, share: float, tuples: float) -> Floats:
        """The recall that this share of all windows stays below.

        A Beta distribution with the mean and the variance of recalls: they are between 0 and 1, and
        nearly normal in large windows.

        Args:
          share: in (0, 1). tuples: correct ones in a window, > 0.
        """
        return _beta_quantile(self.recall, self.recall_deviation(tuples), share)

    @property
    def produced(self) -> Floats:
        """Produced tuples, of both kinds, per correct one."""
        return np.asarray(self.recall + self.spurious)

    def false_positives_deviation(self, tuples: float) -> Floats:
        """The standard deviation, from window to window, of FP = spurious / produced.

        To first order in what the two counts vary by; 0 where nothing is produced. Too small above
        a difference: how many results that has varies, too, and its spurious ones do not with it.

        Args:
          tuples: correct ones in a window, > 0.
        """
        produced = np.where(self.produced > 0, self.produced, 1.0)
        of_recall = np.square(self.recall_deviation(tuples))
        of_spurious = self.spurious / tuples + self.crowded - 2 * self.mixed + self.clustered
        of_both = self.mixed - self.clustered
        variance = (
            np.square(self.spurious) * of_recall
            + np.square(self.recall) * np.maximum(of_spurious, 0.0)
            - 2 * self.recall * self.spurious * of_both
        )
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)) / np.square(produced))

    def false_positives_quantile(self, share: float, tuples: float) -> Floats:
        """The FP that this share of all windows stays below; as `recall_quantile`."""
        deviation = self.false_positives_deviation(tuples)
        return _beta_quantile(self.false_positives, deviation, share)


def _beta_quantile(mean: Floats, deviation: Floats, share: float) -> Floats:
    """Of a Beta distribution with this mean and deviation; the mean where it does not vary."""
    _require("share", "in (0, 1)", np.asarray(share), np.asarray(0 < share < 1))
    variance, inside = np.square(deviation), np.clip(mean, 1e-12, 1 - 1e-12)
    most = inside * (1 - inside)
    steady = np.maximum(most / np.maximum(variance, 1e-12 * most) - 1, 1e-9)
    quantile = beta.ppf(share, inside * steady, (1 - inside) * steady)
    return np.asarray(np.where(variance > 0, quantile, mean), np.float64)


def _require(field: str, rule: str, value: Floats, good: Booleans) -> None:
    if not np.all(good):
        raise BadPrecision(field, rule, float(np.ravel(value)[int(np.argmin(np.ravel(good)))]))


EXACT = Precision.of(1.0, 0.0)
