"""Canonical text of expressions: parsing the text again gives the same tree."""

from __future__ import annotations

import math
import re
from typing import assert_never

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Expression,
    Literal,
    Op,
)
from shedder.cql.expressions.histograms import edges_of, value_of
from shedder.cql.text.durations import date_text, timestamp_text
from shedder.cql.text.reserved_words import RESERVED
from synopses.frequent.heavy_share import Promise

# How strongly operators bind; an argument that binds less stands in brackets.
_OR, _AND, _NOT, _COMPARISON, _CONCAT, _SUM, _PRODUCT, _SIGN, _ATOM = range(1, 10)


_BINDING = {
    Op.OR: _OR,
    Op.AND: _AND,
    Op.EQ: _COMPARISON,
    Op.NE: _COMPARISON,
    Op.LT: _COMPARISON,
    Op.LE: _COMPARISON,
    Op.GT: _COMPARISON,
    Op.GE: _COMPARISON,
    Op.LIKE: _COMPARISON,
    Op.CONCAT: _CONCAT,
    Op.ADD: _SUM,
    Op.SUB: _SUM,
    Op.MUL: _PRODUCT,
    Op.DIV: _PRODUCT,
    Op.MOD: _PRODUCT,
}


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_NAME_CHARS_MAX = 60


_USUAL = Promise.NO_FALSE_NEGATIVES  # Of FREQUENT, when nothing is said.


def name_of(expression: Expression) -> str:
    """The column name of an output without alias: `delay`, `count`, `avg_bytes`."""
    if isinstance(expression, Column):
        return expression.name
    words = re.findall(r"\w+", text_of(expression).lower())
    return "_".join(words)[:_NAME_CHARS_MAX].strip("_") or "value"


def quoted(name: str) -> str:
    """A name as it must be written: in quotes unless it is plain and no word of the language."""
    if _PLAIN.fullmatch(name) and name.upper() not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def text_of(expression: Expression) -> str:
    """An expression's canonical text."""
    return _text(expression)[0]


def _text(node: Expression) -> tuple[str, int]:
    match node:
        case Column(name=name, qualifier=None):
            return quoted(name), _ATOM
        case Column(name=name, qualifier=qualifier):
            assert qualifier is not None
            return f"{quoted(qualifier)}.{quoted(name)}", _ATOM
        case Literal():
            return literal_text(node), _ATOM
        case Aggregate():
            return _aggregate_text(node), _ATOM
        case Call():
            return _call_text(node)
    assert_never(node)


def literal_text(literal: Literal) -> str:
    """A constant's canonical text."""
    match literal.value, literal.type:
        case None, _:
            return "NULL"
        case bool(value), _:
            return "TRUE" if value else "FALSE"
        case int(us), ColumnType.TIMESTAMP:
            shown = timestamp_text(us)
            return f"CAST({us} AS TIMESTAMP)" if shown is None else f"TIMESTAMP '{shown}'"
        case int(days), ColumnType.DATE:
            shown = date_text(days)
            return f"CAST({days} AS DATE)" if shown is None else f"DATE '{shown}'"
        case int(value), ColumnType.INTEGER:  # A bare number is a BIGINT.
            return f"CAST('{value}' AS INTEGER)"
        case float(value), _ if math.isinf(value):
            return f"CAST('{'-' if value < 0 else ''}Infinity' AS DOUBLE)"
        case (int() | float()) as value, _:
            return repr(value)
        case str(value), _:
            return "'" + value.replace("'", "''") + "'"
    raise AssertionError(literal)


def _aggregate_text(node: Aggregate) -> str:
    argument = "*" if node.argument is None else text_of(node.argument)
    match node.function:
        case AggregateFunction.COUNT_DISTINCT:
            return f"COUNT(DISTINCT {argument})"
        case AggregateFunction.QUANTILE:
            assert node.parameter is not None
            return f"QUANTILE({argument}, {node.parameter!r})"
        case AggregateFunction.TOP:
            assert node.parameter is not None
            return f"TOP({argument}, {int(node.parameter)})"
        case AggregateFunction.FREQUENT:
            assert node.promise is not None
            words = f" {node.promise.value}" if node.promise is not _USUAL else ""
            return f"FREQUENT({argument}, {node.parameter!r}{words})"
        case function if node.second is not None:
            return f"{function.value}({argument}, {text_of(node.second)})"
        case function:
            arguments = [argument, *map(text_of, node.conditions)]
            return f"{function.value}({', '.join(arguments)})"


def _call_text(node: Call) -> tuple[str, int]:
    args = node.args
    binding = _BINDING.get(node.op)
    if binding is not None:
        # AND and OR are one flat chain; comparisons do not chain; the others chain to the left.
        left = binding + 1 if binding == _COMPARISON else binding
        right = binding if binding in (_OR, _AND) else binding + 1
        return f"{_inside(args[0], left)} {node.op.value} {_inside(args[1], right)}", binding
    match node.op:
        case Op.HISTOGRAM:
            edges = ", ".join(map(literal_text, edges_of(node)))
            return f"HISTOGRAM({text_of(value_of(node))}, [{edges}])", _ATOM
        case Op.NOT:
            return f"NOT {_inside(args[0], _ATOM)}", _NOT
        case Op.NEG:
            inner = _inside(args[0], _ATOM)
            # A sign directly before a number is part of the number.
            return f"-({inner})" if isinstance(args[0], Literal) else f"-{inner}", _SIGN
        case Op.IN:
            items = ", ".join(text_of(item) for item in args[1:])
            return f"{_inside(args[0], _CONCAT)} IN ({items})", _COMPARISON
        case Op.IS_NULL:
            return f"{_inside(args[0], _CONCAT)} IS NULL", _COMPARISON
        case Op.CAST:
            assert node.type is not None
            return f"CAST({text_of(args[0])} AS {node.type.value})", _ATOM
        case Op.EXTRACT:
            unit = args[0]
            assert isinstance(unit, Literal)
            return f"EXTRACT({unit.value} FROM {text_of(args[1])})", _ATOM
        case Op.CASE:
            return _case_text(args), _ATOM
        case Op.EXISTS:
            return f"EXISTS ({query_text(node)})", _ATOM
        case Op.IN_QUERY:
            return f"{_inside(args[0], _CONCAT)} IN ({query_text(node)})", _COMPARISON
        case Op.QUERY:
            return f"({query_text(node)})", _ATOM
        case op:
            return f"{op.value}({', '.join(text_of(arg) for arg in args)})", _ATOM


def query_text(node: Call) -> str:
    """The canonical text of the query in an EXISTS, an IN or a scalar subquery."""
    text = node.args[-1]
    assert isinstance(text, Literal)
    return str(text.value)


def _inside(node: Expression, least: int) -> str:
    text, binding = _text(node)
    return text if binding >= least else f"({text})"


def _case_text(args: tuple[Expression, ...]) -> str:
    branches = [
        f"WHEN {text_of(args[index])} THEN {text_of(args[index + 1])}"
        for index in range(0, len(args) - 1, 2)
    ]
    return f"CASE {' '.join(branches)} ELSE {text_of(args[-1])} END"
