"""Late tuples: whatever they were, the widened interval holds the answer with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from shedder.queries.finish import finish
from shedder.queries.known_range import known_range
from shedder.queries.widen_late import widen_late
from shedder.streams.basics import ColumnBasics
from synopses.estimate import Bound
from tests.queries.asking import ask, rows, truth

AGGREGATES = (
    "COUNT(*) AS n, COUNT(bytes) AS nb, COUNT(client) AS nc, SUM(bytes) AS s, SUM(client) AS sc, "
    "AVG(bytes) AS a, MIN(bytes) AS lo, MAX(client) AS hi, VARIANCE(client) AS v, "
    "STDDEV(bytes) AS sd, COUNT(DISTINCT client) AS d, QUANTILE(bytes, 0.5) AS q, "
    "SUM(bytes - client) AS diff"
)


@pytest.mark.parametrize("late", [1, 7, 60])
@pytest.mark.parametrize("kind", ["random", "lowest", "highest"])
@pytest.mark.parametrize("group", ["", "domain"])
def test_the_answer_with_the_late_tuples_is_inside(late, kind, group):
    data = rows(300, seed=1)
    order = np.random.default_rng(late).permutation(300)
    if kind != "random":
        sizes = data.column("bytes").to_numpy(zero_copy_only=False)
        order = np.argsort(np.nan_to_num(sizes, nan=1.0), kind="stable")
        order = order if kind == "lowest" else order[::-1]
    on_time = data.take(pa.array(np.sort(order[late:])))
    text = f"{AGGREGATES} FROM requests"
    query = ask(f"{group}, {text} GROUP BY {group}" if group else text)
    basics = {name: ColumnBasics.of(data.column(name)) for name in data.schema.names}
    evidence = replace(truth(query, on_time), late=late)
    widened = finish(query, widen_late(query, evidence, basics))
    exact = finish(query, truth(query, data))
    rows_by_group = {row.get(group): at for at, row in enumerate(exact.rows())}
    for at, row in enumerate(widened.rows()):
        whole = rows_by_group[row.get(group)]
        for name in widened.approximate:
            expected, found = exact.estimate(whole, name).value, widened.estimate(at, name)
            assert found.bound is not Bound.EXACT, name
            if not np.isnan(expected):
                slack = 1e-9 * abs(expected)
                assert found.low - slack <= expected <= found.high + slack, (name, found, expected)
    assert any("came too late" in note for note in widened.notes)


def test_without_late_tuples_nothing_changes():
    query = ask("COUNT(*) AS n FROM requests")
    evidence = truth(query, rows(10))
    assert widen_late(query, evidence, {}) is evidence


def test_text_and_infinite_ranges_have_no_bound():
    query = ask("MIN(domain) AS t, AVG(bytes) AS a FROM requests")
    data = rows(50)
    basics = {name: ColumnBasics.of(data.column(name)) for name in data.schema.names}
    basics["bytes"] = ColumnBasics(50, 0, -np.inf, np.inf)
    answer = finish(query, widen_late(query, replace(truth(query, data), late=1), basics))
    assert [answer.rows()[0][c] for c in ("t_bound", "a_bound")] == ["none", "none"]


def test_the_items_of_a_list_can_have_all_late_tuples_more():
    query = ask("TOP(client, 1) AS t FROM requests")
    data = rows(50)
    exact = finish(query, truth(query, data)).rows()[0]["t"][0]
    widened = widen_late(query, replace(truth(query, data), late=5), {"client": ColumnBasics()})
    item = finish(query, widened).rows()[0]["t"][0]
    assert item == exact | {"high": exact["count"] + 5, "guaranteed": False}


def test_the_range_of_an_expression_follows_from_its_columns():
    query = ask("SUM(bytes * 2 - client) AS s FROM requests")
    argument = query.aggregates[0].argument
    assert argument is not None
    basics = {"bytes": ColumnBasics(9, 1, -1.0, 3.0), "client": ColumnBasics(9, 0, 0, 10)}
    low, high = known_range(argument, basics)
    assert (low, high) == (pytest.approx(-12), pytest.approx(6))
