"""Bound expressions as SQL, with exactly the meaning of evaluate.py.

Every operand is written once, so the text grows with the expression and no faster.
"""

from __future__ import annotations

import math
from typing import assert_never

from shedder.cql.expressions.casts import DECIMAL_NUMBER, WHOLE_NUMBER
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    Aggregate,
    Call,
    Column,
    Expression,
    Literal,
    Op,
    chained,
    unit_of,
)
from shedder.cql.expressions.text_patterns import group_pattern
from shedder.cql.sql.dialect_protocol import INT64_MIN, EngineSql

_INFIX = {
    Op.EQ: "=",
    Op.NE: "<>",
    Op.LT: "<",
    Op.LE: "<=",
    Op.GT: ">",
    Op.GE: ">=",
    Op.AND: "AND",
    Op.OR: "OR",
    Op.CONCAT: "||",
}


class ExpressionSql:
    """Writes expressions in one engine's words."""

    def __init__(self, engine: EngineSql) -> None:
        """`engine` has the words."""
        self._engine = engine

    def sql(self, node: Expression) -> str:
        """An atom, a call or an expression in brackets; no aggregates in it."""
        match node:
            case Column(name=name, type=kind):
                assert kind is not None
                value = self._engine.column(name, kind)
                return self._engine.not_nan_column(value) if kind is ColumnType.DOUBLE else value
            case Literal():
                return self.literal(node)
            case Call():
                return self._call(node)
            case Aggregate():
                raise AssertionError("aggregates are written by exact_sql")
        assert_never(node)

    def literal(self, node: Literal) -> str:
        """A constant of its type."""
        assert node.type is not None
        name = self._engine.type_name(node.type)
        match node.value, node.type:
            case None, _:
                return f"CAST(NULL AS {name})"
            case bool(value), _:
                return "TRUE" if value else "FALSE"
            case int(us), ColumnType.TIMESTAMP:
                return self._engine.timestamp_constant(us)
            case int(days), ColumnType.DATE:
                integer = self._engine.type_name(ColumnType.INTEGER)
                return self._engine.date(f"CAST('{days}' AS {integer})")
            case str(value), _:
                return self._engine.text(value)
            case float(value), _ if math.isinf(value):
                return f"CAST('{'-' if value < 0 else ''}Infinity' AS {name})"
            case value, _:
                return f"CAST('{value!r}' AS {name})"
        raise AssertionError(node)

    def _call(self, node: Call) -> str:
        if node.op in (Op.AND, Op.OR):
            terms = (self.sql(term) for term in chained(node.op, node))
            return f"({f' {node.op.value} '.join(terms)})"
        args = [self.sql(arg) for arg in node.args]
        if node.op in _INFIX:
            return f"({args[0]} {_INFIX[node.op]} {args[1]})"
        match node.op:
            case Op.ADD | Op.SUB | Op.MUL | Op.MOD | Op.DIV | Op.NEG | Op.ABS:
                return self._arithmetic(node, args)
            case Op.FLOOR | Op.CEIL | Op.ROUND:
                return self._rounding(node, args)
            case Op.NOT:
                return f"(NOT {args[0]})"
            case Op.IN:
                return f"({args[0]} IN ({', '.join(args[1:])}))"
            case Op.LIKE:
                return self._like(node, args)
            case Op.IS_NULL:
                return f"({args[0]} IS NULL)"
            case Op.CAST:
                return self._cast(node, args[0])
            case Op.CASE:
                return _case(args)
            case Op.COALESCE | Op.LOWER | Op.UPPER:
                return f"{node.op.value.lower()}({', '.join(args)})"
            case Op.LENGTH:
                return f"CAST(length({args[0]}) AS BIGINT)"
            case Op.SUBSTRING | Op.SPLIT_PART | Op.REPLACE | Op.REGEXP_EXTRACT | Op.STRFTIME:
                return self._of_text(node, args[0])
            case Op.DATE_TRUNC:
                return self._engine.truncate(unit_of(node), args[1])
            case Op.EXTRACT:
                return self._engine.part(unit_of(node), args[1])
        raise AssertionError(node.op)

    # --- numbers ------------------------------------------------------------------------------

    def _arithmetic(self, node: Call, args: list[str]) -> str:
        if ColumnType.TIMESTAMP in {arg.type for arg in node.args}:
            return self._time_arithmetic(node, args)
        if node.type is ColumnType.DOUBLE:
            return self._double_arithmetic(node.op, args)
        engine = self._engine
        smallest = f"CAST('{INT64_MIN}' AS BIGINT)"
        match node.op:
            case Op.ADD:
                return engine.add(*args)
            case Op.SUB:
                return engine.subtract(*args)
            case Op.MUL:
                return engine.multiply(*args)
            case Op.MOD:
                return engine.remainder(args[0], f"nullif({args[1]}, CAST('0' AS BIGINT))")
            case Op.NEG:
                return f"(- nullif({args[0]}, {smallest}))"
            case _:
                return f"abs(nullif({args[0]}, {smallest}))"

    def _double_arithmetic(self, op: Op, args: list[str]) -> str:
        zero = "CAST('0' AS DOUBLE)"
        match op:
            case Op.NEG:
                return f"(- {args[0]})"
            case Op.ABS:
                return f"abs({args[0]})"
            case Op.DIV | Op.MOD:
                return self._engine.not_nan(f"({args[0]} {op.value} nullif({args[1]}, {zero}))")
            case _:
                return self._engine.not_nan(f"({args[0]} {op.value} {args[1]})")

    def _time_arithmetic(self, node: Call, args: list[str]) -> str:
        engine = self._engine
        plain = [
            engine.microseconds(sql) if arg.type is ColumnType.TIMESTAMP else sql
            for arg, sql in zip(node.args, args, strict=True)
        ]
        us = engine.add(*plain) if node.op is Op.ADD else engine.subtract(*plain)
        return engine.timestamp(us) if node.type is ColumnType.TIMESTAMP else us

    def _rounding(self, node: Call, args: list[str]) -> str:
        if node.type is not ColumnType.DOUBLE:
            return args[0]
        match node.op:
            case Op.FLOOR:
                return self._engine.floor(args[0])
            case Op.CEIL:
                return self._engine.ceiling(args[0])
            case _:
                digits = 0
                if len(node.args) == 2:
                    assert isinstance(node.args[1], Literal)
                    digits = int(node.args[1].value or 0)
                return self._engine.round(args[0], digits)

    def _like(self, node: Call, args: list[str]) -> str:
        pattern = node.args[1]
        assert isinstance(pattern, Literal)
        if pattern.value is None:
            return f"CAST(NULL AS {self._engine.type_name(ColumnType.BOOLEAN)})"
        return self._engine.like(args[0], str(pattern.value))

    def _of_text(self, node: Call, value: str) -> str:
        constants = [arg.value for arg in node.args[1:] if isinstance(arg, Literal)]
        if node.op is Op.STRFTIME:
            return self._engine.formatted(value, str(constants[0]))
        if node.op is Op.REGEXP_EXTRACT:
            pattern, group = constants
            assert isinstance(group, int)
            constants = [group_pattern(str(pattern), group), 1]
        written = [
            self._engine.text(each) if isinstance(each, str) else str(each) for each in constants
        ]
        return f"{node.op.value.lower()}({', '.join([value, *written])})"

    # --- casts --------------------------------------------------------------------------------

    def _cast(self, node: Call, value: str) -> str:
        have, wanted = node.args[0].type, node.type
        assert have is not None
        assert wanted is not None
        engine = self._engine
        match have, wanted:
            case _ if have is wanted:
                return value
            case ColumnType.DOUBLE, ColumnType.INTEGER | ColumnType.BIGINT:
                return engine.double_to_integer(value, wanted)
            case ColumnType.BIGINT, ColumnType.INTEGER:
                return engine.narrow(value)
            case ColumnType.BIGINT, ColumnType.DATE:
                return engine.date(engine.narrow(value))
            case ColumnType.INTEGER, ColumnType.DATE:
                return engine.date(value)
            case ((ColumnType.INTEGER | ColumnType.BIGINT), ColumnType.TIMESTAMP):
                return engine.timestamp(f"CAST({value} AS BIGINT)")
            case ((ColumnType.INTEGER | ColumnType.BIGINT | ColumnType.DOUBLE), ColumnType.BOOLEAN):
                return f"({value} <> 0)"
            case ColumnType.TIMESTAMP, ColumnType.BIGINT:
                return engine.microseconds(value)
            case ColumnType.DATE, ColumnType.INTEGER | ColumnType.BIGINT:
                return f"CAST({engine.days(value)} AS {engine.type_name(wanted)})"
            case ColumnType.DATE, ColumnType.TIMESTAMP:
                return engine.try_cast(value, wanted)
            case ColumnType.VARCHAR, ColumnType.DOUBLE:
                return engine.number_in(value, DECIMAL_NUMBER, wanted)
            case ColumnType.VARCHAR, _:
                return engine.number_in(value, WHOLE_NUMBER, wanted)
        return f"CAST({value} AS {engine.type_name(wanted)})"


def _case(args: list[str]) -> str:
    branches = (
        f"WHEN {args[index]} THEN {args[index + 1]}" for index in range(0, len(args) - 1, 2)
    )
    return f"(CASE {' '.join(branches)} ELSE {args[-1]} END)"
