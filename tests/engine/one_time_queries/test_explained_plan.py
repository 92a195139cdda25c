"""EXPLAIN of a one-time question prints the plan by which it is answered."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.settings import Settings

ROWS = 150_000
CREATE = "CREATE STREAM {} (ts TIMESTAMP, g BIGINT) TIMESTAMP BY ts"
COUNTED = "SELECT COUNT(*) AS n FROM {} WHERE g = 1"
REDUCED = f"{COUNTED} REDUCE BY uniform(0.5)"
MET = f"{COUNTED} WITHIN 50 PERCENT"


@pytest.mark.slow
def test_the_source_that_explain_names_answers(tmp_path):
    numbers = np.arange(ROWS)
    rows = pa.table({"ts": pa.array(numbers, pa.timestamp("us")), "g": numbers % 7})
    with shedder.open(tmp_path, Settings(overload="off", sample_rows=4_000)) as engine:
        engine.execute(CREATE.format("whole") + " ARCHIVE PLAIN")
        engine.execute(CREATE.format("dealt"))
        for stream in ("whole", "dealt"):
            engine.push(stream, rows)
            engine.seal(stream)
        for question, said, sources in (
            (COUNTED.format("whole"), "the archive and the tail, exactly", ("archive",)),
            (MET.format("whole"), "the live sample", ("sample",)),
            (
                f"{MET} REDUCE BY uniform(0.5)".format("whole"),
                "the archive and the tail, exactly",
                ("archive",),
            ),
            (MET.format("dealt"), "the live sample", ("sample",)),
            (
                REDUCED.format("dealt"),
                "the archive, reduced as the query says",
                ("archive sample",),
            ),
        ):
            lines = engine.execute(f"EXPLAIN {question}").table["plan"].to_pylist()
            assert lines[0] == f"source:    {said}", question
            assert engine.execute(question).sources == sources, question
