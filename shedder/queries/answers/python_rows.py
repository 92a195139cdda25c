"""Rows of tables as Python's values, also where Python has no such day or moment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """As `to_pylist`; a day or moment outside of the years 1 to 9999 is a numpy.datetime64."""
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OverflowError, ValueError):
        columns = [[_plain(cell) for cell in column] for column in table.columns]
        names = table.column_names
        return [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]
    return rows


def _plain(cell: Any) -> Any:
    """One value; of a list or a struct, those inside."""
    if not cell.is_valid:
        return None
    kind = cell.type
    if pa.types.is_list(kind):
        return [_plain(item) for item in cell.values]
    if pa.types.is_struct(kind):
        return {name: _plain(part) for name, part in cell.items()}
    try:
        return cell.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_date(kind):
            return np.datetime64(cell.value, "D")
        return np.datetime64(cell.cast(pa.timestamp("us")).value, "us")
