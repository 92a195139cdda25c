"""Words of plans for EXPLAIN: windows, and columns without needless quotes."""

from __future__ import annotations

import re

from shedder.cql.plans.logical_plan import NowWindow, RowsWindow
from shedder.cql.statements.canonical_text import window_words
from shedder.cql.statements.statement import Window
from shedder.cql.text.durations import duration_text

_PLAIN_NAME = re.compile(r'"(#[A-Za-z0-9_.]+|[A-Za-z_][A-Za-z0-9_]*\.#?[A-Za-z_][A-Za-z0-9_]*)"')
"""A column of a scan, `"alias.column"`, or of the planner, that is as clear without quotes."""


_LEAST_SLIDE = f" SLIDE {duration_text(1)}"


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
