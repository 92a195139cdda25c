"""Canonical text of queries whose result is rows; parsing the text again gives the same tree."""

# This is text of CQL, and every name in it is quoted.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Expression, Literal
from shedder.cql.expressions.expression_text import quoted, text_of
from shedder.cql.statements.canonical_text import key_text, output_text, percent_text, window_words
from shedder.cql.statements.relational_tree import (
    DerivedRelation,
    JoinedRelation,
    JoinSyntax,
    LandmarkClause,
    NamedRelation,
    NowClause,
    Query,
    Relation,
    RowsClause,
    SelectQuery,
    SetQuery,
    Star,
    WindowClause,
)
from shedder.cql.statements.statement import (
    LandmarkWindow,
    OrderKey,
    Output,
    RangeWindow,
    UnboundedWindow,
)
from shedder.cql.text.durations import duration_text

EVERY_TICK_US = 1
"""SLIDE of a RANGE window that is evaluated at every tick: the default in row queries."""


def text_of_query(query: Query, confidence: float | None = None, *, sheds: bool = False) -> str:
    """The canonical text of a query.

    confidence: of its intervals; None: its rows are exact. sheds: it has ON OVERLOAD SHED.
    """
    match query:
        case SelectQuery():
            parts = _select(query)
        case SetQuery():
            word = query.operator.value + (" ALL" if query.all else "")
            parts = [f"({text_of_query(query.left)}) {word} ({text_of_query(query.right)})"]
    parts += _order(query.order, query.limit, query.offset)
    if confidence is not None:
        parts.append(f"CONFIDENCE {percent_text(confidence)} PERCENT")
    if sheds:
        parts.append("ON OVERLOAD SHED")
    return " ".join(parts)


def _select(query: SelectQuery) -> list[str]:
    listed = ", ".join(map(_item, query.items))
    if query.distinct:
        listed = f"DISTINCT {listed}"
    if query.stream is not None:
        listed = f"{query.stream.value}({listed})"
    parts = [f"SELECT {listed} FROM {_relation(query.source)}"]
    if query.where is not None:
        parts.append(f"WHERE {text_of(query.where)}")
    if query.groups:
        parts.append(f"GROUP BY {_keys(query.groups)}")
    if query.having is not None:
        parts.append(f"HAVING {text_of(query.having)}")
    return parts


def _order(order: Iterable[OrderKey], limit: int | None, offset: int) -> list[str]:
    keys = [key_text(key.expression) + " DESC" * key.descending for key in order]
    parts = [f"ORDER BY {', '.join(keys)}"] if keys else []
    parts += [f"LIMIT {limit}"] if limit is not None else []
    return parts + ([f"OFFSET {offset}"] if offset else [])


def _keys(expressions: Iterable[Expression]) -> str:
    return ", ".join(map(key_text, expressions))


def _item(item: Output | Star) -> str:
    match item:
        case Star(qualifier=None):
            return "*"
        case Star(qualifier=qualifier):
            assert qualifier is not None
            return f"{quoted(qualifier)}.*"
        case Output(name=name, expression=expression):
            return output_text(name, expression)


def _relation(relation: Relation) -> str:
    match relation:
        case NamedRelation(name=name, alias=alias):
            shown = quoted(name) + as_of_text(relation.as_of_us)
            shown += f" {quoted(alias)}" if alias != name else ""
            return shown + _extras(relation.sample, relation.window)
        case DerivedRelation(query=query, alias=alias):
            shown = f"({text_of_query(query)}) {quoted(alias)}"
            return shown + _extras(relation.sample, relation.window)
        case JoinedRelation():
            return _join(relation)
    assert_never(relation)


def as_of_text(as_of_us: int | None) -> str:
    """AS OF and its instant, behind a blank; "" where it is not said."""
    if as_of_us is None:
        return ""
    return f" AS OF {text_of(Literal(as_of_us, ColumnType.TIMESTAMP))}"


def _join(join: JoinedRelation) -> str:
    left, right = _relation(join.left), _relation(join.right)
    if join.syntax is JoinSyntax.COMMA:
        return f"{left}, {right}"
    text = f"{left} {join.syntax.value} {right}"
    if join.using:
        return f"{text} USING ({', '.join(map(quoted, join.using))})"
    return text if join.condition is None else f"{text} ON {text_of(join.condition)}"


def _extras(sample: float | None, clause: WindowClause | None) -> str:
    text = "" if sample is None else f" SAMPLE({percent_text(sample)})"
    if clause is None:
        return text
    words = _window(clause)
    if clause.condition is not None:
        words.append(f"WHERE {text_of(clause.condition)}")
    return f"{text} [{' '.join(words)}]" if words else text


def _window(clause: WindowClause) -> list[str]:
    match clause.window:
        case UnboundedWindow():
            return ["RANGE UNBOUNDED"] if clause.condition is not None else []
        case NowClause():
            return ["NOW"]
        case RowsClause(rows=rows, slide_rows=slide, partition=partition):
            words = [f"PARTITION BY {', '.join(map(text_of, partition))}"] if partition else []
            words.append(f"ROWS {rows}")
            return words + ([f"SLIDE {slide}"] if slide != 1 else [])
        case LandmarkClause(start_us=start, slide_us=slide):
            return [window_words(LandmarkWindow(start)), f"SLIDE {duration_text(slide)}"]
        case RangeWindow(range_us=length, slide_us=slide) if slide == EVERY_TICK_US:
            return [f"RANGE {duration_text(length)}"]
        case window:
            return [window_words(window)]
