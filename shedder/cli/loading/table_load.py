"""Load of files into a table: all rows are checked before the first one is put."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import IO

import pyarrow as pa

from shedder.cli.files.bad_rows import BadRows
from shedder.cli.files.cell_values import Changes
from shedder.cli.files.row_file import FileColumns, Nowhere, RowFile
from shedder.cli.files.rows_without_time import Untimed
from shedder.cli.loading.loads import LoadTally, Shows, say_changes
from shedder.cli.loading.schema_inference import listed, naming
from shedder.cli.stderr import say
from shedder.cql.statements.table_schema import TableSchema
from shedder.queries.answers.database_api import Database
from shedder.streams.batch_conversion import conform


def load_table(
    database: Database,
    schema: TableSchema,
    files: Sequence[RowFile],
    columns: str | None,
    bad_rows: IO[str] | None,
    shows: Shows,
) -> None:
    """Put the rows of files into a table, in the order of the files; a later row replaces.

    The files are read twice, so a row that is refused is found before the first one is put.

    Args:
      database: has the table.
      schema: of the table.
      files: with rows of the table.
      columns: names by comma that are read; None: those of the table that a file has.
      bad_rows: takes the rows that cannot be read; None: the first one refuses all files.
      shows: shows the progress.

    Raises:
      BadBatch, BadTimestamp, SchemaMismatch: a row is refused; says which. Nothing was put.
    """
    reading, timed, put_rows = _reading(schema, columns), LoadTally(), 0
    with timed.timing():
        for file in files:
            bad, changes = BadRows(file.part_name, bad_rows), Changes()
            _for_each(file, reading, bad, changes, shows, partial(_checked, schema))
            say_changes(file, reading, Untimed(), bad, changes)
        for file in files:
            bad = BadRows(file.part_name, None if bad_rows is None else Nowhere())
            put = partial(_put, database, schema.name)
            put_rows += _for_each(file, reading, bad, Changes(), shows, put)
    rows = "1 row" if put_rows == 1 else f"{put_rows:,} rows"
    speed = put_rows / max(timed.elapsed_s, 1e-9)
    say(f"{schema.name}: {rows} put in {timed.elapsed_s:.1f} s ({speed:,.0f} rows/s)", "green")


def _checked(schema: TableSchema, rows: pa.RecordBatch) -> int:
    return sum(batch.num_rows for batch in conform(rows, schema))


def _put(database: Database, name: str, rows: pa.RecordBatch) -> int:
    return database.push(name, rows).rows


def _for_each(
    file: RowFile,
    reading: FileColumns,
    bad: BadRows,
    changes: Changes,
    shows: Shows,
    work: Callable[[pa.RecordBatch], int],
) -> int:
    """Do some work with each block of a file; returns the sum of what the work returns."""
    tally = LoadTally()
    with shows(file.path.name, tally) as show:
        for rows in file.rows(reading, show, bad, changes):
            with naming(file, rows):
                tally.rows += work(rows.batch)
    return tally.rows


def _reading(schema: TableSchema, columns: str | None) -> FileColumns:
    """The columns to read; without a list, a file may lack those that can be NULL."""
    known = {column.name: column for column in schema.columns}
    named = listed(columns, list(known), f"table {schema.name}")
    nullable = [name for name in named if columns is None and known[name].nullable]
    return FileColumns(
        columns={name: known[name].type for name in named},
        optional=frozenset(nullable),
        others=columns is not None,
    )
