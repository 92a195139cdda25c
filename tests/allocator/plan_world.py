"""Plans that are run, exactly and with errors, on drawn data: the truth for the formulas.

A relation is an array of tuple ids, of several windows together. All attributes of a tuple are
hashes of its id, one per operator, so they are uniform and independent; sizes of base streams are
Poisson.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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

TOGETHER = 20  # Windows that are run at once: a key has a counter for each.


def mixed(ids, salt):
    """A hash of ids, uint64 (splitmix64's finaliser)."""
    with np.errstate(over="ignore"):
        x = ids ^ np.uint64(salt * 0x9E3779B97F4A7C15 % (1 << 64))
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


@dataclass
class Tuples:
    """Tuples of several windows. ids: uint64 [n]. window: int64 [n], below `windows`. salt: of
    these windows, so that the same keys of other windows have other ids."""

    ids: np.ndarray
    window: np.ndarray
    windows: int
    salt: np.uint64

    def where(self, kept):
        return Tuples(self.ids[kept], self.window[kept], self.windows, self.salt)

    def plus(self, other):
        ids = np.concatenate([self.ids, other.ids])
        return Tuples(ids, np.concatenate([self.window, other.window]), self.windows, self.salt)

    def counts(self):
        """How many tuples each window has, int64 [windows]."""
        return np.bincount(self.window, minlength=self.windows)


def drawn(counts, rng, salt):
    """Tuples with random ids. counts: int64 [windows]."""
    windows = len(counts)
    ids = rng.integers(0, 1 << 64, counts.sum(), np.uint64)
    return Tuples(ids, np.repeat(np.arange(windows), counts), windows, salt)


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
        """The correct result. base: name -> Tuples."""
        return self._result([it.exact(base) for it in self.inputs], base)

    def run(self, base, own, rng):
        """What is produced; invented tuples have ids that no correct one has."""
        if self.kind == "base":
            return base[self.step.name]
        inputs = [it.run(base, own, rng) for it in self.inputs]
        made = self._result(inputs, base)
        mine = own[self.step.name]
        kept = made.where(rng.random(len(made.ids)) < mine.recall)
        arrived = self._arrived(inputs, made)
        invented = rng.poisson(float(mine.spurious) * self.size * arrived)
        return kept.plus(drawn(invented, rng, made.salt))

    def _arrived(self, inputs, made):
        """How many tuples there are to go wrong on, as a share of what should be there, by
        window. made: of these inputs."""
        shares = [ids.counts() / it.size for ids, it in zip(inputs, self.inputs, strict=True)]
        match self.kind:
            case "join":
                return shares[0] * shares[1]
            case "difference":
                return shares[0]
            case "union":
                return sum(it.counts() for it in inputs) / self.size
            case "distinct":
                return made.counts() / self.size
            case _:
                return shares[0]

    def _result(self, inputs, base):
        match self.kind:
            case "base":
                return base[self.step.name]
            case "select":
                (its,) = inputs
                return its.where(mixed(its.ids, self.salt) < np.uint64(self.selectivity * 2**64))
            case "union":
                left, right = inputs
                return left.plus(right)
            case "distinct":
                (its,) = inputs
                keys = np.flatnonzero(self._counts(its, self._key(its, 0)))
                ids = mixed(keys.astype(np.uint64) ^ its.salt, self.salt + 1)
                return Tuples(ids, keys // self.keys, its.windows, its.salt)
            case "difference":
                left, right = inputs
                return left.where(self._counts(right, self._key(right, 1))[self._key(left, 0)] == 0)
            case "join":
                return self._join(*inputs)

    def _join(self, left, right):
        keys, wanted = self._key(right, 1), self._key(left, 0)
        counts = self._counts(right, keys)
        partners = right.ids[np.argsort(keys)]
        start, count = (np.cumsum(counts) - counts)[wanted], counts[wanted]
        of_left = np.repeat(np.arange(len(left.ids)), count)
        nth = np.arange(len(of_left)) - np.repeat(np.cumsum(count) - count, count)
        pairs = mixed(left.ids[of_left] ^ mixed(partners[start[of_left] + nth], 77), self.salt)
        return Tuples(pairs, left.window[of_left], left.windows, left.salt)

    def _key(self, its, side):
        """Each one's key and window in one number, int64, below windows * keys."""
        key = (mixed(its.ids, self.salt + 10 + side) % np.uint64(self.keys)).astype(np.int64)
        return its.window * self.keys + key

    def _counts(self, its, key):
        """How many there are of each key of each window, int64 [windows * keys]."""
        return np.bincount(key, minlength=its.windows * self.keys)


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
    parts = []
    for first in range(0, windows, TOGETHER):
        some = min(TOGETHER, windows - first)
        salt = rng.integers(0, 1 << 64, dtype=np.uint64)
        base = {name: drawn(rng.poisson(size, some), rng, salt) for name, size in bases.items()}
        exact, made = node.exact(base), node.run(base, own, rng)
        correct = pc.is_in(pa.array(made.ids), value_set=pa.array(exact.ids))
        right = made.where(correct.to_numpy(zero_copy_only=False)).counts()
        parts.append(np.stack([exact.counts(), right, made.counts() - right], axis=1))
    return np.concatenate(parts).astype(np.float64)
