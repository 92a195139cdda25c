"""Sizes of joins: from a sample, under late tuples, behind a filter of one side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.late_tuple_bounds import widen_late
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.streams.basics import ColumnBasics
from shedder.streams.frame import Frame
from shedder.streams.live_sample import StreamSample
from synopses.model.estimate import Bound
from tests.queries.asking import SCHEMA, ask, rows, truth
from tests.truth import draw, gate

SELECTED = "SELF_JOIN_SIZE(domain) AS own, JOIN_SIZE(client, LENGTH(domain) + 1) AS joined"


def with_clients(data: pa.RecordBatch, clients: np.ndarray) -> pa.RecordBatch:
    at = data.schema.get_field_index("client")
    return data.set_column(at, data.schema.field(at), pa.array(clients.astype(np.int64)))


def keyed(distribution: str, size: int) -> pa.RecordBatch:
    """Requests whose clients are drawn so; some are as long as domains are."""
    return with_clients(rows(size, seed=1), np.clip(np.floor(draw(distribution, 1, size)), -9, 900))


def view_of(data: pa.RecordBatch, kept: int, seed: int = 0):
    sample = StreamSample(replace(SCHEMA, seed=seed), rows=kept)
    sample.update(0, Frame(data, SCHEMA.time_column))
    return sample.view()


@pytest.mark.parametrize("size", [0, 1, 2, 90])
@pytest.mark.parametrize("group", ["", "ok"])
def test_a_sample_of_everything_is_exact(size: int, group: str) -> None:
    data = rows(size, seed=size)
    text = f"{SELECTED} FROM requests"
    query = ask(f"{group}, {text} GROUP BY {group}" if group else text)
    found = finish(query, evidence_from_sample(query, view_of(data, 100)))
    expected = finish(query, truth(query, data))
    key = lambda row: str(row.get(group))  # noqa: E731
    assert sorted(found.rows(), key=key) == sorted(expected.rows(), key=key)


@pytest.mark.slow
def test_a_sample_gives_an_unbiased_value_inside_an_interval() -> None:
    data = rows(2_000, seed=3)
    query = ask(f"{SELECTED} FROM requests WHERE bytes > 0.5")
    exact = finish(query, truth(query, data)).rows()[0]
    drawn = []
    for seed in range(200):
        answer = finish(query, evidence_from_sample(query, view_of(data, 250, seed)))
        [row] = answer.rows()
        assert row["own_bound"] == row["joined_bound"] == "interval"
        for name in ("own", "joined"):
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
        drawn.append([row["own"], row["joined"]])
    means, errors = np.mean(drawn, axis=0), np.std(drawn, axis=0) / np.sqrt(len(drawn))
    for at, name in enumerate(("own", "joined")):
        assert abs(means[at] - exact[name]) < 5 * errors[at], name
        assert errors[at] < 0.03 * exact[name]


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("distribution", ["uniform", "zipf", "constant", "spike", "lognormal-2"])
@pytest.mark.parametrize("tail", ["", " WHERE bytes > 0.5", " GROUP BY ok"])
@pytest.mark.parametrize("kept", [1, 40, 700])
def test_intervals_hold_the_truth_as_often_as_they_say(
    distribution: str, tail: str, kept: int
) -> None:
    data = keyed(distribution, 2_000)
    keys = "ok, " if "GROUP" in tail else ""
    text = "SELF_JOIN_SIZE(client) AS own, JOIN_SIZE(client, LENGTH(domain)) AS joined"
    query = ask(f"{keys}{text} FROM requests{tail} WITHIN 5 PERCENT CONFIDENCE 80 PERCENT")
    exact = {row.get("ok"): row for row in finish(query, truth(query, data)).rows()}
    held: dict[str, list[bool]] = {"own": [], "joined": []}
    for seed in range(40):
        answer = finish(query, evidence_from_sample(query, view_of(data, kept, seed)))
        for at, row in enumerate(answer.rows()):
            for name, each in held.items():
                if row[f"{name}_bound"] != "none":
                    right = exact[row.get("ok")][name]
                    each.append(answer.estimate(at, name).holds(right))
    for name, each in held.items():
        assert sum(each) >= gate(len(each), 0.8), (name, sum(each), len(each))


def test_a_skewed_join_is_known_to_a_fraction() -> None:
    """A key has half of all tuples: the size of the self join is a quarter of N squared."""
    rng = np.random.default_rng(1)
    size = 100_000
    clients = np.where(rng.random(size) < 0.5, 7, rng.integers(0, 10**9, size))
    data = with_clients(rows(size, seed=1), clients)
    query = ask("SELF_JOIN_SIZE(client) AS own FROM requests")
    answer = finish(query, evidence_from_sample(query, view_of(data, 20_000))).estimate(0, "own")
    exact = float(finish(query, truth(query, data)).rows()[0]["own"])
    assert answer.low <= exact <= answer.high
    assert answer.half_width < 0.1 * exact


def test_with_counts_late_tuples_move_a_join_no_further_than_they_can() -> None:
    """100 tuples on time, 4 late: each meets at most 100 + 100 tuples and 4 late ones."""
    data = rows(104, seed=4)
    query = ask("JOIN_SIZE(client, client + 1) AS joined FROM requests")
    [aggregate] = query.aggregates
    on_time = truth(query, data.slice(0, 100))
    evidence: Evidence = replace(on_time, late=4, counts={aggregate: np.array([200])})
    basics = {name: ColumnBasics.of(data.column(name)) for name in data.schema.names}
    widened = widen_late(query, evidence, basics).estimates[aggregate]
    [before] = on_time.estimates[aggregate].value
    assert widened.bound.tolist() == [Bound.INTERVAL]
    assert (widened.low[0], widened.high[0]) == (before, before + 4 * 200 + 16)
    assert widened[0].holds(float(truth(query, data).estimates[aggregate].value[0]))


def test_a_column_joined_with_itself_is_a_self_join_and_a_filter_holds_for_both_sides() -> None:
    data = rows(500, seed=5)
    query = ask(
        "JOIN_SIZE(client, client) AS a, SELF_JOIN_SIZE(client) AS b, "
        "JOIN_SIZE(client, client % 7) FILTER (WHERE ok) AS c FROM requests"
    )
    assert len(query.aggregates) == 2
    [row] = finish(query, truth(query, data)).rows()
    assert row["a"] == row["b"]
    where = ask("JOIN_SIZE(client, client % 7) AS c FROM requests WHERE ok")
    assert finish(where, truth(where, data)).rows()[0]["c"] == row["c"]
