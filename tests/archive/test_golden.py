"""Directories that older versions made open, answer as they did, and go on."""

import shutil
import sqlite3
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import shedder
from shedder.archive.archive_store import Store
from shedder.archive.catalog.catalog import Catalog
from shedder.archive.files.data_directory import format_of
from shedder.archive.layouts.blocks import Wanted
from shedder.archive.operations.backup import restore
from shedder.archive.operations.repair import Repaired, repair
from shedder.archive.operations.verify import check
from shedder.cql.statements.archive_layout import Plain
from shedder.errors import CorruptData

GOLDEN = Path(__file__).parent.parent / "golden"
"""v1: 640 rows of (ts, sensor, site, value): 300 and 200 in runs, 140 in the log; query busy.
tables: table towns, with an image and 3 changes in the log, and table empty; killed.
views: format 15. 41 rows of (ts, town, value), the 31st of them late, and the versions of table
towns in TOWNS. After the first 10: view named and query recent join both, view counts counts named.
A checkpoint with the late row, later changes in the log; killed.
shed: format 19. Rows 0 to 199 of streams a and b, as `shed_rows` makes them; queries pairs and
newest with ON OVERLOAD SHED. After row 99 both were thinned, to 1/4 and 1/2. A checkpoint behind
row 149, the others in the log; killed.
keys: format 20. Rows 0 to 39 of streams orders and fills, as `order_rows` makes them; query filled
joins them. A checkpoint behind row 19 of both, the others in the log; killed.
waiting: format 21. The same, WITHIN 2 TUPLES, with the rows of `order_rows` that are early.
Query newest has the TOP 2 of the ids of fills [ROWS 8 SLIDE 4], with lists of 8 values.
"""
TOWNS = [{0: "Ulm", 1: "Hof"}, {0: "Neu-Ulm", 1: "Hof"}, {0: "Neu-Ulm", 2: "Lugo"}]
"""Of directory views: as of the rows from 10, from 20 and from 30 on."""
KEPT = {
    "pairs": {7, 11, 13, 14, 17, 18, 23, 24, 29, 38},
    "newest": {1, 6, 8, 9, 11, 14, 27, 28, 30, 31, 36, 38},
}
"""Of directory shed: keys of 0 to 39 that the stored seeds and levels keep, of each query."""


@pytest.fixture
def v1(tmp_path):
    return shutil.copytree(GOLDEN / "v1", tmp_path / "v1")


def rows(first: int, end: int) -> pa.Table:
    n = range(first, end)
    return pa.table(
        {
            "ts": pa.array([i * 1_000_000 for i in n], pa.timestamp("us")),
            "sensor": pa.array([i % 7 for i in n]),
            "site": pa.array([None if i % 11 == 0 else f"site{i % 5}" for i in n]),
            "value": pa.array([i / 2 for i in n]),
        }
    )


@pytest.mark.slow
def test_a_directory_of_version_1_answers_and_goes_on(v1):
    sql = "SELECT COUNT(*) AS n, SUM(value) AS s, FIRST(value) AS f, LAST(value) AS l FROM readings"
    assert check(v1).ok
    for end in (640, 800):
        with shedder.open(v1) as db:
            if end == 800:
                db.push("readings", rows(640, 800))
                db.seal("readings")
            answer = db.execute(sql).table.to_pylist()[0]
            assert answer["n"] == end
            assert answer["s"] == sum(i / 2 for i in range(end))
            assert (answer["f"], answer["l"]) == (0.0, (end - 1) / 2)
            assert db.query("busy").answer().table.num_rows == 7
            (stream,) = db.execute("SHOW STREAMS").table.to_pylist()
            assert stream["definition"].endswith("ARCHIVE plain")
        assert check(v1).ok


def test_runs_of_version_1_have_one_block_which_is_verified_whole(v1):
    store = Store.open(v1)
    with store.snapshot(1) as snapshot:
        assert [(r.layout, r.blocks, r.footer) for r in snapshot.runs] == [(Plain(), 1, None)] * 2
        second = snapshot.runs[1]
        wanted = Wanted("ts", ("value",), 310_000_000, 320_000_000)
        (block,) = snapshot.read_blocks(second, [0], wanted)
        assert block.rows == 200
        assert block.table["value"].to_pylist() == [n / 2 for n in range(310, 320)]
    path = v1 / "runs" / snapshot.runs[0].file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with store.snapshot(1) as snapshot, pytest.raises(CorruptData, match="checksum"):
        list(snapshot.read_blocks(snapshot.runs[0], [0], wanted))
    store.close()


def test_reading_only_leaves_a_catalog_of_version_1_as_it_is(v1):
    path = v1 / "catalog.sqlite"
    before = path.read_bytes()
    catalog = Catalog.open(path, read_only=True)
    assert [run.blocks for run in catalog.runs()] == [1, 1]
    catalog.close()
    assert path.read_bytes() == before


def test_a_migration_that_fails_leaves_version_1(v1):
    path = v1 / "catalog.sqlite"
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE runs SET bytes = bytes + 1 WHERE first_position = 300")
    raw.close()
    with pytest.raises(CorruptData, match="table runs"):
        Catalog.open(path)
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (1,)
        assert raw.execute("SELECT COUNT(*) FROM runs").fetchone() == (2,)
    raw.close()


@pytest.mark.slow
def test_a_directory_with_tables_opens_and_goes_on(tmp_path):
    """Table towns: 4 rows in the image; then an UPDATE, a DELETE and an INSERT OR REPLACE."""
    data = tmp_path / "tables"  # Git keeps no empty folder, nor do many copying tools.
    shutil.copytree(GOLDEN / "tables", data, ignore=shutil.ignore_patterns("runs"))
    names = ("land", "id", "name", "since", "at", "share", "open", "rank")
    old = ("de", 1, "Ulm", date(854, 7, 22), datetime(2026, 1, 1, microsecond=1), 0.5, True, 9)
    new = ("de", 2, "Hof", date(2000, 2, 29), None, -1e300, False, 9)
    others = [("es", 4, "Lugo"), ("fr", 1, "Nîmes")]
    expected = [old, new, *((*row, *[None] * 5) for row in others)]
    assert check(data).ok
    assert repair(data) == Repaired()
    restore(data, tmp_path / "restored")
    assert check(tmp_path / "restored").ok
    for _ in range(2):
        with shedder.open(data) as db:
            answer = db.execute(f"SELECT {', '.join(names)} FROM towns ORDER BY land, id")
            assert [tuple(row.values()) for row in answer.rows()] == expected
            assert db.execute("SELECT COUNT(*) AS n FROM empty").rows() == [{"n": 0}]
            shown = db.execute("SHOW TABLES").table.to_pylist()
            assert [(row["version"], row["lost_changes"]) for row in shown] == [(5, 0), (0, 0)]
            assert db.relation("towns").key == ("land", "id")
            assert db.relation("towns").retroactive
        assert check(data).ok


@pytest.mark.slow
def test_a_directory_with_views_and_a_table_join_has_the_same_rows_and_goes_on(tmp_path):
    """Row i has event time i s, town i % 4 and value i / 2; the watermark is 2 s behind."""
    data = tmp_path / "views"
    shutil.copytree(GOLDEN / "views", data)
    joined = [(i / 2, TOWNS[min(i // 10 - 1, 2)].get(i % 4)) for i in range(10, 44)]
    assert check(data).ok
    assert repair(data) == Repaired()
    for end in (40, 44):
        with shedder.open(data) as db:
            if end == 44:
                n = range(40, 44)
                times = pa.array([i * 1_000_000 for i in n], pa.timestamp("us"))
                pushed = {"ts": times, "town": [i % 4 for i in n], "value": [i / 2 for i in n]}
                db.push("readings", pa.table(pushed))
            seen = joined[: (end - 1) - 2 - 10]  # Those before the watermark.
            recent = db.query("recent").answer()
            shown = sorted(tuple(row.values()) for row in recent.rows())
            assert shown == seen[-30:]
            assert (recent.late, recent.complete) == (1, False)
            named = db.execute("SELECT value, name FROM named ORDER BY value")
            of_towns = [row for row in seen if row[1] is not None]
            assert [tuple(row.values()) for row in named.rows()] == of_towns
            assert "1 came too late" in named.notes[0]
            counts = db.execute("SELECT * FROM counts ORDER BY _ts, name").rows()
            made = [(row["_ts"].second, row["name"], row["n"]) for row in counts]
            assert made[:4] == [(19, "Hof", 2), (19, "Ulm", 2), (29, "Hof", 3), (29, "Neu-Ulm", 3)]
            assert made[4:] == ([(39, "Lugo", 3), (39, "Neu-Ulm", 2)] if end == 44 else [])
        assert check(data).ok


def shed_rows(stream: str, first: int, end: int) -> list[tuple[int, int]]:
    """Rows (k, v) of a stream; row i has event time i s."""
    factor, sign = (1, 1) if stream == "a" else (3, -1)
    return [(factor * i % 40, sign * i) for i in range(first, end)]


@pytest.mark.slow
def test_a_directory_with_queries_that_shed_keeps_the_same_keys_and_goes_on(tmp_path):
    """Windows of both sides of pairs are the newest 60 rows at multiples of 10 s."""
    data = tmp_path / "shed"
    shutil.copytree(GOLDEN / "shed", data)
    assert check(data).ok
    assert repair(data) == Repaired()
    assert format_of(data) == 19
    for end in (200, 240):
        with shedder.open(data) as db:
            if end == 240:
                for stream in "ab":
                    k, v = zip(*shed_rows(stream, 200, end), strict=True)
                    times = pa.array([i * 1_000_000 for i in range(200, end)], pa.timestamp("us"))
                    db.push(stream, pa.table({"ts": times, "k": k, "v": v}))
                    db.heartbeat(stream, end * 1_000_000)
            ours, theirs = (shed_rows(stream, end - 60, end) for stream in "ab")
            expected = {
                "pairs": [(k, v, w) for k, v in ours for other, w in theirs if other == k],
                "newest": shed_rows("a", end - 80, end),
            }
            for name, share in (("pairs", 1 / 4), ("newest", 1 / 2)):
                answer = db.query(name).answer()
                shown = sorted(tuple(row.values()) for row in answer.rows())
                assert shown == sorted(row for row in expected[name] if row[0] in KEPT[name])
                assert answer.completeness.share == share
                assert answer.completeness.rows.low <= len(expected[name])
                assert answer.completeness.rows.high >= len(expected[name])
        assert check(data).ok


def order_rows(stream: str, first: int, end: int, *, early: bool = False) -> pa.Table:
    """Rows of streams orders and fills; row i of orders has event time i s.

    Row i of fills comes half a second later, with the id of order i, or, if i is odd, of the next.
    early: of the next but one, and if i is a multiple of 5 of the next but three.
    """
    numbers = range(first, end)
    late, step = (0, 0) if stream == "orders" else (500_000, 1)
    if early:
        ids = [i + (step and (2 if i % 5 else 4)) for i in numbers]
    else:
        ids = [i + step * (i % 2) for i in numbers]
    return pa.table(
        {
            "ts": pa.array([i * 1_000_000 + late for i in numbers], pa.timestamp("us")),
            "id": ids,
            "n": list(numbers),
        }
    )


@pytest.mark.slow
def test_a_directory_with_a_foreign_key_has_the_same_rows_and_counts_and_goes_on(tmp_path):
    """Fills of odd rows come half a second before their order."""
    data = tmp_path / "keys"
    shutil.copytree(GOLDEN / "keys", data)
    assert check(data).ok
    assert repair(data) == Repaired()
    assert format_of(data) == 20
    for end in (40, 60):
        with shedder.open(data) as db:
            if end == 60:
                for stream in ("orders", "fills"):
                    db.push(stream, order_rows(stream, 40, end))
            shown = {row["stream"]: row["definition"] for row in db.execute("SHOW STREAMS").rows()}
            assert shown["fills"].endswith(
                "FOREIGN KEY (id) REFERENCES orders (id) WITHIN 0 TUPLES"
            )
            answer = db.query("filled").answer()
            joined = [tuple(row.values())[:3] for row in answer.rows()]
            known = range(0, end - 1, 2)  # The watermark is the time of the last order.
            assert joined == [(i, i, i) for i in known]
            (note,) = answer.notes
            assert note.startswith(f"{end // 2 - 1} tuples came without the partner")
        assert check(data).ok


@pytest.mark.slow
def test_a_directory_whose_tuples_wait_for_partners_has_the_same_rows_and_goes_on(tmp_path):
    """Each fill but the fifth is joined with the second order after it."""
    data = tmp_path / "waiting"
    shutil.copytree(GOLDEN / "waiting", data)
    assert check(data).ok
    assert repair(data) == Repaired()
    assert format_of(data) == 21
    for end in (40, 60):
        with shedder.open(data) as db:
            if end == 60:
                for stream in ("orders", "fills"):
                    db.push(stream, order_rows(stream, 40, end, early=True))
            answer = db.query("filled").answer()
            joined = [tuple(row.values())[:3] for row in answer.rows()]
            # The watermark is the time of the last order, which is not in the rows yet.
            assert joined == [(i + 2, i, i + 2) for i in range(end - 3) if i % 5]
            (note,) = answer.notes
            passed = sum(i % 5 == 0 for i in range(end - 3))
            assert note.startswith(f"{passed} tuples came without the partner")
            newest = db.query("newest").answer().rows()
            counts = sorted((row["v_count_low"], row["v_count_high"]) for row in newest)
            assert counts == [(1, 1), (2, 2)]  # Of the fifth and of the second after it.
        assert check(data).ok
