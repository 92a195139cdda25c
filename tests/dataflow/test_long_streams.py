"""Operators after rows and keys that have left were dropped, against brute force.

The streams are longer than what operators hold before they look for rows that have left.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction
from shedder.cql.plans.logical_plan import Aggregated, Distinct, Join, JoinKind, Project
from shedder.cql.statements.statement import Output
from tests.dataflow import brute_force as brute
from tests.dataflow.worlds import column, equal, run, windowed

TUPLES = 6_000
RANGE = 30
K = 0  # Place of the key in a row.


def long_stream(seed: int) -> list[brute.Tuple]:
    """A tuple per microsecond; keys are near the event time, so all keys leave."""
    random = Random(seed)
    return [
        (ts, ts, (ts + random.randrange(4), random.randrange(3), "a", 0.5, ts))
        for ts in range(TUPLES)
    ]


A, B = long_stream(121), long_stream(122)
JOIN = (windowed("a", RANGE), windowed("b", RANGE), equal("a.k", "b.k"))


def window(log: list[brute.Tuple], e: int) -> brute.Relation:
    """RANGE over a stream whose tuple i is at event time i."""
    return [row for _, _, row in log[max(0, e - RANGE) : max(0, e)]]


def pairs(e: int) -> brute.Relation:
    return [a + b for a in window(A, e) for b in window(B, e) if a[K] == b[K]]


def full(e: int) -> brute.Relation:
    ours, theirs = window(A, e), window(B, e)
    keys, others = {row[K] for row in ours}, {row[K] for row in theirs}
    alone = [(*row, *[None] * 5) for row in ours if row[K] not in others]
    return pairs(e) + alone + [(*[None] * 5, *row) for row in theirs if row[K] not in keys]


def counts(e: int) -> brute.Relation:
    return list(Counter(pair[K] for pair in pairs(e)).items())


PLANS = {
    "full join": (Join(JoinKind.FULL, *JOIN), full),
    "distinct": (
        Distinct(Project(windowed("a", RANGE), (Output("k", column("a.k")),))),
        lambda e: list({(row[K],) for row in window(A, e)}),
    ),
    "pair sums": (
        Aggregated(
            Join(JoinKind.INNER, *JOIN),
            (column("a.k"),),
            (Aggregate(AggregateFunction.COUNT, None, type=ColumnType.BIGINT),),
        ),
        counts,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_results_are_those_of_the_brute_force_after_rows_and_keys_were_dropped(name):
    plan, expected = PLANS[name]
    streams = {"a": A} if name == "distinct" else {"a": A, "b": B}
    made = run(plan, streams, seed=123, batch_max=400)
    random = Random(124)
    for e in (random.randrange(TUPLES + 50) for _ in range(200)):
        assert made.at(e) == Counter(expected(e)), e
