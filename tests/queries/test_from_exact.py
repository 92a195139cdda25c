"""Evidence from exact rows: every type comes through as it was stored."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.from_exact import evidence_from_exact
from tests.queries.asking import ARROW, ask, exact_rows, rows, truth


def test_every_type_of_value_comes_through():
    query = ask(
        "day, COUNT(*) AS n, MIN(ts) AS t, MAX(day) AS d, MIN(domain) AS s, MAX(ok) AS b, "
        "AVG(bytes) AS a, TOP(ts, 1) AS top FROM requests GROUP BY day"
    )
    data = pa.RecordBatch.from_pylist(
        [
            {"ts": datetime(2026, 1, 1), "domain": "b", "day": date(2026, 1, 1), "ok": False},
            {"ts": datetime(2026, 1, 1), "domain": "a", "day": date(2026, 1, 1), "ok": True},
        ],
        ARROW,
    )
    row = finish(query, truth(query, data)).rows()[0]
    assert row["day"] == row["d"] == date(2026, 1, 1)
    assert (row["n"], row["s"], row["b"], row["a"]) == (2, "a", True, None)
    assert row["t"] == datetime(2026, 1, 1)
    assert row["top"] == [
        {"value": datetime(2026, 1, 1), "count": 2, "low": 2, "high": 2, "guaranteed": True}
    ]
    assert {row[c] for c in row if c.endswith("_bound")} == {"exact"}


def test_no_rows_give_counts_of_zero_and_nulls():
    query = ask(
        "COUNT(*) AS n, SUM(client) AS s, TOP(client, 3) AS t, MIN(domain) AS m FROM requests"
    )
    row = finish(query, truth(query, rows(0))).rows()[0]
    assert (row["n"], row["s"], row["t"], row["m"]) == (0, None, [], None)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([Decimal(2**63), Decimal(5), None], pa.decimal128(38, 0)),
        pa.array([2.0**63, 5.0, None], pa.float64()),
    ],
)
def test_a_sum_beyond_int64_is_null_and_says_why(values):
    query = ask("domain, SUM(client) AS s FROM requests GROUP BY domain")
    table = pa.table({"g0": ["a", "b", "c"], "a0": values})
    answer = finish(query, evidence_from_exact(query, table, position=9))
    assert answer.table["s"].to_pylist() == [None, 5, None]
    assert answer.notes == ("a sum is beyond BIGINT: NULL",)
    assert answer.position == 9


def test_groups_of_null_and_of_text_are_kept():
    query = ask("domain, COUNT(*) AS n FROM requests GROUP BY domain ORDER BY n DESC")
    data = rows(500)
    answer = finish(query, truth(query, data))
    texts = data.column("domain").to_pylist()
    assert {r["domain"]: r["n"] for r in answer.rows()} == {t: texts.count(t) for t in set(texts)}


def test_chunked_and_empty_results_are_taken():
    query = ask("domain, COUNT(*) AS n FROM requests GROUP BY domain")
    table = exact_rows(query, rows(100))
    chunked = pa.concat_tables([table.slice(0, 2), table.slice(2)])
    assert finish(query, evidence_from_exact(query, chunked)).table.num_rows == table.num_rows
    assert finish(query, evidence_from_exact(query, table.slice(0, 0))).table.num_rows == 0
