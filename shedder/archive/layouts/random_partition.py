"""Arrow columns moved row by row to where the deal has put them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.encoding.parquet_encoding import few_texts
from shedder.archive.layouts.row_source import POSITION_FIELD, Rows
from shedder.cql.sql.exact_query import POSITION
from synopses.samples.random_partition import deal, move, move_texts, number, places

OFFSETS_MAX = (1 << 31) - 1


def dealt(given: Rows, time_column: str, *, seed: int, sizes: NDArray[np.int64]) -> pa.Table:
    """The rows in their blocks, one after the other, each by time and then by position.

    Args:
      given: rows in order of position.
      time_column: of them.
      seed: of the stream.
      sizes: rows of each block, shape [blocks].

    Returns:
      the table with one more column, POSITION, and texts of which there are few as a dictionary.
    """
    table, rows = given.table, given.table.num_rows
    with ThreadPoolExecutor(2, thread_name_prefix="shedder-deal") as threads:
        few = {
            n: threads.submit(few_texts, table[n]) for n in table.column_names if _is_text(table[n])
        }
        order = time_order(table[time_column])
        blocks = deal(seed, given.first_position, sizes, _fresh(rows, "u2")[0])
        to = places(blocks, order, sizes, _fresh(rows, "i4")[0])

        def moved(name: str) -> pa.Array[Any]:
            encoded = few[name].result() if name in few else None
            return _moved(table[name], to) if encoded is None else _moved_few(encoded, to)

        arrays = list(threads.map(moved, table.column_names))
    if POSITION in table.column_names:
        return pa.Table.from_arrays(arrays, schema=_schema(table.schema, arrays))
    positions, buffer = _fresh(rows, "i8")
    number(given.first_position, to, positions)
    arrays.append(pa.Array.from_buffers(pa.int64(), rows, [None, buffer]))
    fields = [*table.schema, POSITION_FIELD]
    return pa.Table.from_arrays(arrays, schema=_schema(fields, arrays))


def _schema(fields: Iterable[pa.Field[Any]], arrays: Sequence[pa.Array[Any]]) -> pa.Schema:
    """The fields, with the types that the columns have now."""
    return pa.schema([f.with_type(a.type) for f, a in zip(fields, arrays, strict=True)])


def time_order(times: pa.ChunkedArray[Any]) -> NDArray[np.int64] | None:
    """The stable order of rows by time; None when they are in order. Shape [rows]."""
    chunks = [chunk.cast(pa.int64()).to_numpy() for chunk in times.chunks if len(chunk)]
    inside = all(bool((chunk[:-1] <= chunk[1:]).all()) for chunk in chunks)
    if inside and all(before[-1] <= after[0] for before, after in pairwise(chunks)):
        return None
    return np.argsort(np.concatenate(chunks), kind="stable")


def _moved(column: pa.ChunkedArray[Any], to: NDArray[np.int32]) -> pa.Array[Any]:
    rows, kind = len(column), column.type
    validity = None
    if column.null_count:
        bits = np.concatenate([_booleans(chunk.is_valid()) for chunk in column.chunks])
        validity = _packed(bits, to)
    if pa.types.is_boolean(kind):
        bits = np.concatenate([_booleans(chunk.fill_null(False)) for chunk in column.chunks])
        buffers = [validity, _packed(bits, to)]
    elif pa.types.is_string(kind):
        return _moved_texts(column, to, validity)
    else:
        buffers = [validity, _moved_numbers(column, to)]
    return pa.Array.from_buffers(kind, rows, buffers, column.null_count)


def _moved_few(column: pa.ChunkedArray[Any], to: NDArray[np.int32]) -> pa.Array[Any]:
    """A column of numbers into one dictionary."""
    chunks: list[Any] = column.chunks
    numbers = pa.chunked_array([chunk.indices for chunk in chunks])
    return pa.DictionaryArray.from_arrays(_moved(numbers, to), chunks[0].dictionary)


def _is_text(column: pa.ChunkedArray[Any]) -> bool:
    return pa.types.is_string(column.type)


def _moved_numbers(column: pa.ChunkedArray[Any], to: NDArray[np.int32]) -> pa.Buffer:
    width = column.type.bit_width // 8
    out, buffer = _fresh(len(column), f"u{width}")
    done = 0
    for chunk in column.chunks:
        data = memoryview(_some(chunk.buffers()[1]))
        values = np.frombuffer(data, out.dtype, len(chunk), chunk.offset * width)
        move(values, to[done : done + len(chunk)], out)
        done += len(chunk)
    return buffer


def _moved_texts(
    column: pa.ChunkedArray[Any], to: NDArray[np.int32], validity: pa.Buffer | None
) -> pa.Array[Any]:
    rows = len(column)
    lengths = np.empty(rows, np.int32)
    parts = []
    done = 0
    for chunk in column.chunks:
        _, offsets, data = chunk.buffers()
        at = np.frombuffer(memoryview(_some(offsets)), np.int32, len(chunk) + 1, chunk.offset * 4)
        here = to[done : done + len(chunk)]
        move(np.diff(at), here, lengths)
        parts.append((at, np.frombuffer(memoryview(_some(data)), np.uint8), here))
        done += len(chunk)
    ends = np.zeros(rows + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    out, buffer = _fresh(int(ends[-1]), "u1")
    for at, text, here in parts:
        move_texts(at, text, here, ends, out)
    wide = ends[-1] > OFFSETS_MAX
    kind, width = (pa.large_string(), np.int64) if wide else (pa.string(), np.int32)
    buffers = [validity, pa.py_buffer(ends.astype(width).data), buffer]
    return pa.Array.from_buffers(kind, rows, buffers, column.null_count)


def _fresh(count: int, kind: str) -> tuple[NDArray[Any], pa.Buffer]:
    """Memory of Arrow's pool, as an array and as a buffer: it is that of the run before, while new
    pages of the system cost up to 4 ms each where they are huge and it has to look for them."""
    buffer = pa.allocate_buffer(count * np.dtype(kind).itemsize)
    return np.frombuffer(memoryview(buffer), kind), buffer


def _some(buffer: pa.Buffer | None) -> pa.Buffer:
    """The buffer; Arrow leaves it out where there is not a byte in it."""
    return pa.py_buffer(b"") if buffer is None else buffer


def _booleans(array: pa.Array[Any]) -> NDArray[np.bool_]:
    return array.to_numpy(zero_copy_only=False)


def _packed(bits: NDArray[np.bool_], to: NDArray[np.int32]) -> pa.Buffer:
    out = np.empty(bits.size, np.uint8)
    move(bits.view(np.uint8), to, out)
    return pa.py_buffer(np.packbits(out, bitorder="little").data)
