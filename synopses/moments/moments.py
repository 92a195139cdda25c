"""Count, sum, mean, spread and extremes of a column per group, exactly."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_column, as_ids, as_input, as_unchecked_ids
from synopses.kernels.grouped_arrays import grown, same_kind, scattered
from synopses.model.binary_header import Kind, seal, unseal
from synopses.model.errors import BadParameter, CannotMerge
from synopses.model.estimate import Estimates
from synopses.model.overflow import SUM_OUT_OF_RANGE, in_range, known_in_range, without
from synopses.model.parameters import as_flag, as_groups
from synopses.model.profile import Cost, Profile, Share, Thinning, exactly
from synopses.model.stored_counts import check_counts
from synopses.moments import moment_kernels as kernels
from synopses.moments.dense_moments import OF_EACH_MIN, ROWS_MIN, add_plain

_SOURCE = "moments"
_INT64 = np.iinfo(np.int64)
_NOT_WIDE = as_input(np.zeros(0, np.int64), np.int64)


@cache
def _empty_row(integer: bool) -> NDArray[np.int64]:
    row = np.zeros(kernels.CELLS, np.int64)
    if integer:
        row[kernels.LEAST], row[kernels.MOST] = _INT64.max, _INT64.min
    else:
        row.view(np.float64)[[kernels.LEAST, kernels.MOST]] = np.inf, -np.inf
    row.setflags(write=False)
    return row


class GroupedMoments:
    """Exact moments of one column per group: one cache line of state each.

    Sums of integers are kept in 128 bits and cannot overflow. Sums of doubles are double-double:
    the error is below n^2 * 2^-105 * sum |x| plus one rounding, so that order hardly matters.
    Variances are those of a sample (divisor n - 1) by Welford's and Chan's recurrences on the
    distances from the group's first value (Chan, Golub, LeVeque 1983, Am. Stat. 37(3)).
    Infinities are counted apart: a sum over +inf is inf, over both signs null, a variance null.
    A sum of finite values that is beyond the range of doubles is null, without a bound.
    NaN is taken for absent: it is in nothing, not in the count either.
    """

    profile: ClassVar = Profile(
        question="SUM, AVG, MIN, MAX, VAR, STDDEV",
        size="",
        sizes=(0,),
        default=0,
        linear=False,
        thinning=Thinning.ROWS,
        thinned="normal where certified, else betting; extremes are taken before any is skipped",
        share=Share.VALUE,
        error_of=exactly,
        bytes_of=lambda _size, _statistics: 8 * kernels.CELLS + 16,
        cost=Cost(read=2.0, read_grouped=3.3, kept=4.0, kept_grouped=8.0, always=0.6),
    )
    __slots__ = ("_empty", "_floats", "_groups", "_infinite", "_ints", "integer", "spread")

    def __init__(self, groups: int, integer: bool, variance: bool = False) -> None:
        """Make the moments of so many empty groups.

        Args:
          groups: how many.
          integer: the column is int64, else float64.
          variance: keep what VAR and STDDEV need, too (about 3 ns a tuple).

        Raises:
          BadParameter: a parameter is outside of its range.
        """
        self.integer = as_flag("integer", integer)
        self.spread = as_flag("variance", variance)
        self._empty = _empty_row(self.integer)
        self._groups = as_groups(groups)
        self._hold(np.repeat(self._empty[np.newaxis], max(groups, 1), axis=0))
        self._infinite = np.zeros((1 if integer else max(groups, 1), 2), np.int64)

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
            if groups > len(self._ints):
                self._hold(grown(self._ints, groups, self._empty))
                if not self.integer:
                    self._infinite = grown(self._infinite, len(self._ints))
            self._groups = groups

    def update(self, ids: NDArray[np.int32] | None, values: NDArray[Any]) -> None:
        """Take values in.

        Args:
          ids: int32 [n], group of each value; None: all are of group 0.
          values: int64 or float64 [n], as the summary was built.

        Raises:
          BadParameter: these are other numbers, or an id is not that of a group.
        """
        if ids is None and not self._groups:
            self.grow(1)
        column = as_column(values, np.int64 if self.integer else np.float64)
        are_many = ids is not None and column.size >= max(ROWS_MIN, OF_EACH_MIN * self._groups)
        if ids is not None and are_many and not self.integer and not self.spread:
            given = as_unchecked_ids(ids, column.size)
            if self._add_plain(1, given, column):
                return  # Else the next line says what is wrong.
        groups, step = as_ids(ids, column.size, self._groups), 1
        if self.spread:
            step = 0
            wide = column if self.integer and kernels.are_wide(column) else _NOT_WIDE
            if ids is None:
                kernels.add_spread_to_one(self._floats, self._ints, column, wide)
            else:
                kernels.add_spread(self._floats, self._ints, groups, column, wide)
        if self.integer:
            kernels.add_integers(self._ints, step, groups, column)
        elif ids is None:
            kernels.add_doubles_to_one(self._floats, self._ints, self._infinite, step, column)
        elif are_many:
            self._add_plain(step, groups, column)
        else:
            kernels.add_doubles(self._floats, self._ints, self._infinite, step, groups, column)

    def _add_plain(self, step: int, ids: NDArray[np.int32], column: NDArray[np.float64]) -> bool:
        return add_plain(self._floats, self._ints, self._infinite, self._groups, step, ids, column)

    def merge(self, other: Self) -> Self:
        """Add the other's values, in place.

        Raises:
          CannotMerge: one is of integers, or keeps variance, and the other not.
        """
        same_kind(self, other)
        if self.integer != other.integer:
            raise CannotMerge("integer", self.integer, other.integer)
        if self.spread != other.spread:
            raise CannotMerge("variance", self.spread, other.spread)
        if not other.groups:
            return self
        self.grow(other.groups)
        theirs = slice(0, other.groups)
        floats, ints = other._floats[theirs], other._ints[theirs]
        if self.spread:
            kernels.merge_spread(self._floats, self._ints, floats, ints)
        if self.integer:
            kernels.merge_integers(self._ints, ints)
        else:
            kernels.merge_doubles(self._floats, self._ints, floats, ints)
            self._infinite[theirs] += other._infinite[theirs]
        return self

    # --- questions ---------------------------------------------------------------------------

    def _cells(self, column: int) -> NDArray[np.int64]:
        return self._ints[: self._groups, column]

    def _numbers(self, column: int) -> NDArray[np.float64]:
        return self._floats[: self._groups, column]

    def _infinities(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many -inf and +inf each group has."""
        if self.integer:
            none = np.zeros(self._groups, np.int64)
            return none, none
        return self._infinite[: self._groups, 0], self._infinite[: self._groups, 1]

    def counts(self) -> NDArray[np.int64]:
        """Values per group, infinities included; int64 [groups]."""
        below, above = self._infinities()
        return self._cells(kernels.COUNT) + below + above

    def count(self) -> Estimates:
        """Values per group: int64."""
        return Estimates.exact(self.counts(), _SOURCE)

    def sum(self) -> Estimates:
        """Sum per group, in the column's type; null where empty or (integers) over int64.

        Of finite doubles beyond the range of their type: null, and without a bound.
        """
        empty = self.counts() == 0
        if not self.integer:
            return self._doubles(self._double_sums(), empty)
        low, high = self._cells(kernels.SUM), self._cells(kernels.REST)
        over = high != low >> 63
        sums = Estimates.exact(np.where(over, 0, low), _SOURCE, empty | over)
        return replace(sums, reason="the sum is over int64") if over.any() else sums

    def _double_sums(self) -> NDArray[np.float64]:
        """Sums as doubles: rounded once, infinite or NaN as the infinities say."""
        if self.integer:
            low, high = self._cells(kernels.SUM), self._cells(kernels.REST)
            wide = high.astype(np.float64) * 2.0**64 + low.view(np.uint64).astype(np.float64)
            return np.where(high == low >> 63, low.astype(np.float64), wide)
        total, rest = self._numbers(kernels.SUM), self._numbers(kernels.REST)
        sums = np.where(np.isinf(total), total, total + rest)
        below, above = self._infinities()
        sums[above > 0] = np.inf
        sums[below > 0] = -np.inf
        sums[(below > 0) & (above > 0)] = np.nan
        return sums

    def sums(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Sum per group, wider than one number: each [groups].

        Of integers the low and the high word of 128 bits, int64. Of doubles the sum, rounded once,
        and what rounding left of it, float64; where the sum is infinite or NaN that is 0, and where
        finite values left the range of doubles both are NaN.
        """
        if self.integer:
            return self._cells(kernels.SUM).copy(), self._cells(kernels.REST).copy()
        sums = self._double_sums()
        finite = np.isfinite(sums)
        total, rest = self._numbers(kernels.SUM), self._numbers(kernels.REST)
        left = np.zeros(self._groups)
        left[finite] = (total[finite] - sums[finite]) + rest[finite]
        lost = self._lost(sums)
        sums[lost] = left[lost] = np.nan
        return sums, left

    def squares(self) -> NDArray[np.float64]:
        """Sum of squared distances from the mean, float64 [groups].

        NaN with infinities, infinite where squares are beyond the range of doubles.

        Raises:
          BadParameter: the summary was not built to keep it.
        """
        if not self.spread:
            raise BadParameter("variance", False, "a summary built with variance=True")
        whole = self.counts() == self._cells(kernels.COUNT)
        squares = self._numbers(kernels.SQUARES)
        return np.where(whole, np.where(np.isfinite(squares), squares, np.inf), np.nan)

    def mean(self) -> Estimates:
        """Mean per group: float64; null where empty or where infinities of both signs meet.

        Without a bound where the sum is beyond the range of doubles.
        """
        counts = self.counts()
        return self._doubles(self._double_sums() / np.maximum(counts, 1), counts == 0)

    def _doubles(self, values: NDArray[np.float64], null: NDArray[np.bool_]) -> Estimates:
        """A column made of sums; NaN is null, and what finite values cannot add up to is lost."""
        absent = null | np.isnan(values)
        column = Estimates.exact(np.where(absent, 0.0, values), _SOURCE, absent)
        return without(column, self._lost(values) & ~null, SUM_OUT_OF_RANGE)

    def _lost(self, sums: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return where finite values have a sum that is not."""
        below, above = self._infinities()
        lost: NDArray[np.bool_] = ~np.isfinite(sums) & (below == 0) & (above == 0)
        return lost

    def variance(self) -> Estimates:
        """Variance per group (divisor n - 1): float64; null below two values or with infinities.

        Without a bound where squared distances are beyond the range of doubles, above or below.

        Raises:
          BadParameter: the summary was not built to keep it.
        """
        seen = self._cells(kernels.COUNT)
        known = (seen >= 2) & (self.counts() == seen)
        squares = self.squares()
        constant = self._cells(kernels.LEAST) == self._cells(kernels.MOST)
        if not self.integer:
            constant = self._numbers(kernels.LEAST) == self._numbers(kernels.MOST)
        squares = np.where(constant | in_range(squares), squares, np.nan)
        return known_in_range(squares / np.maximum(seen - 1, 1), ~known, _SOURCE)

    def deviation(self) -> Estimates:
        """Standard deviation per group: the square root of `variance`."""
        variance = self.variance()
        root = np.sqrt(variance.value)
        return replace(variance, value=root, low=root, high=root)

    def minimum(self) -> Estimates:
        """Smallest value per group, in the column's type; null where empty."""
        return self._extreme(kernels.LEAST)

    def maximum(self) -> Estimates:
        """Largest value per group, in the column's type; null where empty."""
        return self._extreme(kernels.MOST)

    def _extreme(self, column: int) -> Estimates:
        empty = self.counts() == 0
        values: NDArray[Any] = self._cells(column) if self.integer else self._numbers(column)
        return Estimates.exact(np.where(empty, 0, values), _SOURCE, empty)

    # --- groups and bytes --------------------------------------------------------------------

    def select(self, ids: NDArray[np.int64]) -> Self:
        """A new summary of these groups, in this order."""
        return self._with(self._ints[ids], self._infinite if self.integer else self._infinite[ids])

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """A new summary with `groups` groups in which group i of this one is group ids[i]."""
        cells = scattered(self._ints[: self._groups], ids, groups, self._empty)
        if self.integer:
            return self._with(cells, self._infinite)
        return self._with(cells, scattered(self._infinite[: self._groups], ids, groups))

    def _with(self, cells: NDArray[np.int64], infinite: NDArray[np.int64]) -> Self:
        beside = infinite.copy() if self.integer else infinite
        return type(self)._of(cells, beside, self.integer, self.spread)

    @classmethod
    def _of(
        cls, cells: NDArray[np.int64], infinite: NDArray[np.int64], integer: bool, variance: bool
    ) -> Self:
        """Moments that hold these arrays, as they are; without groups they are new ones."""
        if not len(cells):
            return cls(0, integer, variance)
        made = cls.__new__(cls)
        made.integer, made.spread = integer, variance
        made._empty = _empty_row(integer)
        made._groups = len(cells)
        made._hold(cells)
        made._infinite = infinite
        return made

    def to_bytes(self) -> bytes:
        """The state as bytes."""
        kept = slice(0, 1 if self.integer else self._groups)
        parameters = (self._groups, self.integer, self.spread)
        return seal(Kind.MOMENTS, parameters, [self._ints[: self._groups], self._infinite[kept]])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, Kind.MOMENTS)
        groups, integer, variance = body.parameters
        cells = body.array(np.int64, (groups, kernels.CELLS))
        infinite = body.array(np.int64, (1 if integer else groups, 2))
        body.end()
        for name, column in (("count", cells[:, kernels.COUNT]), ("infinite values", infinite)):
            check_counts(name, column)  # A merge divides by the sum of two counts.
        return cls._of(cells, infinite, integer, variance)
