"""HISTOGRAM(x, edges): counts of x between given edges, each a COUNT of its own.

Edges are constants, so that a histogram of one group, window or minute can be laid beside another,
and added to it. A value is in the bucket whose lower edge it reaches and whose upper edge it does
not; what is below the first edge and what reaches the last have buckets, too, so that the counts
add up to COUNT(x).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Final

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    Aggregate,
    AggregateFunction,
    Call,
    Expression,
    Literal,
    Op,
)
from shedder.errors import BadQuery

BUCKETS_MAX = 100  # Between the edges.
DISTINCT_MAX: Final = 2**53  # DOUBLEs tell apart all whole numbers up to here.
_KINDS: Final = {
    ColumnType.INTEGER: "numbers",
    ColumnType.BIGINT: "numbers",
    ColumnType.DOUBLE: "numbers",
    ColumnType.TIMESTAMP: "times",
    ColumnType.DATE: "times",
    ColumnType.VARCHAR: "texts",
    ColumnType.BOOLEAN: "truths",
}
_HOW = "HISTOGRAM takes HISTOGRAM(x, [0, 10, 100]) or HISTOGRAM(x, 20, 0, 1000): so many equal ones"


def histogram(x: Expression, edges: Sequence[Expression]) -> Call:
    """The node: a count of each bucket, from the lowest to the highest.

    Raises:
      BadQuery: an edge is no constant, they are too many, or of types that do not go together.
    """
    if not edges or not all(isinstance(edge, Literal) and edge.value is not None for edge in edges):
        raise BadQuery(f"{_HOW}; edges are constants")
    if len(edges) > BUCKETS_MAX + 1:
        raise BadQuery(f"HISTOGRAM has at most {BUCKETS_MAX} buckets, not {len(edges) - 1:,}")
    _check_alike([edge for edge in edges if isinstance(edge, Literal)])
    edges = _of_one_type(edges)
    below = [Call(Op.LT, (x, edge)) for edge in edges]
    above = [Call(Op.GE, (x, edge)) for edge in edges]
    inner = [Call(Op.AND, pair) for pair in zip(above, below[1:], strict=False)]
    return Call(Op.HISTOGRAM, tuple(map(_count_of, [below[0], *inner, above[-1]])))


def equal_edges(said: Sequence[Expression]) -> list[Expression]:
    """The edges of n buckets of one width; said: n, the lowest and the highest edge.

    Raises:
      BadQuery: these are no constant numbers, or in no order.
    """
    if len(said) != 3:
        raise BadQuery(
            f"{_HOW}; edges that followed the data would not be those of the next window"
        )
    values = [part.value if isinstance(part, Literal) else None for part in said]
    buckets, first, last = (None if isinstance(value, bool) else value for value in values)
    if not isinstance(buckets, int) or not isinstance(first, (int, float)):
        raise BadQuery(_HOW)
    if not isinstance(last, (int, float)) or not float("-inf") < first < last < float("inf"):
        raise BadQuery(f"{_HOW}, of a range that is not empty")
    if not 1 <= buckets <= BUCKETS_MAX:
        raise BadQuery(f"HISTOGRAM has 1 to {BUCKETS_MAX} buckets, not {buckets:,}")
    start, width = Fraction(first), Fraction(last) - Fraction(first)
    exact = [start + width * at / buckets for at in range(buckets + 1)]
    beyond = isinstance(last, int) and max(abs(first), abs(last)) >= DISTINCT_MAX
    if isinstance(first, int) and (beyond or all(edge.denominator == 1 for edge in exact)):
        # A whole number reaches an edge if it reaches the next whole number.
        return [Literal(math.ceil(edge), ColumnType.BIGINT) for edge in exact]
    return [Literal(float(edge), ColumnType.DOUBLE) for edge in exact]


def is_histogram(node: Expression) -> bool:
    """Return whether this is a node that `histogram` made."""
    return isinstance(node, Call) and node.op is Op.HISTOGRAM


def counts_of(node: Expression) -> tuple[Aggregate, ...]:
    """The COUNT of each bucket: one more than there are edges."""
    assert isinstance(node, Call), node
    return tuple(count for count in node.args if isinstance(count, Aggregate))


def value_of(node: Expression) -> Expression:
    """What is counted."""
    return _reached(counts_of(node)[-1]).args[0]


def edges_of(node: Expression) -> list[Literal]:
    """The edges; of a bound node, of the type in which they are compared."""
    edges = [_reached(count).args[1] for count in counts_of(node)[1:]]
    literals = [edge for edge in edges if isinstance(edge, Literal)]
    assert len(literals) == len(edges), edges
    return literals


def check_ascending(node: Expression) -> None:
    """See that a bound histogram's edges ascend.

    Raises:
      BadQuery: they do not.
    """
    values = [edge.value for edge in edges_of(node)]
    for left, right in pairwise(values):
        if not left < right:  # type: ignore[operator]  # Of one type, since they are bound.
            raise BadQuery(f"edges of a HISTOGRAM ascend; {left!r} stands before {right!r}")


def _check_alike(edges: Sequence[Literal]) -> None:
    """Edges are all numbers, all times (as text, too) or all texts."""
    by_kind = {_KINDS[edge.type]: edge for edge in edges if edge.type is not None}
    if by_kind.keys() <= {"times", "texts"}:
        return
    if len(by_kind) > 1:
        (one, first), (other, second) = list(by_kind.items())[:2]
        raise BadQuery(
            f"edges of a HISTOGRAM are of one type, that of x; here are {one} ({first.value!r}) "
            f"and {other} ({second.value!r})"
        )


def _of_one_type(edges: Sequence[Expression]) -> Sequence[Expression]:
    """Whole numbers beside others are DOUBLEs, too."""
    found = [edge for edge in edges if isinstance(edge, Literal)]
    if not any(isinstance(edge.value, float) for edge in found):
        return found
    whole = (int, float)
    return [
        Literal(float(edge.value), ColumnType.DOUBLE) if isinstance(edge.value, whole) else edge
        for edge in found
    ]


def _count_of(condition: Expression) -> Aggregate:
    one, none = Literal(1, ColumnType.BIGINT), Literal(None)
    return Aggregate(AggregateFunction.COUNT, Call(Op.CASE, (condition, one, none)))


def _reached(count: Aggregate) -> Call:
    """The condition x >= edge of a bucket above an edge."""
    assert isinstance(count.argument, Call), count
    condition = count.argument.args[0]
    assert isinstance(condition, Call), count
    reached = condition.args[0] if condition.op is Op.AND else condition
    assert isinstance(reached, Call), count
    return reached
