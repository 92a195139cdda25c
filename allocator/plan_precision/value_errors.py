"""Errors of an aggregate's value when its input has missing and spurious tuples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from allocator.demands import Floats
from allocator.errors import BadPrecision
from allocator.plan_precision.precision import Precision


@dataclass(frozen=True, slots=True)
class SummedValues:
    """What is known of the values that one group adds up, in the exact plan.

    tuples: in the group, in the mean. mean, mean_square: of the value (1 and 1 for COUNT).
    """

    tuples: float
    mean: float = 1.0
    mean_square: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class TotalError:
    """Bias and variance of a total or an average, in the value's unit (and its square)."""

    bias: Floats
    variance: Floats

    @property
    def root_mean_square(self) -> Floats:
        """The usual distance from the exact total."""
        return np.asarray(np.sqrt(np.square(self.bias) + self.variance))

    def within(self, distance: float) -> Floats:
        """Value-based precision: the share of windows whose value is so near the exact one.

        Of a normal distribution: totals and averages of many tuples are nearly that.

        Args:
          distance: in the value's unit, > 0.
        """
        if not distance > 0:
            raise BadPrecision("distance", "> 0", distance)
        deviation = np.sqrt(np.maximum(self.variance, 1e-300))
        above = ndtr((distance - self.bias) / deviation)
        return np.asarray(above - ndtr((-distance - self.bias) / deviation))


def total_error(values: SummedValues, it: Precision) -> TotalError:
    """The error of a COUNT or SUM of a group whose tuples arrive with a precision.

    Spurious tuples have values like the correct ones'. The total loses a share 1 - recall, with the
    variance of drawing, and gains a Poisson number; and what arrives varies beside what should.
    """
    bias = values.tuples * values.mean * (it.recall + it.spurious - 1.0)
    drawn = it.recall * (1.0 - it.recall) + it.spurious
    beside = values.tuples * np.square(values.mean) * _beside(it, values.tuples)
    return TotalError(bias, values.tuples * values.mean_square * drawn + beside)


def _beside(it: Precision, tuples: float) -> Floats:
    """The variance, per correct tuple, of how many arrive beside a share of those that should.

    Beyond that of tuples that are missed, and invented, one by one.
    """
    slope = np.stack(np.broadcast_arrays(-it.produced, 0.0, 1.0), -1)
    beyond = tuples * it.pairs.together + it.pairs.alone
    found = np.einsum("...i,...ij,...j->...", slope, beyond, slope)
    return np.asarray(found + np.square(it.spurious))


def scaled_total_error(values: SummedValues, it: Precision) -> TotalError:
    """The error when the total is divided by recall + spurious, which the plan knows.

    Unbiased; what is missed and invented still makes it vary. Where nothing arrives, nothing is
    known: the variance is inf.
    """
    plain = total_error(values, it)
    found = _where_any(it, plain.variance / np.square(_arriving(it)))
    return TotalError(np.zeros_like(plain.bias), found)


def average_error(values: SummedValues, it: Precision) -> TotalError:
    """The error of an AVG: the total that arrives by the count that arrives.

    Unbiased, because spurious tuples have values like the correct ones'. Of n correct values a
    share r stays, with weight 1 / (n (r + s)) in place of 1 / n; the others lack, s n are added.
    Where nothing arrives, there is no average: the variance is inf.
    """
    arriving = _arriving(it)
    kept = it.recall * np.square(1.0 / arriving - 1.0)
    other = 1.0 - it.recall + it.spurious / np.square(arriving)
    spread = max(values.mean_square - values.mean**2, 0.0)
    variance = _where_any(it, spread / values.tuples * (kept + other))
    return TotalError(np.zeros_like(variance), variance)


def _arriving(it: Precision) -> Floats:
    """The share that arrives, where any does; else 1."""
    return np.where(it.produced > 0, it.produced, 1.0)


def _where_any(it: Precision, variance: Floats) -> Floats:
    return np.where(it.produced > 0, variance, np.inf)
