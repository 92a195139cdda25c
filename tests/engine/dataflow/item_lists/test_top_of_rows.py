"""Standing TOP over ROWS windows: SQL, answers, EXPLAIN, restarts and kills, gRPC and the CLI."""

from __future__ import annotations

import json
import signal

import numpy as np
import pyarrow as pa
import pytest

from shedder.archive.files.data_directory import FORMAT_WAITS, format_of
from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode
from shedder.engine.engine import Engine
from shedder.errors import BadQuery, BudgetExceeded, TypeMismatch
from tests.engine.killed import copy_killed
from tests.engine.world import START_US
from tests.seeds import seed
from tests.server_process import ServerProcess

pytestmark = pytest.mark.slow

ROWS, SLIDE, BATCH = 2000, 100, 1730
TEXTS = {
    "numbers": f"SELECT TOP(k, 5) AS busiest FROM s [ROWS {ROWS} SLIDE {SLIDE}]",
    "names": f"SELECT TOP(name, 5) AS busiest FROM s [ROWS {ROWS} SLIDE {SLIDE}]",
}
COLUMNS = ["", "_count", "_count_low", "_count_high", "_count_bound", "_count_met", "_guaranteed"]


class Tuples:
    """Tuples that were pushed, and the counts of the newest."""

    def __init__(self, name: str) -> None:
        self._rng = np.random.default_rng(seed("top of rows", name))
        self._keys = np.empty(0, np.int64)

    def push(self, *targets) -> None:
        """Push a batch to all targets."""
        begin_us = START_US + len(self._keys) * 1000
        keys = self._rng.zipf(1.4, BATCH) % 300
        ts_us = begin_us + np.arange(BATCH) // 3 * 3000
        columns = {
            "ts": pa.array(ts_us, pa.timestamp("us")),
            "k": keys,
            "name": [f"n{key}" for key in keys],
        }
        for each in targets:
            each.push("s", pa.table(columns))
            each.heartbeat("s", begin_us + BATCH * 1000)
        self._keys = np.concatenate([self._keys, keys])

    def check(self, rows: list[dict]) -> None:
        """Check the rows of an answer."""
        whole = len(self._keys) // SLIDE * SLIDE
        truth = np.bincount(self._keys[:whole][-ROWS:], minlength=300)
        found = {int(str(row["busiest"]).removeprefix("n")): row for row in rows}
        assert len(rows) == len(found) == 5
        others = np.delete(truth, list(found)).max()
        for key, row in found.items():
            assert list(row) == [f"busiest{each}" for each in COLUMNS]
            assert row["busiest_count_low"] <= truth[key] <= row["busiest_count_high"]
            assert not row["busiest_guaranteed"] or truth[key] >= others
        assert any(row["busiest_guaranteed"] for row in rows)


def create(db) -> None:
    db.execute("CREATE STREAM s (ts TIMESTAMP NOT NULL, k BIGINT, name VARCHAR) TIMESTAMP BY ts")


def sorted_rows(rows: list[dict]) -> list[str]:
    return sorted(map(str, rows))


def test_answers_hold_the_truth_after_restarts_and_kills_and_in_the_cli(tmp_path, capfd):
    tuples = Tuples("restart")
    with Engine.open(tmp_path / "d", checkpoint_seconds=0.1) as db:
        create(db)
        tuples.push(db)
        for name, text in TEXTS.items():
            db.execute(f"CREATE QUERY {name} AS {text}")
        tuples.push(db)
        tuples.push(db)
        late = db.register("late", TEXTS["numbers"])  # It reads the past of the window.
        assert sorted_rows(late.answer().rows()) == sorted_rows(db.query("numbers").answer().rows())
        before = {name: db.query(name).answer() for name in TEXTS}
        for answer in before.values():
            tuples.check(answer.rows())
            assert (answer.confidence, answer.approximate) == (1.0, ("busiest_count",))
        shown = str(db.execute("EXPLAIN numbers").table.to_pylist())
        assert "TOP(s.k, 5) of [ROWS 2,000 SLIDE 100]" in shown
        assert format_of(db.core.store.directory) == FORMAT_WAITS
        copied = copy_killed(db, tmp_path / "killed")
    with Engine.open(tmp_path / "d") as db, Engine.open(copied) as other:
        for each in (db, other):
            for name, answer in before.items():
                found = each.query(name).answer()
                assert sorted_rows(found.rows()) == sorted_rows(answer.rows())
                assert found.resume == answer.resume
        tuples.push(db, other)
        for name in TEXTS:
            rows = db.query(name).answer().rows()
            tuples.check(rows)
            assert sorted_rows(other.query(name).answer().rows()) == sorted_rows(rows)
    capfd.readouterr()
    assert run(["sql", "-d", str(tmp_path / "d"), "--query", "names"]) == ExitCode.FINE
    printed = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert sorted_rows(printed) == sorted_rows(rows)


@pytest.mark.timeout(300)
def test_a_killed_server_gives_the_same_answer(tmp_path):
    tuples = Tuples("server")
    service = ServerProcess(tmp_path / "data")
    try:
        with service.connect() as client:
            create(client)
            client.execute(f"CREATE QUERY names AS {TEXTS['names']}")
            tuples.push(client)
            tuples.push(client)
            before = client.query("names").answer()
            tuples.check(before.rows())
        service.stop(signal.SIGKILL)
        service.start_again()
        with service.connect() as client:
            after = client.query("names").answer()
            assert sorted_rows(after.rows()) == sorted_rows(before.rows())
            assert (after.resume, after.confidence) == (before.resume, 1.0)
            tuples.push(client)
            tuples.check(client.query("names").answer().rows())
    finally:
        service.stop(signal.SIGKILL)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT TOP(k, 5) FROM s [ROWS 100]", r"a SLIDE of 2 or more tuples that divides ROWS"),
        ("SELECT TOP(k, 5) FROM s [ROWS 100 SLIDE 30]", r"\[ROWS 100 SLIDE 30\]"),
        ("SELECT TOP(k, 5) FROM s [PARTITION BY k ROWS 100 SLIDE 10]", "PARTITION BY"),
        ("SELECT TOP(k, 5) FROM s [ROWS 100 SLIDE 10] WHERE k > 1", "inside of the brackets"),
        ("SELECT TOP(k, 5) FROM s [ROWS 100 SLIDE 10] ON OVERLOAD SHED", "ON OVERLOAD SHED"),
        ("SELECT TOP(k, 5) FROM s [ROWS 100 SLIDE 10] CONFIDENCE 95 PERCENT", "CONFIDENCE"),
    ],
)
def test_other_windows_and_clauses_are_refused(tmp_path, text, said):
    with Engine.open(tmp_path / "d") as db:
        create(db)
        with pytest.raises(BadQuery, match=said):
            db.register("q", text)


def test_queries_that_are_answered_once_and_views_refuse_it(tmp_path):
    with Engine.open(tmp_path / "d") as db:
        create(db)
        with pytest.raises(BadQuery, match="TOP over a window of rows is for standing queries"):
            db.execute(TEXTS["numbers"])
        with pytest.raises(BadQuery, match="a query with aggregates is a relation"):
            db.execute(f"CREATE VIEW v AS {TEXTS['numbers']}")
        with pytest.raises(TypeMismatch, match="TOP alone may have a window"):
            db.register("q", "SELECT FREQUENT(k, 0.1) FROM s [ROWS 100 SLIDE 10]")


def test_lists_are_longer_than_the_answer_where_there_is_room(tmp_path):
    """The length is stored: another limit of bytes changes lists of new queries alone."""
    text = "SELECT TOP(k, 5) AS t FROM s [ROWS 100000 SLIDE 125]"
    with Engine.open(tmp_path / "d", row_query_bytes_max="1MiB") as db:
        create(db)
        db.register("few", text)
    with Engine.open(tmp_path / "d") as db:
        db.register("many", text)
        shown = {
            name: str(db.execute(f"EXPLAIN {name}").table.to_pylist()) for name in ("few", "many")
        }
        assert "list of 9 values per slide" in shown["few"]
        assert "list of 20 values per slide" in shown["many"]
        plan = str(db.execute(f"EXPLAIN CREATE QUERY q AS {text}").table.to_pylist())
        assert "a list of 20 values per slide" in plan


def test_lists_that_need_more_than_a_query_may_hold_are_refused(tmp_path):
    with Engine.open(tmp_path / "d", row_query_bytes_max="1MiB") as db:
        create(db)
        refusal = "10,000 lists of up to 10 values in 1,680,000 bytes; a row query may hold 1,048,"
        text = "SELECT TOP(k, 20) AS t FROM s [ROWS 100000 SLIDE 10]"
        for statement in (f"CREATE QUERY q AS {text}", f"EXPLAIN CREATE QUERY q AS {text}"):
            with pytest.raises(BudgetExceeded, match=refusal):
                db.execute(statement)
        db.register("q", text.replace("SLIDE 10]", "SLIDE 100]"))
