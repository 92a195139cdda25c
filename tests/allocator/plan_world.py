"""Plans that are run, exactly and with errors, on drawn data: the truth for the formulas.

A relation is an array of tuple ids. All attributes of a tuple are hashes of its id, one per
operator, so they are uniform and independent; sizes of base streams are Poisson.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import poisson

from allocator.plan_precision.operators import (
    Difference,
    DuplicateElimination,
    Selection,
    Union,
    WindowedJoin,
)
from allocator.plan_precision.precision import Precision
from allocator.plan_precision.query_plan import Step


def mixed(ids, salt):
    """A hash of ids, uint64 (splitmix64's finaliser)."""
    with np.errstate(over="ignore"):
        x = ids ^ np.uint64(salt * 0x9E3779B97F4A7C15 % (1 << 64))
        x = (x + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(1)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


@dataclass
class Node:
    """A step that can be run. size: correct tuples, in the mean. one_by_one: tuples are missed
    independently of each other. step: what the formulas see."""

    step: Step
    size: float
    one_by_one: bool
    kind: str
    inputs: tuple[Node, ...] = ()
    salt: int = 0
    selectivity: float = 1.0
    keys: int = 0

    def exact(self, base):
        """Ids of the correct result. base: name -> ids."""
        return self._result([it.exact(base) for it in self.inputs], base)

    def run(self, base, own, rng):
        """Ids of what is produced; invented tuples have ids that no correct one has."""
        if self.kind == "base":
            return base[self.step.name]
        inputs = [it.run(base, own, rng) for it in self.inputs]
        made = self._result(inputs, base)
        mine = own[self.step.name]
        kept = made[rng.random(len(made)) < mine.recall]
        arrived = self._arrived(inputs, made)
        invented = rng.poisson(float(mine.spurious) * self.size * arrived)
        return np.concatenate([kept, rng.integers(0, 1 << 64, invented, np.uint64)])

    def _arrived(self, inputs, made):
        """How many tuples there are to go wrong on, as a share of what should be there. made: of
        these inputs."""
        sizes = [len(ids) / it.size for ids, it in zip(inputs, self.inputs, strict=True)]
        match self.kind:
            case "join":
                return sizes[0] * sizes[1]
            case "difference":
                return sizes[0]
            case "union":
                return sum(map(len, inputs)) / self.size
            case "distinct":
                return len(made) / self.size
            case _:
                return sizes[0]

    def _result(self, inputs, base):
        match self.kind:
            case "base":
                return base[self.step.name]
            case "select":
                (ids,) = inputs
                return ids[mixed(ids, self.salt) < np.uint64(self.selectivity * 2**64)]
            case "union":
                return np.concatenate(inputs)
            case "distinct":
                keys = np.flatnonzero(self._counts(self._key(inputs[0], 0)))
                return mixed(keys.astype(np.uint64), self.salt + 1)
            case "difference":
                left, right = inputs
                return left[self._counts(self._key(right, 1))[self._key(left, 0)] == 0]
            case "join":
                return self._join(*inputs)

    def _join(self, left, right):
        keys, wanted = self._key(right, 1), self._key(left, 0)
        right, counts = right[np.argsort(keys, kind="stable")], self._counts(keys)
        start, count = (np.cumsum(counts) - counts)[wanted], counts[wanted]
        of_left = np.repeat(np.arange(len(left)), count)
        nth = np.arange(len(of_left)) - np.repeat(np.cumsum(count) - count, count)
        return mixed(left[of_left] ^ mixed(right[start[of_left] + nth], 77), self.salt)

    def _key(self, ids, side):
        """Each one's key, int64, below keys."""
        return (mixed(ids, self.salt + 10 + side) % np.uint64(self.keys)).astype(np.int64)

    def _counts(self, keys):
        """How many there are of each key, int64 [keys]."""
        return np.bincount(keys, minlength=self.keys)


class PlanMaker:
    """Random plans whose operators meet the formulas' assumptions."""

    def __init__(self, rng):
        self.rng = rng
        self.names = iter(range(1 << 30))
        self.bases = {}

    def plan(self, depth, *, one_by_one=False):
        """A plan of at most this depth; one_by_one: without joins and differences."""
        if depth == 0:
            return self.base()
        kinds = ["select", "union", "distinct"]
        if not one_by_one:
            kinds += ["join", "join", "difference"]
        kind = str(self.rng.choice(kinds))
        match kind:
            case "select":
                it = self.plan(depth - 1, one_by_one=one_by_one)
                return self.selected(it, self.rng.uniform(0.3, 1.0))
            case "union":
                return self.united(*(self.plan(depth - 1, one_by_one=one_by_one) for _ in range(2)))
            case "distinct":
                return self.distinct(self.simple(depth - 1))
            case "join":
                return self.joined(self.plan(depth - 1), self.plan(depth - 1))
            case "difference":
                return self.without(self.plan(depth - 1), self.simple(depth - 1))

    def simple(self, depth):
        """Bases, selected and united: Poisson, and missed one by one."""
        it = self.base()
        if depth and self.rng.random() < 0.5:
            it = self.selected(self.united(it, self.base()), self.rng.uniform(0.3, 1.0))
        return it

    def base(self):
        name = f"base{next(self.names)}"
        self.bases[name] = self.rng.uniform(500, 1500)
        return Node(Step(name), self.bases[name], True, "base")

    def selected(self, it, share):
        size = it.size * share
        return self.node("select", Selection(share), (it,), size, it.one_by_one, share)

    def united(self, left, right):
        size = left.size + right.size
        one_by_one = left.one_by_one and right.one_by_one
        return self.node("union", Union(left.size / size), (left, right), size, one_by_one)

    def joined(self, left, right):
        keys = max(1, int(left.size * right.size / 800))
        join, size = WindowedJoin(1 / left.size, 1 / right.size), left.size * right.size / keys
        return self.node("join", join, (left, right), size, False, keys=keys)

    def distinct(self, it):
        keys = max(8, int(it.size / self.rng.uniform(0.5, 3)))
        per_key = it.size / keys
        present = -np.expm1(-per_key)
        copies = poisson.pmf(np.arange(1, 60), per_key) / present
        absent = 1 - present
        operator = DuplicateElimination(copies / copies.sum(), absent, absent / present)
        return self.node("distinct", operator, (it,), keys * present, True, keys=keys)

    def without(self, left, right):
        keys = max(8, int(right.size / self.rng.uniform(0.2, 1.5)))
        matches = poisson.pmf(np.arange(60), right.size / keys)
        matches /= matches.sum()  # Results are of keys without a match.
        operator = Difference(matches, 1 / (keys * matches[0]))
        size = left.size * matches[0]
        return self.node("difference", operator, (left, right), size, False, keys=keys)

    def node(self, kind, operator, inputs, size, one_by_one, selectivity=1.0, keys=0):
        number = next(self.names)
        step = Step(f"{kind}{number}", operator, tuple(it.step for it in inputs))
        return Node(step, size, one_by_one, kind, inputs, 100 * number, selectivity, keys)


def own_precisions(plan, rng):
    """Drawn errors of all operators."""
    return {
        step.name: Precision.of(rng.uniform(0.6, 1.0), rng.uniform(0.0, 0.3))
        for step in plan.walk()
        if step.operator is not None
    }


def observed(node, bases, own, rng, windows):
    """Of windows, [windows, 3]: correct tuples, how many were produced, and spurious ones."""
    counts = np.zeros((windows, 3))
    for window in range(windows):
        base = {
            name: rng.integers(0, 1 << 64, rng.poisson(size), np.uint64)
            for name, size in bases.items()
        }
        exact, made = node.exact(base), node.run(base, own, rng)
        right = np.isin(made, exact).sum()
        counts[window] = len(exact), right, len(made) - right
    return counts
