"""Exact counts of tuples per group."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_ids
from synopses.kernels.grouped_arrays import check_taken, grown, same_kind, scattered
from synopses.model.binary_header import Kind, seal, unseal
from synopses.model.errors import BadParameter
from synopses.model.estimate import Estimates
from synopses.model.parameters import as_groups
from synopses.model.profile import Cost, Profile, Share, Thinning, exactly
from synopses.model.stored_counts import check_counts


@njit(nogil=True, cache=True)
def _count(counts: NDArray[np.int64], ids: NDArray[np.int32]) -> None:
    for row in range(ids.size):
        counts[np.uint32(ids[row])] += 1  # Unsigned: no place counts from the end.


class GroupedCount:
    """Tuples per group: int64, exact, mergeable and linear."""

    profile: ClassVar = Profile(
        question="COUNT(*)",
        size="",
        sizes=(0,),
        default=0,
        linear=True,
        thinning=Thinning.ROWS,
        thinned="hypergeometric; exact without a filter",
        share=Share.VALUE,
        error_of=exactly,
        bytes_of=lambda _size, _statistics: 8,
        cost=Cost(read=0.1, read_grouped=2.0, kept=0.9, kept_grouped=4.3, always=0.1),
    )
    __slots__ = ("_counts", "_groups")

    def __init__(self, groups: int) -> None:
        """Make the counts of so many empty groups.

        Raises:
          BadParameter: there is no such number of groups.
        """
        self._groups = as_groups(groups)
        self._counts = np.zeros(max(groups, 1), np.int64)

    @property
    def groups(self) -> int:
        """Return how many groups there are."""
        return self._groups

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return self._counts.nbytes

    @property
    def counts(self) -> NDArray[np.int64]:
        """Tuples per group; int64 [groups]."""
        return self._counts[: self._groups]

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        if groups > self._groups:
            self._counts = grown(self._counts, groups)
            self._groups = groups

    def update(self, ids: NDArray[np.int32] | None, n: int) -> None:
        """Count n tuples; ids int32 [n] are their groups (None: all are of group 0).

        Raises:
          BadParameter: n is negative, or an id is not that of a group.
        """
        if n < 0:
            raise BadParameter("n", n, ">= 0")
        if ids is None:
            self.grow(1)
            self._counts[0] += n
        else:
            _count(self._counts, as_ids(ids, n, self._groups))

    def count(self) -> Estimates:
        """Tuples per group: int64, exact."""
        return Estimates.exact(self.counts.copy(), "count")

    def merge(self, other: Self) -> Self:
        """Add the other's tuples, in place.

        Raises:
          CannotMerge: the other is of another kind.
        """
        same_kind(self, other)
        groups = other._groups
        if groups == 1:  # As most panes have it: no array is worth its calls.
            self.grow(1)
            self._counts[0] += other._counts[0]
        elif groups:
            self.grow(groups)
            self._counts[:groups] += other._counts[:groups]
        return self

    def subtract(self, other: Self) -> Self:
        """Take away the other's tuples, which must be among these, in place.

        Raises:
          CannotMerge: the other is of another kind.
          CannotSubtract: a group has fewer tuples.
        """
        same_kind(self, other)
        check_taken(self.counts, other.counts)
        self.grow(other.groups)
        self._counts[: other.groups] -= other.counts
        return self

    def select(self, ids: NDArray[np.int64]) -> Self:
        """A new summary of these groups, in this order."""
        return type(self)._of(self._counts[ids])

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """A new summary with `groups` groups in which group i of this one is group ids[i]."""
        return type(self)._of(scattered(self.counts, ids, groups))

    @classmethod
    def _of(cls, counts: NDArray[np.int64]) -> Self:
        made = cls.__new__(cls)
        made._groups = counts.size
        made._counts = counts if counts.size else np.zeros(1, np.int64)
        return made

    def to_bytes(self) -> bytes:
        """The counts as bytes; equal counts give equal bytes."""
        return seal(Kind.COUNT, (self._groups,), [self.counts])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, Kind.COUNT)
        (groups,) = body.parameters
        counts = body.array(np.int64, (groups,))
        body.end()
        check_counts("count", counts)
        return cls._of(counts)
