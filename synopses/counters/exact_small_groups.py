"""Exact counts of small groups as arrays: group, key and how often it occurs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_input
from synopses.model.errors import CannotSubtract, CorruptSynopsis
from synopses.model.parameters import COUNTED_MAX

Entries = tuple[NDArray[np.int32], NDArray[np.uint64], NDArray[np.int64]]


def readable(
    groups: NDArray[np.int32], keys: NDArray[np.uint64], counts: NDArray[np.int64]
) -> Entries:
    """The entries as kernels take them; shapes [n]."""
    return as_input(groups, np.int32), as_input(keys, np.uint64), as_input(counts, np.int64)


def counts_of(entries: Entries, group: int, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return how often these keys occur in a small group; int64 [keys]."""
    groups, keys, counts = entries
    mine = np.flatnonzero(groups == group)
    mine = mine[np.argsort(keys[mine])]
    found = np.zeros(hashes.size, np.int64)
    if mine.size:
        at = mine[np.minimum(np.searchsorted(keys[mine], hashes), mine.size - 1)]
        held = keys[at] == hashes
        found[held] = counts[at[held]]
    return found


def less(entries: Entries, taken: Entries) -> Entries:
    """The entries without those counts; what is at zero is left out. By group, then by key.

    Raises:
      CannotSubtract: a key has fewer.
    """
    groups = np.concatenate((entries[0], taken[0]))
    keys = np.concatenate((entries[1], taken[1]))
    counts = np.concatenate((entries[2], -taken[2]))
    order = np.lexsort((keys, groups))
    groups, keys = groups[order], keys[order]
    new = np.ones(groups.size, np.bool_)
    new[1:] = (np.diff(groups) != 0) | (keys[1:] != keys[:-1])
    first = np.flatnonzero(new)
    sums = np.add.reduceat(counts[order], first)
    short = first[sums < 0]
    if short.size:
        what = f"count of key {keys[short[0]]:#x} of group {groups[short[0]]}"
        raise CannotSubtract(what, int(sums[sums < 0][0]))
    kept = first[sums != 0]
    return readable(groups[kept], keys[kept], sums[sums != 0])


def check_entries(entries: Entries, *, small: NDArray[np.bool_], keys_max: int) -> None:
    """Entries read from bytes: of small groups, in order, each once, counted, not too many.

    Args:
      entries: shapes [n].
      small: bool [groups], which groups may have entries.
      keys_max: how many a group may have.

    Raises:
      CorruptSynopsis: they are not so.
    """
    groups, keys, counts = entries
    if not groups.size:
        return
    if groups.min() < 0 or groups.max() >= small.size:
        raise CorruptSynopsis("group", int(groups.max()), f"0 to {small.size - 1}")
    if not small[groups].all():
        raise CorruptSynopsis("entry", "of a large group", "a table or entries")
    if counts.min() < 1:
        raise CorruptSynopsis("count", int(counts.min()), ">= 1")
    steps = np.diff(groups)
    if not ((steps > 0) | ((steps == 0) & (keys[1:] > keys[:-1]))).all():
        raise CorruptSynopsis("entries", "out of order", "by group, then by key")
    together = float(np.bincount(groups, weights=counts).max())
    if together >= COUNTED_MAX:
        raise CorruptSynopsis("counts of a group", together, f"< {COUNTED_MAX} together")
    most = int(np.bincount(groups).max())
    if most > keys_max:
        raise CorruptSynopsis("keys of a group", most, f"<= {keys_max}")
