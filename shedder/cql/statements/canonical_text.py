"""Canonical text of statements: parsing the text again gives the same tree."""

from __future__ import annotations

from decimal import Decimal
from typing import assert_never

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Column, Expression, Literal
from shedder.cql.expressions.expression_text import literal_text, quoted, text_of
from shedder.cql.statements.archive_layout import DEFAULT_LAYOUT, layout_text
from shedder.cql.statements.foreign_key import ForeignKey
from shedder.cql.statements.overload_policy import THINS, OnOverload
from shedder.cql.statements.pane_coarsening import Collapse
from shedder.cql.statements.statement import (
    Contract,
    Costing,
    CreateStream,
    LandmarkWindow,
    RangeWindow,
    ReductionClause,
    Rewrite,
    Select,
    SnapshotWindow,
    Target,
    TargetKind,
    UnboundedWindow,
    Window,
)
from shedder.cql.text.byte_sizes import size_text
from shedder.cql.text.durations import duration_text
from shedder.cql.text.sampling_fractions import share_text


def text_of_select(query: Select) -> str:
    """A query's canonical text: defaults of windows said, bound parameters written out."""
    parts = [
        "SELECT " + ", ".join(output_text(item.name, item.expression) for item in query.outputs),
        f"FROM {quoted(query.stream)}{_window_text(query.window)}",
    ]
    if query.where is not None:
        parts.append(f"WHERE {text_of(query.where)}")
    if query.groups:
        parts.append("GROUP BY " + ", ".join(key_text(group) for group in query.groups))
    if query.having is not None:
        parts.append(f"HAVING {text_of(query.having)}")
    if query.order:
        keys = (key_text(key.expression) + " DESC" * key.descending for key in query.order)
        parts.append("ORDER BY " + ", ".join(keys))
    if query.limit is not None:
        parts.append(f"LIMIT {query.limit}")
    if query.target is not None:
        parts.append(f"WITHIN {_target_text(query.target)}")
    if query.target is not None or query.confidence != 0.95:
        parts.append(f"CONFIDENCE {percent_text(query.confidence)} PERCENT")
    if query.target is not None or query.contract is not Contract.WIDEN:
        parts.append(f"ELSE {query.contract.value}")
    if query.weight != 1:
        parts.append(f"WEIGHT {_number(query.weight)}")
    if query.reduction is not None:
        parts.append(f"REDUCE BY {_reduction_text(query.reduction)}")
    if query.thinning:
        parts.append(f"THINNING {share_text(query.thinning)}")
    if query.costing is not None:
        parts.append(costing_text(query.costing))
    return " ".join(parts)


def costing_text(costing: Costing) -> str:
    """COSTING and REWRITE, canonical."""
    amounts = []
    if costing.size_bytes is not None:
        amounts.append(size_text(costing.size_bytes))
    if costing.ns_per_tuple is not None:
        amounts.append(f"{_number(costing.ns_per_tuple)} NS")
    text = f"COSTING AT MOST {' AND '.join(amounts)}"
    if costing.rewrites == tuple(Rewrite):
        return text
    return f"{text} REWRITE {', '.join(r.value for r in costing.rewrites) or 'NEVER'}"


def output_text(name: str, expression: Expression) -> str:
    """An item of a select list; a column that keeps its name needs no AS."""
    if isinstance(expression, Column) and expression.name == name:
        return text_of(expression)
    return f"{text_of(expression)} AS {quoted(name)}"


def key_text(expression: Expression) -> str:
    """A key of GROUP BY or ORDER BY."""
    # A bare number would mean the output of that number.
    text = text_of(expression)
    return f"({text})" if isinstance(expression, Literal) else text


def _window_text(window: Window) -> str:
    words = window_words(window)
    return f" [{words}]" if words else ""


def window_words(window: Window) -> str:
    """The words inside of the brackets; of the unbounded window, none."""
    match window:
        case UnboundedWindow():
            return ""
        case RangeWindow(range_us=length, slide_us=slide):
            slides = f"RANGE {duration_text(length)} SLIDE {duration_text(slide)}"
            return f"{slides}{_collapse_text(window.collapse)}"
        case LandmarkWindow(start_us=start):
            return f"FROM {_moment_text(start)}"
        case SnapshotWindow(start_us=start, end_us=end):
            return f"FROM {_moment_text(start)} TO {_moment_text(end)}"
    assert_never(window)


def _collapse_text(collapse: Collapse | None) -> str:
    return "" if collapse is None else f" COLLAPSE BY {collapse.rate} AFTER {collapse.depth}"


def _moment_text(us: int) -> str:
    return literal_text(Literal(us, ColumnType.TIMESTAMP))


def _target_text(target: Target) -> str:
    match target.kind:
        case TargetKind.RELATIVE:
            return f"{percent_text(target.size)} PERCENT"
        case kind:
            return f"{_number(target.size)} {kind.value}"


def percent_text(fraction: float) -> str:
    """A fraction as the decimal number of percent that was written."""
    return f"{(Decimal(repr(fraction)) * 100).normalize():f}"


def _number(value: float) -> str:
    """Whole numbers without a point, as long as a BIGINT can be read back from them."""
    whole = value.is_integer() and abs(value) < 2.0**53
    return repr(int(value)) if whole else repr(value)


def _reduction_text(reduction: ReductionClause) -> str:
    kinds = {True: ColumnType.VARCHAR, False: ColumnType.DOUBLE}
    arguments = (
        literal_text(Literal(value, kinds[isinstance(value, str)])) for value in reduction.arguments
    )
    return f"{quoted(reduction.name)}({', '.join(arguments)})"


def overload_text(on_overload: OnOverload) -> str:
    """What follows ON OVERLOAD."""
    column = on_overload.column
    return on_overload.policy.value + ("" if column is None else f" {quoted(column)}")


def foreign_key_text(key: ForeignKey) -> str:
    """Return the clause of a foreign key."""
    own, others = (", ".join(map(quoted, names)) for names in (key.columns, key.referenced))
    return (
        f"FOREIGN KEY ({own}) REFERENCES {quoted(key.relation)} ({others}) "
        f"WITHIN {key.within} TUPLES"
    )


def text_of_stream(statement: CreateStream) -> str:
    """Canonical text of the statement that makes a stream."""
    columns = ", ".join(
        f"{quoted(column.name)} {column.type.value}{'' if column.nullable else ' NOT NULL'}"
        for column in statement.columns
    )
    exists = "IF NOT EXISTS " if statement.if_not_exists else ""
    parts = [
        f"CREATE STREAM {exists}{quoted(statement.name)} ({columns})",
        f"TIMESTAMP BY {quoted(statement.time_column)}",
    ]
    if statement.lateness_us:
        parts.append(f"LATENESS {duration_text(statement.lateness_us)}")
    if statement.retain_us is not None:
        parts.append(f"RETAIN {duration_text(statement.retain_us)}")
    if statement.layout != DEFAULT_LAYOUT:
        parts.append(f"ARCHIVE {layout_text(statement.layout)}")
    if statement.on_overload != THINS:
        parts.append(f"ON OVERLOAD {overload_text(statement.on_overload)}")
    parts += map(foreign_key_text, statement.foreign_keys)
    return " ".join(parts)
