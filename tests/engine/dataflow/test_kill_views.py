"""kill -9 of a real server with views: each row of each view is stored once."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.engine.world import START_US
from tests.scale import scaled
from tests.seeds import seed
from tests.server_process import ServerProcess

CYCLES = scaled(3, 20)
ROWS = 199
APART_US = 1_000
SLIDE_US = 500_000
TENTH = "[RANGE INTERVAL '0.1' SECOND]"
HALF = "[RANGE INTERVAL '0.5' SECOND SLIDE INTERVAL '0.5' SECOND]"
STATEMENTS = (
    "CREATE STREAM events (ts TIMESTAMP, id BIGINT, kind BIGINT) TIMESTAMP BY ts",
    "CREATE VIEW picked AS SELECT id, kind FROM events WHERE kind > 2",
    "CREATE VIEW fives AS SELECT id FROM events WHERE kind = 5",
    f"CREATE VIEW pairs AS SELECT p.id FROM picked p {TENTH}, fives f {TENTH} WHERE p.id = f.id",
    f"CREATE VIEW counts AS SELECT kind, COUNT(*) AS n FROM picked {HALF} GROUP BY kind",
    "CREATE STREAM copies (at TIMESTAMP, id BIGINT) TIMESTAMP BY at",
    "CREATE QUERY copy AS INSERT INTO copies SELECT ts, id FROM events WHERE kind = 0",
)
SETTINGS = {
    "run_rows": "2000",
    "checkpoint_seconds": "0.1",
    "log_segment_bytes": "262144",
    "sample_rows": "256",
}


def batch_of(sequence: int) -> pa.Table:
    """Rows of a push; the oracle needs no more than its number."""
    ids = sequence * ROWS + np.arange(ROWS, dtype=np.int64)
    return pa.table(
        {"ts": pa.array(START_US + ids * APART_US, pa.timestamp("us")), "id": ids, "kind": ids % 6}
    )


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path / "data", **SETTINGS)
    yield running
    with suppress(ProcessLookupError):  # The test has killed the last one.
        running.stop(signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killing_the_server_stores_each_row_of_a_view_once(service: ServerProcess) -> None:
    chance = random.Random(seed("kill views"))
    with service.connect() as client:
        for text in STATEMENTS:
            client.execute(text)
        sums = "SELECT COUNT(*) AS n, SUM(id) AS total FROM picked"
        client.register("sums", sums)
    patient = service.connect(patience_s=60)  # It outlives every server, with pushes in flight.
    producer = patient.producer("events", "p")
    for _ in range(CYCLES):
        for _ in range(chance.randrange(1, 60)):
            producer.push(batch_of(producer.next_sequence))
        if chance.random() < 0.5:
            producer.flush()
        service.stop(signal.SIGKILL)
        service.start_again()
        producer.flush()  # What was in flight is sent again, and stored once.
    end = producer.next_sequence * ROWS
    with service.connect() as client:
        client.heartbeat("events", START_US + end * APART_US)
        found = {
            name: client.execute(f"SELECT id FROM {name}").table["id"].to_pylist()
            for name in ("picked", "pairs", "copies")
        }
        rows = client.execute("SELECT kind, n, CAST(_ts AS BIGINT) FROM counts").table.to_pylist()
        counts = [tuple(row.values()) for row in rows]
        totals = client.query("sums").answer().table.select(["n", "total"]).to_pylist()
        shown = client.execute("SHOW VIEWS").table.to_pylist()
    patient.close()
    picked = [id_ for id_ in range(end) if id_ % 6 > 2]
    assert sorted(found["picked"]) == picked
    assert sorted(found["pairs"]) == [id_ for id_ in picked if id_ % 6 == 5]
    assert sorted(found["copies"]) == [id_ for id_ in range(end) if id_ % 6 == 0]
    assert totals == [{"n": len(picked), "total": sum(picked)}]
    assert {each["view"]: each["failed"] for each in shown} == dict.fromkeys(
        ("picked", "fives", "pairs", "counts")
    )
    assert sorted(counts) == sorted(_counts_of_slides(picked, START_US + end * APART_US))


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
