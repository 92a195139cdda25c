"""Variances and functions of pairs of columns in fractions, rounded once at the end."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import AggregateFunction

Column = NDArray[np.int64] | NDArray[np.float64]


def _fractions(column: Column) -> list[Fraction]:
    return [Fraction(value) for value in column.tolist()]


def _mean(values: list[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def _cross(pairs: Iterable[tuple[Fraction, Fraction]], x: Fraction, y: Fraction) -> Fraction:
    return sum(((a - x) * (b - y) for a, b in pairs), Fraction(0))


def variance(column: Column) -> float:
    """VAR of the sample."""
    values = _fractions(column)
    mean = _mean(values)
    return float(_cross(zip(values, values, strict=True), mean, mean) / (len(values) - 1))


def of_pairs(function: AggregateFunction, first: Column, second: Column) -> float:
    """One of OF_PAIRS."""
    x, y = _fractions(first), _fractions(second)
    mean_x, mean_y = _mean(x), _mean(y)
    cross = _cross(zip(x, y, strict=True), mean_x, mean_y)
    squares_x = _cross(zip(x, x, strict=True), mean_x, mean_x)
    squares_y = _cross(zip(y, y, strict=True), mean_y, mean_y)
    match function:
        case AggregateFunction.COVAR_POP:
            return float(cross / len(x))
        case AggregateFunction.COVAR_SAMP:
            return float(cross / (len(x) - 1))
        case AggregateFunction.CORR:
            return float(cross) / math.sqrt(squares_x) / math.sqrt(squares_y)
        case AggregateFunction.REGR_SLOPE:
            return float(cross / squares_y)
        case AggregateFunction.REGR_INTERCEPT:
            return float(mean_x - cross / squares_y * mean_y)
    raise AssertionError(function)
