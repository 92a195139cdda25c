"""Thinning keys: by which columns the inputs of a plan can be sampled alike."""

from __future__ import annotations

import pytest

from shedder.cql.binding.parse import parse
from shedder.cql.binding.relational_binding import bind_relational
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.plans.thinning_keys import thinning_keys
from shedder.cql.statements.relational_select import RelationalSelect
from tests.cql.relations import stream

_BIGINT = ColumnType.BIGINT
COLUMNS = {"k": _BIGINT, "n": ColumnType.INTEGER, "x": ColumnType.DOUBLE, "v": _BIGINT}
SCHEMAS = {name: stream(name, **COLUMNS) for name in "abc"}
W = "[RANGE 1 MINUTE]"


def keys_of(text: str):
    select = parse(text)
    assert isinstance(select, RelationalSelect)
    return thinning_keys(bind_relational(select, SCHEMAS).plan, frozenset({"_ts"}))


@pytest.mark.parametrize(
    ("text", "columns", "sources", "rows_max"),
    [
        (
            f"SELECT a.k, a.v, b.v AS w FROM a {W} JOIN b {W} ON a.k = b.k",
            ("k",),
            {"a": ("a.k",), "b": ("b.k",)},
            None,
        ),
        (
            f"SELECT b.n, a.k FROM a {W}, b {W} WHERE a.k = b.n",
            ("n", "k"),
            {"a": ("a.k", "a.k"), "b": ("b.n", "b.n")},
            None,
        ),
        (
            f"SELECT a.k, b.k AS l FROM a {W} LEFT JOIN b {W} ON a.k = b.k",
            ("k",),
            {"a": ("a.k",), "b": ("b.k",)},
            None,
        ),
        (
            f"SELECT a.k FROM a {W} JOIN b {W} ON a.k = b.k JOIN c {W} ON b.k = c.v",
            ("k",),
            {"a": ("a.k",), "b": ("b.k",), "c": ("c.v",)},
            None,
        ),
        (f"SELECT DISTINCT k, x FROM a {W}", ("k", "x"), {"a": ("a.k", "a.x")}, 1),
        (f"SELECT DISTINCT k, v + 1 AS w FROM a {W}", ("k",), {"a": ("a.k",)}, None),
        (
            f"SELECT k, v FROM a {W} EXCEPT SELECT v, k FROM b {W}",
            ("k", "v"),
            {"a": ("a.k", "a.v"), "b": ("b.v", "b.k")},
            1,
        ),
        (
            f"SELECT k, v FROM a {W} UNION ALL SELECT k, n FROM b {W}",
            ("k", "v"),
            {"a": ("a.k", "a.v"), "b": ("b.k", "b.n")},
            None,
        ),
        (
            f"SELECT k, v FROM a {W} WHERE k IN (SELECT n FROM b {W})",
            ("k",),
            {"a": ("a.k",), "b": ("b.n",)},
            None,
        ),
        ("SELECT k, v FROM a [PARTITION BY k ROWS 4]", ("k",), {"a": ("a.k",)}, 4),
        ("SELECT k, v FROM a [PARTITION BY k, v ROWS 4]", ("k", "v"), {"a": ("a.k", "a.v")}, 4),
        ("SELECT v FROM a [PARTITION BY k, v ROWS 4]", ("v",), {"a": ("a.v",)}, None),
        (
            f"SELECT ISTREAM(k, COUNT(*) AS n) FROM a {W} GROUP BY k HAVING COUNT(*) > 3",
            ("k",),
            {"a": ("a.k",)},
            None,
        ),
        ("SELECT k FROM a WHERE v > 3", ("k",), {"a": ("a.k",)}, None),
    ],
)
def test_columns_of_the_result_lead_to_columns_of_every_stream(text, columns, sources, rows_max):
    found = keys_of(text)
    assert (found.columns, dict(found.sources), found.rows_max) == (columns, sources, rows_max)


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT a.v FROM a {W} JOIN b {W} ON a.k = b.k",
        f"SELECT a.k FROM a {W} JOIN b {W} ON a.k = b.x",
        f"SELECT a.k FROM a {W} JOIN b {W} ON a.k < b.k",
        f"SELECT b.k FROM a {W} LEFT JOIN b {W} ON a.k = b.k",
        f"SELECT a.k FROM a {W} FULL JOIN b {W} ON a.k = b.k",
        f"SELECT k FROM a {W} WHERE k NOT IN (SELECT k FROM b {W})",
        f"SELECT x FROM a {W} INTERSECT SELECT v FROM b {W}",
        "SELECT k FROM a [ROWS 4]",
        "SELECT k FROM a [PARTITION BY k ROWS 4 SLIDE 2]",
        "SELECT k FROM a [PARTITION BY v ROWS 4]",
        f"SELECT RSTREAM(k) FROM a {W}",
        f"SELECT k + 1 AS l FROM a {W}",
        f"SELECT k AS _ts FROM a {W}",
        f"SELECT a.k FROM a {W} CROSS JOIN b {W}",
    ],
)
def test_without_such_a_column_there_is_no_key(text):
    assert keys_of(text) is None
