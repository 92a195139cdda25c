"""The first and the last value of a column per group, by time and then by position."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_column, as_ids, same_rows
from synopses.kernels.grouped_arrays import grown, same_kind, scattered
from synopses.model.binary_header import Kind, seal, unseal
from synopses.model.errors import CannotMerge
from synopses.model.estimate import Estimates
from synopses.model.parameters import as_flag, as_groups
from synopses.model.profile import Cost, Profile, Share, Thinning, exactly
from synopses.moments import first_last_kernels as kernels

_SOURCE = "first and last"
_INT64 = np.iinfo(np.int64)
_EMPTY = np.array([_INT64.max, _INT64.max, 0, _INT64.min, _INT64.min, 0], np.int64)


class GroupedFirstLast:
    """The values at the smallest and at the largest (time, position) of each group: exact.

    Times tell which value is first; positions, which no two values share, decide among equal
    times. So the answer does not depend on the order in which values or parts come.
    """

    profile: ClassVar = Profile(
        question="FIRST, LAST",
        size="",
        sizes=(0,),
        default=0,
        linear=False,
        thinning=Thinning.ROWS,
        thinned="exact where all skipped came later (earlier), else the known range, for certain",
        share=Share.VALUE,
        error_of=exactly,
        bytes_of=lambda _size, _statistics: 8 * kernels.CELLS,
        cost=Cost(read=1.9, read_grouped=4.2, kept=0.5, kept_grouped=5.4, always=2.0),
    )
    __slots__ = ("_cells", "_groups", "integer")

    def __init__(self, groups: int, integer: bool) -> None:
        """Make the ends of so many empty groups.

        Args:
          groups: how many.
          integer: the column is int64, else float64.

        Raises:
          BadParameter: a parameter is outside of its range.
        """
        self.integer = as_flag("integer", integer)
        self._groups = as_groups(groups)
        self._cells = np.tile(_EMPTY, (max(groups, 1), 1))

    @property
    def groups(self) -> int:
        """Return how many groups there are."""
        return self._groups

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return self._cells.nbytes

    @property
    def cells(self) -> NDArray[np.int64]:
        """The state, int64 [groups, 6], as first_last_kernels.py names its columns."""
        return self._cells[: self._groups]

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        if groups > self._groups:
            self._cells = grown(self._cells, groups, _EMPTY)
            self._groups = groups

    def update(
        self,
        ids: NDArray[np.int32] | None,
        times: NDArray[Any],
        positions: NDArray[Any],
        values: NDArray[Any],
    ) -> None:
        """Take values in.

        Args:
          ids: int32 [n], group of each value; None: all are of group 0.
          times: int64 [n]. positions: int64 [n], >= 0, different for every value there is.
          values: int64 or float64 [n], as the summary was built; no NaN.

        Raises:
          BadParameter: an id is not that of a group, or the columns differ in length or type.
        """
        same_rows(len(values), times=times, positions=positions)
        if ids is None:
            self.grow(1)
        bits = as_column(values, np.int64 if self.integer else np.float64).view(np.int64)
        at, numbers = as_column(times, np.int64), as_column(positions, np.int64)
        groups = as_ids(ids, bits.size, self._groups)
        kernels.add_values(self._cells, groups, at, numbers, bits)

    def merge(self, other: Self) -> Self:
        """Add the other's values, in place.

        Raises:
          CannotMerge: one is of integers and the other not.
        """
        same_kind(self, other)
        if self.integer != other.integer:
            raise CannotMerge("integer", self.integer, other.integer)
        self.grow(other.groups)
        kernels.merge_values(self._cells, other.cells)
        return self

    def first(self) -> Estimates:
        """The first value of each group, in the column's type; null where there is none."""
        return self._end(kernels.FIRST)

    def last(self) -> Estimates:
        """The last value of each group, in the column's type; null where there is none."""
        return self._end(kernels.LAST)

    def first_times(self) -> NDArray[np.int64]:
        """Return event times of the groups' first values; the largest int64 where there is none."""
        return self.cells[:, kernels.FIRST_TIME].copy()

    def last_times(self) -> NDArray[np.int64]:
        """Return event times of the groups' last values; the smallest int64 where there is none."""
        return self.cells[:, kernels.LAST_TIME].copy()

    def empty(self) -> NDArray[np.bool_]:
        """Return which groups have no value."""
        return self.cells[:, kernels.LAST_POSITION] < 0

    def _end(self, column: int) -> Estimates:
        found = self.cells[:, column].copy()
        values: NDArray[Any] = found if self.integer else found.view(np.float64)
        return Estimates.exact(values, _SOURCE, self.empty())

    def select(self, ids: NDArray[np.int64]) -> Self:
        """A new summary of these groups, in this order."""
        return self._with(self._cells[ids], self.integer)

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """A new summary with `groups` groups in which group i of this one is group ids[i]."""
        return self._with(scattered(self.cells, ids, groups, _EMPTY), self.integer)

    @classmethod
    def _with(cls, cells: NDArray[np.int64], integer: bool) -> Self:
        made = cls(0, integer)
        if len(cells):
            made._cells = cells
            made._groups = len(cells)
        return made

    def to_bytes(self) -> bytes:
        """The state as bytes."""
        return seal(Kind.FIRST_LAST, (self._groups, self.integer), [self.cells])

    @classmethod
    def of_cells(cls, cells: NDArray[np.int64], *, integer: bool) -> Self:
        """One that holds these cells, int64 [groups, CELLS], which become its own."""
        return cls._with(cells, integer)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, Kind.FIRST_LAST)
        groups, integer = body.parameters
        cells = body.array(np.int64, (groups, kernels.CELLS))
        body.end()
        return cls._with(cells, integer)
