"""`row_query_expiry`: rows, their order and their tokens do not depend on it, nor on a change."""

from __future__ import annotations

import pytest

from shedder.engine.engine import Engine
from shedder.settings import Settings
from tests.engine.dataflow.worlds import CREATE, START_US, batch, subscribed

WINDOW = "RANGE INTERVAL '0.00001' SECOND"
QUERIES = {
    "pairs": f"SELECT a.id, b.kind FROM s [{WINDOW}] a JOIN s [{WINDOW}] b ON a.id = b.kind",
    "kinds": f"SELECT DISTINCT id, kind FROM s [{WINDOW}] WHERE id > 1",
    "newest": f"SELECT q.kind, LAST(q.id) AS id FROM (SELECT id, kind FROM s [{WINDOW}]) q "
    "GROUP BY q.kind",
}
ROWS = [(at, at % 5, at % 3) for at in range(200)]


def made(path, *modes):
    """The rows of each query; the server restarts between the modes."""
    for at, mode in enumerate(modes):
        with Engine.open(path, settings=Settings(row_query_expiry=mode)) as db:
            if at == 0:
                db.execute(CREATE)
                for name, text in QUERIES.items():
                    db.register(name, text)
            part = len(ROWS) // len(modes)
            db.push("s", batch(ROWS[part * at : part * (at + 1)]))
            db.heartbeat("s", START_US + part * (at + 1))
            rows = {name: subscribed(db.query(name)) for name in QUERIES}
            assert "negative" not in mode or "Negative tuples" in db.query("pairs").explain()
    return rows


@pytest.mark.slow
def test_rows_do_not_depend_on_expiry_nor_on_its_change(tmp_path):
    expected = made(tmp_path / "pattern", "pattern")
    assert all(len(rows) > 5 for rows in expected.values())
    assert made(tmp_path / "negative", "negative") == expected
    assert made(tmp_path / "changing", "negative", "direct", "pattern", "negative") == expected
