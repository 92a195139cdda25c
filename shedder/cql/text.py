"""Expressions and statements as canonical text: parsing it again gives the same tree."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import assert_never

from shedder.cql.collapse import Collapse
from shedder.cql.expression import (
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Expression,
    Literal,
    Op,
)
from shedder.cql.histograms import edges_of, value_of
from shedder.cql.intervals import date_text, duration_text, timestamp_text
from shedder.cql.layout import DEFAULT_LAYOUT, layout_text
from shedder.cql.on_overload import THINS, OnOverload
from shedder.cql.reserved import RESERVED
from shedder.cql.shares import share_text
from shedder.cql.sizes import size_text
from shedder.cql.statement import (
    Contract,
    Costing,
    CreateStream,
    LandmarkWindow,
    RangeWindow,
    Reduction,
    Rewrite,
    Select,
    SnapshotWindow,
    Target,
    TargetKind,
    UnboundedWindow,
    Window,
)
from shedder.cql.types import ColumnType
from synopses.threshold import Promise

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
        case Column(name=name):
            return quoted(name), _ATOM
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
        case op:
            return f"{op.value}({', '.join(text_of(arg) for arg in args)})", _ATOM


def _inside(node: Expression, least: int) -> str:
    text, binding = _text(node)
    return text if binding >= least else f"({text})"


def _case_text(args: tuple[Expression, ...]) -> str:
    branches = [
        f"WHEN {text_of(args[index])} THEN {text_of(args[index + 1])}"
        for index in range(0, len(args) - 1, 2)
    ]
    return f"CASE {' '.join(branches)} ELSE {text_of(args[-1])} END"


# --- statements ---------------------------------------------------------------------------------


def text_of_select(query: Select) -> str:
    """A query's canonical text: defaults of windows said, bound parameters written out."""
    parts = [
        "SELECT " + ", ".join(_output_text(item.name, item.expression) for item in query.outputs),
        f"FROM {quoted(query.stream)}{_window_text(query.window)}",
    ]
    if query.where is not None:
        parts.append(f"WHERE {text_of(query.where)}")
    if query.groups:
        parts.append("GROUP BY " + ", ".join(_key_text(group) for group in query.groups))
    if query.having is not None:
        parts.append(f"HAVING {text_of(query.having)}")
    if query.order:
        keys = (_key_text(key.expression) + " DESC" * key.descending for key in query.order)
        parts.append("ORDER BY " + ", ".join(keys))
    if query.limit is not None:
        parts.append(f"LIMIT {query.limit}")
    if query.target is not None:
        parts.append(f"WITHIN {_target_text(query.target)}")
    if query.target is not None or query.confidence != 0.95:
        parts.append(f"CONFIDENCE {_percent(query.confidence)} PERCENT")
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


def _output_text(name: str, expression: Expression) -> str:
    if isinstance(expression, Column) and expression.name == name:
        return quoted(name)
    return f"{text_of(expression)} AS {quoted(name)}"


def _key_text(expression: Expression) -> str:
    # A bare number would mean the output of that number.
    text = text_of(expression)
    return f"({text})" if isinstance(expression, Literal) else text


def _window_text(window: Window) -> str:
    match window:
        case UnboundedWindow():
            return ""
        case RangeWindow(range_us=length, slide_us=slide):
            slides = f"RANGE {duration_text(length)} SLIDE {duration_text(slide)}"
            return f" [{slides}{_collapse_text(window.collapse)}]"
        case LandmarkWindow(start_us=start):
            return f" [FROM {_moment_text(start)}]"
        case SnapshotWindow(start_us=start, end_us=end):
            return f" [FROM {_moment_text(start)} TO {_moment_text(end)}]"
    assert_never(window)


def _collapse_text(collapse: Collapse | None) -> str:
    return "" if collapse is None else f" COLLAPSE BY {collapse.rate} AFTER {collapse.depth}"


def _moment_text(us: int) -> str:
    return literal_text(Literal(us, ColumnType.TIMESTAMP))


def _target_text(target: Target) -> str:
    match target.kind:
        case TargetKind.RELATIVE:
            return f"{_percent(target.size)} PERCENT"
        case kind:
            return f"{_number(target.size)} {kind.value}"


def _percent(fraction: float) -> str:
    return f"{(Decimal(repr(fraction)) * 100).normalize():f}"


def _number(value: float) -> str:
    """Whole numbers without a point, as long as a BIGINT can be read back from them."""
    whole = value.is_integer() and abs(value) < 2.0**53
    return repr(int(value)) if whole else repr(value)


def _reduction_text(reduction: Reduction) -> str:
    kinds = {True: ColumnType.VARCHAR, False: ColumnType.DOUBLE}
    arguments = (
        literal_text(Literal(value, kinds[isinstance(value, str)])) for value in reduction.arguments
    )
    return f"{quoted(reduction.name)}({', '.join(arguments)})"


def overload_text(on_overload: OnOverload) -> str:
    """What follows ON OVERLOAD."""
    column = on_overload.column
    return on_overload.policy.value + ("" if column is None else f" {quoted(column)}")


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
    return " ".join(parts)
