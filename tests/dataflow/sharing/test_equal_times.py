"""MIN, MAX, FIRST and LAST of windows over one store whose tuples have equal event times."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from shedder.cql.expressions.expression import Aggregate, AggregateFunction
from shedder.cql.plans.logical_plan import Aggregated, Join, JoinKind, Plan
from tests.dataflow import brute_force as brute
from tests.dataflow.brute_force import Row, Tuple
from tests.dataflow.worlds import BIGINT, NAME, K, Run, batch_of, column, dataflow, equal, windowed
from tests.seeds import seed

F = AggregateFunction
STEP_US = 24  # Event times of a step.
STEPS = 12
SHARED_FROM = 2  # Step; windows have rows by then.
TIES = 12  # Tuples of one event time.
WINDOW_US = 60
FUNCTIONS = {
    "extremes": {F.MIN: min, F.MAX: max},
    "ends": {F.FIRST: lambda values: values[0], F.LAST: lambda values: values[-1]},
}


def rows(step: int, stream: str, random: Random) -> list[Tuple]:
    """Tuples of a step; each event time that occurs has TIES of r. No key of r is one of s.

    Keys of r fall for two steps and rise for two, so that queues of values become long.
    """
    times = random.sample(range(STEP_US), 8) if stream == "r" else [0]
    times = sorted(STEP_US * step + ts for ts in times for _ in range(TIES))
    first = len(times) * step
    made = []
    for at, ts in enumerate(times):
        trend = 3 * abs(ts % (4 * STEP_US) - 2 * STEP_US) if stream == "r" else 10_000
        row = (trend + random.randrange(30), 0, f"n{random.randrange(4)}", 0.0, ts)
        made.append((ts, first + at, row))
    return made


def plan(alias: str, slide_us: int, functions: str, *, by_name: bool) -> Plan:
    groups = (column(f"{alias}.name"),) if by_name else ()
    argument = column(f"{alias}.k")
    aggregates = tuple(Aggregate(each, argument, type=BIGINT) for each in FUNCTIONS[functions])
    return Aggregated(windowed(alias, WINDOW_US, slide_us, "r"), groups, aggregates)


def expected(log: list[Tuple], e: int, slide_us: int, functions: str, *, by_name: bool):
    groups: dict[Row, list[int]] = {} if by_name else {(): []}
    for row in brute.range_window(log, WINDOW_US, slide_us)(e):
        groups.setdefault((row[NAME],) if by_name else (), []).append(row[K])
    folds = FUNCTIONS[functions].values()
    return Counter(
        (*key, *(fold(values) if values else None for fold in folds))
        for key, values in groups.items()
    )


def step(made: Run, given: dict[str, list[Tuple]], until_us: int, random: Random) -> None:
    """Push the tuples of a step in any order, and advance behind them."""
    for alias, source in made.flow.sources.items():
        tuples = random.sample(given[source.relation], len(given[source.relation]))
        made.flow.push(alias, batch_of(tuples), np.array([place for _, place, _ in tuples]))
    changes = made.flow.advance(dict.fromkeys(made.flow.sources, until_us))
    made.steps.append((until_us, changes))


@pytest.mark.parametrize("slide_us", [1, 7, 50])
def test_tuples_of_one_event_time_have_the_results_of_the_brute_force(slide_us):
    """A join keeps the store; the extremes of the groups read the rows that leave from it."""
    random = Random(seed("equal times", slide_us))
    sides = windowed("x", 2 * WINDOW_US, 1, "r"), windowed("y", WINDOW_US, 1, "s")
    join = Run(dataflow(Join(JoinKind.INNER, *sides, equal("x.k", "y.k"))), [])
    cases = [(functions, by_name) for functions in FUNCTIONS for by_name in (False, True)]
    queries = [
        Run(dataflow(plan(alias, slide_us, functions, by_name=by_name)), [])
        for alias, (functions, by_name) in zip("abcd", cases, strict=True)
    ]
    log: list[Tuple] = []
    for at in range(STEPS):
        if at == SHARED_FROM:
            for query in queries:
                query.flow.share_with(join.flow, lambda *_: True)
        given = {stream: rows(at, stream, random) for stream in "rs"}
        log += given["r"]
        for each in (join, *queries):
            step(each, given, STEP_US * (at + 1), random)
    for query, (functions, by_name) in zip(queries, cases, strict=True):
        reads_store = bool(query.flow.source_graph.stores)
        assert reads_store == (functions == "extremes"), (functions, by_name)
        for e in range(STEP_US * STEPS):
            rows_then = expected(log, e, slide_us, functions, by_name=by_name)
            assert query.at(e) == rows_then, (functions, by_name, e)
