"""Words of plans for EXPLAIN and errors: clauses, windows, columns without needless quotes."""

from __future__ import annotations

import re
from typing import assert_never

from shedder.cql.plans.logical_plan import (
    Aggregated,
    Distinct,
    Filter,
    Join,
    NowWindow,
    Ordered,
    Plan,
    Project,
    RowsWindow,
    Scan,
    SetOperation,
    ToStream,
    WindowOf,
)
from shedder.cql.statements.canonical_text import window_words
from shedder.cql.statements.statement import Window
from shedder.cql.text.durations import duration_text

_PLAIN_NAME = re.compile(r'"(#[A-Za-z0-9_.]+|[A-Za-z_][A-Za-z0-9_]*\.#?[A-Za-z_][A-Za-z0-9_]*)"')
"""A column of a scan, `"alias.column"`, or of the planner, that is as clear without quotes."""


_LEAST_SLIDE = f" SLIDE {duration_text(1)}"


def clause_of(plan: Plan) -> str:
    """Return the clause of CQL that makes the topmost node of a plan."""
    match plan:
        case Scan():
            return "FROM"
        case WindowOf():
            return "a window"
        case Filter():
            return "WHERE"
        case Project():
            return "SELECT"
        case Join():
            return "JOIN"
        case Distinct():
            return "DISTINCT"
        case SetOperation(operator=operator):
            return operator.value
        case Aggregated():
            return "GROUP BY"
        case Ordered():
            return "ORDER BY or LIMIT"
        case ToStream(operator=to_stream):
            return to_stream.value
        case _:
            assert_never(plan)


def window_text(window: Window | RowsWindow | NowWindow) -> str:
    """Return a window in brackets; the slide only if it is not the least one."""
    match window:
        case RowsWindow(rows, slide_rows, partition):
            by = f"PARTITION BY {', '.join(partition)} " if partition else ""
            slides = f" SLIDE {slide_rows:,}" if slide_rows > 1 else ""
            return f"[{by}ROWS {rows:,}{slides}]"
        case NowWindow():
            return "[NOW]"
        case _:
            words = window_words(window) or "UNBOUNDED"
            return f"[{words.removesuffix(_LEAST_SLIDE)}]"


def with_plain_names(text: str) -> str:
    """Return canonical text of expressions without the quotes of `"alias.column"`."""
    return _PLAIN_NAME.sub(r"\1", text)
