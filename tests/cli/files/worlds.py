"""Reading files as `shedder push --create` does, without an engine."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from shedder.cli.files.bad_rows import BadRows
from shedder.cli.files.cell_values import Changes
from shedder.cli.files.formats import Dialect, format_of
from shedder.cli.files.row_file import FileColumns, RowFile


def read(
    path: Path,
    dialect: Dialect | None = None,
    *,
    types: dict | None = None,
    bad: BadRows | None = None,
    changes: Changes | None = None,
) -> tuple[dict[str, str], list[dict]]:
    """The types that a file's columns get, and its rows."""
    file = RowFile(path, format_of(path), dialect or Dialect())
    names = file.names()
    said = types or {}
    found = file.types([name for name in names if name not in said], skips_bad=bad is not None)
    columns = {name: said.get(name) or found[name].type for name in names}
    blocks = file.rows(FileColumns(columns), lambda share: None, bad, changes)
    batches = [rows.batch for rows in blocks]
    rows = pa.Table.from_batches(batches).to_pylist() if batches else []
    return {name: kind.value for name, kind in columns.items()}, rows
