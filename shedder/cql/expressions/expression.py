"""The expression tree: frozen, hashable, and the same for every place that evaluates it.

The parser makes it untyped (`type` is None); binding fills in the types. Being hashable, an
expression is its own cache key: a frame computes each one once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from shedder.cql.expressions.column_types import ColumnType
from synopses.frequent.heavy_share import Promise


class Op(Enum):
    """Scalar operators. Their meaning for NULL, NaN, overflow and zero is in docs/cql.md."""

    __hash__ = object.__hash__  # Members are single objects; Enum's own is slow, and asked often.

    NEG = "-x"
    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"  # always DOUBLE; a zero divisor gives NULL
    MOD = "%"
    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    AND = "AND"
    OR = "OR"
    NOT = "NOT"
    IN = "IN"  # args[0] in literals args[1:]
    LIKE = "LIKE"
    IS_NULL = "IS NULL"
    CAST = "CAST"  # to the node's type
    CASE = "CASE"  # args: condition, value, condition, value, ..., else
    COALESCE = "COALESCE"
    ABS = "ABS"
    FLOOR = "FLOOR"
    CEIL = "CEIL"
    ROUND = "ROUND"
    LOWER = "LOWER"
    UPPER = "UPPER"
    LENGTH = "LENGTH"
    DATE_TRUNC = "DATE_TRUNC"  # args[0] is a VARCHAR literal: the unit
    EXTRACT = "EXTRACT"  # args[0] is a VARCHAR literal: the unit
    CONCAT = "||"
    SUBSTRING = "SUBSTRING"  # of this and the next four, args[1:] are literals
    SPLIT_PART = "SPLIT_PART"
    REPLACE = "REPLACE"
    REGEXP_EXTRACT = "REGEXP_EXTRACT"
    STRFTIME = "STRFTIME"
    HISTOGRAM = "HISTOGRAM"  # args: the COUNT of each bucket; a list, without type
    # Before binding only; the last argument is a VARCHAR literal: the canonical text of a query.
    EXISTS = "EXISTS"
    IN_QUERY = "IN (SELECT)"
    QUERY = "(SELECT)"  # a scalar subquery
    NOW = "NOW"  # before binding only; without arguments
    PREV = "PREV"  # before binding only; args[0] is a Column: the name of a relation in FROM


UNBOUND = frozenset({Op.EXISTS, Op.IN_QUERY, Op.QUERY, Op.NOW, Op.PREV})
"""Operators that binding replaces: by joins, by columns and by a constant."""


class AggregateFunction(Enum):
    """What can be asked of a window or of history."""

    COUNT = "COUNT"  # argument None: COUNT(*)
    SUM = "SUM"
    AVG = "AVG"
    MIN = "MIN"
    MAX = "MAX"
    FIRST = "FIRST"  # by event time, then by position
    LAST = "LAST"
    VAR = "VAR"  # sample variance, n - 1
    STDDEV = "STDDEV"
    COVAR_POP = "COVAR_POP"  # of two arguments, and so are the next four
    COVAR_SAMP = "COVAR_SAMP"  # n - 1
    CORR = "CORR"
    REGR_SLOPE = "REGR_SLOPE"  # of the first over the second
    REGR_INTERCEPT = "REGR_INTERCEPT"  # of the first where the second is 0
    COUNT_DISTINCT = "COUNT_DISTINCT"
    QUANTILE = "QUANTILE"  # parameter: q in [0, 1]; discrete: a value of the data
    TOP = "TOP"  # parameter: k
    FREQUENT = "FREQUENT"  # parameter: a share of the values, of which `promise` says more
    SELF_JOIN_SIZE = "SELF_JOIN_SIZE"  # sum over values of (tuples with it) squared
    JOIN_SIZE = "JOIN_SIZE"  # sum over values of (first is it) times (second is it)
    DISTINCT_BOTH = "DISTINCT_BOTH"  # conditions p, q: values in a tuple with p and in one with q
    DISTINCT_ONLY = "DISTINCT_ONLY"  # in a tuple with p, in none with q
    JACCARD = "JACCARD"  # those of both by those of either; NULL where there are none


# Each compares the values of two sets of tuples, told apart by two conditions.
SET_FUNCTIONS = frozenset(
    {AggregateFunction.DISTINCT_BOTH, AggregateFunction.DISTINCT_ONLY, AggregateFunction.JACCARD}
)


OF_PAIRS = frozenset(
    {
        AggregateFunction.COVAR_POP,
        AggregateFunction.COVAR_SAMP,
        AggregateFunction.CORR,
        AggregateFunction.REGR_SLOPE,
        AggregateFunction.REGR_INTERCEPT,
    }
)

_WHOLE = frozenset({ColumnType.INTEGER, ColumnType.BIGINT})

JOINS = frozenset({AggregateFunction.SELF_JOIN_SIZE, AggregateFunction.JOIN_SIZE})


# Their values are lists, without type.
LISTS = frozenset({AggregateFunction.TOP, AggregateFunction.FREQUENT})


BY_TIME = frozenset({AggregateFunction.FIRST, AggregateFunction.LAST})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the stream. Its hash is computed once, as that of `Call`.

    qualifier: alias of the relation, as written before the dot; None: not written, or bound.
    """

    name: str
    type: ColumnType | None = None
    qualifier: str | None = None
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.type, self.qualifier)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Column, (self.name, self.type, self.qualifier)  # Hashes are of one process.


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. TIMESTAMP is int microseconds since the epoch, DATE int days; None is NULL."""

    value: bool | int | float | str | None
    type: ColumnType | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """An operator applied to arguments. Its hash is computed once: it is asked for often.

    size: how many nodes the tree has, one that stands in it twice counted twice.
    """

    op: Op
    args: tuple[Expression, ...]
    type: ColumnType | None = None
    size: int = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + sum(map(size_of, self.args)))
        object.__setattr__(self, "_hash", hash((self.op, self.args, self.type)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Call, (self.op, self.args, self.type)  # Hashes are of one process.


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate function over the tuples of a group. Those of LISTS have type None.

    second: the other argument of a function of pairs, or of JOIN_SIZE.
    conditions: p and q of one of SET_FUNCTIONS. promise: of FREQUENT.
    """

    function: AggregateFunction
    argument: Expression | None
    parameter: float | None = None
    type: ColumnType | None = None
    second: Expression | None = None
    conditions: tuple[Expression, ...] = ()
    promise: Promise | None = None


Expression = Column | Literal | Call | Aggregate


def children(node: Expression) -> tuple[Expression, ...]:
    """The direct parts of a node."""
    match node:
        case Call(args=args):
            return args
        case Aggregate(argument=first, second=second, conditions=conditions):
            return tuple(part for part in (first, second, *conditions) if part is not None)
        case _:
            return ()


def size_of(node: Expression) -> int:
    """Return how many nodes the tree has, one that stands in it twice counted twice."""
    return node.size if isinstance(node, Call) else 1 + sum(map(size_of, children(node)))


def chained(op: Op, node: Expression) -> list[Expression]:
    """The terms of a chain of AND or OR, however it is bracketed; of anything else, itself."""
    if isinstance(node, Call) and node.op is op:
        return [*chained(op, node.args[0]), *chained(op, node.args[1])]
    return [node]


def walk(node: Expression) -> Iterator[Expression]:
    """The node and everything below it, parents first."""
    yield node
    for child in children(node):
        yield from walk(child)


def parts_of(node: Expression) -> Iterator[Expression]:
    """The node and everything below it, parents first; a node that stands there twice once.

    NULLIF(x, 0) has x twice, so nested ones have 2^depth nodes, of which few are distinct.
    """
    seen = {id(node)}
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        for child in reversed(children(part)):
            if id(child) not in seen:
                seen.add(id(child))
                waiting.append(child)


def inputs(node: Aggregate) -> tuple[Expression, ...]:
    """What a bound aggregate reads of each tuple: its arguments, or nothing (COUNT(*)).

    SET_FUNCTIONS read two: the argument where p is true, else NULL, and the same for q.
    """
    if node.argument is None or not node.conditions:
        return children(node)
    kind = node.argument.type
    return tuple(
        Call(Op.CASE, (condition, node.argument, Literal(None, kind)), kind)
        for condition in node.conditions
    )


def as_whole_numbers(node: Expression) -> Expression:
    """The whole numbers of which an expression is the cast to DOUBLE; else the expression.

    Functions of pairs take DOUBLE, which holds 53 bits of a whole number.
    """
    match node:
        case Call(op=Op.CAST, args=(inner,), type=ColumnType.DOUBLE) if inner.type in _WHOLE:
            return inner
        case _:
            return node


def unit_of(node: Call) -> str:
    """The unit of a DATE_TRUNC or an EXTRACT."""
    unit = node.args[0]
    assert isinstance(unit, Literal)
    assert isinstance(unit.value, str)
    return unit.value
