"""States of a dynamic program: what the first synopses may have been given together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.demands import Floats, Integers

_STEPS = 32  # of ns, in which states are compared


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """What some synopses were given together, and how that came about.

    size_bytes: int64 [s]. cost_ns, objective: float64 [s].
    parent: int64 [s], of the states before. option: int64 [s], what the last synopsis chose.
    """

    size_bytes: Integers
    cost_ns: Floats
    objective: Floats
    parent: Integers
    option: Integers

    @classmethod
    def first(cls, size_bytes: int, cost_ns: float, objective: float) -> States:
        """Return the state before any choice; the arguments are already given."""
        none = np.full(1, -1)
        return cls(np.array([size_bytes]), np.array([cost_ns]), np.array([objective]), none, none)

    def __len__(self) -> int:
        return len(self.objective)

    def grown(
        self, size_bytes: Integers, cost_ns: Floats, objective: Floats, option: Integers
    ) -> States:
        """Each state with each of one synopsis' options, whose columns these are, [k]."""
        return States(
            (self.size_bytes[:, None] + size_bytes).ravel(),
            (self.cost_ns[:, None] + cost_ns).ravel(),
            (self.objective[:, None] + objective).ravel(),
            np.repeat(np.arange(len(self)), len(option)),
            np.tile(option, len(self)),
        )

    def only(self, at: Integers) -> States:
        """Some of them."""
        return States(
            self.size_bytes[at],
            self.cost_ns[at],
            self.objective[at],
            self.parent[at],
            self.option[at],
        )

    def undominated(self) -> Integers:
        """Return indices of the states that no other state dominates in all three columns.

        Of equal states the first is kept. If there are many different ns, they are compared in
        steps: a state within a step of ns of another one may be kept although it is dominated.
        """
        order = np.lexsort((self.cost_ns, self.objective, self.size_bytes))
        objective, cost_ns = self.objective[order], self.cost_ns[order]
        different = np.unique(cost_ns)
        whole = len(different) <= _STEPS
        ends = different if whole else different[_ends(len(different))]
        step = np.searchsorted(ends, cost_ns)
        # [j, i]: the least objective of the first i states, of those that are in the first j steps.
        before = np.full((len(ends) + 1, len(order) + 1), np.inf)
        before[step + 1, np.arange(1, len(order) + 1)] = objective
        np.minimum.accumulate(before, axis=1, out=before)
        np.minimum.accumulate(before, axis=0, out=before)
        return order[objective < before[step + int(whole), np.arange(len(order))]]


def _ends(count: int) -> Integers:
    """The last of each step, when so many are dealt out to the steps."""
    ends: Integers = (np.arange(1, _STEPS + 1) * count) // _STEPS - 1
    return ends
