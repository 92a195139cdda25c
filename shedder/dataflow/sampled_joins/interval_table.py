"""Table of aggregates with their intervals, a row for each group, and its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Expression
from shedder.cql.plans.logical_plan import companions_of
from shedder.dataflow.batch_rows import take_values
from shedder.dataflow.changes import Int64s
from shedder.dataflow.key_directory import keys_of_hashes
from shedder.dataflow.sampled_joins.joined_inputs import InputAggregate
from shedder.dataflow.sampled_joins.key_labels import LabelledKeys
from synopses.intervals.interval import Intervals
from synopses.joins.join_groups import JoinGroups
from synopses.joins.join_labels import NONE as NO_LABEL
from synopses.joins.join_labels import JoinLabels, KeyNumbers
from synopses.joins.join_totals import JoinTotals, TotalParts
from synopses.joins.joined_windows import JoinedWindows
from synopses.joins.key_tables import Words
from synopses.joins.window_sums import RowTerm
from synopses.model.estimate import Bound

_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1
_LONG_END = 2.0**63
LABELS_MAX = 128  # Each label that has a row costs a pass over all bounds at each slide.


@dataclass(frozen=True, slots=True, eq=False)
class IntervalTable:
    """Rows of aggregates.

    hashes: uint64 [groups], of the keys of groups; different.
    has_last: a further row, the last, has no key.
    columns: of each aggregate, the intervals of all rows.
    hidden: number of keys whose pairs are in the last row; None: there are no groups.
    known: number of rows, the first ones, whose keys are known in full; the others of `hashes` are
      heavy in some panes only.
    parts: of each aggregate, what the ends in the last row allow for; None: that is not told apart.
    labels: of the rows in `hashes`, which has hashes of them or of keys; None: the keys are read
      from their hashes.
    is_estimated: the rows are those of labels, of which no key need be known in full.
    mixed: number of known keys that have several labels; then the last row alone has all pairs.
    """

    hashes: Words
    has_last: bool
    columns: tuple[Intervals, ...]
    hidden: Intervals | None = None
    known: int = 0
    parts: tuple[TotalParts | None, ...] = ()
    labels: pa.Array[Any] | None = None
    is_estimated: bool = False
    mixed: int = 0

    def __len__(self) -> int:
        return len(self.hashes) + self.has_last

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        of_column = (it.value.nbytes * 4 + it.bound.nbytes for it in self.columns)
        labels = 0 if self.labels is None else self.labels.nbytes
        return self.hashes.nbytes + sum(of_column) + labels

    @classmethod
    def of(
        cls,
        windows: JoinedWindows,
        aggregates: Sequence[InputAggregate],
        *,
        groups_max: int | None,
        confidence: float,
        labels: LabelledKeys | None = None,
    ) -> IntervalTable:
        """The aggregates of a join, of all pairs or of keys.

        groups_max: keys that have rows; None: there is one row, of all pairs.
        labels: of keys that may have rows; None: all may, and are read from their hashes.

        Raises:
          OverflowError: as `JoinTotals.pairs`.
        """
        if groups_max is None:
            totals = JoinTotals(windows)
            found = tuple(_computed(totals, each, confidence) for each in aggregates)
            parts = tuple(_parts(totals, each, confidence) for each in aggregates)
            return cls(np.empty(0, np.uint64), True, found, parts=parts)
        named = None if labels is None else labels.where(np.asarray(labels.labels.is_valid()))
        groups = JoinGroups(windows, groups_max, None if named is None else named.keys)
        found = tuple(_computed(groups, each, confidence) for each in aggregates)
        hidden = groups.hidden(confidence=confidence)
        parts = tuple(_parts(groups, each, confidence) for each in aggregates)
        texts = None if named is None else named.labels_of(groups.hashes)
        return cls(groups.hashes, groups.has_others, found, hidden, groups.known, parts, texts)

    @classmethod
    def of_labels(
        cls,
        windows: JoinedWindows,
        aggregates: Sequence[InputAggregate],
        *,
        window: int,
        labels: LabelledKeys | None,
        groups_max: int,
        confidence: float,
    ) -> IntervalTable:
        """The aggregates of a join by labels of its keys.

        window: whose rows have the labels. labels: of the keys; None: there are none.
        groups_max: labels that have rows.

        Raises:
          OverflowError: as `JoinTotals.pairs`.
        """
        if labels is None or windows.is_empty:
            return cls(np.empty(0, np.uint64), False, _none_of(aggregates), is_estimated=True)
        mixed = int(np.count_nonzero(labels.is_mixed))
        if mixed:
            whole = cls.of(windows, aggregates, groups_max=None, confidence=confidence)
            return replace(whole, labels=labels.labels[:0], mixed=mixed)
        hashes, first, numbers = np.unique(labels.hashes, return_index=True, return_inverse=True)
        is_named = np.asarray(take_values(labels.labels, first).is_valid())
        numbers = np.where(is_named[numbers], numbers, NO_LABEL)
        keys = KeyNumbers(labels.keys, numbers, len(hashes))
        found = JoinLabels(windows, window, keys, min(groups_max, LABELS_MAX))
        return cls(
            hashes[found.labels],
            found.has_others,
            tuple(_computed(found, each, confidence) for each in aggregates),
            parts=(None,) * len(aggregates),
            labels=take_values(labels.labels, first[found.labels]),
            is_estimated=True,
        )

    def differences(self, other: IntervalTable) -> tuple[Int64s, Int64s]:
        """Return the rows that only this table has, and those that only the other one has."""
        _, ours, theirs = np.intersect1d(
            self.hashes, other.hashes, assume_unique=True, return_indices=True
        )
        if self.has_last and other.has_last:
            ours, theirs = np.append(ours, len(self) - 1), np.append(theirs, len(other) - 1)
        equal = np.ones(len(ours), np.bool_)
        for left, right in zip(self.columns, other.columns, strict=True):
            for name in ("value", "low", "high", "bound"):
                before, after = getattr(left, name)[ours], getattr(right, name)[theirs]
                equal &= (before == after) | (np.isnan(before) & np.isnan(after))
        missing = np.ones(len(self), np.bool_), np.ones(len(other), np.bool_)
        missing[0][ours[equal]] = missing[1][theirs[equal]] = False
        return np.flatnonzero(missing[0]), np.flatnonzero(missing[1])


@dataclass(frozen=True, slots=True)
class IntervalColumns:
    """Columns of a table of intervals.

    key: of the groups; None: there is one row. aggregates: each has its companions.
    """

    key: Expression | None
    aggregates: tuple[Aggregate, ...]

    @property
    def schema(self) -> pa.Schema:
        """Columns g0 if there are groups, and a0, a1, ..., each of these with its companions."""
        fields: list[tuple[str, Any]] = []
        if self.key is not None:
            assert self.key.type is not None
            fields.append(("g0", self.key.type.arrow))
        for at, each in enumerate(self.aggregates):
            assert each.type is not None
            kind = each.type.arrow
            kinds = (kind, kind, pa.string(), pa.bool_())
            fields += [(f"a{at}", kind), *zip(companions_of(f"a{at}"), kinds, strict=True)]
        return pa.schema(fields)

    def batch(self, table: IntervalTable, rows: Int64s) -> pa.RecordBatch:
        """Return some rows of a table."""
        arrays: list[Any] = []
        schema = self.schema
        if self.key is not None:
            is_last = rows == len(table.hashes)
            if table.labels is not None:
                places: Any = pa.array(rows, mask=is_last)
                arrays.append(table.labels.take(places))
            elif not len(table):
                arrays.append(pa.array([], schema.types[0]))
            else:
                hashes = np.append(table.hashes, np.uint64(0))[rows]
                arrays.append(keys_of_hashes(hashes, schema.types[0], is_last))
        for aggregate, intervals in zip(self.aggregates, table.columns, strict=True):
            is_long = aggregate.type is ColumnType.BIGINT
            arrays += _whole(intervals, rows) if is_long else _doubles(intervals, rows)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _none_of(aggregates: Sequence[InputAggregate]) -> tuple[Intervals, ...]:
    return (Intervals.of(*np.empty((3, 0))),) * len(aggregates)


def _computed(
    of: JoinTotals | JoinGroups | JoinLabels, what: InputAggregate, confidence: float
) -> Intervals:
    function = what.aggregate.function
    if what.value is None:
        return of.pairs(confidence=confidence)
    match function:
        case AggregateFunction.COUNT:
            return of.present(what.input, what.value, confidence=confidence)
        case AggregateFunction.SUM:
            return of.sum(what.input, what.value, confidence=confidence)
        case AggregateFunction.AVG:
            return of.average(what.input, what.value, confidence=confidence)
        case _:
            raise AssertionError(function)


def _parts(
    of: JoinTotals | JoinGroups, what: InputAggregate, confidence: float
) -> TotalParts | None:
    """Return the parts of a total; None: an average is made of two totals."""
    if what.aggregate.function is AggregateFunction.AVG:
        return None
    is_present = what.aggregate.function is AggregateFunction.COUNT
    term = RowTerm() if what.value is None else RowTerm(what.value, is_present=is_present)
    return of.parts(what.input, term, confidence=confidence)


def _doubles(of: Intervals, rows: Int64s) -> list[Any]:
    bound = of.bound[rows]
    ends = [each[rows] for each in (of.value, of.low, of.high)]
    is_null = [np.isnan(each) | (bound == Bound.NONE) for each in ends]
    arrays = [pa.array(each, mask=null) for each, null in zip(ends, is_null, strict=True)]
    return [*arrays, *_bounds(bound)]


def _whole(of: Intervals, rows: Int64s) -> list[Any]:
    """The same in whole numbers; a value beyond 64 bits is NULL, as of exact queries."""
    bound = of.bound[rows]
    ends = [each[rows] for each in (of.value, of.low, of.high)]
    is_beyond = (ends[0] < -_LONG_END) | (ends[0] >= _LONG_END)
    bound = np.where(is_beyond, Bound.NONE, bound).astype(np.uint8)
    is_null = [np.isnan(each) | (bound == Bound.NONE) for each in ends]
    arrays = [
        pa.array(_longs(np.where(null, 0.0, each)), mask=null)
        for each, null in zip(ends, is_null, strict=True)
    ]
    return [*arrays, *_bounds(bound)]


def _longs(numbers: NDArray[np.float64]) -> Int64s:
    """Whole numbers; those beyond 64 bits are the nearest that fit."""
    inside = np.where(np.abs(numbers) < _LONG_END, numbers, 0.0).astype(np.int64)
    inside[numbers >= _LONG_END] = _LONG_MAX
    inside[numbers <= -_LONG_END] = _LONG_MIN
    return inside


def _bounds(bound: NDArray[np.uint8]) -> list[Any]:
    """Columns of the bound and of whether a target was met: there is none."""
    words = np.array([each.word for each in Bound], object)[bound]
    return [pa.array(words, pa.string()), pa.nulls(len(bound), pa.bool_())]
