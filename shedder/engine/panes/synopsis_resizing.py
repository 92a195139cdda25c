"""Resizing of synopses: their present size, a smaller version, and merges of two sizes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from synopses.counters.hybrid_counters import GroupedHashedCounters
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.model.resizing import Resizable
from synopses.quantiles.rank_sketches import RankSketches
from synopses.theta.theta_sketch import GroupedTheta

_WITH_ROOM = (RankSketches, GroupedDistinct, GroupedHashedCounters, GroupedTheta)


def size_of(synopsis: Any) -> int:
    """The parameter that sets its memory, as in `SynopsisSpec.size`; 0 where there is none."""
    name = _size_name(synopsis.__class__)
    return 0 if name is None else int(getattr(synopsis, name))


@cache  # Merging a pane asks for each of its synopses, and an ABC takes its time.
def _size_name(kind: type[Any]) -> str | None:
    if not issubclass(kind, Resizable) or issubclass(kind, GroupedLogBuckets):
        return None  # Histograms are as fine as their query says (group_memory_cap.py).
    return kind.profile.size


def settle(synopsis: Any, size: int) -> None:
    """Nothing more is counted: it is no larger than this, and keeps no room for what would come."""
    if size_of(synopsis) > size:
        synopsis.resize(size)
    if isinstance(synopsis, _WITH_ROOM):
        synopsis.settle()


def shrunk(synopsis: Any, size: int, groups: range | None = None) -> Any:
    """A smaller version of a synopsis, which stays what it is; groups: of these alone."""
    chosen = range(synopsis.groups) if groups is None else groups
    return synopsis.select(np.arange(chosen.start, chosen.stop)).resize(size)


def alike(synopses: Sequence[Any]) -> list[Any]:
    """All at the smallest size of them; those that are larger stay what they are."""
    size = min(map(size_of, synopses))
    return [one if size_of(one) == size else shrunk(one, size) for one in synopses]


def merged(left: Any, right: Any) -> Any:
    """Both as one, of the smaller size of the two; left is given up, right stays what it is.

    What is folded before it is merged is what had been merged before it was folded (tests/laws.py),
    so a window is as coarse as its coarsest pane, whatever the order.
    """
    ours, theirs = size_of(left), size_of(right)
    if ours > theirs:
        left.resize(theirs)
    elif theirs > ours:
        right = shrunk(right, ours)
    return left.merge(right)
