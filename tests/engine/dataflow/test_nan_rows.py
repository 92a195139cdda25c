"""NaN in a column is NULL in standing rows, as it is in rows that are asked once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine

CREATE = "CREATE STREAM s (ts TIMESTAMP NOT NULL, x DOUBLE) TIMESTAMP BY ts"
NAN = float("nan")
END_US = 10


def bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    """Return the rows; NaN would equal no other value."""
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with shedder.open(tmp_path / "data") as opened:
        opened.execute(CREATE)
        times = pa.array(range(5), pa.timestamp("us"))
        opened.push("s", pa.table({"ts": times, "x": [1.5, NAN, None, NAN, 1.5]}))
        opened.heartbeat("s", END_US)
        yield opened


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT x FROM s [RANGE 1 DAY]", {(1.5,): 2, (None,): 3}),
        ("SELECT x AS y, x + 1 AS z FROM s [RANGE 1 DAY]", {(1.5, 2.5): 2, (None, None): 3}),
        (
            "SELECT x FROM s [RANGE 1 DAY] UNION ALL SELECT x FROM s [RANGE 1 DAY]",
            {(1.5,): 4, (None,): 6},
        ),
        (
            "SELECT x, COUNT(*) AS n FROM (SELECT x FROM s [RANGE 1 DAY]) AS r GROUP BY x",
            {(1.5, 2): 1, (None, 3): 1},
        ),
    ],
)
def test_standing_rows_have_null_in_place_of_nan(
    engine: Engine, sql: str, rows: dict[tuple[object, ...], int]
) -> None:
    assert bag(engine.register("q", sql).answer().table) == rows
    assert bag(engine.execute(sql).table) == rows


def test_rows_of_a_stream_have_null_in_place_of_nan(engine: Engine) -> None:
    query = engine.register("q", "SELECT x FROM s")
    times = pa.array(range(END_US, END_US + 2), pa.timestamp("us"))
    engine.push("s", pa.table({"ts": times, "x": [NAN, 2.5]}))
    engine.heartbeat("s", 2 * END_US)
    assert query.answer().table["x"].to_pylist()[-2:] == [None, 2.5]
