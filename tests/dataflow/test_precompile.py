"""After warming up, no operator compiles a kernel, whatever it is given."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from numba.core.dispatcher import Dispatcher

import shedder.dataflow
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Distinct,
    Join,
    JoinKind,
    Plan,
    RowsWindow,
    WindowOf,
    scans_of,
)
from shedder.dataflow.precompile import compile_operators
from tests.dataflow.worlds import column, equal, run, scan, stream, windowed


def compiled() -> dict[str, int]:
    """How many forms of each kernel of the package are compiled."""
    forms = {}
    for module in pkgutil.walk_packages(shedder.dataflow.__path__, "shedder.dataflow."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Dispatcher):
                forms[f"{value.py_func.__module__}.{name}"] = len(value.signatures)
    return forms


COUNT = Aggregate(AggregateFunction.COUNT, None, type=ColumnType.BIGINT)
SUMS = tuple(
    Aggregate(AggregateFunction.SUM, column(name), type=kind)
    for name, kind in (("a.x", ColumnType.BIGINT), ("b.d", ColumnType.DOUBLE))
)
OTHERS = tuple(
    Aggregate(function, column(name), type=kind)
    for function, name, kind in (
        (AggregateFunction.VAR, "a.x", ColumnType.DOUBLE),
        (AggregateFunction.STDDEV, "a.d", ColumnType.DOUBLE),
        (AggregateFunction.MAX, "a.d", ColumnType.DOUBLE),
        (AggregateFunction.COUNT_DISTINCT, "a.name", ColumnType.BIGINT),
    )
)
ROWS = WindowOf(scan("a"), RowsWindow(3, slide_rows=2, partition=("a.name",)))


def joined(kind: JoinKind, left: Plan | None = None) -> Join:
    return Join(kind, left or windowed("a", 60, 15), windowed("b", 40), equal("a.k", "b.k"))


@pytest.mark.parametrize(
    "plan",
    [
        ROWS,
        Distinct(windowed("a", 60)),
        joined(JoinKind.INNER),
        joined(JoinKind.LEFT, ROWS),
        Aggregated(joined(JoinKind.INNER), (), (COUNT, *SUMS)),
        Aggregated(joined(JoinKind.INNER, ROWS), (column("a.k"),), (COUNT, *SUMS)),
        Aggregated(joined(JoinKind.INNER), (column("a.name"),), (COUNT, *SUMS)),
        Aggregated(ROWS, (), (COUNT, *SUMS[:1])),
        Aggregated(ROWS, (column("a.k"),), (COUNT, *OTHERS)),
        Aggregated(joined(JoinKind.INNER), (), (COUNT, *OTHERS[:2])),
        Aggregated(windowed("a", 60), (column("a.name"), column("a.k")), (COUNT,)),
    ],
)
def test_an_operator_compiles_nothing_after_warming_up(plan: Plan) -> None:
    compile_operators()
    before = compiled()
    run(plan, {each.alias: stream(ord(each.alias)) for each in scans_of(plan)}, seed=3)
    assert compiled() == before
