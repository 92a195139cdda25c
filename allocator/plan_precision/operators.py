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
from functools import partial
from typing import ClassVar, Protocol

import numpy as np

from allocator.demands import Floats
from allocator.errors import BadPrecision
from allocator.plan_precision.precision import Precision
from allocator.plan_precision.rate_covariance import CORRECT, KEPT, PRODUCED, TuplePairs, outer


class Operator(Protocol):
    """One step of a plan: from the precision of its inputs and its own to that of its output.

    arity: how many inputs it has.
    """

    arity: ClassVar[int]

    def output(self, own: Precision, inputs: tuple[Precision, ...]) -> Precision:
        """The precision of what it produces."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection or projection, or any operator that looks at one tuple at a time.

    A projection is a selection that everything passes: what it does to duplicates is
    `DuplicateElimination`'s.

    passing: the share of correct tuples that pass; only what varies over time depends on it.
    """

    arity: ClassVar[int] = 1
    passing: float = 1.0

    def __post_init__(self) -> None:
        _require("passing", "in (0, 1]", self.passing, 0 < self.passing <= 1)

    def output(self, own: Precision, inputs: tuple[Precision, ...]) -> Precision:
        """Survivors are thinned; inventions come from all that arrives."""
        (it,) = inputs
        return Precision(
            recall=own.recall * it.recall,
            spurious=own.recall * it.spurious + own.spurious * it.produced,
            counted_pairs=partial(self._pairs, own, it),
        )

    def _pairs(self, own: Precision, it: Precision) -> TuplePairs:
        """Of two tuples that arrive, or what is kept of one and invented beside it."""
        both = outer(own.means)
        alone = self.passing * (both * it.pairs.alone + own.pairs.alone * it.shared)
        return TuplePairs(both * it.pairs.together, alone)


@dataclass(frozen=True, slots=True)
class Union:
    """Bag union. left_share: the part of the correct output that comes from the left."""

    arity: ClassVar[int] = 2
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
            counted_pairs=partial(self._pairs, left, right),
        )
        return Selection().output(own, (union,))

    def _pairs(self, left: Precision, right: Precision) -> TuplePairs:
        """Of two tuples of one side: a tuple of each is there independently of the other."""
        a, b = self.left_share, 1.0 - self.left_share
        return TuplePairs(
            a * a * left.pairs.together + b * b * right.pairs.together,
            a * left.pairs.alone + b * right.pairs.alone,
        )


@dataclass(frozen=True, slots=True)
class WindowedJoin:
    """Windowed equijoin.

    sharing_left: of two different correct results drawn at random, the probability that they come
    from the same left tuple; sharing_right: from the same right one.
    """

    arity: ClassVar[int] = 2
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
        return Precision(
            recall=own.recall * both,
            spurious=own.recall * (arrived - both) + own.spurious * arrived,
            counted_pairs=partial(self._pairs, own, left, right),
        )

    def _pairs(self, own: Precision, left: Precision, right: Precision) -> TuplePairs:
        """Of two tuples of each side, of one on the left, of one on the right."""
        of_left, of_right = left.densities(self.sharing_left), right.densities(self.sharing_right)
        two = (
            of_left * of_right
            + self.sharing_left * left.shared * of_right
            + self.sharing_right * of_left * right.shared
        )
        beside = own.pairs.alone * left.shared * right.shared  # Invented of any pair that arrives.
        return TuplePairs(
            outer(own.means) * (two - outer(left.means * right.means))
            + self.sharing_left * self.sharing_right * beside,
            np.zeros((3, 3)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class DuplicateElimination:
    """Distinct values of a window, of tuples that are missed one by one.

    multiplicity: [k]; the share of correct values that occur 1, 2, ... k times in the input.
    fresh: the probability that a spurious tuple's value is not a correct one.
    fresh_values: how many different such values there are, per correct value.
    """

    arity: ClassVar[int] = 1
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
        values = Precision(recall, spurious, partial(self._pairs, recall, spurious))
        return Selection().output(own, (values,))

    def _pairs(self, recall: Floats, spurious: Floats) -> TuplePairs:
        """Each of the values that there may be is correct, and produced, or not, independently."""
        means = Precision.one_by_one(recall, spurious).means
        return TuplePairs(np.zeros((3, 3)), -outer(means) / (1.0 + self.fresh_values))


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """Windowed negation: left tuples without a match on the right.

    matches: [k + 1]; the share of left tuples with 0, 1, ... k correct matches, matches[0] > 0.
    same_key: the probability that two different results have the same key.
    The right side's tuples are missed one by one.
    """

    arity: ClassVar[int] = 2
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
        unmatched = generating(self.matches, 1.0 - right.recall)
        without = self.matches[0]
        escaped = left.recall * (unmatched - without) + left.spurious * unmatched
        return Precision(
            recall=own.recall * left.recall * unhidden,
            spurious=own.recall * unhidden * escaped / without + own.spurious * left.produced,
            counted_pairs=partial(self._pairs, own, left, unhidden, unmatched * unhidden),
        )

    def _pairs(
        self, own: Precision, left: Precision, unhidden: Floats, open_: Floats
    ) -> TuplePairs:
        """Left tuples of one key pass together; there are more or fewer keys without a match.

        unhidden: the probability that no spurious match arrives. open_: that no match does.
        """
        without = float(self.matches[0])
        same = self.same_key * without  # Of two tuples on the left.
        open_, unhidden, one = np.broadcast_arrays(open_, unhidden, 1.0)
        state = np.stack([without * one, without * unhidden, open_], -1)  # Of a key, by kind.
        of_one_key = np.zeros((*state.shape, 3)) + state[..., KEPT, None, None]
        of_one_key[..., CORRECT, CORRECT] = without
        of_one_key[..., PRODUCED, PRODUCED] = open_
        kept = np.stack(np.broadcast_arrays(1.0, own.recall, own.recall), -1)
        passing = outer(kept) * (same * of_one_key + (1.0 - same) * outer(state)) / without**2
        one_passes = kept * state / without

        def with_inventions(of_left: Floats) -> Floats:
            """Pairs of a tuple that passes and one that is invented, and of two of these."""
            invented = np.zeros(np.broadcast_shapes(of_left.shape, passing.shape))
            invented[..., PRODUCED] = one_passes * of_left[..., PRODUCED] * own.spurious[..., None]
            found = invented + np.swapaxes(invented, -1, -2)
            twice = np.square(own.spurious) * of_left[..., PRODUCED, PRODUCED]
            found[..., PRODUCED, PRODUCED] += twice
            return found

        two = left.densities(0.0)
        means = one_passes * left.means
        means[..., PRODUCED] += own.spurious * left.produced
        alone = without * (
            passing * left.pairs.alone
            + with_inventions(left.pairs.alone)
            + with_inventions(left.shared)
        )
        return TuplePairs(passing * two + with_inventions(two) - outer(means), alone)


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
