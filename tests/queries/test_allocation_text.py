"""EXPLAIN ALLOCATION for people: what a terminal of a hundred columns shows."""

from __future__ import annotations

import json

import pyarrow as pa

from shedder.cli import output
from shedder.engine.allocation.explain import SCHEMA
from shedder.queries.answers.answer import Answer

NONE = dict.fromkeys(SCHEMA.names)
LONG = "a_name_of_a_query_that_is_as_long_as_names_of_queries_ever_are_in_practice"
ROWS = [
    {
        "query": "clients",
        "synopsis": "HLL of 2^16 registers",
        "answers": "COUNT(DISTINCT client)",
        "size_bytes": 4_890_808,
        "thinning": "1/4",
        "weight": 3.0,
        "target": 0.01,
        "predicted_error": 0.004009,
        "expected_error": 0.006,
        "measured_error": 0.0123,
        "factor": 1.5,
        "skipping_factor": 1.2,
        "needed_bytes": 6_253_560,
        "saved_per_kib": 1.5e-7,
        "saved_per_ns": 0.0,
    },
    {"query": "clients", "synopsis": "panes as such", "size_bytes": 151_552},
    {"query": LONG, "synopsis": "count", "size_bytes": 0, "thinning": "1", "weight": 0.0}
    | {"predicted_error": 0.0},
    {"query": LONG, "synopsis": "log-buckets", "size_bytes": 0, "thinning": "1", "weight": 0.0}
    | {"answers": "QUANTILE(bytes, 0.5), QUANTILE(bytes, 0.9), QUANTILE(bytes, 0.99)"}
    | {"target": 0.001, "predicted_error": 0.0039},
    {"query": LONG, "synopsis": "room for groups", "size_bytes": 1 << 20, "predicted_error": 0.0},
    {"synopsis": "free", "size_bytes": 12_345},
]


def answer(rows):
    return Answer(pa.Table.from_pylist([NONE | row for row in rows], SCHEMA))


def test_a_query_is_a_paragraph_and_its_bytes_add_up():
    text = str(answer(ROWS))
    assert [(line[:36].rstrip(), line[36:].split()) for line in text.splitlines()[1:-3]] == [
        ("clients (weight 3)", ["5,042,360"]),
        (
            "  HLL of 2^16 registers",
            ["4,890,808", "1/4", "1", "%", "0.401", "%", "1.23", "%", "6,253,560", "1.5e-07", "0"],
        ),
        ("    COUNT(DISTINCT client)", []),
        ("  panes as such", ["151,552"]),
        ("a_name_of_a_query_that_is_as_long_as", []),
        ("  _names_of_queries_ever_are_in_prac", []),
        ("  tice (inactive)", ["1,048,576"]),
        ("  count", ["in", "room", "all", "exact"]),
        ("  log-buckets", ["in", "room", "all", "0.1", "%", "0.39", "%", "no", "size"]),
        ("    QUANTILE(bytes, 0.5),", []),
        ("      QUANTILE(bytes, 0.9),", []),
        ("      QUANTILE(bytes, 0.99)", []),
        ("  room for groups", ["1,048,576"]),
        ("free", ["12,345"]),
        ("all", ["6,103,281"]),
    ]
    assert max(map(len, text.splitlines())) <= 110


def test_many_rows_are_cut_and_the_sum_is_still_of_all():
    text = str(answer([ROWS[1]] * 300))
    assert "… 100 more rows" in text
    assert f"{300 * 151_552:,}" in text


def test_programs_get_all_columns(capsys):
    output.write(answer(ROWS), output.Format.JSON)
    first, *_ = json.loads(capsys.readouterr().out)["rows"]
    assert first == ROWS[0] | {"predicted_fn": None, "predicted_fp": None}  # Of row queries.
    output.write(answer(ROWS), output.Format.TABLE)
    assert "factor" not in capsys.readouterr().out
