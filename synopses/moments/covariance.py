"""Covariance, correlation and regression of two columns per group, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_column, as_ids, as_input, same_rows
from synopses.kernels.grouped_arrays import grown, same_kind, scattered
from synopses.model.binary_header import Kind, seal, unseal
from synopses.model.estimate import Bound, Estimates
from synopses.model.overflow import in_range, known_in_range
from synopses.model.parameters import as_groups
from synopses.model.profile import Cost, Profile, Share, Thinning, exactly
from synopses.model.stored_counts import check_counts
from synopses.moments import covariance_kernels as kernels
from synopses.moments.moment_kernels import REST_BITS, are_wide

_SOURCE = "cross moments"
_NO_REST = as_input(np.zeros(0), np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class CrossSums:
    """What covariance, correlation and regression are made of, per group.

    pairs: int64 [groups], pairs of finite values. cross: float64 [groups], the sum of
    (x - mean x)(y - mean y). squares_x, squares_y: float64 [groups], the sums of squared distances.
    infinite: bool [groups], whether an infinity is in any pair. mean_x, mean_y: float64 [groups],
    0 where there is no pair.
    """

    pairs: NDArray[np.int64]
    cross: NDArray[np.float64]
    squares_x: NDArray[np.float64]
    squares_y: NDArray[np.float64]
    infinite: NDArray[np.bool_]
    mean_x: NDArray[np.float64]
    mean_y: NDArray[np.float64]


class GroupedCrossMoments:
    """Exact second moments of pairs (x, y) per group: one cache line of state each.

    Distances are from the group's first pair and the running means (Pebay 2008, SAND2008-6212),
    so that means far above the spread cost no digits, in one pass or merged. The cross sum errs by
    rounding only: a few units of 2^-53 times the root of the product of both sums of squares.
    A pair with an infinity leaves every answer of its group null; a pair with a NaN is absent.
    """

    profile: ClassVar = Profile(
        question="COVAR_POP, COVAR_SAMP, CORR, REGR_SLOPE, REGR_INTERCEPT",
        size="",
        sizes=(0,),
        default=0,
        linear=False,
        thinning=Thinning.ROWS,
        thinned="normal by the influence function, else crosswise from variances",
        share=Share.VALUE,
        error_of=exactly,
        bytes_of=lambda _size, _statistics: 8 * kernels.CELLS + 8,
        cost=Cost(read=4.4, read_grouped=7.5, kept=13.0, kept_grouped=18.0, always=5.0),
    )
    __slots__ = ("_floats", "_groups", "_infinite", "_ints")

    def __init__(self, groups: int) -> None:
        """Make the moments of so many empty groups.

        Raises:
          BadParameter: there is no such number of groups.
        """
        self._groups = as_groups(groups)
        self._hold(np.zeros((max(groups, 1), kernels.CELLS), np.int64))
        self._infinite = np.zeros(max(groups, 1), np.int64)

    def _hold(self, cells: NDArray[np.int64]) -> None:
        self._ints = cells
        self._floats = cells.view(np.float64)

    @property
    def groups(self) -> int:
        """Return how many groups there are."""
        return self._groups

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return self._ints.nbytes + self._infinite.nbytes

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        if groups > self._groups:
            self._hold(grown(self._ints, groups))
            self._infinite = grown(self._infinite, groups)
            self._groups = groups

    def update(
        self, ids: NDArray[np.int32] | None, first: NDArray[Any], second: NDArray[Any]
    ) -> None:
        """Take pairs in.

        Args:
          ids: int32 [n], group of each pair; None: all are of group 0.
          first, second: float64 or int64 [n], x and y; of int64 every digit counts.

        Raises:
          BadParameter: an id is not that of a group, or the columns differ in length.
        """
        same_rows(len(first), second=second)
        if ids is None:
            self.grow(1)
        (x, rest_x), (y, rest_y) = _parts(first), _parts(second)
        groups = as_ids(ids, x.size, self._groups)
        kernels.add_pairs(self._floats, self._ints, self._infinite, groups, x, y, rest_x, rest_y)

    def update_with_squares(
        self,
        squares: Self,
        units: NDArray[np.float64],
        ids: NDArray[np.int32] | None,
        first: NDArray[Any],
        second: NDArray[Any],
    ) -> None:
        """Take pairs in, and the squares of their sums and differences into another summary.

        Args:
          squares: has as many groups. Its pairs are ((u + v)^2, (u - v)^2).
          units: float64 [4], the centers of x and y, and one over the scales of both: u is
            (x - center) / scale, and v is the same of y.
          ids, first, second: as of `update`.

        Raises:
          BadParameter: an id is not that of a group, or the columns differ in length.
        """
        same_rows(len(first), second=second)
        if ids is None:
            self.grow(1)
        squares.grow(self._groups)
        (x, rest_x), (y, rest_y) = _parts(first), _parts(second)
        groups = as_ids(ids, x.size, self._groups)
        kernels.add_pairs_and_squares(
            self._floats,
            self._ints,
            self._infinite,
            squares._floats,
            squares._ints,
            squares._infinite,
            groups,
            x,
            y,
            rest_x,
            rest_y,
            as_input(units, np.float64),
        )

    def merge(self, other: Self) -> Self:
        """Add the other's pairs, in place.

        Raises:
          CannotMerge: the other is of another kind.
        """
        same_kind(self, other)
        self.grow(other.groups)
        theirs = slice(0, other.groups)
        kernels.merge_pairs(self._floats, self._ints, other._floats[theirs], other._ints[theirs])
        self._infinite[theirs] += other._infinite[theirs]
        return self

    # --- questions ---------------------------------------------------------------------------

    def sums(self) -> CrossSums:
        """The sums that the answers are made of."""
        kept = slice(0, self._groups)
        return CrossSums(
            self._ints[kept, kernels.COUNT].copy(),
            self._floats[kept, kernels.CROSS].copy(),
            self._floats[kept, kernels.SQUARES_X].copy(),
            self._floats[kept, kernels.SQUARES_Y].copy(),
            self._infinite[kept] > 0,
            self._floats[kept, kernels.ANCHOR_X] + self._floats[kept, kernels.MEAN_X],
            self._floats[kept, kernels.ANCHOR_Y] + self._floats[kept, kernels.MEAN_Y],
        )

    def covariance(self, *, sample: bool) -> Estimates:
        """Covariance per group: float64; null below one pair (of a sample, two) or with infinities.

        Args:
          sample: divide by n - 1, else by n.
        """
        sums = self.sums()
        divisor = sums.pairs - int(sample)
        return _estimates(sums, sums.cross / np.maximum(divisor, 1), divisor < 1)

    def correlation(self) -> Estimates:
        """Pearson's correlation per group, in [-1, 1]; null also where x or y is constant."""
        sums = self.sums()
        constant = (sums.squares_x == 0) | (sums.squares_y == 0)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            found = sums.cross / (np.sqrt(sums.squares_x) * np.sqrt(sums.squares_y))
        known = in_range(sums.squares_x) & in_range(sums.squares_y)
        return _estimates(sums, np.where(known, np.clip(found, -1.0, 1.0), np.nan), constant)

    def slope(self) -> Estimates:
        """Slope per group of the least-squares line of x over y; null also where y is constant."""
        sums = self.sums()
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            found = np.where(in_range(sums.squares_y), sums.cross / sums.squares_y, np.nan)
        return _estimates(sums, found, sums.squares_y == 0)

    def intercept(self) -> Estimates:
        """Return where that line is at y = 0: mean x - slope * mean y; null where the slope is."""
        sums, slope = self.sums(), self.slope()
        with np.errstate(over="ignore", invalid="ignore"):
            found = sums.mean_x - slope.value * sums.mean_y
        lost = slope.bound == Bound.NONE
        return _estimates(sums, np.where(lost, np.nan, found), slope.null & ~lost)

    # --- groups and bytes --------------------------------------------------------------------

    def select(self, ids: NDArray[np.int64]) -> Self:
        """A new summary of these groups, in this order."""
        return self._with(self._ints[ids], self._infinite[ids])

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """A new summary with `groups` groups in which group i of this one is group ids[i]."""
        kept = slice(0, self._groups)
        return self._with(
            scattered(self._ints[kept], ids, groups), scattered(self._infinite[kept], ids, groups)
        )

    @classmethod
    def _with(cls, cells: NDArray[np.int64], infinite: NDArray[np.int64]) -> Self:
        made = cls(0)
        if len(cells):
            made._hold(cells)
            made._infinite = infinite
            made._groups = len(cells)
        return made

    def to_bytes(self) -> bytes:
        """The state as bytes."""
        kept = slice(0, self._groups)
        parameters = (self._groups,)
        return seal(Kind.CROSS_MOMENTS, parameters, [self._ints[kept], self._infinite[kept]])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, Kind.CROSS_MOMENTS)
        (groups,) = body.parameters
        cells = body.array(np.int64, (groups, kernels.CELLS))
        infinite = body.array(np.int64, (groups,))
        body.end()
        for name, column in (("pairs", cells[:, kernels.COUNT]), ("infinite pairs", infinite)):
            check_counts(name, column)  # A merge divides by the sum of two counts.
        return cls._with(cells, infinite)


def _parts(values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Numbers as doubles, and what doubles have no room for; of size 0 where that is nothing."""
    if values.dtype.kind != "i":
        return as_column(values, np.float64), _NO_REST
    whole = as_column(values, np.int64)
    if not are_wide(whole):
        return as_input(whole, np.float64), _NO_REST
    rest = whole & REST_BITS
    return as_input(whole - rest, np.float64), as_input(rest, np.float64)


def _estimates(sums: CrossSums, values: NDArray[np.float64], null: NDArray[np.bool_]) -> Estimates:
    """A column that is known for certain, but where the squares went out of range."""
    return known_in_range(values, null | sums.infinite, _SOURCE)
