"""The groups of a standing query: dense ids, and the key values behind them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Expression
from shedder.streams.frame import Frame
from shedder.streams.ipc import table_bytes
from synopses.kernels.group_table import GroupTable
from synopses.kernels.small_integer_keys import SmallKeys

OTHERS = 0  # The id of the tuples whose group found no room.


class GroupKeys:
    """Ids for the value combinations of GROUP BY expressions, first come, up to a cap.

    Two different keys share an id with probability about groups^2 / 2^65 (64-bit hashes).

    While keys are small integers, ids are looked up by value: nothing is hashed.

    partial_from: groups with this id or a larger one may have tuples among the others of live
    panes, because they entered after a time when there was no room; None: no such group.
    """

    def __init__(self, expressions: tuple[Expression, ...], groups_max: int) -> None:
        self._expressions = expressions
        self._table = GroupTable(groups_max)
        self._groups_max = groups_max
        self._columns: list[list[pa.Array[Any]]] = [
            [pa.array([None], _arrow_type(e))] for e in expressions
        ]
        self._column_bytes = sum(chunk.nbytes for [chunk] in self._columns)
        self.partial_from: int | None = None
        self._small = SmallKeys()

    @property
    def size(self) -> int:
        """Number of ids in use, `others` included."""
        return int(self._table.size)

    @property
    def size_bytes(self) -> int:
        """Table and key values."""
        return int(self._table.size_bytes) + self._column_bytes

    @property
    def value_bytes(self) -> int:
        """Return the bytes of the key values alone; texts may be of any length."""
        return self._column_bytes

    def assign(self, frame: Frame) -> NDArray[np.int32]:
        """The group of every row; new groups get the next ids while there is room."""
        values = self._integers(frame)
        known = None if values is None else self._small.ids(values)
        if known is not None:
            return known
        ids, rows = self._table.assign(frame.keys(self._expressions))
        if len(rows):
            for chunks, expression in zip(self._columns, self._expressions, strict=True):
                self._append(chunks, frame.evaluate(expression).take(rows))
        if values is not None:
            self._small.learn(values, ids)
        return ids

    def _append(self, chunks: list[pa.Array[Any]], more: pa.Array[Any]) -> None:
        chunks.append(more)
        self._column_bytes += more.nbytes

    def _integers(self, frame: Frame) -> NDArray[np.int64] | None:
        """The only key of every row; None where there are several, or a row without one."""
        if len(self._expressions) != 1:
            return None
        present = frame.present(self._expressions[0])
        values = present.values
        if present.rows is not None or not isinstance(values, np.ndarray):
            return None
        return values.view(np.int64) if values.dtype == np.int64 else None

    def adopt(self, hashes: NDArray[np.uint64], keys: list[pa.Array[Any]]) -> NDArray[np.int64]:
        """Ids for groups read from a stored pane. hashes [groups], keys [groups] per expression."""
        ids, rows = self._table.assign(hashes)
        if len(rows):
            for chunks, column in zip(self._columns, keys, strict=True):
                self._append(chunks, column.take(rows))
        return ids.astype(np.int64)

    def hashes(self, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The key hashes of these groups."""
        return self._table.hashes[ids]

    def keys(self, ids: NDArray[np.int64]) -> tuple[pa.Array[Any], ...]:
        """The key values of these groups, one array per expression.

        Of consecutive groups they are not copied: wide keys are as large as all groups may be.
        """
        for index, chunks in enumerate(self._columns):
            if len(chunks) > 1:
                self._columns[index] = [pa.concat_arrays(chunks)]
        if len(ids) and bool((ids == np.arange(ids[0], ids[0] + len(ids))).all()):
            return tuple(chunks[0].slice(int(ids[0]), len(ids)) for chunks in self._columns)
        return tuple(chunks[0].take(ids) for chunks in self._columns)

    def note_partial(self, from_id: int | None) -> None:
        """Set the first group that may have tuples among the others; None: none has."""
        self.partial_from = from_id

    def freeze(self) -> None:
        """Take no new groups: the byte cap of an aggregate is reached."""
        self._table.limit(self.size - 1)  # The table does not count `others`.

    def make_room(self, groups_max: int, *, others: bool) -> None:
        """From now on there is room for so many groups, although there was none for a while.

        Args:
          groups_max: `others` not counted.
          others: whether live panes may have tuples of groups that found no room.
        """
        if self.frozen and others and self.partial_from is None:
            self.partial_from = self.size
        self._groups_max = groups_max
        self._table.limit(groups_max)

    @property
    def frozen(self) -> bool:
        """Return whether new groups go to the others."""
        return self.size > int(self._table.groups_max)

    @property
    def is_nearly_full(self) -> bool:
        """Return whether an eighth of the ids, or less, is left for new groups."""
        return 8 * self.size > 7 * int(self._table.groups_max)

    def to_bytes(self) -> bytes:
        """Serialize all ids, hashes and keys, and which groups may be in the overflow group."""
        ids = np.arange(1, self.size)
        columns = {f"k{i}": column for i, column in enumerate(self.keys(ids))}
        state = json.dumps({"frozen": self.frozen, "partial_from": self.partial_from})
        table = pa.table({"hash": pa.array(self.hashes(ids)), **columns})
        return table_bytes(table.replace_schema_metadata({"state": state}))

    def restore(self, data: bytes) -> None:
        """Give the groups of an earlier process the ids they had there; nothing else may have."""
        assert self.size == 1
        table = pa.ipc.open_stream(data).read_all().combine_chunks()
        if len(table):
            (batch,) = table.to_batches()
            self.adopt(batch.column(0).to_numpy(), batch.columns[1:])
        state = json.loads(table.schema.metadata[b"state"])
        self.partial_from = state["partial_from"]
        if state["frozen"]:
            self.freeze()

    def keep(self, ids: NDArray[np.int64]) -> None:
        """Forget all other groups; the kept ones become 1, 2, ... in this order."""
        self._small = SmallKeys()
        keys = self.keys(np.concatenate([np.zeros(1, np.int64), ids]))
        self._table.keep(ids)
        self._table.limit(self._groups_max)
        self._columns = [[column] for column in keys]
        self._column_bytes = sum(column.nbytes for column in keys)


def _arrow_type(expression: Expression) -> pa.DataType:
    kind = expression.type
    assert kind is not None, expression
    return kind.arrow
