"""Parquet encodings of a run's columns, and the basics of the columns.

Measured on 1 M rows (raw MB/s written, ratio): times DELTA_BINARY_PACKED 1,022, 6.3 (PLAIN 336,
3.9); doubles BYTE_STREAM_SPLIT 733, 1.12 (dictionary 268, 1.01), but prices in cents as a
dictionary 524, 6.0 (BYTE_STREAM_SPLIT 453, 1.6); skewed keys BYTE_STREAM_SPLIT 780, 7.2 (PLAIN
392, 6.0); a thousand texts as a dictionary 818, 12.6 (PLAIN 465, 6.4). Spark 4.3, DuckDB, pandas
and polars read all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shedder.archive.metadata.catalog_entries import RunBasics, Value
from shedder.cql.sql.exact_query import POSITION

ROW_GROUP_ROWS_MAX = 1 << 20
ROW_GROUP_BYTES = 128 << 20
TEXT_CHARACTERS_MAX = 1024

_SAMPLE_ROWS = 16_384
_TEXTS_MAX = 2_048  # Of a column that is dealt as a dictionary; a block has 32,768 rows or more.
_TEXTS_BYTES_MAX = 128 << 10
_DICTIONARY_SHARE = 0.3  # distinct values in the sample, above which a dictionary costs more


def open_writer(
    sink: Any, table: pa.Table, metadata: dict[str, str], statistics: Sequence[str] | None = None
) -> pq.ParquetWriter:
    """A Parquet writer with encodings that suit the table's values.

    Args:
      sink: a file, or its name.
      table: rows like those that will be written, with all columns.
      metadata: of the file.
      statistics: columns whose smallest and largest values are kept by row group; None: all.
    """
    dictionary, encodings = [], {}
    is_dealt = any(pa.types.is_dictionary(kind) for kind in table.schema.types)
    for field, column in zip(table.schema, table.columns, strict=True):
        encoding = "DELTA_BINARY_PACKED" if field.name == POSITION else choose_encoding(column)
        if encoding == "DICTIONARY":
            dictionary.append(field.name)
        else:
            encodings[field.name] = encoding
    writer = pq.ParquetWriter(
        sink,
        table.schema.remove_metadata() if is_dealt else table.schema.with_metadata(metadata),
        compression="zstd",
        compression_level=1,
        use_dictionary=dictionary,  # type: ignore[arg-type]
        column_encoding=encodings,
        write_statistics=True if statistics is None else list(statistics),
        write_page_checksum=True,
        coerce_timestamps="us",
        version="2.6",
        store_schema=not is_dealt,  # Readers shall get texts, not how they came here.
        max_rows_per_page=ROW_GROUP_ROWS_MAX,  # pages end at 1 MiB; 20,000 rows would be too few
    )
    if is_dealt:
        writer.add_key_value_metadata(metadata)
    return writer


def row_group_rows(table: pa.Table) -> int:
    """Rows per row group: about 128 MiB of raw data, and at most 1,048,576 rows."""
    by_size = ROW_GROUP_BYTES * table.num_rows // max(1, table.nbytes)
    return max(1, min(ROW_GROUP_ROWS_MAX, by_size))


def choose_encoding(column: pa.ChunkedArray[Any]) -> str:
    """A Parquet encoding's name, from the type and a sample of the values."""
    if pa.types.is_dictionary(column.type):
        return "DICTIONARY"
    if pa.types.is_boolean(column.type) or pa.types.is_decimal(column.type):
        return "PLAIN"
    if _distinct_share(column) < _DICTIONARY_SHARE:
        return "DICTIONARY"
    if pa.types.is_temporal(column.type):
        return "DELTA_BINARY_PACKED"
    if pa.types.is_string(column.type):
        return "PLAIN"
    return "BYTE_STREAM_SPLIT"


def few_texts(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any] | None:
    """A column of texts as a dictionary and numbers, where there are few; None: there are many.

    Numbers are moved, and written, in a fifth of the time of texts. Each row group that is written
    of the column has the whole dictionary, so it must be small.
    """
    sample = _sample(column)
    if pc.count_distinct(sample).as_py() > _TEXTS_MAX:
        return None
    found: pa.ChunkedArray[Any] = column.dictionary_encode().unify_dictionaries()
    if not found.num_chunks:
        return None
    texts = cast(Any, found.chunk(0)).dictionary
    return found if len(texts) <= _TEXTS_MAX and texts.nbytes <= _TEXTS_BYTES_MAX else None


def _distinct_share(column: pa.ChunkedArray[Any]) -> float:
    """Distinct values per row, in up to 16,384 rows from eight places."""
    sample = _sample(column)
    return pc.count_distinct(sample).as_py() / max(1, len(sample))


def _sample(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    rows = len(column)
    if rows <= _SAMPLE_ROWS:
        return column
    piece = _SAMPLE_ROWS // 8
    starts = np.linspace(0, rows - piece, 8).astype(np.int64)
    return pa.chunked_array(
        [chunk for start in starts for chunk in column.slice(int(start), piece).chunks],
        column.type,
    )


def basics_of(table: pa.Table) -> dict[str, RunBasics]:
    """Nulls, smallest and largest value of each column; NaN counts as NULL.

    A dictionary must hold no value that does not occur.
    """
    return {
        field.name: _column_basics(column)
        for field, column in zip(table.schema, table.columns, strict=True)
    }


def _plain_ends(column: pa.ChunkedArray[Any]) -> tuple[float, float] | None:
    """Smallest and largest of numbers; None where one is NaN or NULL, or there are none."""
    if column.null_count or not len(column):
        return None
    chunks = [chunk.to_numpy() for chunk in column.chunks if len(chunk)]
    lows = [float(chunk.min()) for chunk in chunks]  # NaN where one is
    if any(map(math.isnan, lows)):
        return None
    return min(lows), max(float(chunk.max()) for chunk in chunks)


def _column_basics(column: pa.ChunkedArray[Any]) -> RunBasics:
    nulls = column.null_count
    if pa.types.is_floating(column.type) and (ends := _plain_ends(column)) is not None:
        return RunBasics(0, *ends)
    if pa.types.is_floating(column.type):
        nulls += int(pc.sum(pc.is_nan(column)).as_py() or 0)  # type: ignore[type-var]
        if nulls == len(column):
            return RunBasics(nulls, None, None)
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    if pa.types.is_dictionary(column.type):  # Each of its texts occurs.
        column = pa.chunked_array([chunk.dictionary for chunk in column.chunks])  # type: ignore[attr-defined]
    found = pc.min_max(column)
    low, high = cast(Value, found["min"].as_py()), cast(Value, found["max"].as_py())
    exact = True
    if isinstance(low, str) and len(low) > TEXT_CHARACTERS_MAX:
        low, exact = None, False
    if isinstance(high, str) and len(high) > TEXT_CHARACTERS_MAX:
        high, exact = None, False
    return RunBasics(nulls, low, high, exact)
