"""Standing counts of joins in bounded bytes: SQL, answers, EXPLAIN, restarts and kills."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from shedder.archive.files.data_directory import FORMAT_SAMPLED_JOINS, format_of
from shedder.engine.engine import Engine
from shedder.errors import BadQuery, RowQueryFailed, Unimplemented
from tests.engine.killed import copy_killed
from tests.engine.world import START_US
from tests.seeds import seed
from tests.server_process import ServerProcess
from tests.truth import RUN_ALARM, gate

pytestmark = pytest.mark.slow

SLIDE_US = 10_000_000
WINDOW = "[RANGE 40 SECONDS SLIDE 10 SECONDS]"
SLIDES = 4  # Of a window.
JOIN = f"SELECT COUNT(*) AS n FROM a {WINDOW} JOIN b {WINDOW} ON a.k = b.k"
TEXT = f"{JOIN} CONFIDENCE 95 PERCENT"
KEYS = 60_000
ROWS = 12_000  # Of a slide and stream.
LIMIT = 1 << 20
SETTINGS = {"row_query_bytes_max": LIMIT, "checkpoint_seconds": 0.1, "run_rows": 20_000}


class Streams:
    """Slides of both streams, and the exact size of the join of the newest windows."""

    def __init__(self, name: str) -> None:
        self._rng = np.random.default_rng(seed("sampled join queries", name))
        self._counts: list[tuple[np.ndarray, np.ndarray]] = []

    def slide(self) -> Iterator[tuple[str, pa.Table]]:
        """Tuples of the next slide, in two batches of each stream."""
        begin_us = START_US - START_US % SLIDE_US + len(self._counts) * SLIDE_US
        found = []
        for name in "ab":
            keys = self._rng.zipf(1.3, ROWS) % KEYS
            found.append(np.bincount(keys, minlength=KEYS))
            ts = np.sort(self._rng.integers(begin_us, begin_us + SLIDE_US, ROWS))
            table = pa.table({"ts": pa.array(ts, pa.timestamp("us")), "k": keys})
            yield name, table.slice(0, ROWS // 3)
            yield name, table.slice(ROWS // 3)
        self._counts.append((found[0], found[1]))

    @property
    def end_us(self) -> int:
        """The instant behind the newest slide."""
        return START_US - START_US % SLIDE_US + len(self._counts) * SLIDE_US

    @property
    def size(self) -> int:
        """Pairs of the windows as of that instant."""
        ours, theirs = (sum(each[side] for each in self._counts[-SLIDES:]) for side in (0, 1))
        return int(ours @ theirs)


def create(db) -> None:
    for name in "ab":
        db.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")


def push(db, streams: Streams, slides: int = 1) -> None:
    for _ in range(slides):
        for name, table in streams.slide():
            db.push(name, table)
    for name in "ab":
        db.heartbeat(name, streams.end_us)


def test_a_join_beyond_its_bytes_has_an_interval_in_place_of_an_error(tmp_path):
    streams = Streams("limit")
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db)
        exact = db.register("exact", JOIN)
        db.execute(f"CREATE QUERY size AS {TEXT}")
        size = db.query("size")
        held = answers = 0
        for _ in range(8):
            push(db, streams)
            answer = size.answer()
            found = answer.estimate(0, "n")
            held += found.holds(streams.size)
            answers += 1
        assert held >= gate(answers, 0.95, RUN_ALARM)
        assert (answer.confidence, answer.outputs, answer.approximate) == (0.95, ("n",), ("n",))
        [row] = answer.rows()
        assert list(row) == ["n", "n_low", "n_high", "n_bound", "n_met"]
        assert (row["n_bound"], row["n_met"]) == ("interval", None)
        assert found.half_width < 0.2 * found.value
        assert answer.complete
        with pytest.raises(RowQueryFailed, match="query 'exact' failed"):
            exact.answer()
        assert format_of(db.core.store.directory) == FORMAT_SAMPLED_JOINS
        shown = db.execute("EXPLAIN size").table
        text = " ".join(" ".join(map(str, row.values())) for row in shown.to_pylist())
        assert "in at most 524,288" in text
        assert "keys sampled: 1/" in text
        assert db.core.rows.queries["size"].state_bytes < LIMIT


def test_a_restart_and_a_kill_give_the_same_answers_and_rows(tmp_path):
    streams = Streams("restart")
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db)
        push(db, streams, 3)  # A new query reads the past of its windows.
        db.register("size", TEXT)
        push(db, streams, 4)
        for name, table in list(streams.slide())[:3]:  # A part of a slide.
            db.push(name, table)
        before = db.query("size").answer()
        copied = copy_killed(db, tmp_path / "killed")
    with Engine.open(tmp_path / "d", **SETTINGS) as db, Engine.open(copied, **SETTINGS) as other:
        both = [each.query("size") for each in (db, other)]
        assert [each.answer().table for each in both] == [before.table] * 2
        assert both[0].answer().resume == both[1].answer().resume == before.resume
        later = list(streams.slide())
        for each in (db, other):
            for name, table in later:
                each.push(name, table)
            for name in "ab":
                each.heartbeat(name, streams.end_us)
        assert both[0].answer().table == both[1].answer().table != before.table
        assert both[0].answer().resume == both[1].answer().resume


@pytest.mark.timeout(300)
def test_a_killed_server_gives_the_same_answer(tmp_path):
    streams = Streams("server")
    settings = {name: str(value) for name, value in SETTINGS.items()}
    service = ServerProcess(tmp_path / "data", **settings)
    try:
        with service.connect() as client:
            create(client)
            client.execute(f"CREATE QUERY size AS {TEXT}")
            push(client, streams, 6)
            before = client.query("size").answer()
        service.stop(signal.SIGKILL)
        service.start_again()
        with service.connect() as client:
            after = client.query("size").answer()
            assert after.table == before.table
            assert (after.resume, after.confidence) == (before.resume, 0.95)
            assert after.estimate(0, "n").holds(streams.size)
            push(client, streams)
            assert client.query("size").answer().estimate(0, "n").value > 0
    finally:
        service.stop(signal.SIGKILL)


def test_where_confidence_has_no_meaning_it_is_refused(tmp_path):
    with Engine.open(tmp_path / "d") as db:
        create(db)
        with pytest.raises(BadQuery, match="a query that is answered once are exact"):
            db.execute(TEXT)
        with pytest.raises(Unimplemented, match="CONFIDENCE in a query whose rows become a stream"):
            db.execute(f"CREATE VIEW v AS {TEXT}")
        with pytest.raises(BadQuery, match="WITHIN: the rows of this query are exact"):
            db.register("size", f"{JOIN} WITHIN 1 PERCENT CONFIDENCE 95 PERCENT")
        preview = db.execute(f"EXPLAIN CREATE QUERY size AS {TEXT}").table.to_pylist()
        assert "keys sampled: all" in str(preview)
        assert format_of(db.core.store.directory) < FORMAT_SAMPLED_JOINS
        assert db.execute("SHOW QUERIES").table.num_rows == 0
