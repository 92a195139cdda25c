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
        produced = own.recall + own.spurious  # of each tuple that arrives
        return Precision(
            recall=own.recall * it.recall,
            spurious=own.recall * it.spurious + own.spurious * it.produced,
            clustered=np.square(own.recall) * it.clustered,
            mixed=own.recall * produced * it.mixed,
            crowded=np.square(produced) * it.crowded,
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
            mixed=a * a * left.mixed + b * b * right.mixed,
            crowded=a * a * left.crowded + b * b * right.crowded,
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
        arrived = left.produced * right.produced
        recall, produced = own.recall * both, own.recall + own.spurious
        correct_and_any = self._of_two(
            (left.recall, left.recall * left.produced + left.mixed - self._same_left(left)),
            (right.recall, right.recall * right.produced + right.mixed - self._same_right(right)),
        )
        any_twice = self._of_two(
            (left.produced, np.square(left.produced) + left.crowded - self._same_left(left)),
            (right.produced, np.square(right.produced) + right.crowded - self._same_right(right)),
        )
        correct_twice = self._both_of_two(left, right)
        return Precision(
            recall=recall,
            spurious=own.recall * (arrived - both) + own.spurious * arrived,
            clustered=np.square(own.recall) * correct_twice - np.square(recall),
            mixed=own.recall * produced * (correct_and_any - both * arrived),
            crowded=np.square(produced) * (any_twice - np.square(arrived)),
        )

    def _both_of_two(self, left: Precision, right: Precision) -> Floats:
        """The probability that the partners of two different correct results have all arrived."""
        two_left = np.square(left.recall) + left.clustered
        two_right = np.square(right.recall) + right.clustered
        apart = 1.0 - self.sharing_left - self.sharing_right
        return np.asarray(
            self.sharing_left * left.recall * two_right
            + self.sharing_right * two_left * right.recall
            + apart * two_left * two_right
        )

    def _of_two(self, left: tuple[Floats, Floats], right: tuple[Floats, Floats]) -> Floats:
        """Pairs of different results whose partners have arrived, per square of correct results.

        left, right: tuples that arrive, and pairs of different ones, per correct ones.
        """
        return np.asarray(
            self.sharing_left * left[0] * right[1]
            + self.sharing_right * left[1] * right[0]
            + left[1] * right[1]
        )

    def _same_left(self, left: Precision) -> Floats:
        """Of all pairs of correct tuples on the left, those of one tuple with itself."""
        return np.asarray(self.sharing_left * (np.square(left.recall) + left.clustered))

    def _same_right(self, right: Precision) -> Floats:
        return np.asarray(self.sharing_right * (np.square(right.recall) + right.clustered))


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
        open_ = unhidden * unmatched / without  # What arrives and finds no match, per result.
        recall = own.recall * left.recall * unhidden
        arrived = left.produced
        result = left.recall * unhidden, arrived * open_
        escaped = left.recall * (unmatched - without) + left.spurious * unmatched
        same = self.same_key * without  # Of two tuples on the left.
        correct_twice = np.square(left.recall) + left.clustered
        correct_and_any = left.recall * arrived + left.mixed
        any_twice = np.square(arrived) + left.crowded
        alike = self.same_key * unhidden + (1.0 - self.same_key) * np.square(unhidden)
        mixed_alike = self.same_key * unhidden + (1.0 - same) * unhidden * open_
        any_alike = self.same_key * open_ + (1.0 - same) * np.square(open_)
        of_left = own.recall * (correct_and_any - left.recall * arrived) * unhidden
        return Precision(
            recall=recall,
            spurious=own.recall * unhidden * escaped / without + own.spurious * arrived,
            clustered=np.square(own.recall) * correct_twice * alike - np.square(recall),
            mixed=np.square(own.recall) * (correct_and_any * mixed_alike - result[0] * result[1])
            + own.spurious * of_left,
            crowded=np.square(own.recall) * (any_twice * any_alike - np.square(result[1]))
            + own.spurious * (2.0 * own.recall * open_ + own.spurious) * left.crowded,
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
