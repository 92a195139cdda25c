"""Partial aggregates of a run per window and group: computing them, writing them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.archive.encoding.parquet_encoding import row_group_rows
from shedder.archive.encoding.run_writer import RunPlace
from shedder.archive.layouts.run_footer import file_metadata, rolled_file
from shedder.archive.metadata.catalog_entries import Rolled, RollupEntry, Run, StreamEntry
from shedder.archive.tasks.interruptible_call import aside
from shedder.cql.binding.rollup_definition import PartialState, Rollup
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Column
from shedder.cql.sql.rollup_sql import ROWS, state_name
from synopses.moments.moments import GroupedMoments

_SUM_TYPE = pa.decimal128(38, 0)


def roll_up(rollup: Rollup, table: pa.Table) -> pa.Table:
    """The partial aggregates of rows.

    Args:
      rollup: which.
      table: with at least the columns of the rollup; rows in any order.

    Returns:
      A row per window and group that has tuples, windows in order: the time column is the window's
      start, groups have their names (NaN is NULL), states those of docs/archive_format.md.
    """
    times = _int64(table[rollup.time_column])
    keys: list[Any] = [pa.array(times // rollup.width_us * rollup.width_us)]
    keys += [_without_nan(_whole(table[group.name])) for group in rollup.groups]
    groups, firsts = _numbered(keys)
    order = np.argsort(_int64(keys[0])[firsts], kind="stable")
    ids = np.argsort(order, kind="stable").astype(np.int32)[groups]
    firsts = firsts[order]
    chosen: Any = pa.array(firsts)
    found: dict[str, pa.Array[Any]] = {
        rollup.time_column: keys[0].take(chosen).cast(pa.timestamp("us"))
    }
    for group, key in zip(rollup.groups, keys[1:], strict=True):
        found[group.name] = key.take(chosen)
    found[ROWS] = pa.array(np.bincount(ids, minlength=len(firsts)).astype(np.int64))
    for column, kept in rollup.kept.items():
        found |= _states(column, kept, _whole(table[column.name]), ids, len(firsts))
    return pa.table(found)


def write_rolled(
    place: RunPlace,
    stream: StreamEntry,
    entry: RollupEntry,
    rollup: Rollup,
    run: Run,
    rows: pa.Table,
    deleted: int = 0,
) -> Rolled:
    """Write a run's partial aggregates durably; the catalog has to be told afterwards.

    Args:
      place: where.
      stream: whose run it is.
      entry, rollup: of the stream.
      run: of which.
      rows: of the run, without those that are deleted.
      deleted: how many those are.

    Raises:
      DiskFull, StorageFailed, Cancelled: nothing is in `runs/`.
    """
    table = aside(lambda: roll_up(rollup, rows), place.on_progress)
    size = row_group_rows(table)
    groups = (table.slice(at, size) for at in range(0, table.num_rows, size))
    metadata = {
        **file_metadata(stream, (run.first_position, run.end_position), blocks=1),
        "shedder.rollup": entry.name,
        "shedder.rollup_text": entry.text,
    }
    name = rolled_file(stream.id, run.first_position, run.end_position, entry.id)
    written = place.write(name, table, metadata, groups)
    size_bytes, crc = written.size_bytes, written.crc
    return Rolled(entry.id, written.name, table.num_rows, size_bytes, crc, deleted)


# --- groups ---------------------------------------------------------------------------------------


def _numbered(keys: list[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each row's group, int64 [rows], in order of appearance, and the first row of each group."""
    ids, groups = _codes(keys[0])
    for key in keys[1:]:
        more, different = _codes(key)
        ids, groups = _codes(pa.array(ids * different + more))
    firsts = np.empty(groups, np.int64)
    firsts[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
    return ids, firsts


def _codes(values: pa.Array[Any]) -> tuple[NDArray[np.int64], int]:
    """Equal values, NULLs among them, as equal numbers from 0; and how many different ones."""
    encoded: Any = pc.dictionary_encode(values, null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def _without_nan(values: Any) -> Any:
    if not pa.types.is_floating(values.type):
        return values
    function: Any = pc.if_else
    return function(pc.fill_null(pc.is_nan(values), True), pa.scalar(None, values.type), values)


# --- states ---------------------------------------------------------------------------------------


def _states(
    column: Column, kept: PartialState, values: pa.Array[Any], ids: NDArray[np.int32], groups: int
) -> dict[str, pa.Array[Any]]:
    """The states of one column. NULL and NaN are no values; a state of no values is NULL."""
    there = ids
    values = _without_nan(values)
    if values.null_count:
        rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        values, there = values.drop_null(), ids[rows]
    counts = np.bincount(there, minlength=groups).astype(np.int64)
    found: dict[str, pa.Array[Any]] = {"count": pa.array(counts)}
    if kept:
        found |= _moments(column, kept, values, there, groups)
    return {state_name(what, column.name): state for what, state in found.items()}


def _moments(
    column: Column, kept: PartialState, values: pa.Array[Any], ids: NDArray[np.int32], groups: int
) -> dict[str, pa.Array[Any]]:
    is_double = column.type is ColumnType.DOUBLE
    numbers = values.to_numpy() if is_double else _int64(values)
    moments = GroupedMoments(groups, not is_double, PartialState.SQUARES in kept)
    moments.update(ids, numbers)
    none = moments.counts() == 0
    found: dict[str, pa.Array[Any]] = {}
    if PartialState.SUM in kept:
        high, rest = moments.sums()
        if is_double:
            found["sum"], found["rest"] = pa.array(high, mask=none), pa.array(rest, mask=none)
        else:
            found["sum"] = _wide(high, rest, none)
    if PartialState.SQUARES in kept:
        found["squares"] = pa.array(moments.squares(), mask=none)
    for state, what, extreme in (
        (PartialState.LEAST, "least", moments.minimum()),
        (PartialState.MOST, "most", moments.maximum()),
    ):
        if state in kept:
            assert column.type is not None
            found[what] = _typed(pa.array(extreme.value, mask=none), column.type)
    return found


def _wide(
    low: NDArray[np.int64], high: NDArray[np.int64], null: NDArray[np.bool_]
) -> pa.Array[Any]:
    """Integers of 128 bits as decimals, which every reader of Parquet knows."""
    words = np.stack([low, high], axis=1).astype("<i8")
    valid = np.packbits(~null, bitorder="little")
    buffers: list[pa.Buffer | None] = [pa.py_buffer(valid.tobytes()), pa.py_buffer(words.tobytes())]
    return pa.Array.from_buffers(_SUM_TYPE, len(low), buffers)


def _typed(values: pa.Array[Any], kind: ColumnType) -> pa.Array[Any]:
    """Integers as the column's type has them: microseconds, days, truth."""
    if kind is ColumnType.DATE:
        values = values.cast(pa.int32())
    return values.cast(kind.arrow)


def _int64(values: Any) -> NDArray[np.int64]:
    """A column without NULLs as int64."""
    whole = _whole(values)
    if pa.types.is_date(whole.type):
        whole = whole.cast(pa.int32())
    found: NDArray[np.int64] = whole.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def _whole(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column
