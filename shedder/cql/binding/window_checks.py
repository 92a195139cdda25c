"""The clause in brackets behind FROM, [RANGE ... SLIDE ...] and its like, and durations."""

from __future__ import annotations

import math
from dataclasses import replace

from sqlglot import exp

from shedder.cql.binding.expression_translation import Translator
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Column, Literal
from shedder.cql.expressions.literals import converted
from shedder.cql.grammar.parse_nodes import RawCollapse, RawDuration, RawNumber, RawWindow
from shedder.cql.statements.pane_coarsening import Coarsening, Collapse
from shedder.cql.statements.relational_text import EVERY_TICK_US
from shedder.cql.statements.relational_tree import (
    LandmarkClause,
    NowClause,
    RowsClause,
    WindowClause,
)
from shedder.cql.statements.statement import (
    LandmarkWindow,
    RangeWindow,
    SnapshotWindow,
    UnboundedWindow,
    Window,
)
from shedder.cql.text.durations import duration_text
from shedder.cql.text.size_limits import Limits
from shedder.cql.text.source_text import SourceText
from shedder.cql.text.unsupported import later

SLIDES_PER_RANGE = 60


def window_of(
    raw: RawWindow | None, translator: Translator, source: SourceText, limits: Limits
) -> Window:
    """The window that was said; none: everything.

    Raises:
      BadQuery: with the place. Unimplemented: it is of row queries.
    """
    if raw is not None and raw.is_of_rows:
        raise later("[ROWS n], [NOW], WHERE or FROM ... SLIDE in the window of this statement")
    if raw is None or (raw.length is None and raw.begin is None):
        return UnboundedWindow()
    if raw.begin is not None:
        start_us = moment_us(raw.begin, "a window", translator, source)
        if raw.end is None:
            return LandmarkWindow(start_us)
        end_us = moment_us(raw.end, "a window", translator, source)
        if end_us <= start_us:
            raise source.error("the window ends before it begins", raw.start)
        return SnapshotWindow(start_us, end_us)
    assert raw.length is not None
    range_us = positive_us(raw.length, "RANGE", translator, source)
    if raw.slide is None:
        slide_us = _default_slide_us(range_us)
    else:
        slide_us = positive_us(raw.slide, "SLIDE", translator, source)
    panes = range_us // math.gcd(range_us, slide_us)
    collapse = None
    if raw.collapse is not None:
        collapse = _collapse(raw.collapse, panes, translator, source)
    window = RangeWindow(range_us, slide_us, collapse)
    _check_panes(window, panes, raw, source, limits)
    return window


def window_clause(
    raw: RawWindow | None, translator: Translator, source: SourceText, limits: Limits
) -> WindowClause | None:
    """The window in a row query; none: everything. RANGE without SLIDE is of every tick.

    Raises:
      BadQuery: with the place.
    """
    if raw is None:
        return None
    condition = None if raw.condition is None else translator.expression(raw.condition)
    window = _clause_window(raw, translator, source, limits)
    if condition is None and isinstance(window, UnboundedWindow):
        return None
    return WindowClause(window, condition)


def _clause_window(
    raw: RawWindow, translator: Translator, source: SourceText, limits: Limits
) -> Window | RowsClause | NowClause | LandmarkClause:
    if raw.is_now:
        return NowClause()
    if raw.rows is not None:
        return _rows_clause(raw, raw.rows, translator, source)
    if raw.length is not None:
        if raw.collapse is not None:
            raise source.error("COLLAPSE is for aggregates over one stream", raw.start)
        range_us = positive_us(raw.length, "RANGE", translator, source)
        return RangeWindow(range_us, _slide_us(raw.slide, translator, source))
    window = window_of(replace(raw, slide=None, condition=None), translator, source, limits)
    if raw.slide is None or not isinstance(window, LandmarkWindow | SnapshotWindow):
        return window
    if isinstance(window, SnapshotWindow):
        raise source.error("a window that ends does not slide; leave TO or SLIDE away", raw.start)
    return LandmarkClause(window.start_us, _slide_us(raw.slide, translator, source))


def _slide_us(raw: RawDuration | None, translator: Translator, source: SourceText) -> int:
    return EVERY_TICK_US if raw is None else positive_us(raw, "SLIDE", translator, source)


def _rows_clause(
    raw: RawWindow, rows: RawNumber, translator: Translator, source: SourceText
) -> RowsClause:
    partition = []
    for node in raw.partition:
        column = translator.expression(node)
        if not isinstance(column, Column):
            raise source.wrong(node, "PARTITION BY takes columns")
        partition.append(column)
    slide = 1
    if raw.slide_rows is not None:
        slide = _whole(raw.slide_rows, "SLIDE", 1, translator, source, "rows")
    return RowsClause(
        _whole(rows, "ROWS", 1, translator, source, "rows"), slide, tuple(dict.fromkeys(partition))
    )


def _check_panes(
    window: RangeWindow, panes: int, raw: RawWindow, source: SourceText, limits: Limits
) -> None:
    coarsening = Coarsening.of(panes, window.collapse)
    if coarsening.longest > panes:
        raise source.error(
            f"COLLAPSE would make panes of {duration_text(window.resolution_us)}, longer than the "
            f"window of {duration_text(window.range_us)}; take a smaller rate or a larger depth",
            raw.start,
        )
    kept = sum(coarsening.cells_max(panes))
    if kept <= limits.panes_max:
        return
    text = f"RANGE {duration_text(window.range_us)} SLIDE {duration_text(window.slide_us)}"
    advice = ""
    if window.collapse is not None:
        text += f" COLLAPSE BY {window.collapse.rate} AFTER {window.collapse.depth}"
    else:
        less = Coarsening.of(panes, Collapse.of(panes))
        grain = duration_text(less.longest * window.width_us)
        if sum(less.cells_max(panes)) <= limits.panes_max:
            advice = (
                "; with COLLAPSE behind the slide, old ones become coarser, and the window begins "
                f"at a multiple of {grain}"
            )
    raise source.error(
        f"{text} needs {kept:,} panes; at most {limits.panes_max:,} are kept{advice}", raw.start
    )


def _collapse(raw: RawCollapse, panes: int, translator: Translator, source: SourceText) -> Collapse:
    if raw.rate is None or raw.depth is None:
        return Collapse.of(panes)
    rate = _whole(raw.rate, "COLLAPSE BY", 2, translator, source)
    return Collapse(rate, _whole(raw.depth, "AFTER", 1, translator, source))


def _whole(
    raw: RawNumber,
    what: str,
    least: int,
    translator: Translator,
    source: SourceText,
    of: str = "panes",
) -> int:
    value = translator.constant(raw.value).value
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise source.error(
            f"{what} takes a whole number of {of}, {least} or more, not {value!r}", raw.start
        )
    return value


def _default_slide_us(range_us: int) -> int:
    """A sixtieth of the range; where 60 does not divide it, the next larger part that does."""
    pieces = next(count for count in range(SLIDES_PER_RANGE, 0, -1) if range_us % count == 0)
    return range_us // pieces


def positive_us(raw: RawDuration, what: str, translator: Translator, source: SourceText) -> int:
    """A duration that is longer than nothing, in microseconds; else a BadQuery names `what`."""
    us = duration_us(raw, translator, source)
    if us <= 0:
        raise source.error(f"{what} must be longer than 0, not {us} microseconds", raw.start)
    return us


def duration_us(raw: RawDuration, translator: Translator, source: SourceText) -> int:
    """A duration in microseconds; a BadQuery where it has no fixed length."""
    try:
        value = translator.interval(raw.amount, raw.unit).value
    except ValueError as error:
        raise source.error(str(error), raw.start) from error
    assert isinstance(value, int)
    return value


def moment_us(node: exp.Expr, what: str, translator: Translator, source: SourceText) -> int:
    """Return an instant in us since 1970. what: it is of, for the error."""
    literal = translator.constant(node)
    try:
        match literal:
            case Literal(value=int(us), type=ColumnType.TIMESTAMP):
                return us
            case Literal(value=int(days), type=ColumnType.DATE):
                return days * 86_400_000_000
            case Literal(value=str(text)):
                moment = converted(text, ColumnType.TIMESTAMP).value
                assert isinstance(moment, int)
                return moment
    except ValueError as error:
        raise source.wrong(node, str(error)) from error
    raise source.wrong(node, f"{what} takes an instant, as TIMESTAMP '2026-01-31 10:42:07'")
