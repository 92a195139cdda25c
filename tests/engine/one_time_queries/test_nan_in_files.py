"""NaN is no number, in files, too: their statistics know nothing of it."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from shedder.engine.engine import Engine

VALUES = [math.nan, 0.5, math.nan, 7.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "expected"),
    [("x > 0", 2), ("x >= 0.5", 2), ("x <> 3", 2), ("x = 0.5", 1), ("x < 8", 2), ("NOT x < 0", 2)],
)
def test_a_comparison_with_nan_is_never_true_wherever_the_row_lies(tmp_path, where, expected):
    question = f"SELECT COUNT(*) AS n FROM s WHERE {where}"
    with Engine.open(tmp_path) as engine:
        engine.execute("CREATE STREAM s (ts TIMESTAMP, x DOUBLE) TIMESTAMP BY ts ARCHIVE plain")
        times = pa.array(range(len(VALUES)), pa.int64()).cast(pa.timestamp("us"))
        engine.push("s", pa.table({"ts": times, "x": VALUES}))
        (before,) = engine.execute(question).rows()
        engine.seal("s")  # Nothing is left in the tail, which has no statistics.
        (after,) = engine.execute(question).rows()
        engine.execute("DELETE FROM s WHERE x = 7")
        (less,) = engine.execute(f"SELECT COUNT(*) AS n FROM s WHERE {where} OR x = 7").rows()
    assert (before["n"], after["n"], less["n"]) == (expected, expected, 1)
