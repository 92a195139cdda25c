"""Functions of CQL by name: scalars and aggregates."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    OF_PAIRS,
    SET_FUNCTIONS,
    Aggregate,
    AggregateFunction,
    Call,
    Expression,
    Literal,
    Op,
)
from shedder.cql.expressions.text_functions import TEXT_FUNCTIONS, text_call
from shedder.errors import BadQuery, Unimplemented
from synopses.frequent.heavy_share import Promise

SCALARS = {
    "ABS": Op.ABS,
    "FLOOR": Op.FLOOR,
    "CEIL": Op.CEIL,
    "CEILING": Op.CEIL,
    "LOWER": Op.LOWER,
    "UPPER": Op.UPPER,
    "LENGTH": Op.LENGTH,
    "LEN": Op.LENGTH,
    "CHAR_LENGTH": Op.LENGTH,
    "CHARACTER_LENGTH": Op.LENGTH,
}
_OF_TEXT = {op.value: op.value for op in TEXT_FUNCTIONS} | {"SUBSTR": "SUBSTRING"}
AGGREGATES = {
    "COUNT": AggregateFunction.COUNT,
    "SUM": AggregateFunction.SUM,
    "AVG": AggregateFunction.AVG,
    "MEAN": AggregateFunction.AVG,
    "MIN": AggregateFunction.MIN,
    "MAX": AggregateFunction.MAX,
    "FIRST": AggregateFunction.FIRST,
    "LAST": AggregateFunction.LAST,
    "VAR": AggregateFunction.VAR,
    "VARIANCE": AggregateFunction.VAR,
    "VAR_SAMP": AggregateFunction.VAR,
    "STDDEV": AggregateFunction.STDDEV,
    "STDDEV_SAMP": AggregateFunction.STDDEV,
    "STD": AggregateFunction.STDDEV,
    "COVAR_POP": AggregateFunction.COVAR_POP,
    "COVAR_SAMP": AggregateFunction.COVAR_SAMP,
    "CORR": AggregateFunction.CORR,
    "REGR_SLOPE": AggregateFunction.REGR_SLOPE,
    "REGR_INTERCEPT": AggregateFunction.REGR_INTERCEPT,
    "QUANTILE": AggregateFunction.QUANTILE,
    "QUANTILE_DISC": AggregateFunction.QUANTILE,
    "MEDIAN": AggregateFunction.QUANTILE,
    "TOP": AggregateFunction.TOP,
    "FREQUENT": AggregateFunction.FREQUENT,
    "SELF_JOIN_SIZE": AggregateFunction.SELF_JOIN_SIZE,
    "JOIN_SIZE": AggregateFunction.JOIN_SIZE,
    "DISTINCT_BOTH": AggregateFunction.DISTINCT_BOTH,
    "DISTINCT_ONLY": AggregateFunction.DISTINCT_ONLY,
    "JACCARD": AggregateFunction.JACCARD,
}
UNITS = (
    "MICROSECOND",
    "MILLISECOND",
    "SECOND",
    "MINUTE",
    "HOUR",
    "DAY",
    "WEEK",
    "MONTH",
    "QUARTER",
    "YEAR",
)
PARTS = (*UNITS, "DOW", "ISODOW", "DOY", "EPOCH")
_UNIT_NAMES = {
    **{unit: unit for unit in PARTS},
    **{f"{unit}S": unit for unit in UNITS},
    "DAYOFWEEK": "DOW",
    "DAYOFYEAR": "DOY",
    "US": "MICROSECOND",
    "MS": "MILLISECOND",
    "MIN": "MINUTE",
    "MON": "MONTH",
}
_SHORTHANDS = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_OTHERS = (
    "ROUND",
    "COALESCE",
    "IFNULL",
    "NVL",
    "NULLIF",
    "IF",
    "DATE_TRUNC",
    "DATE_PART",
    "CONCAT",
    "MOD",
    "COUNT_IF",
    "CDF",
    "HISTOGRAM",
    "PERCENTILE_DISC",
)
_HINTS = {
    "VAR_POP": "VAR is the sample variance; multiply by (COUNT(x) - 1) / COUNT(x)",
    "STDDEV_POP": "STDDEV is that of a sample",
    "FIRST_VALUE": "FIRST(x) is the value of the smallest event time",
    "LAST_VALUE": "LAST(x) is the value of the largest event time",
    "COVAR": "COVAR_POP(x, y) divides by n, COVAR_SAMP(x, y) by n - 1",
    "DATE_FORMAT": "STRFTIME(t, '%Y-%m-%d') gives the text of a time",
    "TO_CHAR": "STRFTIME(t, '%Y-%m-%d') gives the text of a time",
    "SPLIT_INDEX": "SPLIT_PART(x, '/', 1) gives the first part of a text",
    "REGEXP_SUBSTR": "REGEXP_EXTRACT(x, pattern) gives the first match",
    "REGEXP_REPLACE": "REGEXP_EXTRACT(x, pattern, group) gives a part, REPLACE(x, old, new) a text",
    "REGEXP_MATCHES": "REGEXP_EXTRACT(x, pattern) <> '' says whether a match is there",
    "REGR_R2": "the square of CORR(x, y)",
    "PERCENTILE_CONT": "QUANTILE(x, q) gives a value of the data",
    "QUANTILE_CONT": "QUANTILE(x, q) gives a value of the data",
    "APPROX_TOP_K": "TOP(x, k) gives the k most frequent values",
    "HEAVY_HITTERS": "FREQUENT(x, 0.01) gives the values of 1 % of the tuples or more",
    "APPROX_COUNT_DISTINCT": "write COUNT(DISTINCT x) and a target: WITHIN 1 PERCENT",
    "APPROX_QUANTILE": "write QUANTILE(x, q) and a target: WITHIN 1 PERCENT",
    "ISTREAM": "it stands around the whole select list",
    "DSTREAM": "it stands around the whole select list",
    "RSTREAM": "it stands around the whole select list",
    "WSTREAM": "windows of results are not in this version; put the query into FROM (...) [ROWS n]",
    "PREV": "it compares relations in FROM, in a query of rows: p2 = PREV(p1)",
    "NOW": "answers are as of the stream's own time; pass a time as a parameter",
    "CURRENT_TIMESTAMP": "answers are as of the stream's own time; pass a time as a parameter",
}
TOP_MAX = 10_000
FREQUENT_MIN = 1 / TOP_MAX  # As many values may be in a list.
_FREQUENT = "FREQUENT(x, share)"


def unit_named(name: str, known: Sequence[str]) -> Literal:
    """The literal for a unit of DATE_TRUNC or EXTRACT.

    Raises:
      BadQuery: it is not one of `known`.
    """
    unit = _UNIT_NAMES.get(name.strip().upper())
    if unit not in known:
        raise BadQuery(f"{name!r} is not a unit here; {', '.join(known).lower()} are")
    return Literal(unit, ColumnType.VARCHAR)


def scalar(name: str, args: tuple[Expression, ...]) -> Expression:
    """The expression for a call of a function that is no aggregate.

    Raises:
      BadQuery: the number of arguments is wrong. Unimplemented: there is no such function.
    """
    if name in SCALARS:
        return Call(SCALARS[name], _exactly(name, args, 1))
    if name in _OF_TEXT:
        return text_call(_OF_TEXT[name], args)
    match name, args:
        case ("ROUND", (_,) | (_, Literal())):
            return Call(Op.ROUND, args)
        case ("ROUND", (_, _)):
            raise BadQuery("ROUND(x, digits) takes a constant number of digits")
        case ("COALESCE" | "IFNULL" | "NVL", (_, *_)):
            return args[0] if len(args) == 1 else Call(Op.COALESCE, args)
        case ("NULLIF", (left, right)):
            return Call(Op.CASE, (Call(Op.EQ, (left, right)), Literal(None), left))
        case ("IF" | "IIF", (condition, yes, no)):
            return Call(Op.CASE, (condition, yes, no))
        case ("MOD", (_, _)):
            return Call(Op.MOD, args)
        case ("CONCAT", (first, _, *_)):
            joined = first
            for following in args[1:]:
                joined = Call(Op.CONCAT, (joined, following))
            return joined
        case ("DATE_TRUNC", (Literal(value=str(unit)), moment)):
            return Call(Op.DATE_TRUNC, (unit_named(unit, UNITS), moment))
        case ("DATE_TRUNC", (_, _)):
            raise BadQuery("DATE_TRUNC takes a constant unit: DATE_TRUNC('hour', ts)")
        case ("DATE_PART", (Literal(value=str(unit)), moment)):
            return Call(Op.EXTRACT, (unit_named(unit, PARTS), moment))
    if name in _SHORTHANDS and len(args) == 1:
        return Call(Op.EXTRACT, (unit_named(name, PARTS), args[0]))
    if name in _OTHERS:
        raise BadQuery(f"{name} does not take {len(args)} arguments like these")
    raise unknown(name)


def aggregate(name: str, args: tuple[Expression, ...], *, distinct: bool) -> Aggregate:
    """The aggregate that a call means; COUNT(*) comes with no arguments.

    Raises:
      BadQuery: wrong arguments. Unimplemented: DISTINCT where it means another aggregate.
    """
    function = AGGREGATES[name]
    if distinct:
        return _distinct(name, function, args)
    match function:
        case AggregateFunction.COUNT:
            if not args:
                return Aggregate(function, None)
            return Aggregate(function, _exactly(name, args, 1)[0])
        case AggregateFunction.QUANTILE if name == "MEDIAN":
            return Aggregate(function, _exactly(name, args, 1)[0], 0.5)
        case AggregateFunction.QUANTILE:
            argument, q = _exactly(name, args, 2)
            return Aggregate(function, argument, quantile_rank(q))
        case AggregateFunction.TOP:
            argument, k = _exactly(name, args, 2)
            return Aggregate(function, argument, _top_size(k))
        case AggregateFunction.FREQUENT:
            return _frequent(args)
        case function if function in OF_PAIRS or function is AggregateFunction.JOIN_SIZE:
            first, second = _exactly(name, args, 2)
            return Aggregate(function, first, second=second)
        case function if function in SET_FUNCTIONS:
            argument, *conditions = _exactly(name, args, 3)
            return Aggregate(function, argument, conditions=tuple(conditions))
        case _:
            return Aggregate(function, _exactly(name, args, 1)[0])


def _distinct(name: str, function: AggregateFunction, args: tuple[Expression, ...]) -> Aggregate:
    match function:
        case AggregateFunction.COUNT if len(args) == 1:
            return Aggregate(AggregateFunction.COUNT_DISTINCT, args[0])
        case AggregateFunction.COUNT:
            raise Unimplemented("COUNT(DISTINCT a, b): not in this version; count one expression")
        case AggregateFunction.MIN | AggregateFunction.MAX:
            return Aggregate(function, _exactly(name, args, 1)[0])
    raise Unimplemented(f"{name}(DISTINCT x): not in this version; COUNT(DISTINCT x) is")


def quantile_rank(q: Expression) -> float:
    """The constant q of QUANTILE(x, q).

    Raises:
      BadQuery: it is no constant in [0, 1].
    """
    value = q.value if isinstance(q, Literal) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadQuery("QUANTILE(x, q) takes a constant number q from 0 to 1")
    if not 0 <= value <= 1:
        raise BadQuery(f"QUANTILE takes q from 0 to 1, not {value}")
    return float(value)


def _top_size(k: Expression) -> float:
    value = k.value if isinstance(k, Literal) else None
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadQuery("TOP(x, k) takes a constant whole number k")
    if not 1 <= value <= TOP_MAX:
        raise BadQuery(f"TOP takes k from 1 to {TOP_MAX:,}, not {value}")
    return float(value)


def _frequent(args: tuple[Expression, ...]) -> Aggregate:
    """FREQUENT(x, share), with the words of a promise as a constant, if any."""
    argument, share, *rest = (*args, Literal(None), Literal(None))[: max(len(args), 2)]
    value = share.value if isinstance(share, Literal) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadQuery(f"{_FREQUENT} takes a constant share, such as 0.01")
    if not FREQUENT_MIN <= value <= 1:
        raise BadQuery(f"FREQUENT takes a share from {FREQUENT_MIN} to 1, not {value}")
    said = [part.value if isinstance(part, Literal) else None for part in rest]
    words = said or [Promise.NO_FALSE_NEGATIVES.value]
    if words not in [[promise.value] for promise in Promise]:
        raise BadQuery(f"{_FREQUENT} takes {' or '.join(each.value for each in Promise)}")
    promise = Promise(words[0])
    return Aggregate(AggregateFunction.FREQUENT, argument, float(value), promise=promise)


def _exactly(name: str, args: tuple[Expression, ...], count: int) -> tuple[Expression, ...]:
    if len(args) != count:
        plural = "argument" if count == 1 else "arguments"
        raise BadQuery(f"{name} takes {count} {plural}, not {len(args)}")
    return args


def unknown(name: str) -> Unimplemented:
    """The refusal of a function that is not there, with the nearest that is."""
    if name in _HINTS:
        return Unimplemented(f"no function {name}: {_HINTS[name]}")
    known = [*SCALARS, *_OF_TEXT, *AGGREGATES, *_SHORTHANDS, *_OTHERS]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return Unimplemented(f"no function {name} in this version{hint}")
