"""Order of joins: Golab's printed costs to the integer, and rows by brute force in any order."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from random import Random

import pytest

from shedder.cql.expressions.expression import Op
from shedder.cql.plans.logical_plan import BoundRelational, Join, JoinKind, scans_of
from shedder.dataflow.dataflow import Dataflow
from shedder.dataflow.join_cost import JoinInput, cheapest_order, heuristic_orders, join_cost
from shedder.dataflow.join_order import StreamStatistics, ordered_joins
from tests.dataflow.random_plans import RandomPlans
from tests.dataflow.worlds import (
    END,
    batch_of,
    boolean,
    column,
    equal,
    number,
    run,
    stream,
    windowed,
)
from tests.scale import scaled
from tests.seeds import seed


def table(rates, lengths, distinct):
    """A table of the thesis: rates, lengths of windows and distinct values of S1 to S4."""
    rows = zip(rates, lengths, distinct, strict=True)
    return [JoinInput(rate, rate * length, values) for rate, length, values in rows]


PRINTED = table((10, 1, 1, 3), (100, 100, 200, 100), (500, 50, 40, 5))  # Table 5.3.
# Table 5.5; the rate of S1 is 10, with which the printed costs agree, not 100.
ONE_FAST = table((10, 1, 1, 1), (100,) * 4, (40, 100, 8, 5))
TWO_FAST = table((11, 10, 1, 1), (100,) * 4, (200, 100, 65, 20))  # Table 5.6.


def cost(inputs, order):
    """Cost of an order that is written as in the thesis, such as 2134, to the integer."""
    return round(join_cost(inputs, tuple(int(digit) - 1 for digit in str(order))))


def costs(inputs):
    return [join_cost(inputs, order) for order in permutations(range(4))]


def test_costs_of_orders_are_those_of_the_thesis():
    assert cost(PRINTED, 1234) == 16_000
    assert round(max(costs(PRINTED))) == 86_850
    assert [cost(ONE_FAST, order) for order in (2134, 2341, 1234)] == [16_200, 42_600, 21_000]
    assert round(max(costs(ONE_FAST))) == 135_150
    found = [cost(TWO_FAST, order) for order in (3142, 3412, 3124, 1234, 2134)]
    assert found == [47_977, 49_542, 51_954, 68_200, 79_000]
    assert int(sum(costs(TWO_FAST)) / 24) in (63_361, 63_362)


@pytest.mark.parametrize(("inputs", "best"), [(PRINTED, 1234), (ONE_FAST, 2134), (TWO_FAST, 3142)])
def test_cheapest_order_is_that_of_the_thesis_and_the_heuristic_finds_it(inputs, best):
    order = tuple(int(digit) - 1 for digit in str(best))
    assert cheapest_order(inputs) == order
    tried = list(heuristic_orders(inputs))
    assert order in tried
    assert all(sorted(each) == [0, 1, 2, 3] for each in tried)


def test_cheapest_order_of_eight_inputs_is_no_dearer_than_the_written_one():
    random = Random(seed("eight inputs"))
    for _ in range(20):
        inputs = [
            JoinInput(random.uniform(1, 50), random.uniform(10, 900), random.randint(1, 90))
            for _ in range(8)
        ]
        order = cheapest_order(inputs)
        assert sorted(order) == list(range(8))
        assert join_cost(inputs, order) <= join_cost(inputs, tuple(range(8)))


A, B, C = stream(61), stream(62), stream(63, size=40)
STREAMS = {"a": A, "b": B, "c": C}
PAIRS = Join(JoinKind.INNER, windowed("a", 40), windowed("b", 60), equal("a.k", "b.k"))
THREE = Join(JoinKind.INNER, PAIRS, windowed("c", 30), equal("b.k", "c.k"))


def statistics(streams, rates):
    rows = {alias: batch_of(tuples) for alias, tuples in streams.items()}
    return {alias: StreamStatistics(rates[alias], rows[alias]) for alias in streams}


def test_slow_streams_are_joined_first_and_columns_keep_their_order():
    known = statistics(STREAMS, {"a": 9e6, "b": 1e5, "c": 1e4})
    plan, [choice] = ordered_joins(THREE, known)
    assert choice.cost < choice.written_cost
    assert choice.aliases == tuple(scan.alias for scan in scans_of(plan)) != ("a", "b", "c")
    ours = Dataflow(BoundRelational("", THREE, ()), state_bytes_max=1 << 26, statistics=known)
    theirs = Dataflow(BoundRelational("", THREE, ()), state_bytes_max=1 << 26)
    assert ours.schema == theirs.schema
    assert list(ours.sources) == ["a", "b", "c"]  # Inputs of answers keep the written order.
    assert ours.join_choices == [choice]
    assert theirs.join_choices == []


@pytest.mark.parametrize(
    "condition",
    [
        equal("b.x", "c.x"),  # Another attribute.
        boolean(Op.LT, column("b.k"), column("c.k")),
        equal("b.d", "c.d"),
    ],
)
def test_joins_on_several_attributes_keep_their_order(condition):
    plan = Join(JoinKind.INNER, PAIRS, windowed("c", 30), condition)
    known = statistics(STREAMS, {"a": 9e6, "b": 1e5, "c": 1e4})
    assert ordered_joins(plan, known) == (plan, [])


def test_joins_without_statistics_of_an_input_keep_their_order():
    known = statistics(STREAMS, {"a": 9e6, "b": 1e5, "c": 1e4})
    del known["c"]
    assert ordered_joins(THREE, known) == (THREE, [])


@pytest.mark.slow
@pytest.mark.parametrize("world", range(scaled(6, 60)))
def test_joins_in_any_order_have_the_rows_of_the_brute_force(world):
    random = Random(seed("join order", world))
    plans = RandomPlans(random.randrange(1 << 30))
    relation = plans.inner_on_k(
        random.choice([3, 4]), rest=boolean(Op.NE, column("s0.x"), number(9))
    )
    rates = {alias: 10 ** random.uniform(1, 6) for alias in plans.streams}
    known = statistics(plans.streams, rates)
    made = run(relation.plan, plans.streams, seed=world, batch_max=60, statistics=known)
    assert len(made.flow.join_choices) == 1
    for e in [random.randrange(END) for _ in range(12)]:
        assert made.at(e) == Counter(relation.at(e)), e
