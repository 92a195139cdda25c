"""A bound expression over a record batch: Arrow in, one typed Arrow array out.

The meaning of every operator is the table in docs/cql.md; exact_query.py says the same to DuckDB
and Spark, and tests/cql compares the three. NaN never leaves an expression: it is NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cql.expressions import arithmetic as numbers
from shedder.cql.expressions import calendar, casts
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    UNBOUND,
    Aggregate,
    Call,
    Column,
    Expression,
    Literal,
    Op,
    unit_of,
)
from shedder.cql.expressions.like import regex_of_like
from shedder.cql.expressions.text_functions import EVALUATED

# An array of the batch's rows, or one scalar that stands for all of them.
Value = Any
Evaluate = Callable[[Call, tuple[Value, ...]], Value]


def evaluate(expression: Expression, batch: pa.RecordBatch) -> pa.Array[Any]:
    """The value of a bound expression in every row.

    Args:
      expression: bound, without aggregates.
      batch: has the columns that the expression names, in the types of their schema.

    Returns:
      An array of batch.num_rows values of the expression's Arrow type, with its own validity.
    """
    return as_array(_value(expression, batch, {}), batch.num_rows)


def as_array(value: Value, rows: int) -> pa.Array[Any]:
    """A scalar as an array of `rows` of it; an array as it is."""
    array: pa.Array[Any]
    if isinstance(value, pa.Scalar):
        constant: Any = value
        array = pa.repeat(constant, rows)
    elif isinstance(value, pa.ChunkedArray):
        array = value.combine_chunks()
    else:
        array = value
    return array


def _value(node: Expression, batch: pa.RecordBatch, known: dict[Expression, Value]) -> Value:
    match node:
        case Literal(value=value, type=kind):
            return pa.scalar(value, _arrow(kind))
        case Column(name=name):
            if node not in known:
                known[node] = numbers.without_nan(batch.column(name))
            return known[node]
        case Call(op=op):
            if node not in known:
                args = tuple(_value(arg, batch, known) for arg in node.args)
                if len(args) > 0 and all(isinstance(arg, pa.Scalar) for arg in args):
                    one = _OPS[op](node, tuple(as_array(arg, 1) for arg in args))
                    known[node] = as_array(one, 1)[0]
                else:
                    known[node] = _OPS[op](node, args)
            return known[node]
        case Aggregate():
            raise AssertionError("aggregates are not evaluated row by row")


def _arrow(kind: ColumnType | None) -> pa.DataType:
    assert kind is not None, "the expression is not bound"
    return kind.arrow


def _compare(name: str) -> Evaluate:
    function = getattr(pc, name)
    return lambda _, args: function(*args)


def _in(node: Call, args: tuple[Value, ...]) -> Value:
    literals = [item.value for item in node.args[1:] if isinstance(item, Literal)]
    given = [value for value in literals if value is not None]
    subject = args[0]
    if node.args[0].type is ColumnType.DOUBLE:  # -0.0 is 0.0, also to a hash.
        subject = pc.add(subject, 0.0)
        given = [float(value) + 0.0 for value in given]
    found = pc.is_in(subject, value_set=pa.array(given, type=subject.type))
    unknown = pc.is_null(subject)
    if len(given) < len(literals):
        unknown = pc.or_(unknown, pc.invert(found))
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)


def _like(node: Call, args: tuple[Value, ...]) -> Value:
    pattern = node.args[1]
    assert isinstance(pattern, Literal)
    if pattern.value is None:
        return pa.scalar(None, pa.bool_())
    assert isinstance(pattern.value, str)
    return pc.match_substring_regex(args[0], pattern=regex_of_like(pattern.value))


def _case(_: Call, args: tuple[Value, ...]) -> Value:
    value = args[-1]
    for index in range(len(args) - 3, -1, -2):
        value = pc.if_else(pc.fill_null(args[index], False), args[index + 1], value)
    return value


def _concat(_: Call, args: tuple[Value, ...]) -> Value:
    return pc.binary_join_element_wise(*args, "", null_handling="emit_null")


def _add(node: Call, args: tuple[Value, ...]) -> Value:
    return _over_integers(node, args, numbers.add)


def _subtract(node: Call, args: tuple[Value, ...]) -> Value:
    return _over_integers(node, args, numbers.subtract)


def _over_integers(
    node: Call, args: tuple[Value, ...], function: Callable[[Value, Value], Value]
) -> Value:
    """TIMESTAMP arithmetic is BIGINT arithmetic on its microseconds."""
    plain = tuple(arg.cast(pa.int64()) if pa.types.is_timestamp(arg.type) else arg for arg in args)
    return function(*plain).cast(_arrow(node.type))


def _of_text(node: Call, args: tuple[Value, ...]) -> Value:
    return EVALUATED[node.op](node, args[0])


def _date_trunc(node: Call, args: tuple[Value, ...]) -> Value:
    return calendar.truncate(args[1], unit_of(node))


def _extract(node: Call, args: tuple[Value, ...]) -> Value:
    return calendar.part(args[1], unit_of(node))


def _round(node: Call, args: tuple[Value, ...]) -> Value:
    digits = 0
    if len(node.args) == 2:
        literal = node.args[1]
        assert isinstance(literal, Literal)
        assert isinstance(literal.value, int)
        digits = literal.value
    return numbers.round_half_away(args[0], digits)


_OPS: dict[Op, Evaluate] = {
    Op.NEG: lambda _, args: numbers.negate(args[0]),
    Op.ADD: _add,
    Op.SUB: _subtract,
    Op.MUL: lambda _, args: numbers.multiply(*args),
    Op.DIV: lambda _, args: numbers.divide(*args),
    Op.MOD: lambda _, args: numbers.remainder(*args),
    Op.EQ: _compare("equal"),
    Op.NE: _compare("not_equal"),
    Op.LT: _compare("less"),
    Op.LE: _compare("less_equal"),
    Op.GT: _compare("greater"),
    Op.GE: _compare("greater_equal"),
    Op.AND: _compare("and_kleene"),
    Op.OR: _compare("or_kleene"),
    Op.NOT: _compare("invert"),
    Op.IN: _in,
    Op.LIKE: _like,
    Op.IS_NULL: lambda _, args: pc.is_null(args[0]),
    Op.CAST: lambda node, args: casts.cast(args[0], node.args[0].type, node.type),
    Op.CASE: _case,
    Op.COALESCE: lambda _, args: pc.coalesce(*args),
    Op.ABS: lambda _, args: numbers.absolute(args[0]),
    Op.FLOOR: lambda _, args: numbers.floor(args[0]),
    Op.CEIL: lambda _, args: numbers.ceiling(args[0]),
    Op.ROUND: _round,
    Op.LOWER: lambda _, args: pc.utf8_lower(args[0]),
    Op.UPPER: lambda _, args: pc.utf8_upper(args[0]),
    Op.LENGTH: lambda _, args: pc.utf8_length(args[0]).cast(pa.int64()),
    Op.DATE_TRUNC: _date_trunc,
    Op.EXTRACT: _extract,
    Op.CONCAT: _concat,
    **dict.fromkeys(EVALUATED, _of_text),
}
assert set(_OPS) == set(Op) - {Op.HISTOGRAM} - UNBOUND  # HISTOGRAM is a list of aggregates.


def true_rows(condition: pa.Array[Any]) -> NDArray[np.bool_]:
    """Return which rows a condition keeps, bool [rows]: TRUE does, FALSE and NULL do not."""
    given: Any = condition
    kept: Any = pc.fill_null(given, False)
    return np.asarray(kept.to_numpy(zero_copy_only=False), np.bool_)
