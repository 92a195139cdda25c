"""Operators of query plans: what their inputs' precision and their own make of their output's.

An operator's own precision is what it has on exact input: `recall`, the probability that a tuple
which it should produce, and could from what arrived, is produced; `spurious`, the tuples that it
invents per correct one, where that many tuples arrive as should. docs/plan_precision.md derives
the formulas; the tests compare them with simulated plans.

Statistics are those of the exact plan, per window. What is assumed of all: spurious tuples
resemble correct ones (they pass predicates and find partners as often), operators err
independently of each other, and each base stream is read once in a plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from allocator.demands import Floats
from allocator.errors import BadPrecision
from allocator.precision import Precision


class Operator(Protocol):
    """One step of a plan: from the precision of its inputs and its own to that of its output."""

    def output(self, own: Precision, inputs: tuple[Precision, ...]) -> Precision:
        """The precision of what it produces."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection or projection, or any operator that looks at one tuple at a time.

    A projection is a selection that everything passes: what it does to duplicates is
    `DuplicateElimination`'s.
    """

    def output(self, own: Precision, inputs: tuple[Precision, ...]) -> Precision:
        """Survivors are thinned; inventions come from all that arrives."""
        (it,) = inputs
        return Precision(
            recall=own.recall * it.recall,
            spurious=own.recall * it.spurious + own.spurious * (it.recall + it.spurious),
            clustered=np.square(own.recall) * it.clustered,
        )


@dataclass(frozen=True, slots=True)
class Union:
    """Bag union. left_share: the part of the correct output that comes from the left."""

    left_share: float

    def __post_init__(self) -> None:
        _require("left_share", "in [0, 1]", self.left_share, 0 <= self.left_share <= 1)

    def output(self, own: Precision, inputs: tuple[Precision, ...]) -> Precision:
        """Means, weighted by where the correct tuples come from."""
        left, right = inputs
        a, b = self.left_share, 1.0 - self.left_share
        union = Precision(
            recall=a * left.recall + b * right.recall,
            spurious=a * left.spurious + b * right.spurious,
            clustered=a * a * left.clustered + b * b * right.clustered,
        )
        return Selection().output(own, (union,))


@dataclass(frozen=True, slots=True)
class Join:
    """Windowed equijoin.

    sharing_left: of two different correct results drawn at random, the probability that they come
    from the same left tuple; sharing_right: from the same right one.
    """

    sharing_left: float
    sharing_right: float

    def __post_init__(self) -> None:
        _require("sharing_left", "in [0, 1]", self.sharing_left, 0 <= self.sharing_left <= 1)
        _require("sharing_right", "in [0, 1]", self.sharing_right, 0 <= self.sharing_right <= 1)

    def output(self, own: Precision, inputs: tuple[Precision, ...]) -> Precision:
        """A result needs both partners; any spurious partner makes a spurious result."""
        left, right = inputs
        both = left.recall * right.recall
        arrived = (left.recall + left.spurious) * (right.recall + right.spurious)
        recall = own.recall * both
        return Precision(
            recall=recall,
            spurious=own.recall * (arrived - both) + own.spurious * arrived,
            clustered=np.square(own.recall) * self._both_of_two(left, right) - np.square(recall),
        )

    def _both_of_two(self, left: Precision, right: Precision) -> Floats:
        """The probability that the partners of two different results have all arrived."""
        two_left = np.square(left.recall) + left.clustered
        two_right = np.square(right.recall) + right.clustered
        apart = 1.0 - self.sharing_left - self.sharing_right
        return np.asarray(
            self.sharing_left * left.recall * two_right
            + self.sharing_right * two_left * right.recall
            + apart * two_left * two_right
        )


@dataclass(frozen=True, slots=True, eq=False)
class DuplicateElimination:
    """Distinct values of a window, of tuples that are missed one by one.

    multiplicity: [k]; the share of correct values that occur 1, 2, ... k times in the input.
    fresh: the probability that a spurious tuple's value is not a correct one.
    fresh_values: how many different such values there are, per correct value.
    """

    multiplicity: Floats
    fresh: float
    fresh_values: float

    def __post_init__(self) -> None:
        _require_distribution("multiplicity", self.multiplicity)
        _require("fresh", "in [0, 1]", self.fresh, 0 <= self.fresh <= 1)
        _require("fresh_values", "> 0", self.fresh_values, self.fresh_values > 0)

    def output(self, own: Precision, inputs: tuple[Precision, ...]) -> Precision:
        """A value is missed when all its copies are, and no spurious tuple happens to have it."""
        (it,) = inputs
        copies = np.arange(1, len(self.multiplicity) + 1)
        mean = float(self.multiplicity @ copies)
        all_missed = generating(np.append(0.0, self.multiplicity), 1.0 - it.recall)
        unrepaired = np.exp(-it.spurious * mean * (1.0 - self.fresh))
        recall = 1.0 - all_missed * unrepaired
        per_value = it.spurious * mean * self.fresh / self.fresh_values
        spurious = self.fresh_values * -np.expm1(-per_value)
        values = Precision(recall, spurious, np.zeros_like(recall))
        return Selection().output(own, (values,))


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """Windowed negation: left tuples without a match on the right.

    matches: [k + 1]; the share of left tuples with 0, 1, ... k correct matches, matches[0] > 0.
    same_key: the probability that two different results have the same key.
    The right side's tuples are missed one by one.
    """

    matches: Floats
    same_key: float

    def __post_init__(self) -> None:
        _require_distribution("matches", self.matches)
        _require("matches[0]", "> 0", float(self.matches[0]), bool(self.matches[0] > 0))
        _require("same_key", "in [0, 1]", self.same_key, 0 <= self.same_key <= 1)

    def output(self, own: Precision, inputs: tuple[Precision, ...]) -> Precision:
        """Spurious tuples on the right hide results, missed ones there make spurious ones."""
        left, right = inputs
        mean = float(self.matches @ np.arange(len(self.matches)))
        unhidden = np.exp(-mean * right.spurious)
        without = self.matches[0]
        unmatched = generating(self.matches, 1.0 - right.recall)
        escaped = left.recall * (unmatched - without) + left.spurious * unmatched
        recall = own.recall * left.recall * unhidden
        two_left = np.square(left.recall) + left.clustered
        two_unhidden = self.same_key * unhidden + (1.0 - self.same_key) * np.square(unhidden)
        arrived = left.recall + left.spurious
        return Precision(
            recall=recall,
            spurious=own.recall * unhidden * escaped / without + own.spurious * arrived,
            clustered=np.square(own.recall) * two_left * two_unhidden - np.square(recall),
        )


def generating(distribution: Floats, z: Floats) -> Floats:
    """The generating function sum of distribution[k] * z ** k, for z of any shape."""
    return np.asarray(np.polynomial.polynomial.polyval(z, distribution))


def _require(field: str, rule: str, value: float, good: bool) -> None:
    if not good:
        raise BadPrecision(field, rule, value)


def _require_distribution(field: str, share: Floats) -> None:
    good = len(share) > 0 and bool(np.all(share >= 0)) and abs(float(share.sum()) - 1) < 1e-6
    if not good:
        raise BadPrecision(field, "shares that add up to 1", share.tolist())
