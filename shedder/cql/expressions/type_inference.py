"""Types of the operands and results of operators and aggregates, with the casts they need.

INTEGER widens to BIGINT, both to DOUBLE, DATE to TIMESTAMP; a string literal becomes what it is
compared with. Nothing else happens unasked. Integer arithmetic is done in BIGINT.
"""

from __future__ import annotations

from collections.abc import Sequence

from shedder.cql.expressions.casts import DAY_US, DAYS_MAX
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    Aggregate,
    AggregateFunction,
    Call,
    Expression,
    Literal,
    Op,
)
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.expressions.histograms import check_ascending
from shedder.cql.expressions.literals import converted
from shedder.errors import BadQuery, TypeMismatch

_B, _I, _L, _D, _V, _T, _DATE = (
    ColumnType.BOOLEAN,
    ColumnType.INTEGER,
    ColumnType.BIGINT,
    ColumnType.DOUBLE,
    ColumnType.VARCHAR,
    ColumnType.TIMESTAMP,
    ColumnType.DATE,
)
_NUMBERS = (_I, _L, _D)
_CASTS = {
    _B: {_B, _I, _L, _D, _V},
    _I: {_B, _I, _L, _D, _V, _T, _DATE},
    _L: {_B, _I, _L, _D, _V, _T, _DATE},
    _D: {_B, _I, _L, _D},
    _V: {_V, _I, _L, _D},
    _T: {_T, _DATE, _L},
    _DATE: {_DATE, _T, _I, _L},
}
ROUND_DIGITS_MAX = 15


def typed_call(node: Call, args: tuple[Expression, ...]) -> Call:
    """The call over typed arguments: casts put in, its own type known.

    Args:
      node: the untyped call.
      args: its arguments, typed; only a NULL literal may have type None.

    Raises:
      TypeMismatch: shows the expression and the types.
    """
    op = node.op
    match op:
        case Op.ADD | Op.SUB | Op.MUL | Op.MOD | Op.DIV:
            return _arithmetic(op, args)
        case Op.EQ | Op.NE | Op.LT | Op.LE | Op.GT | Op.GE:
            return Call(op, alike(op.value, args), _B)
        case Op.IN:
            return Call(op, alike("IN", args), _B)
        case Op.AND | Op.OR | Op.NOT:
            return Call(op, tuple(_as(arg, _B, op.value) for arg in args), _B)
        case Op.IS_NULL:
            return Call(op, (with_type(args[0], _L),), _B)
        case Op.LIKE:
            return _like(args)
        case Op.CONCAT:
            return Call(op, tuple(_as(arg, _V, "||") for arg in args), _V)
        case Op.LOWER | Op.UPPER | Op.LENGTH:
            kind = _L if op is Op.LENGTH else _V
            return Call(op, (_as(args[0], _V, op.value),), kind)
        case Op.SUBSTRING | Op.SPLIT_PART | Op.REPLACE | Op.REGEXP_EXTRACT | Op.STRFTIME:
            kind = _T if op is Op.STRFTIME else _V
            return Call(op, (_as(args[0], kind, op.value), *args[1:]), _V)
        case Op.NEG | Op.ABS | Op.FLOOR | Op.CEIL | Op.ROUND:
            return _rounding(op, args)
        case Op.DATE_TRUNC:
            return Call(op, (args[0], _as(args[1], _T, "DATE_TRUNC")), _T)
        case Op.EXTRACT:
            assert isinstance(args[0], Literal)
            kind = _D if args[0].value == "EPOCH" else _L
            return Call(op, (args[0], _as(args[1], _T, "EXTRACT")), kind)
        case Op.HISTOGRAM:
            bound = Call(op, args)
            check_ascending(bound)
            return bound
        case Op.COALESCE:
            parts = alike("COALESCE", args)
            return Call(op, parts, parts[0].type)
        case Op.CASE:
            return _case(args)
        case Op.CAST:
            assert node.type is not None
            return _cast(args[0], node.type)
        case Op.EXISTS | Op.IN_QUERY | Op.QUERY | Op.NOW | Op.PREV:
            raise AssertionError(node)  # Binding has replaced them.


def typed_aggregate(
    node: Aggregate,
    argument: Expression | None,
    second: Expression | None = None,
    conditions: tuple[Expression, ...] = (),
) -> Aggregate:
    """The aggregate over typed arguments.

    Raises:
      TypeMismatch: the function does not take the type.
    """
    function = node.function
    if argument is None:
        return Aggregate(function, None, None, _L)
    argument = with_type(argument, _L)
    if second is not None:
        argument, second = _typed_pair(function, argument, second)
        if function is AggregateFunction.JOIN_SIZE and argument == second:
            return Aggregate(AggregateFunction.SELF_JOIN_SIZE, argument, None, _D)
    result = _result_type(node, argument)
    conditions = tuple(_as(condition, _B, function.value) for condition in conditions)
    return Aggregate(
        function, argument, node.parameter, result, second, conditions, promise=node.promise
    )


def _typed_pair(
    function: AggregateFunction, first: Expression, second: Expression
) -> tuple[Expression, Expression]:
    """The two arguments of a function: keys of one type for a join size, else numbers."""
    if function is AggregateFunction.JOIN_SIZE:
        first, second = alike(function.value, (first, second))
        return first, second
    return _as(first, _D, function.value), _as(second, _D, function.value)


def _result_type(node: Aggregate, argument: Expression) -> ColumnType | None:
    """The type of an aggregate's value; None: it is a list.

    Raises:
      TypeMismatch: the function does not take the type of the argument.
    """
    kind = argument.type
    assert kind is not None
    match node.function:
        case (
            AggregateFunction.COUNT
            | AggregateFunction.COUNT_DISTINCT
            | AggregateFunction.DISTINCT_BOTH
            | AggregateFunction.DISTINCT_ONLY
        ):
            return _L
        case AggregateFunction.SUM:
            _require(kind, _NUMBERS, node, argument)
            return _D if kind is _D else _L
        case AggregateFunction.AVG | AggregateFunction.VAR | AggregateFunction.STDDEV:
            _require(kind, _NUMBERS, node, argument)
            return _D
        case AggregateFunction.QUANTILE:
            _require(kind, (*_NUMBERS, _T), node, argument)
            return kind
        case (
            AggregateFunction.MIN
            | AggregateFunction.MAX
            | AggregateFunction.FIRST
            | AggregateFunction.LAST
        ):
            return kind
        case AggregateFunction.TOP | AggregateFunction.FREQUENT:
            return None
        case (
            AggregateFunction.SELF_JOIN_SIZE
            | AggregateFunction.JOIN_SIZE
            | AggregateFunction.JACCARD
            | AggregateFunction.COVAR_POP
            | AggregateFunction.COVAR_SAMP
            | AggregateFunction.CORR
            | AggregateFunction.REGR_SLOPE
            | AggregateFunction.REGR_INTERCEPT
        ):
            return _D


def with_type(node: Expression, kind: ColumnType) -> Expression:
    """A NULL without type gets one; anything else stays."""
    if isinstance(node, Literal) and node.type is None:
        return Literal(node.value, kind)
    return node


def _require(
    kind: ColumnType, wanted: Sequence[ColumnType], node: Aggregate, argument: Expression
) -> None:
    if kind not in wanted:
        hint = "; COUNT_IF(x) counts where x is true" if kind is _B else ""
        raise TypeMismatch(
            f"{node.function.value} takes {_names(wanted)}, not {text_of(argument)}, "
            f"which is {kind.value}{hint}"
        )


def _names(kinds: Sequence[ColumnType]) -> str:
    *some, last = [kind.value for kind in kinds]
    return f"{', '.join(some)} or {last}" if some else last


def _as(node: Expression, kind: ColumnType, where: str) -> Expression:
    """The node as this type, by a cast that happens unasked, or not at all."""
    node = with_type(node, kind)
    have = node.type
    if have is kind:
        return node
    if isinstance(node, Literal) and have is _V:
        return _literal_as(node, kind)
    if (have, kind) in {(_I, _L), (_I, _D), (_L, _D), (_DATE, _T)}:
        return _widened(node, kind) if isinstance(node, Literal) else Call(Op.CAST, (node,), kind)
    assert have is not None
    raise TypeMismatch(f"{where} takes {kind.value}, not {text_of(node)}, which is {have.value}")


def _widened(node: Literal, kind: ColumnType) -> Literal:
    """A whole number or a day as a wider type: still a constant, as IN and value indexes ask."""
    value = node.value
    assert value is None or isinstance(value, int)
    if value is None or (kind is _T and abs(value) > DAYS_MAX):
        return Literal(None, kind)
    match kind:
        case ColumnType.DOUBLE:
            return Literal(float(value), kind)
        case ColumnType.TIMESTAMP:
            return Literal(value * DAY_US, kind)
        case _:
            return Literal(value, kind)


def _literal_as(node: Literal, kind: ColumnType) -> Literal:
    assert isinstance(node.value, str)
    try:
        return converted(node.value, kind)
    except ValueError as error:
        raise TypeMismatch(str(error)) from error


def alike(where: str, args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """All arguments as the narrowest type that holds them all.

    Raises:
      TypeMismatch: there is none; `where` names the operator.
    """
    fixed = {arg.type for arg in args if not (isinstance(arg, Literal) and arg.type in (None, _V))}
    kinds = fixed or {arg.type for arg in args}
    kinds.discard(None)
    if not kinds:
        common = _L
    elif len(kinds) == 1:
        [only] = kinds
        assert only is not None
        common = only
    elif kinds <= set(_NUMBERS):
        common = _D if _D in kinds else _L
    elif kinds == {_T, _DATE}:
        common = _T
    else:
        shown = ", ".join(
            f"{text_of(arg)} is {arg.type.value}" for arg in args if arg.type is not None
        )
        raise TypeMismatch(f"{where} takes values of one type: {shown}")
    return tuple(_as(arg, common, where) for arg in args)


def _arithmetic(op: Op, args: tuple[Expression, ...]) -> Call:
    left, right = args
    kinds = {left.type, right.type}
    if _T in kinds and op in (Op.ADD, Op.SUB):
        return _time_arithmetic(op, left, right)
    if op is Op.DIV or _D in kinds:
        return Call(op, tuple(_as(arg, _D, op.value) for arg in args), _D)
    if _DATE in kinds:
        raise TypeMismatch(
            f"{op.value} takes no DATE: write CAST({text_of(left)} AS TIMESTAMP) and INTERVALs"
        )
    return Call(op, tuple(_as(arg, _L, op.value) for arg in args), _L)


def _time_arithmetic(op: Op, left: Expression, right: Expression) -> Call:
    """TIMESTAMP ± microseconds, and the microseconds between two."""
    if op is Op.SUB and left.type is _T:
        if right.type in (_T, _DATE) or (isinstance(right, Literal) and right.type is _V):
            return Call(op, (left, _as(right, _T, "-")), _L)
        return Call(op, (left, _as(right, _L, "-")), _T)
    if op is Op.SUB and left.type is _DATE:
        return Call(op, (_as(left, _T, "-"), right), _L)
    if op is Op.ADD and left.type is _T:
        return Call(op, (left, _as(right, _L, "+")), _T)
    if op is Op.ADD:
        return Call(op, (right, _as(left, _L, "+")), _T)
    raise TypeMismatch(f"a TIMESTAMP cannot be taken from {text_of(left)}")


def _rounding(op: Op, args: tuple[Expression, ...]) -> Call:
    value = with_type(args[0], _L)
    kind = value.type
    if isinstance(value, Literal) and kind is _V:
        value, kind = _literal_as(value, _D), _D
    if kind not in _NUMBERS:
        assert kind is not None
        raise TypeMismatch(
            f"{op.name} takes {_names(_NUMBERS)}, not {text_of(value)}, which is {kind.value}"
        )
    if len(args) == 1:
        wide = value if kind is _D else _as(value, _L, op.name)
        return Call(op, (wide,), wide.type)
    digits = args[1]
    assert isinstance(digits, Literal)
    whole = isinstance(digits.value, int) and not isinstance(digits.value, bool)
    if not whole or not 0 <= int(digits.value or 0) <= ROUND_DIGITS_MAX:
        raise BadQuery(f"ROUND takes 0 to {ROUND_DIGITS_MAX} digits, not {digits.value!r}")
    wide = value if kind is _D else _as(value, _L, op.name)
    return Call(op, (wide, digits), wide.type)


def _like(args: tuple[Expression, ...]) -> Call:
    pattern = with_type(args[1], _V)
    if not isinstance(pattern, Literal):
        raise TypeMismatch(f"LIKE takes a constant pattern, not {text_of(pattern)}")
    if pattern.type is not _V:
        raise TypeMismatch(f"LIKE takes a pattern in quotes, not {text_of(pattern)}")
    if isinstance(pattern.value, str):
        _check_pattern(pattern.value)
    return Call(Op.LIKE, (_as(args[0], _V, "LIKE"), pattern), _B)


def _check_pattern(pattern: str) -> None:
    escaped = False
    for character in pattern:
        if escaped and character not in "%_\\":
            raise BadQuery(
                f"in the pattern {pattern!r} a backslash stands before {character!r}; "
                "it escapes %, _ and itself"
            )
        escaped = character == "\\" and not escaped
    if escaped:
        raise BadQuery(f"the pattern {pattern!r} ends in a backslash that escapes nothing")


def _case(args: tuple[Expression, ...]) -> Call:
    values = alike("CASE", (*args[1:-1:2], args[-1]))
    parts: list[Expression] = []
    for index, condition in enumerate(args[:-1:2]):
        parts += [_as(condition, _B, "WHEN"), values[index]]
    return Call(Op.CASE, (*parts, values[-1]), values[-1].type)


def _cast(value: Expression, kind: ColumnType) -> Call:
    value = with_type(value, kind)
    have = value.type
    assert have is not None
    if kind not in _CASTS[have]:
        raise TypeMismatch(f"{text_of(value)} is {have.value} and cannot be cast to {kind.value}")
    return Call(Op.CAST, (value,), kind)
