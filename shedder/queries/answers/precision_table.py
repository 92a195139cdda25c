"""Table of EXPLAIN PRECISION: the parts of each interval of an answer, and its text for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from shedder.queries.answers.allocation_text import LAYOUT

PRECISION: Final = b"precision"
"""Value of `LAYOUT` of a table of parts of intervals."""

INTERVAL: Final = "interval"
"""Name of the row that has the whole interval of a value, behind its parts."""

HIDDEN: Final = "not shown"
"""Name of the last row of a table that has not all rows of an answer."""

_HEADS = ("lower", "upper", "share", "a KiB", "a ns", "a second")
_WIDTHS = (12, 12, 7, 11, 11, 11)
_NAMES_WIDTH = 24
_WHOLE_END = 2.0**53  # Doubles hold all whole numbers up to it.
_LEGEND = (
    "lower, upper: by how much a part moves each end away from the value; they sum to the "
    "interval.\n"
    "a KiB, a ns, a second: by how much the half width falls for one more, of memory, of CPU of "
    "each tuple, of waiting."
)
_KINDS: Final[dict[str, pa.DataType]] = {
    "row": pa.int64(),
    "group": pa.string(),
    "output": pa.string(),
    "part": pa.string(),
    "lower": pa.float64(),
    "upper": pa.float64(),
    "share": pa.float64(),
    "confidence": pa.float64(),
    "saved_per_kib": pa.float64(),
    "saved_per_ns": pa.float64(),
    "saved_per_second": pa.float64(),
    "value": pa.float64(),
    "low": pa.float64(),
    "high": pa.float64(),
    "unit": pa.string(),
    "bound": pa.string(),
    "reason": pa.string(),
}
SCHEMA: Final = pa.schema(_KINDS, metadata={LAYOUT: PRECISION})


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part of one interval, or the interval itself.

    row: of the answer, from 1. group: its keys as text; None: the query has no groups.
    output: name of the column, with the item of a list. part: what the part allows for.
    lower, upper: distances by which the part moves the ends; None: `reason` says why.
    share: of the width of the interval. confidence: that the part holds with; 1: for certain.
    saved_per_kib, saved_per_ns, saved_per_second: by how much the half width falls for one more
      KiB of the synopsis, one more ns of CPU for each tuple, one more second of waiting.
    value, low, high, bound: of the interval alone. unit: of all distances; None: that of the value.
    """

    row: int
    group: str | None
    output: str
    part: str
    lower: float | None = None
    upper: float | None = None
    share: float | None = None
    confidence: float | None = None
    saved_per_kib: float | None = None
    saved_per_ns: float | None = None
    saved_per_second: float | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str | None = None
    bound: str | None = None
    reason: str | None = None


def precision_table(rows: Iterable[PartRow], hidden: int) -> pa.Table:
    """Return the table of EXPLAIN PRECISION. hidden: rows of the answer that it leaves out."""
    found = [{name: getattr(row, name) for name in _KINDS} for row in rows]
    if hidden:
        found.append({"part": HIDDEN, "reason": f"{hidden:,} more rows of the answer"})
    return pa.Table.from_pylist(found, SCHEMA)


def precision_text(table: pa.Table) -> str:
    """Return a paragraph for each value: its interval, and a line for each part."""
    rows: list[dict[str, Any]] = table.to_pylist()
    lines = [] if rows else ["the answer has no value with an interval", ""]
    for _, own in groupby(rows, key=lambda row: (row["row"], row["output"])):
        lines += [*_paragraph(list(own)), ""]
    return "\n".join([*lines, _LEGEND])


def _paragraph(rows: Sequence[dict[str, Any]]) -> list[str]:
    last = rows[-1]
    if last["part"] == HIDDEN:
        return [f"… {last['reason']}"]
    group = "" if last["group"] is None else f" ({last['group']})"
    lines = [f"{last['output']}{group}: {_interval(last)}", _line("", _HEADS)]
    reasons: dict[str, str] = {}  # By text, the first part that has it.
    for row in rows:
        cells = [
            _number(row["lower"]),
            _number(row["upper"]),
            "" if row["share"] is None else f"{100 * row['share']:.3g} %",
        ]
        if row["part"] != INTERVAL:
            cells += [_number(row[name]) for name in ("saved_per_kib", "saved_per_ns")]
            cells.append(_number(row["saved_per_second"]))
        lines.append(_line(row["part"], cells))
        if row["reason"]:
            reasons.setdefault(row["reason"], row["part"])
    return [*lines, *(f"  {part}: {reason}" for reason, part in reasons.items())]


def _interval(row: dict[str, Any]) -> str:
    value = "no number" if row["value"] is None else _end(row["value"])
    unit = f" {row['unit']}" if row["unit"] else ""
    if row["bound"] != "interval":
        return f"{value}{unit}, {row['bound']}"
    ends = " to ".join(_end(row[name]) for name in ("low", "high"))
    odds = "for certain" if row["confidence"] == 1.0 else f"{100 * row['confidence']:g} %"
    return f"{value}{unit}, {ends} ({odds})"


def _end(number: float | None) -> str:
    """A value or an end, whole numbers with all their digits."""
    if number is None or not math.isfinite(number):
        return "unbounded"
    is_whole = number.is_integer() and abs(number) < _WHOLE_END
    return f"{int(number):,}" if is_whole else f"{number:.10g}"


def _line(name: str, cells: Sequence[str]) -> str:
    parts = [cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=False)]
    return " ".join([f"  {name}".ljust(_NAMES_WIDTH), *parts]).rstrip()


def _number(number: float | None) -> str:
    if number is None:
        return "none"
    if not math.isfinite(number):
        return "unbounded"
    return f"{int(number):,}" if number.is_integer() and abs(number) < 1e9 else f"{number:.6g}"
