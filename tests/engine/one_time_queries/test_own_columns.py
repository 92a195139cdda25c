"""Names of columns that meet those of the archive's own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from shedder.cql.sql.exact_query import LIVE, POSITION
from shedder.cql.statements.bound_query import OWN_COLUMNS
from shedder.engine.engine import Engine
from shedder.errors import BadQuery
from shedder.settings import Settings

ROWS = 1_000


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["plain", "hybrid(blocks=4)"])
def test_a_column_may_have_the_name_that_the_database_of_exact_answers_gives_files(
    tmp_path: Path, layout: str
) -> None:
    with Engine.open(tmp_path, Settings()) as engine:
        engine.execute(
            "CREATE STREAM logs (ts TIMESTAMP, filename VARCHAR, file VARCHAR, x BIGINT) "
            f"TIMESTAMP BY ts ARCHIVE {layout}"
        )
        engine.push(
            "logs",
            {
                "ts": pa.array(range(ROWS), pa.timestamp("us")),
                "filename": ["a.log", "b.log"] * (ROWS // 2),
                "file": ["f"] * ROWS,
                "x": list(range(ROWS)),
            },
        )
        engine.seal("logs")
        ends = (
            "SELECT FIRST(filename) AS first, LAST(x) AS last, COUNT(*) AS n FROM logs "
            "WHERE filename = 'b.log' ELSE EXACT"
        )
        [row] = engine.execute(ends).rows()
        assert (row["first"], row["last"], row["n"]) == ("b.log", ROWS - 1, ROWS // 2)
        engine.execute("DELETE FROM logs WHERE x = 7")
        [row] = engine.execute(ends).rows()
        assert (row["first"], row["last"], row["n"]) == ("b.log", ROWS - 1, ROWS // 2 - 1)


def test_what_the_archive_adds_to_a_streams_columns_is_no_name_of_one(tmp_path: Path) -> None:
    assert {POSITION, LIVE} <= OWN_COLUMNS
    with Engine.open(tmp_path, Settings()) as engine:
        for name in ("__position", "File_Row_Number"):
            with pytest.raises(BadQuery, match=f"cannot be named '{name}'"):
                engine.execute(f"CREATE STREAM s (ts TIMESTAMP, {name} BIGINT) TIMESTAMP BY ts")
