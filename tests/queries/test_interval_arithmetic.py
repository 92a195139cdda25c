"""Interval arithmetic holds every outcome that its inputs allow: tried at points inside them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

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
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Output
from shedder.queries.evidence.output_columns import Groups
from shedder.queries.evidence.value_ranges import Range, Truth, of_array
from synopses.model.estimate import Bound, Estimates
from tests.queries.asking import ask, evidence

DOUBLE, BIGINT, BOOLEAN = ColumnType.DOUBLE, ColumnType.BIGINT, ColumnType.BOOLEAN
BYTES = Column("bytes", DOUBLE)
LEAVES = [
    Aggregate(AggregateFunction.SUM, BYTES, None, DOUBLE),
    Aggregate(AggregateFunction.AVG, BYTES, None, DOUBLE),
    Aggregate(AggregateFunction.COUNT_DISTINCT, BYTES, None, BIGINT),
    Aggregate(AggregateFunction.COUNT, BYTES, None, BIGINT),
]
QUERY = replace(
    ask("SUM(bytes), AVG(bytes), COUNT(DISTINCT bytes), COUNT(bytes) FROM requests"),
    aggregates=tuple(LEAVES),
)


def cast(node: Expression) -> Expression:
    return node if node.type is DOUBLE else Call(Op.CAST, (node,), DOUBLE)


@cache
def literals(kind: ColumnType) -> st.SearchStrategy[Expression]:
    if kind is BIGINT:
        return st.integers(-9, 9).map(lambda value: Literal(value, BIGINT))
    return st.sampled_from([-2.5, -1.0, 0.0, 0.5, 3.0]).map(lambda value: Literal(value, DOUBLE))


@cache
def leaves(kind: ColumnType) -> st.SearchStrategy[Expression]:
    return st.sampled_from([leaf for leaf in LEAVES if leaf.type is kind]) | literals(kind)


@cache
def numbers(kind: ColumnType, depth: int) -> st.SearchStrategy[Expression]:
    if depth == 0:
        return leaves(kind)
    below = numbers(kind, depth - 1)
    two = st.tuples(below, below)
    choices = [
        leaves(kind),
        st.builds(
            lambda op, args: Call(op, args, kind),
            st.sampled_from([Op.ADD, Op.SUB, Op.MUL, Op.MOD, Op.COALESCE]),
            two,
        ),
        st.builds(
            lambda op, arg: Call(op, (arg,), kind),
            st.sampled_from([Op.NEG, Op.ABS, Op.FLOOR, Op.CEIL, Op.ROUND]),
            below,
        ),
        st.builds(
            lambda when, then, other: Call(Op.CASE, (when, then, other), kind),
            conditions(depth - 1),
            below,
            below,
        ),
    ]
    if kind is DOUBLE:
        whole = numbers(BIGINT, depth - 1)
        choices.append(two.map(lambda args: Call(Op.DIV, args, DOUBLE)))
        choices.append(whole.map(cast))
    return st.one_of(choices)


@cache
def conditions(depth: int) -> st.SearchStrategy[Expression]:
    args = st.sampled_from([DOUBLE, BIGINT]).flatmap(
        lambda kind: st.tuples(numbers(kind, depth), numbers(kind, depth))
    )
    compared = st.builds(
        lambda op, pair: Call(op, pair, BOOLEAN),
        st.sampled_from([Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE]),
        args,
    )
    member = st.builds(
        lambda node, items: Call(Op.IN, (node, *items), BOOLEAN),
        st.sampled_from([leaf for leaf in LEAVES if leaf.type is BIGINT]),
        st.lists(literals(BIGINT), min_size=1, max_size=3),
    )
    is_null = numbers(DOUBLE, depth).map(lambda node: Call(Op.IS_NULL, (node,), BOOLEAN))
    if depth == 0:
        return compared | member | is_null
    below = conditions(depth - 1)
    joined = st.builds(
        lambda op, left, right: Call(op, (left, right), BOOLEAN),
        st.sampled_from([Op.AND, Op.OR]),
        below,
        below,
    )
    return (
        compared
        | member
        | is_null
        | joined
        | below.map(lambda node: Call(Op.NOT, (node,), BOOLEAN))
    )


@st.composite
def intervals(draw: st.DrawFn) -> tuple[Estimates, list[float | int]]:
    """One leaf's estimate with some points inside it."""
    ends = sorted(draw(st.lists(st.integers(-6, 6), min_size=2, max_size=2)))
    points = draw(st.lists(st.integers(ends[0], ends[1]), min_size=4, max_size=4))
    bound = np.array([Bound.EXACT if ends[0] == ends[1] else Bound.INTERVAL], np.uint8)
    low, value, high = (np.array([x]) for x in (ends[0], points[0], ends[1]))
    return Estimates(value, low, high, bound, np.zeros(1, np.bool_), 0.95, "test"), points


def groups(columns: list[Estimates], query: BoundQuery = QUERY) -> Groups:
    return Groups(query, evidence(query, [], *columns))


def at(point: float) -> Estimates:
    return Estimates.exact(np.array([point]), "test")


@pytest.mark.slow
@settings(max_examples=150)
@given(
    node=numbers(DOUBLE, 2) | numbers(BIGINT, 2) | conditions(1),
    columns=st.lists(intervals(), min_size=4, max_size=4),
)
def test_every_outcome_lies_in_the_range(node, columns):
    known = groups([estimates for estimates, _ in columns])
    found = known.outcomes(node)
    assert found is not None
    for which in range(4):
        points = groups([at(points[which]) for _, points in columns])
        outcome = points.evaluate(node)[0].as_py()
        if isinstance(found, Truth):
            possible = {True: found.true, False: found.false, None: found.null}
            assert possible[outcome][0], (node, which)
        elif outcome is None:
            assert found.null[0], (node, which)
        else:
            assert found.value[0]
            assert found.low[0] <= outcome <= found.high[0], (node, which, found)


@pytest.mark.slow
@settings(max_examples=60)
@given(node=numbers(DOUBLE, 2), columns=st.lists(intervals(), min_size=4, max_size=4))
def test_an_output_column_holds_its_value_and_every_outcome(node, columns):
    known = groups([estimates for estimates, _ in columns])
    assume(not isinstance(node, Literal))
    column = known.output(Output("x", node))
    if column.bound is None or column.bound[0] == Bound.NONE:
        return
    assert column.low is not None
    assert column.high is not None
    for which in range(4):
        points = groups([at(points[which]) for _, points in columns])
        outcome = points.evaluate(node)[0].as_py()
        if outcome is not None:
            assert column.low[0].as_py() <= outcome <= column.high[0].as_py()


def test_unknown_is_any_value_or_null():
    unknown = Range.unknown(2)
    assert unknown.null.all()
    assert unknown.value.all()
    assert (unknown.low == -np.inf).all()


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**53, 2**60 + 1])
def test_the_range_of_a_whole_number_holds_it_where_doubles_have_gaps(number):
    found = of_array(pa.array([number]))
    assert isinstance(found, Range)
    assert int(found.low[0]) <= number <= int(found.high[0])
