"""Answers as text for people: `1,204,113 ± 0.8 % (95 %)`."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from shedder.cql.text.durations import duration_text
from shedder.queries.answers.allocation_text import ALLOCATION, LAYOUT, laid_out
from shedder.queries.answers.control_characters import escaped, escaped_lines
from shedder.queries.answers.plan_lines import PLAN, wrapped_plan
from shedder.queries.answers.precision_table import PRECISION, precision_text
from shedder.queries.answers.printed_answer import GroupsBound, PrintedAnswer
from shedder.queries.answers.python_rows import plain_rows

ROWS_PRINTED = 50
TEXT_PRINTED = 200  # Characters of one text that are printed.
_EXACT, _NONE = "exact", "none"


def printed(
    answer: PrintedAnswer, columns_max: int | None = None, rows_total: int | None = None
) -> str:
    """The outputs as a table with one cell per estimate, at most ROWS_PRINTED rows.

    A plan is printed as its lines.

    A table of more than `columns_max` characters to a line is a paragraph for each row instead.
    rows_total: rows of the answer, of which its table may have the first ones only; None: all.
    """
    layout = (answer.table.schema.metadata or {}).get(LAYOUT)
    if layout == ALLOCATION:
        return escaped_lines(laid_out(answer.table))
    if layout == PRECISION:
        return escaped_lines(precision_text(answer.table))
    if layout == PLAN:
        return wrapped_plan(answer.table, columns_max)
    names = [escaped(name) for name in answer.outputs]
    rows = plain_rows(answer.table.slice(0, ROWS_PRINTED))
    cells = [
        [escaped(_cell(answer, at, row, name)) for name in answer.outputs]
        for at, row in enumerate(rows)
    ]
    widths = [
        max(map(_width, [name, *(row[at] for row in cells)])) for at, name in enumerate(names)
    ]
    if columns_max is not None and sum(widths) + 2 * (len(widths) - 1) > columns_max and cells:
        lines = _paragraphs(names, cells)
    else:
        right = [_is_right(answer, name) for name in answer.outputs]
        lines = [
            _line(list(names), widths, right),
            "  ".join("─" * width for width in widths),
            *(_line(row, widths, right) for row in cells),
        ]
    hidden = (answer.table.num_rows if rows_total is None else rows_total) - len(rows)
    if hidden > 0:
        lines.append(f"… {hidden:,} more row{'' if hidden == 1 else 's'}")
    if answer.cut:
        lines.append(f"NOT ALL ROWS: {answer.cut}")
    if answer.completeness is not None:
        lines.append(f"rows: {answer.completeness.text}")
    if answer.missing is not None:
        lines.append(f"groups: {_missing(answer.missing)}")
    if answer.late:
        lines.append(f"late: {answer.late:,} tuples; intervals are wide enough for them")
    if answer.certified is False:
        lines.append("NOT CERTIFIED: audited answers did not hold what they said (see the notes)")
    return "\n".join(lines)


def explained(answer: PrintedAnswer) -> str:
    """Window, watermark, sources and every caveat of an answer, a line each."""
    missing = "none can be missing" if answer.missing is None else _missing(answer.missing)
    stretch = stretch_text(answer.start_us, answer.end_us)
    lines = [
        ("window", f"{stretch} {'complete' if answer.complete else 'open'}"),
        *_resolution(answer),
        ("watermark", _moment(answer.watermark_us) or "none yet"),
        ("position", f"{answer.position:,}"),
        ("sources", ", ".join(answer.sources) or "none"),
        ("confidence", f"{_percent(answer.confidence)} per value"),
        ("thinning", f"{answer.thinning:g}"),
        ("archive read", _percent(answer.archive_share_read)),
        *_reduction(answer),
        ("late", f"{answer.late:,} tuples"),
        ("groups", missing),
        *_certified(answer),
        *([("cut", answer.cut)] if answer.cut else []),
        *_completeness(answer),
        ("elapsed", f"{answer.elapsed_ms:.1f} ms"),
        *(("note", note) for note in answer.notes),
    ]
    return escaped_lines("\n".join(f"{name + ':':<14}{text}" for name, text in lines))


def _completeness(answer: PrintedAnswer) -> list[tuple[str, str]]:
    """Return the line of a sample of keys; [] if all rows are there."""
    return [] if answer.completeness is None else [("rows", answer.completeness.text)]


def _missing(bound: GroupsBound) -> str:
    if bound.weight_max is None:
        return bound.reason or "no bound"
    odds = "for certain" if bound.confidence == 1.0 else _percent(bound.confidence)
    return f"none of {bound.weight_max:,.0f} tuples or more is missing ({odds})"


def _resolution(answer: PrintedAnswer) -> list[tuple[str, str]]:
    """Return the line of the resolution of the window's begin; [] if the begin is exact."""
    if not answer.resolution_us:
        return []
    length = duration_text(answer.resolution_us)
    return [("resolution", f"{length}: the window begins less than this before the one asked for")]


def _certified(answer: PrintedAnswer) -> list[tuple[str, str]]:
    """What audits say; nothing where there were none."""
    match answer.certified:
        case None:
            return []
        case True:
            return [("certified", "yes: audited answers held what they said")]
        case False:
            return [("certified", "NO: audited answers did not hold what they said")]


def _reduction(answer: PrintedAnswer) -> list[tuple[str, str]]:
    """What was asked of the archive, given and read; nothing where it was not read in part."""
    part = answer.archive
    if part is None:
        return []
    requested, given = (
        _percent(low) if low == high else f"{_percent(low)} to {_percent(high)}"
        for low, high in ((part.asked_min, part.asked_max), (part.given_min, part.given_max))
    )
    return [
        ("reduced by", f"{part.reduction}: asked {requested}, given {given}"),
        ("blocks read", f"{part.blocks_read:,} of {part.blocks:,}"),
        ("bytes read", f"{part.bytes_read:,} of {part.bytes_stored:,}"),
        ("looks", f"{part.looks}"),
    ]


def stretch_text(start_us: int | None, end_us: int | None) -> str:
    """A stretch of event time, half open; None is open on that side."""
    return f"[{_moment(start_us) or '-∞'}, {_moment(end_us) or '∞'})"


def shown(
    value: Any, low: Any = None, high: Any = None, bound: str = _EXACT, confidence: float = 1.0
) -> str:
    """One estimate as people read it; `value` and ends as Arrow gives them to Python."""
    if value is None:
        if bound == _EXACT:
            return "NULL"
        return f"NULL, in [{_plain(low)}, {_plain(high)}]" if bound != _NONE else "NULL (no bound)"
    if bound == _EXACT:
        return _plain(value)
    if bound == _NONE:
        return f"{_plain(value)} (no bound)"
    odds = f" ({_percent(confidence)})" if confidence < 1 else ""
    if value == low == high:  # The odds are all that is left of the interval.
        return f"{_plain(value)}{odds}"
    if not _is_number(value) or low is None or high is None or math.isinf(high - low):
        return f"{_plain(value)} in [{_plain(low)}, {_plain(high)}]{odds}"
    half = max(high - value, value - low)
    if value == 0:
        return f"0 ± {_plain(half)}{odds}"
    return f"{_plain(value)} ± {_share(half / abs(value))}{odds}"


def _cell(answer: PrintedAnswer, at: int, row: dict[str, Any], name: str) -> str:
    value = row[name]
    if name not in answer.approximate:
        return "(others)" if value is None and at == answer.others else _shortened(shown(value))
    if isinstance(value, list):
        return ", ".join(
            f"{_item(item)}: "
            + shown(item["count"], item["low"], item["high"], _kind(item), answer.confidence)
            for item in value
        )
    if name + "_low" not in row:
        return shown(value)
    ends = row[name + "_low"], row[name + "_high"]
    return shown(value, *ends, row[name + "_bound"], answer.confidence)


def _shortened(text: str) -> str:
    """A text of at most TEXT_PRINTED characters; the rest is an ellipsis."""
    return text if len(text) <= TEXT_PRINTED else text[: TEXT_PRINTED - 1] + "…"


def _kind(item: dict[str, Any]) -> str:
    return _EXACT if item["low"] == item["high"] else "interval"


def _item(item: Mapping[str, Any]) -> str:
    """What is counted: a value of TOP, or a bucket of a histogram."""
    if "value" in item:
        return _plain(item["value"])
    low, high = item["from"], item["to"]
    if low is None or high is None:
        return f"< {_plain(high)}" if low is None else f">= {_plain(low)}"
    return f"{_plain(low)} .. {_plain(high)}"


def _paragraphs(names: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """A line for each output, and an empty one between rows."""
    width = max(map(_width, names))
    lines: list[str] = []
    for row in cells:
        lines += [
            "",
            *(f"{name}{_gap(name, width)}  {cell}" for name, cell in zip(names, row, strict=True)),
        ]
    return lines[1:]


def _line(cells: list[str], widths: list[int], right: list[bool]) -> str:
    parts = [
        _gap(cell, width) + cell if flag else cell + _gap(cell, width)
        for cell, width, flag in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(parts).rstrip()


def _gap(text: str, width: int) -> str:
    return " " * (width - _width(text))


def _width(text: str) -> int:
    """Columns of a terminal that a text takes (Unicode Standard Annex 11)."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(map(_is_mark, text))


def _is_mark(letter: str) -> bool:
    """Return whether a letter is drawn on the one before it."""
    return unicodedata.category(letter) in ("Mn", "Me", "Cf")


def _is_right(answer: PrintedAnswer, name: str) -> bool:
    return any(word in str(answer.table.schema.field(name).type) for word in ("int", "double"))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _plain(value: Any) -> str:
    match value:
        case None:
            return "?"
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case float() if math.isfinite(value) and abs(value) >= 1e6:
            return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.6g}"
        case float():
            return f"{value:,.6g}"
        case datetime():
            return value.isoformat(" ")
        case _:
            return str(value)


def _share(share: float) -> str:
    percent = 100 * share
    return f"{percent:.2g} %" if percent < 10 else f"{percent:,.0f} %"


def _percent(share: float) -> str:
    return f"{100 * share:.6g} %"


def _moment(us: int | None) -> str | None:
    if us is None:
        return None
    try:
        return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, ValueError, OSError):
        return f"{us} µs"
