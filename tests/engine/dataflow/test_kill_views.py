"""kill -9 of a real server with views: each row of each view is stored once."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.engine.dataflow.killed_server import APART_US, CREATE, pushing, serving
from tests.engine.world import START_US
from tests.scale import scaled
from tests.seeds import seed

CYCLES = scaled(2, 20)
SLIDE_US = 500_000
TENTH = "[RANGE INTERVAL '0.1' SECOND]"
HALF = "[RANGE INTERVAL '0.5' SECOND SLIDE INTERVAL '0.5' SECOND]"
STATEMENTS = (
    CREATE,
    "CREATE VIEW picked AS SELECT id, kind FROM events WHERE kind > 2",
    "CREATE VIEW fives AS SELECT id FROM events WHERE kind = 5",
    f"CREATE VIEW pairs AS SELECT p.id FROM picked p {TENTH}, fives f {TENTH} WHERE p.id = f.id",
    f"CREATE VIEW counts AS SELECT kind, COUNT(*) AS n FROM picked {HALF} GROUP BY kind",
    "CREATE STREAM copies (at TIMESTAMP, id BIGINT) TIMESTAMP BY at",
    "CREATE QUERY copy AS INSERT INTO copies SELECT ts, id FROM events WHERE kind = 0",
)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killing_the_server_stores_each_row_of_a_view_once(tmp_path):
    chance = random.Random(seed("kill views"))
    with serving(tmp_path / "data") as service, pushing(service) as pushes:
        with service.connect() as client:
            for text in STATEMENTS:
                client.execute(text)
            client.register("sums", "SELECT COUNT(*) AS n, SUM(id) AS total FROM picked")
        for _ in range(CYCLES):
            for _ in pushes.push(chance):
                pass
            if chance.random() < 0.5:
                pushes.producer.flush()
            pushes.kill()
        with service.connect() as client:
            client.heartbeat("events", pushes.end_us)
            found = {
                name: client.execute(f"SELECT id FROM {name}").table["id"].to_pylist()
                for name in ("picked", "pairs", "copies")
            }
            text = "SELECT kind, n, CAST(_ts AS BIGINT) FROM counts"
            counts = [tuple(row.values()) for row in client.execute(text).table.to_pylist()]
            totals = client.query("sums").answer().table.select(["n", "total"]).to_pylist()
            shown = client.execute("SHOW VIEWS").table.to_pylist()
    picked = [id_ for id_ in range(pushes.end) if id_ % 6 > 2]
    assert sorted(found["picked"]) == picked
    assert sorted(found["pairs"]) == [id_ for id_ in picked if id_ % 6 == 5]
    assert sorted(found["copies"]) == [id_ for id_ in range(pushes.end) if id_ % 6 == 0]
    assert totals == [{"n": len(picked), "total": sum(picked)}]
    assert {each["view"]: each["failed"] for each in shown} == dict.fromkeys(
        ("picked", "fives", "pairs", "counts")
    )
    assert sorted(counts) == sorted(_counts_of_slides(picked, pushes.end_us))


def _counts_of_slides(picked: list[int], watermark_us: int) -> list[tuple[int, int, int]]:
    """A count for each kind in each slide that the watermark has passed."""
    times = START_US + np.array(picked) * APART_US
    slides, kinds = times // SLIDE_US, np.array(picked) % 6
    closed = (slides + 1) * SLIDE_US <= watermark_us
    pairs, counts = np.unique(
        np.stack([kinds[closed], slides[closed]], axis=1), axis=0, return_counts=True
    )
    return [
        (int(kind), int(count), (int(slide) + 1) * SLIDE_US - 1)
        for (kind, slide), count in zip(pairs, counts, strict=True)
    ]
