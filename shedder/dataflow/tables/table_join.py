"""Join of stream tuples with the versions of a table that were valid at their places.

Later changes of the table change no pair, so the output has the lifetimes and the update pattern
of the stream side (NRR join: Golab 2006, sec. 3.3). A row of negative weight has the place of the
row that it deletes, so it meets the same versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.evaluate import evaluate, true_rows
from shedder.cql.expressions.expression import Column, Expression
from shedder.cql.plans.logical_plan import JoinKind
from shedder.dataflow.batch_rows import concat_rows, take_rows
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.joins.join_keys import directory_of
from shedder.dataflow.key_directory import KeyDirectory
from shedder.dataflow.projection import Projection
from shedder.dataflow.selection import WhereFilter
from shedder.dataflow.step_parts import Parts, finished
from shedder.dataflow.tables.table_places import TablePlaces
from shedder.dataflow.tables.table_side import stream_of_position
from shedder.dataflow.tables.table_versions import NEVER, TableVersions
from shedder.dataflow.tables.version_kernels import (
    BEGIN,
    END,
    link_versions,
    probe_newest,
    probe_versions,
)
from shedder.errors import BudgetExceeded

_PAIRS_MAX = 1 << 16  # Pairs that are made at a time, before a condition on pairs drops some.
_NO_PLACE = -1  # Of a side without a row; less than each place, and than each position.

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TableJoinSpec:
    """What makes a pair, and what becomes of the pairs.

    kind: INNER, LEFT, SEMI or ANTI.
    keys: (stream, table) expressions that are equal in a pair, with one type; (): all pairs.
    left: condition of the stream's row; a row for which it is not true has no pair. None: none.
    rest: condition on both sides; None: none.
    positions: columns of the stream side with positions of tuples; a row's place is the largest
      place of those that are not NULL.
    all_positions: decide where all of `positions` are NULL, of sides without a row.
    kept: columns of the stream side in the output.
    steps: WHERE and select lists over the table, applied in this order.
    """

    kind: JoinKind
    keys: tuple[tuple[Expression, Expression], ...]
    left: Expression | None
    rest: Expression | None
    positions: tuple[str, ...]
    all_positions: tuple[str, ...]
    kept: tuple[str, ...]
    steps: tuple[WhereFilter | Projection, ...]


class TableJoin:
    """Index of a table's versions by join key; rows of the stream are not held."""

    def __init__(
        self,
        spec: TableJoinSpec,
        left: pa.Schema,
        versions: TableVersions,
        places: TablePlaces,
        bytes_max: int,
    ) -> None:
        """A join with what `versions` will have. left: of the stream side.

        places: of the changes of the versions. bytes_max: of the pairs of one step.
        """
        self._spec = spec
        self._versions = versions
        self._places = places
        self._bytes_max = bytes_max
        self._right = versions.schema
        for step in spec.steps:
            self._right = step.schema if isinstance(step, Projection) else self._right
        fields = [left.field(name) for name in spec.kept]
        self._is_pair = spec.kind in (JoinKind.INNER, JoinKind.LEFT)
        self.schema = pa.schema([*fields, *self._right] if self._is_pair else fields)
        self._is_unique = self._has_table_key()
        names = {
            right.name.partition(".")[2] for _, right in spec.keys if isinstance(right, Column)
        }
        is_key = len(spec.keys) == len(names) and names == set(versions.key)
        self._is_table_key = is_key and self._is_unique and not spec.steps
        self._equal = {} if spec.steps else _equal_columns(spec.keys)
        self._clear()

    def _clear(self) -> None:
        self._generation = self._versions.generation
        self._linked = 0
        self._directory: KeyDirectory | None = None
        if self._spec.keys:
            self._directory = directory_of([key for key, _ in self._spec.keys])
        self._heads = np.full(2, END, np.int32)
        self._older = np.empty(0, np.int32)

    def set_bytes_max(self, bytes_max: int) -> None:
        """Have another limit of the pairs of one step."""
        self._bytes_max = bytes_max

    @property
    def spec(self) -> TableJoinSpec:
        """What makes a pair."""
        return self._spec

    @property
    def versions(self) -> TableVersions:
        """The rows of the table, which several joins may read."""
        return self._versions

    @property
    def size_bytes(self) -> int:
        """Bytes of the index; `TableVersions` has the rows."""
        keys = 0 if self._directory is None else self._directory.size_bytes
        return keys + self._heads.nbytes + self._older.nbytes

    @property
    def keeps_order(self) -> bool:
        """Return whether a row is at most once in the output."""
        return self._is_unique or not self._is_pair

    def _has_table_key(self) -> bool:
        """Return whether the keys have the table's key, so that a row has one pair at most."""
        names = {right.name for _, right in self._spec.keys if isinstance(right, Column)}
        own = {name.partition(".")[2] for name in names & set(self._versions.schema.names)}
        projects = any(isinstance(step, Projection) for step in self._spec.steps)
        return not projects and own >= set(self._versions.key)

    def apply(self, as_of_us: int, left: ChangeBatch) -> ChangeBatch:
        """As `parts`, at once."""
        return finished(self.parts(as_of_us, left))

    def parts(self, as_of_us: int, left: ChangeBatch) -> Parts[ChangeBatch]:  # noqa: ARG002
        """Join rows of the stream side. The versions stay as they are until the last part.

        Raises:
          BudgetExceeded: the pairs of this step need more bytes than the limit.
        """
        self._link()
        spec = self._spec
        ours = left.columns.select(list(spec.kept))
        if not len(left):
            return ChangeBatch.empty(self.schema)
        if not self._is_pair:
            found = np.zeros(len(left), np.bool_)
            for number, (rows, _) in enumerate(self._pairs(left)):
                if number:
                    yield
                found[rows] = True
            wanted = found if spec.kind is JoinKind.SEMI else ~found
            return left.with_columns(ours).where(wanted)
        return (yield from self._joined(left, ours))

    def _joined(self, left: ChangeBatch, ours: pa.RecordBatch) -> Parts[ChangeBatch]:
        """Make the pairs of an inner or outer join. ours: the kept columns of the left side."""
        spec = self._spec
        made_rows: list[Int64s] = []
        made: list[pa.RecordBatch] = []
        size_bytes = 0
        for number, (rows, theirs) in enumerate(self._pairs(left)):
            if number:
                yield
            size_bytes += theirs.nbytes + rows.nbytes * (5 + len(spec.kept))
            if size_bytes > self._bytes_max:
                raise BudgetExceeded(
                    f"a join with a table made pairs of more than {self._bytes_max:,} bytes in one "
                    "step; a further condition makes fewer pairs"
                )
            if len(rows):
                made_rows.append(rows)
                made.append(theirs)
        if spec.kind is JoinKind.LEFT:
            alone = np.ones(len(left), np.bool_)
            for rows in made_rows:
                alone[rows] = False
            made_rows.append(np.flatnonzero(alone))
            made.append(_nulls(self._right, len(made_rows[-1])))
        if not made:
            return ChangeBatch.empty(self.schema)
        rows = made_rows[0] if len(made_rows) == 1 else np.concatenate(made_rows)
        theirs = concat_rows(made)
        if spec.kind is JoinKind.LEFT and len(made) > 1 and len(made_rows[-1]):
            order = np.argsort(rows, kind="stable")
            rows, theirs = rows[order], take_rows(theirs, order)
        is_each_once = len(rows) == len(left) and self.keeps_order  # So in order, too.
        if not is_each_once:
            left = left.with_columns(ours).take(rows)
            ours = left.columns
        columns = [*ours.columns, *theirs.columns]
        return left.with_columns(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def _link(self) -> None:
        """Index the versions that came since the last time."""
        if self._generation != self._versions.generation:
            self._clear()
        first, size = self._linked, len(self._versions)
        if first == size:
            return
        self._linked = size
        positions = np.arange(first, size)
        table = ChangeBatch.of_tuples(self._versions.take(positions), positions)
        for step in self._spec.steps:
            table = step.apply(0, table)
        columns = [evaluate(key, table.columns) for _, key in self._spec.keys]
        usable = _all_valid(columns, len(table))
        ids = np.ones(len(table), np.int64)
        if self._directory is not None:
            ids = self._directory.assign(columns)
        count = 2 if self._directory is None else self._directory.size
        self._heads = _grown(self._heads, count)
        self._older = _grown(self._older, size)
        chosen = table.ts_us[usable]
        link_versions(ids[usable].astype(np.int32), chosen, self._heads, self._older)

    def _pairs(self, left: ChangeBatch) -> Iterator[tuple[Int64s, pa.RecordBatch]]:
        """Rows of the stream side, and the table's rows that they pair with."""
        spec = self._spec
        first_only = self._is_unique or (spec.rest is None and not self._is_pair)
        ids = self._ids(left)
        places = self._places_of(left.columns)
        if self._is_table_key and spec.rest is None and self._is_settled(places):
            pairs = np.empty((2, len(left)), np.int64)
            rows, positions = pairs[:, : probe_newest(ids, self._heads, pairs)]
            if len(rows):
                yield rows, self._theirs(left, rows, positions)
            return
        walk, spans = np.array([0, BEGIN], np.int64), self._versions.spans
        room = max(_PAIRS_MAX, len(left) + 1) if spec.rest is None else _PAIRS_MAX
        made = room
        while made == room:
            pairs = np.empty((2, room), np.int64)
            heads, older = self._heads, self._older
            made = probe_versions(walk, ids, places, heads, older, spans, first_only, pairs)
            rows, positions = pairs[:, :made]
            theirs = self._theirs(left, rows, positions)
            if spec.rest is not None and made:
                ours = take_rows(left.columns, rows)
                both = pa.RecordBatch.from_arrays(
                    [*ours.columns, *theirs.columns],
                    schema=pa.schema([*ours.schema, *theirs.schema]),
                )
                kept = np.flatnonzero(true_rows(evaluate(spec.rest, both)))
                rows, theirs = rows[kept], take_rows(theirs, kept)
            yield rows, theirs

    def _ids(self, left: ChangeBatch) -> Int64s:
        """The ids of the keys of the stream's rows; 0: the row has no pair."""
        spec = self._spec
        if self._directory is None:
            ids = np.ones(len(left), np.int64)
        else:
            keys = [evaluate(key, left.columns) for key, _ in spec.keys]
            ids = self._directory.find(keys)
            if any(key.null_count for key in keys):
                ids[~_all_valid(keys, len(left))] = 0
        if spec.left is not None:
            ids[~true_rows(evaluate(spec.left, left.columns))] = 0
        return ids

    def _places_of(self, columns: pa.RecordBatch) -> Int64s:
        """The place of each row, as of `TableJoinSpec`."""
        spec = self._spec
        places = self._largest(columns, spec.positions)
        if spec.all_positions == spec.positions:
            return places
        return np.where(places == _NO_PLACE, self._largest(columns, spec.all_positions), places)

    def _largest(self, columns: pa.RecordBatch, names: Sequence[str]) -> Int64s:
        return reduce(np.maximum, (self._column_places(columns, name) for name in names))

    def _column_places(self, columns: pa.RecordBatch, name: str) -> Int64s:
        column, alias = columns.column(name), stream_of_position(name)
        if not column.null_count:
            return self._places.of(alias, column.to_numpy())
        positions = column.fill_null(_NO_PLACE).to_numpy()
        places = self._places.of(alias, positions)
        return np.where(positions == _NO_PLACE, _NO_PLACE, places)

    def _is_settled(self, places: Int64s) -> bool:
        """Return whether the last version of each primary key is valid at all of these places."""
        return bool(places.min(initial=NEVER) >= self._versions.settled_at)

    def _theirs(self, left: ChangeBatch, rows: Int64s, positions: Int64s) -> pa.RecordBatch:
        """The values of versions that are in pairs with rows, behind the select lists.

        Of SEMI and ANTI joins without a condition on both sides, no values: numbers of the rows.
        """
        if self._spec.rest is None and not self._is_pair:
            return pa.record_batch([pa.array(rows)], names=["row"])
        if self._equal:
            return self._values(left, rows, positions)
        values = self._versions.take(positions)
        for step in self._spec.steps:
            if isinstance(step, Projection):
                values = step.apply(0, ChangeBatch.of_tuples(values, positions)).columns
        return values

    def _values(self, left: ChangeBatch, rows: Int64s, positions: Int64s) -> pa.RecordBatch:
        """The values of versions; those that equal values of the rows are taken from the rows."""
        names = self._versions.schema.names
        equal = left.columns.select(list(self._equal.values()))
        if not self._is_unique or len(rows) < len(left):  # Else each row is there once, in order.
            equal = take_rows(equal, rows)
        arrays = dict(zip(self._equal, equal.columns, strict=True))
        for name in names:
            if name not in arrays:
                arrays[name] = self._versions.take_column(name, positions)
        return pa.RecordBatch.from_arrays(
            [arrays[it] for it in names], schema=self._versions.schema
        )


def _equal_columns(keys: Sequence[tuple[Expression, Expression]]) -> dict[str, str]:
    """Columns of the stream by columns of the table that have the same values in each pair.

    0.0 and -0.0 are equal, and are not the same value.
    """
    return {
        right.name: left.name
        for left, right in keys
        if isinstance(left, Column)
        and isinstance(right, Column)
        and left.type == right.type
        and left.type is not ColumnType.DOUBLE
    }


def _all_valid(columns: Sequence[pa.Array[Any]], size: int) -> NDArray[np.bool_]:
    valid = np.ones(size, np.bool_)
    for column in columns:
        if column.null_count:
            valid &= np.asarray(column.is_valid())
    return valid


def _grown(array: NDArray[np.int32], size: int) -> NDArray[np.int32]:
    """The array with at least `size` places; new ones are END."""
    if size <= len(array):
        return array
    wide = np.full(max(size, 2 * len(array)), END, np.int32)
    wide[: len(array)] = array
    return wide


def _nulls(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    nulls: Any = pa.nulls
    arrays = [nulls(rows, kind) for kind in schema.types]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
