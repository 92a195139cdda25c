"""Aggregates of the columns of tests/dataflow/worlds.py, and their results at each instant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shedder.cql.expressions.expression import Aggregate, AggregateFunction
from shedder.cql.plans.logical_plan import Aggregated, RowsWindow, WindowOf
from tests.dataflow.worlds import BIGINT, DOUBLE, NAME, D, K, X, column, run, scan

NAMES = {K: "k", X: "x", NAME: "name", D: "d"}


def aggregate(function: AggregateFunction, name: str | None = None) -> Aggregate:
    """Return COUNT, SUM or AVG of a column, or COUNT(*), with its type."""
    argument = None if name is None else column(name)
    kind = BIGINT
    if function is AggregateFunction.AVG or (argument and argument.type is DOUBLE):
        kind = DOUBLE
    if function is AggregateFunction.COUNT:
        kind = BIGINT
    return Aggregate(function, argument, type=kind)


def at_each_instant(values: Sequence[Any], of: Aggregate, place: int = D) -> list[Any]:
    """Return results over ROWS 2 as of each instant, tuple i at event time i.

    place: of the column of a tuple that has the values.
    """
    plan = Aggregated(WindowOf(scan("a"), RowsWindow(2)), (), (of,))
    rows = []
    for ts, value in enumerate(values):
        row = [0, 0, "", 0.0, ts]
        row[place] = value
        rows.append((ts, ts, tuple(row)))
    made = run(plan, {"a": rows}, seed=209, lateness=1, batch_max=3)
    return [next(iter(made.at(e)))[0] for e in range(1, len(values) + 1)]
