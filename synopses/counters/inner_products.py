"""Inner products of two summaries of hashed counters, group by group."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from synopses.counters.hybrid_counters import GroupedHashedCounters
from synopses.counters.kernels import DEPTH

_Counters = TypeVar("_Counters", bound=GroupedHashedCounters)


def of_tables(left: _Counters, right: _Counters, groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """The inner product of each row of counters of one with the other's; float64 [groups, DEPTH].

    Raises:
      CannotMerge: widths or seeds differ.
    """
    left.check(right)
    found = np.empty((groups.size, DEPTH))
    for at, group in enumerate(groups.tolist()):
        here = left.tables(group).astype(np.float64)
        there = here if right is left else right.tables(group)
        found[at] = (here * there).sum(axis=1)
    return found


def of_keys(left: _Counters, right: _Counters) -> NDArray[np.float64]:
    """Sum over keys of count in left times count in right, where groups are small in both, else 0.

    float64 [groups]: exact below 2^53, rounded beyond.
    """
    if right is left:
        groups, _, counts = left.entries()
        return _summed(groups, counts.astype(np.float64) ** 2, left.groups)
    mine, theirs = left.entries(), right.entries()
    groups, keys = np.concatenate((mine[0], theirs[0])), np.concatenate((mine[1], theirs[1]))
    counts = np.concatenate((mine[2], theirs[2]))
    order = np.lexsort((keys, groups))
    here, there = order[:-1], order[1:]  # A key of both stands beside itself.
    both = (keys[here] == keys[there]) & (groups[here] == groups[there])
    here, there = here[both], there[both]
    products = counts[here].astype(np.float64) * counts[there]
    return _summed(groups[here], products, max(left.groups, right.groups))


def _summed(
    groups: NDArray[np.int32], weights: NDArray[np.float64], size: int
) -> NDArray[np.float64]:
    return np.bincount(groups, weights, size).astype(np.float64)
