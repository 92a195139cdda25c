"""Rows of Parquet files, with their own Arrow types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from shedder.cli.files.rows import NumberedRows, numbered

_ROWS = 65_536
# INT96 counts days and nanoseconds: microseconds reach the years 1 to 9999, nanoseconds do not.
_INT96_UNIT = "us"
_PANDAS_INDEX = "__index_level_"


def parquet_schema(path: Path) -> pa.Schema:
    """The columns of a file; the index that pandas adds is not one of them."""
    import pyarrow.parquet as pq  # Heavy; most commands read no such file.

    with pq.ParquetFile(path, coerce_int96_timestamp_unit=_INT96_UNIT) as file:
        schema = file.schema_arrow
    return pa.schema([field for field in schema if not field.name.startswith(_PANDAS_INDEX)])


def parquet_rows(
    path: Path, wanted: Sequence[str], progress: Callable[[float], None]
) -> Iterator[NumberedRows]:
    """All rows of the wanted columns; `progress` is called with the share that was read."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, coerce_int96_timestamp_unit=_INT96_UNIT) as file:
        read, rows = 0, max(file.metadata.num_rows, 1)
        for batch in file.iter_batches(_ROWS, columns=list(wanted)):
            yield numbered(read + 1, batch.select(list(wanted)))
            read += batch.num_rows
            progress(read / rows)
