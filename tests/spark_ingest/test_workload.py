"""Drawn questions can be asked, cover the language's aggregates, and are the same for one seed."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import AggregateFunction
from shedder.cql.statements.statement import RangeWindow
from spark_ingest.flights import load_flights
from spark_ingest.profile import GROUP_VALUES_MAX, StreamProfile, profile
from spark_ingest.question_runner import bound
from spark_ingest.workload import questions
from tests.spark_ingest.archives import stream_schema

START, END = 1_356_998_400_000_000, 1_388_534_400_000_000


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return load_flights().slice(0, 20_000)


@pytest.fixture(scope="module")
def looks(flights) -> StreamProfile:
    schema = stream_schema("flights", flights.schema)
    return profile(schema, flights, start_us=START, end_us=END)


@pytest.mark.slow
def test_every_question_is_of_the_language_and_binds(flights, looks):
    schema = stream_schema("flights", flights.schema)
    drawn = questions(looks, seed=1, count=150, standing_share=0.2)
    functions = Counter(bound(one.sql, schema).aggregates[0].function for one in drawn)
    assert set(functions) == set(AggregateFunction)
    assert sum(one.standing for one in drawn) == 30


@pytest.mark.slow
def test_standing_questions_slide_tumble_collapse_and_are_thinned(flights, looks):
    schema = stream_schema("flights", flights.schema)
    drawn = [bound(q.sql, schema) for q in questions(looks, seed=1, count=120, standing_share=1)]
    windows = [q.window for q in drawn if isinstance(q.window, RangeWindow)]
    assert any(window.slide_us == window.range_us for window in windows)
    assert any(window.collapse is not None for window in windows)
    assert {q.thinning for q in drawn} >= {0, 1, 2, 3, 4}
    assert sum(q.thinning > 0 for q in drawn) == 60


@pytest.mark.slow
def test_some_questions_by_groups_show_the_greatest_values_only(flights, looks):
    schema = stream_schema("flights", flights.schema)
    drawn = [bound(q.sql, schema) for q in questions(looks, seed=1, count=200, standing_share=0.3)]
    grouped = [query for query in drawn if query.groups]
    chosen = [query for query in grouped if query.limit is not None]
    assert len(grouped) / 5 < len(chosen) < len(grouped) / 2
    assert any(query.thinning for query in chosen)
    assert all(query.order[0].descending for query in chosen)
    assert not [query for query in drawn if query.limit is not None and not query.groups]


def test_columns_are_described_by_how_their_values_are_spread(looks):
    assert looks.shapes["origin"] == "few values"
    assert looks.shapes["dep_delay"] == "heavy tail"
    assert looks.shapes["tailnum"] == "many values"
    assert looks.shapes["distance"] == "light tails"


def test_the_same_seed_draws_the_same_questions(looks):
    assert questions(looks, seed=5, count=40) == questions(looks, seed=5, count=40)
    assert questions(looks, seed=5, count=40) != questions(looks, seed=6, count=40)


def test_numbers_are_cut_at_their_quantiles_and_groups_have_few_values(looks):
    columns = {column.name: column for column in looks.columns}
    assert columns["origin"].values == ("EWR", "JFK", "LGA")
    assert list(columns["distance"].values) == sorted(set(columns["distance"].values))
    assert columns["distance"].values[0] == 80.0
    assert {key.name for key in looks.keys} == {"carrier", "origin", "dest"}
    assert columns["tailnum"].distinct > GROUP_VALUES_MAX


def test_columns_of_every_type_and_strange_names_can_be_asked_about():
    rows = pa.table(
        {
            "ts": pa.array([1, 2, 3, 4], pa.timestamp("us")),
            'a "b"': pa.array([True, False, None, True]),
            "when": pa.array([5, 6, 7, 8], pa.timestamp("us")),
            "day": pa.array([1, 2, 3, None], pa.date32()),
            "text": pa.array(["it's", "a\\b", "", None]),
            "x": pa.array([np.nan, np.inf, 1.5, -2.0]),
            "empty": pa.nulls(4, pa.float64()),
        }
    )
    schema = stream_schema("odd", rows.schema)
    found = profile(schema, rows, start_us=1, end_us=5)
    assert [c.name for c in found.columns] == ['a "b"', "when", "day", "text", "x"]
    assert next(c for c in found.columns if c.type is ColumnType.DOUBLE).values == (-2.0, 1.5)
    for one in questions(found, seed=2, count=120):
        bound(one.sql, schema)


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"g": pa.array(["a", "b", None])},
        {"g": pa.nulls(3, pa.string())},
        {"x": pa.array([1.0, 1.0, 1.0])},
    ],
    ids=["none", "texts", "nulls", "one number"],
)
def test_streams_without_numbers_that_vary_can_be_asked(columns):
    rows = pa.table({"ts": pa.array([START, START + 1, END - 1], pa.timestamp("us")), **columns})
    schema = stream_schema("s", rows.schema)
    looks = profile(schema, rows, start_us=START, end_us=END)
    drawn = questions(looks, seed=1, count=60, standing_share=0.5)
    assert len(drawn) == 60
    assert all(bound(one.sql, schema).aggregates for one in drawn)
