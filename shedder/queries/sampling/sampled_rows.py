"""Sampled rows of a query: those that match, and the group of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Expression
from shedder.cql.sql.exact_query import LIVE
from shedder.cql.statements.bound_query import BoundQuery
from shedder.streams.frame import Frame, Hashes
from synopses.kernels.group_table import GroupTable


@dataclass(frozen=True, slots=True, eq=False)
class RowFilter:
    """Which rows of a stream a query is over: its WHERE and a stretch of event time.

    marked: whether rows have the column LIVE, and those that are deleted are left out.
    """

    query: BoundQuery
    start_us: int | None
    end_us: int | None
    marked: bool = False

    @property
    def is_all(self) -> bool:
        """Return whether no row is left out."""
        return self.query.where is None and not self._is_cut

    @property
    def _is_cut(self) -> bool:
        """Return whether rows are left out before WHERE sees them."""
        return self.marked or self.start_us is not None or self.end_us is not None

    def rows(self, batch: pa.RecordBatch) -> Frame:
        """The rows that match."""
        if self.is_all:
            return Frame(batch, self.query.schema.time_column)
        return self.frame_and_rows(batch)[0]

    def frame_and_rows(self, batch: pa.RecordBatch) -> tuple[Frame, NDArray[np.int64]]:
        """The rows that match, and where in the batch they are: int64 [matches]."""
        time_column = self.query.schema.time_column
        whole = Frame(batch, time_column)
        if not self._is_cut:
            where = np.flatnonzero(whole.true(self.query.where))
            return Frame(batch, time_column, where), where
        inside = np.ones(batch.num_rows, np.bool_)
        if self.marked:
            inside &= batch[LIVE].to_numpy(zero_copy_only=False)
        if self.start_us is not None:
            inside &= whole.times_us >= self.start_us
        if self.end_us is not None:
            inside &= whole.times_us < self.end_us
        where = np.flatnonzero(inside)
        where = where[Frame(batch, time_column, where).true(self.query.where)]
        return Frame(batch, time_column, where), where


@dataclass(frozen=True, slots=True, eq=False)
class SampledGroups:
    """The groups that a sample has seen, and the group of each of its matching rows.

    keys: one array [groups] per GROUP BY expression. ids: int64 [matches].
    Two keys share an id with probability about groups^2 / 2^65 (64-bit hashes).
    """

    groups: tuple[Expression, ...]
    keys: tuple[pa.Array[Any], ...]
    ids: NDArray[np.int64]
    count: int
    hashes: NDArray[np.uint64]
    ids_by_hash: NDArray[np.int64]

    @classmethod
    def of(cls, groups: tuple[Expression, ...], rows: Frame) -> Self:
        """Number the groups by first appearance; without GROUP BY there is one, also of no rows."""
        if not groups:
            nothing = np.zeros(0, np.uint64)
            return cls((), (), np.zeros(len(rows), np.int64), 1, nothing, np.zeros(0, np.int64))
        table = GroupTable(len(rows))
        ids, first = table.assign(rows.keys(groups))
        hashes = table.hashes[1:]  # The first one is that of groups that found no room: of none.
        by_hash = np.argsort(hashes)
        indices: pa.Int64Array = pa.array(first, pa.int64())
        keys = tuple(rows.evaluate(group).take(indices) for group in groups)
        return cls(groups, keys, ids.astype(np.int64) - 1, len(first), hashes[by_hash], by_hash)

    def only(self, groups: NDArray[np.int64]) -> tuple[SampledGroups, NDArray[np.bool_]]:
        """Some groups, in this order; bool [matches], the rows that are of them."""
        place = np.full(self.count + 1, -1)  # The last one is that of rows of no group.
        place[groups] = np.arange(len(groups))
        ids = place[self.ids]
        kept: NDArray[np.bool_] = ids >= 0
        keys = tuple(key.take(pa.array(groups, pa.int64())) for key in self.keys)
        some = SampledGroups(
            self.groups, keys, ids[kept], len(groups), self.hashes, place[self.ids_by_hash]
        )
        return some, kept

    def of_rows(self, rows: Frame) -> NDArray[np.int64]:
        """The ids of other rows; -1 for groups that are not among these."""
        if not self.groups:
            return np.zeros(len(rows), np.int64)
        keys = rows.keys(self.groups)
        if not len(self.hashes):
            return np.full(len(keys), -1)
        at = np.minimum(np.searchsorted(self.hashes, keys), len(self.hashes) - 1)
        return np.where(self.hashes[at] == keys, self.ids_by_hash[at], -1)


@dataclass(frozen=True, slots=True, eq=False)
class ValueCounts:
    """The distinct values of an expression per group, as a sample saw them.

    group, rows: int64 [pairs], the group and the number of rows. row: int64 [pairs], a matching
    row that has the value.
    """

    group: NDArray[np.int64]
    rows: NDArray[np.int64]
    row: NDArray[np.int64]

    @classmethod
    def of(cls, hashes: Hashes, ids: NDArray[np.int64]) -> Self:
        """Count (group, value) pairs; ids [matches], pairs of group -1 are left out."""
        rows = np.arange(len(hashes.first)) if hashes.rows is None else hashes.rows
        known = ids[rows] >= 0
        rows, keys = rows[known], hashes.first[known]
        order = np.lexsort((keys, ids[rows]))
        rows, keys = rows[order], keys[order]
        group = ids[rows]
        new = np.ones(len(rows), np.bool_)
        new[1:] = (keys[1:] != keys[:-1]) | (group[1:] != group[:-1])
        starts = np.flatnonzero(new)
        return cls(group[starts], np.diff(np.append(starts, len(rows))), rows[starts])
