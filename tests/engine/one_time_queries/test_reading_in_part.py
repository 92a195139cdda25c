"""One-time questions to an engine whose runs lie in blocks: real files, and every way out."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import shedder
from shedder.engine.engine import Engine
from shedder.errors import (
    BadQuery,
    BadReduction,
    Cancelled,
    DeadlineExceeded,
    PrecisionUnavailable,
    UnknownReduction,
)
from tests.engine.world import CREATE, SECOND, START_US, between, requests

ROWS, RUNS = 120_000, 3
HYBRID = f"{CREATE} ARCHIVE hybrid(blocks=64, block_rows=100)"
DATA = requests(ROWS, seed=5)
COUNTED = "SELECT COUNT(*) AS n FROM requests WHERE hits < 20"
BACKGROUND = "acme_reductions"


def true_count(table=DATA) -> int:
    return int((table["hits"].to_numpy() < 20).sum())


def filled(directory, create: str = HYBRID, rows: int = ROWS, **settings) -> Engine:
    db = shedder.open(directory, sample_rows=500, **settings)
    db.execute(create)
    size = rows // RUNS
    for run in range(RUNS):
        db.push("requests", DATA.slice(run * size, size))
        db.seal("requests")
    return db


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    with filled(tmp_path_factory.mktemp("hybrid")) as database:
        database.housekeeping.close()  # It holds new runs while it opens them, when it likes.
        yield database


@pytest.mark.slow
def test_a_target_is_met_by_some_of_the_blocks(db):
    answer = db.execute(COUNTED + " WITHIN 4 PERCENT")
    assert answer.met is True
    assert answer.sources == ("archive sample",)
    part = answer.archive
    assert part.reduction == "until_error()"
    assert part.blocks == 65 * RUNS  # One of 64 is divided
    assert 0 < part.blocks_read < part.blocks / 3
    assert part.bytes_read < part.bytes_stored / 8
    assert answer.position == ROWS
    found = answer.estimate(0, "n")
    assert abs(found.value - true_count()) < 0.12 * true_count()
    assert "blocks read" in answer.explain()


def test_fewer_columns_are_fewer_bytes(db):
    db.execute(
        "SELECT COUNT(ok) AS n FROM requests REDUCE BY uniform(0.5)"
    )  # What files begin with.
    narrow, wide = (
        db.execute(f"SELECT COUNT({column}) AS n FROM requests REDUCE BY uniform(0.5)")
        for column in ("ok", "domain || CAST(client AS VARCHAR)")
    )
    assert narrow.archive.bytes_read < 0.8 * wide.archive.bytes_read


@pytest.mark.slow
def test_what_no_part_can_tell_is_exact(db):
    answer = db.execute("SELECT LAST(client) AS c, COUNT(*) AS n FROM requests WITHIN 1 PERCENT")
    assert answer.sources == ("archive",)
    assert answer.rows()[0]["c_bound"] == "exact"
    assert answer.archive is None
    assert answer.archive_share_read == 1.0


def test_a_stretch_reads_its_runs_and_filters_them(db):
    start, end = START_US + 220 * SECOND, START_US + 390 * SECOND
    answer = db.execute(
        "SELECT COUNT(*) AS n FROM requests [FROM ? TO ?] WHERE hits < 20 WITHIN 6 PERCENT",
        [np.datetime64(start, "us").item(), np.datetime64(end, "us").item()],
    )
    assert answer.archive.blocks == 65  # One run of three.
    assert (answer.start_us, answer.end_us) == (start, end)
    true = true_count(between(DATA, start, end))
    assert abs(answer.estimate(0, "n").value - true) < 0.15 * true


@pytest.mark.slow
def test_the_tail_is_read_with_the_blocks_and_nothing_twice(tmp_path):
    with filled(tmp_path) as db:
        db.push("requests", DATA.slice(0, 40_000))
        selected = "SELECT COUNT(*) AS n, COUNT_IF(ok) AS ok FROM requests"
        answer = db.execute(f"{selected} REDUCE BY uniform(0.8)")
        assert answer.rows()[0]["n"] == ROWS + 40_000
        assert answer.rows()[0]["n_bound"] == "exact"
        assert answer.sources == ("archive sample", "tail")
        true = DATA["ok"].to_numpy().sum() + DATA["ok"].slice(0, 40_000).to_numpy().sum()
        assert abs(answer.estimate(0, "ok").value - true) < 0.03 * true
        assert answer.position == ROWS + 40_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reduce_by", "share"),
    [
        ("uniform(0.75)", 0.25),
        ("by_load(0.9)", 1.0),
        ("by_age('200 seconds', 0.9)", (1.0 + 0.5 + 0.25) / 3),
        ("by_value('hits', 1000, 2000, 0.5)", 0.5),
        ("by_value('hits', 0, 5, 0.5)", 1.0),
    ],
)
def test_a_reduction_is_given_as_it_is_asked_for(db, reduce_by, share):
    answer = db.execute(f"{COUNTED} REDUCE BY {reduce_by}")
    if share == 1.0:
        assert answer.rows()[0]["n_bound"] == "exact"
        assert answer.rows()[0]["n"] == true_count()
        return
    assert answer.archive.blocks_read / answer.archive.blocks == pytest.approx(share, rel=0.1)
    assert answer.archive.reduction == reduce_by
    found = answer.estimate(0, "n")
    assert abs(found.value - true_count()) < 0.06 * true_count()
    assert 0 < found.half_width < 0.06 * true_count()


@pytest.mark.parametrize(
    ("reduce_by", "error", "says"),
    [
        ("newest(3)", UnknownReduction, "'newest'; there are by_age"),
        ("uniform(1.5)", BadQuery, "0 or more and less than 1, not 1.5"),
        ("uniform()", BadQuery, "missing"),
        ("until_error()", BadQuery, "add WITHIN 1 PERCENT"),
    ],
)
def test_what_is_wrong_with_a_reduction_is_said(db, reduce_by, error, says):
    for word in ("", "EXPLAIN "):
        with pytest.raises(error, match=says):
            db.execute(f"{word}{COUNTED} REDUCE BY {reduce_by}")


def test_a_standing_query_reads_no_archive_in_part(db):
    with pytest.raises(BadQuery, match="REDUCE BY is for questions that are asked once"):
        db.register("thin", f"{COUNTED} REDUCE BY uniform(0.5)")


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["plain", "hybrid(blocks=1)", "hybrid(blocks=64)"])
def test_runs_in_one_piece_are_read_in_full_and_the_answer_says_so(tmp_path, layout):
    with filled(tmp_path, f"{CREATE} ARCHIVE {layout}", rows=3_000) as db:
        answer = db.execute(f"{COUNTED} REDUCE BY uniform(0.9)")
        assert answer.rows()[0]["n"] == true_count(DATA.slice(0, 3_000))
        assert answer.rows()[0]["n_bound"] == "exact"
        why = "all was read: no run of it lies in blocks or has a copy (runs: 3)"
        assert answer.notes == (f"REDUCE BY has no effect, {why}",)


@pytest.mark.slow
def test_why_a_reduction_has_no_effect_is_said(tmp_path):
    two = f"{CREATE} ARCHIVE hybrid(blocks=2, block_rows=100)"
    reduced = f"{COUNTED} REDUCE BY uniform(0.25)"
    with shedder.open(tmp_path, sample_rows=500) as db:
        db.execute(two)

        def noted(text: str) -> str:
            answer = db.execute(text)
            assert answer.rows()[0]["n_bound"] == "exact"
            (note,) = answer.notes
            return note

        assert noted(reduced) == "REDUCE BY has no effect: no tuple of this stretch is stored"
        db.push("requests", DATA.slice(0, 400))
        assert noted(reduced).endswith("all was read: none of it is in a run")
        db.seal("requests")
        assert noted(reduced).endswith("no smaller part of it suffices (runs: 1, blocks: 2)")
        nowhere = reduced.replace("requests", "requests [FROM '1990-01-01' TO '1991-01-01']")
        assert noted(nowhere) == "REDUCE BY has no effect: no tuple of this stretch is stored"
        assert db.execute(f"{COUNTED} REDUCE BY uniform(0.6)").notes == ()
    with shedder.open(tmp_path / "lazy", sample_rows=500) as db:
        db.execute(f"{CREATE} ARCHIVE lazy")
        db.push("requests", DATA.slice(0, 400))
        db.seal("requests")
        assert "the vacuum makes copies" in noted(reduced)


def test_over_an_empty_stretch_nothing_is_counted_exactly_and_nothing_else_is_known(db):
    nowhere = "requests [FROM '1990-01-01' TO '1991-01-01']"
    sql = f"SELECT COUNT(*) AS n, AVG(hits) AS a, SUM(bytes) AS s FROM {nowhere}"
    for more in ("", " WITHIN 1 PERCENT", " REDUCE BY uniform(0.5)", " REDUCE BY by_age('1 hour')"):
        answer = db.execute(sql + more)
        (row,) = answer.rows()
        assert (row["n"], row["n_bound"], row["a"], row["s"]) == (0, "exact", None, None)
        assert answer.archive is None
    by_group = db.execute(f"SELECT domain, COUNT(*) AS n FROM {nowhere} GROUP BY domain")
    assert by_group.rows() == []


@pytest.mark.parametrize(
    ("contract", "met"), [("WIDEN", False), ("OMIT", False), ("EXACT", True), ("FAIL", None)]
)
def test_a_reduction_that_misses_the_target_keeps_the_contract(db, contract, met):
    text = f"{COUNTED} WITHIN 0.1 PERCENT ELSE {contract} REDUCE BY uniform(0.9)"
    if met is None:
        with pytest.raises(PrecisionUnavailable):
            db.execute(text)
        return
    answer = db.execute(text)
    assert answer.met is met
    assert (answer.rows()[0]["n"] is None) is (contract == "OMIT")
    assert (answer.archive is None) is met


# --- r-UDFs that a package brings -----------------------------------------------------------------

ACME = """
import sys
from dataclasses import dataclass
from threading import Event

GO = Event()

@dataclass(frozen=True)
class Says:
    word: object
    reads_on: bool = False
    def wanted(self, block):
        if self.word == "raise":
            raise RuntimeError(f"no idea of {block.rows} rows")
        if self.word == "exit":
            sys.exit(3)
        if self.word == "lie":
            block.columns.clear()
        if self.word == "hang":
            GO.wait()
            return 0.5
        return self.word

def half(surroundings): return Says(0.5)
def nan(surroundings): return Says(float("nan"))
def one(surroundings): return Says(1)
def broken(surroundings): return Says("raise")
def leaving(surroundings): return Says("exit")
def lying(surroundings): return Says("lie")
def hanging(surroundings): return Says("hang")
def slow(surroundings): GO.wait()
def empty(surroundings): return None
thing = 5
"""


@pytest.fixture
def acme(tmp_path, monkeypatch):
    """An installed package with reductions of its own, one of which cannot even be loaded."""
    names = (
        "half",
        "nan",
        "one",
        "broken",
        "missing",
        "leaving",
        "lying",
        "hanging",
        "slow",
        "empty",
    )
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    points = "".join(f"{name} = {BACKGROUND}:{name}\n" for name in (*names, "empty", "thing"))
    (info / "entry_points.txt").write_text(f"[shedder.reductions]\n{points}")
    (tmp_path / f"{BACKGROUND}.py").write_text(ACME)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_reduction_of_another_package_is_found_by_its_name(db, acme):
    part = db.execute(f"{COUNTED} REDUCE BY half()").archive
    assert part.reduction == "half()"
    assert 0.45 < part.blocks_read / part.blocks <= 0.51


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nan", r"nan\(\) wants nan; it must be a number in \[0, 1\)"),
        ("one", r"one\(\) wants 1"),
        ("broken", r"broken\(\) failed: RuntimeError: no idea of 40000 rows"),
        ("missing", r"missing\(\) cannot be loaded: AttributeError"),
        ("lying", r"lying\(\) failed: AttributeError"),
        ("leaving", r"leaving\(\) failed: SystemExit: 3"),
        ("empty", r"empty\(\) failed: AttributeError"),
        ("thing", r"thing\(\) cannot be made: TypeError: 5 is not a callable"),
    ],
)
def test_one_that_fails_fails_its_query_by_name_and_nothing_else(db, acme, name, says):
    with pytest.raises(BadReduction, match=says):
        db.execute(f"{COUNTED} REDUCE BY {name}()")
    assert db.execute(COUNTED).rows()[0]["n"] == true_count()


@pytest.mark.parametrize("name", ["hanging", "slow"])
def test_one_that_hangs_is_called_off_and_runs_out_of_time_as_all_others_do(db, acme, name):
    go = importlib.import_module(BACKGROUND).GO
    go.clear()
    text = f"{COUNTED} REDUCE BY {name}()"
    with pytest.raises(DeadlineExceeded):
        db.execute(text, timeout_s=0.1)
    with pytest.raises(Cancelled):
        db.execute(text, watch=lambda progress: progress.cancel())
    assert db.tasks.facts() == []
    assert db.core.store.facts()["files_in_use"] == 0
    go.set()


def test_the_names_of_other_packages_are_listed_too(db, acme):
    with pytest.raises(UnknownReduction, match=r"broken, by_age, .*half.*uniform"):
        db.execute(f"{COUNTED} REDUCE BY newest()")


# --- called off, out of time, damaged -------------------------------------------------------------


@pytest.mark.parametrize("text", [f"{COUNTED} WITHIN 4 PERCENT", COUNTED])
def test_an_answer_that_is_called_off_leaves_nothing_behind(db, text):
    seen = []

    def call_off(progress):
        seen.append(progress)
        progress.cancel()

    with pytest.raises(Cancelled, match="answer from requests"):
        db.execute(text, watch=call_off)
    assert len(seen) == 1
    assert db.tasks.facts() == []
    assert db.core.store.facts()["files_in_use"] == 0
    assert db.execute(text).table.num_rows == 1


def test_progress_is_told_in_tuples_and_ends_whole(db):
    seen = []
    db.execute(f"{COUNTED} WITHIN 4 PERCENT", watch=seen.append)
    [progress] = seen
    assert progress.unit == "tuples"
    assert progress.share == 1.0
    assert 0 < progress.done < ROWS


def test_no_time_at_all_is_a_missed_deadline(db):
    with pytest.raises(DeadlineExceeded):
        db.execute(f"{COUNTED} REDUCE BY uniform(0.5)", timeout_s=1e-9)


@pytest.mark.slow
def test_a_damaged_block_makes_it_read_what_is_left_and_say_what_is_missing(tmp_path):
    with filled(tmp_path) as db:
        first = sorted((tmp_path / "runs").rglob("*.parquet"))[0]
        with first.open("r+b") as file:
            file.seek(4)
            file.write(b"\x55" * (first.stat().st_size * 3 // 4))
        for _ in range(2):  # Then the catalog knows.
            answer = db.execute(f"{COUNTED} REDUCE BY uniform(0.2)")
            found = answer.estimate(0, "n")
            assert found.low <= true_count() <= found.high
            assert found.low >= true_count(DATA.slice(ROWS // RUNS))
            assert any("missing" in note for note in answer.notes)
            assert not answer.complete


def test_explain_says_that_the_archive_will_be_read_in_part(db):
    lines = db.execute(f"EXPLAIN {COUNTED} WITHIN 4 PERCENT").table["plan"].to_pylist()
    assert "source:    the archive, as much of it as the target needs" in lines
    assert "reduced:   by until_error()" in lines
    assert f"archive:   {ROWS:,} tuples in {RUNS} runs of 195 blocks, 0 in the log" in lines
    lines = db.execute(f"EXPLAIN {COUNTED} REDUCE BY uniform(0.5)").table["plan"].to_pylist()
    assert "source:    the archive, reduced as the query says" in lines


@pytest.mark.slow
def test_two_readers_draw_samples_of_their_own(db):
    values = {db.execute(f"{COUNTED} REDUCE BY uniform(0.98)").rows()[0]["n"] for _ in range(8)}
    assert len(values) > 4
