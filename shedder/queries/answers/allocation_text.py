"""EXPLAIN ALLOCATION as text for people: a paragraph for each query, on a hundred columns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

LAYOUT: Final = b"shedder.layout"
"""Metadata of a table's schema: how it is laid out as text, where not as rows of cells."""
ALLOCATION: Final = b"allocation"

_ROWS_PRINTED = 200
_NAMES_WIDTH = 36
_HEADS = ("bytes", "read", "target", "predicted", "measured", "needs", "per KiB", "per ns")
_WIDTHS = (12, 5, 6, 9, 8, 11, 7, 7)
_LEGEND = (
    "bytes: the most that it may hold. needs: those for its target. "
    "Errors: half widths at the query's confidence.\n"
    "per KiB, per ns: by how much the error falls for a KiB more, or a ns more of each tuple."
)

_ROWS_LEGEND = (
    "Row queries: read is the share of the keys that are kept, predicted the false negatives plus\n"
    "false positives of the rows."
)

Row = dict[str, Any]


def laid_out(table: pa.Table) -> str:
    """The table of `EXPLAIN ALLOCATION`, its rows by query; without what is only for programs."""
    rows: list[Row] = table.slice(0, _ROWS_PRINTED).to_pylist()
    lines = [_line("", _HEADS)]
    for query, group in groupby(rows, key=lambda row: row["query"]):
        own = list(group)
        if query is None:
            lines += [_line(row["synopsis"], [_count(row["size_bytes"])]) for row in own]
        else:
            lines += _of_query(query, own)
    if table.num_rows > len(rows):
        lines.append(f"… {table.num_rows - len(rows):,} more rows")
    lines.append(_line("all", [_count(sum(filter(None, table["size_bytes"].to_pylist())))]))
    has_rows = any(row["predicted_fn"] is not None for row in rows)
    return "\n".join([*lines, "", _LEGEND, *([_ROWS_LEGEND] if has_rows else [])])


def _of_query(query: str, rows: Sequence[Row]) -> list[str]:
    """The query with its weight and the sum of its bytes; below it, what that sum is made of."""
    weights = [row["weight"] for row in rows if row["weight"] is not None]
    weight = "" if not weights or weights[0] == 1.0 else f" (weight {weights[0]:g})"
    if weights and weights[0] == 0.0:
        weight = " (inactive)"
    total = _count(sum(row["size_bytes"] for row in rows))
    in_room = any(row["synopsis"] == "room for groups" for row in rows)
    lines = _names(f"{query}{weight}", [total], "")
    for row in rows:
        lines += _names(row["synopsis"], _numbers(row, in_room=in_room), "  ")
        if row["answers"]:
            lines += _names(row["answers"], [], "    ")
    return lines


def _numbers(row: Row, *, in_room: bool) -> list[str]:
    """in_room: what has no bytes of its own has them in the room for groups."""
    none = "in room" if in_room else "0"
    if row["needed_bytes"] is None:
        needed = "" if row["target"] is None else "no size"
    else:
        needed = "" if row["target"] is None else _count(row["needed_bytes"]) or none
    read = "all" if row["thinning"] == "1" else row["thinning"] or ""
    return [
        _count(row["size_bytes"]) or none,
        read,
        _number(row["target"], _percent),
        _number(row["predicted_error"] if row["thinning"] else None, _percent),
        _number(row["measured_error"], _percent),
        needed,
        _number(row["saved_per_kib"], _price),
        _number(row["saved_per_ns"], _price),
    ]


def _names(text: str, cells: Sequence[str], indent: str) -> list[str]:
    """What a line is about, in lines of its own where it is long, and its numbers."""
    *above, last = textwrap.wrap(
        text, _NAMES_WIDTH, initial_indent=indent, subsequent_indent=indent + "  "
    ) or [indent]
    return [*above, _line(last, cells)]


def _line(name: str, cells: Sequence[str]) -> str:
    parts = [cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=False)]
    return " ".join([name.ljust(_NAMES_WIDTH), *parts]).rstrip()


def _number(number: float | None, form: Callable[[float], str]) -> str:
    return "" if number is None or not math.isfinite(number) else form(number)


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _percent(share: float) -> str:
    percent = 100 * share
    if percent == 0:
        return "exact"
    if percent >= 10:
        return f"{percent:,.0f} %"
    return f"{round(percent, 3):g} %" if percent >= 0.01 else f"{percent:.3g} %"


def _price(price: float) -> str:
    return f"{price:.1e}" if price else "0"
