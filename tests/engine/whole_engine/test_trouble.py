"""Full disks, second servers, newer formats, and slides that must be exact."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import shedder
from shedder.errors import DirectoryLocked, DiskFull, NewerFormat, PrecisionUnavailable
from tests.engine.world import CREATE, SECOND, START_US, requests

SLIDING = "[RANGE INTERVAL '60' SECOND SLIDE INTERVAL '20' SECOND]"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("run_rows", [1 << 20, 4_000], ids=["append", "run"])
def test_a_full_disk_refuses_what_it_cannot_keep_and_goes_on_when_there_is_room(
    small_disk: Path, run_rows: int
) -> None:
    filler = small_disk / "filler"
    table = requests(2_000, seed=1)
    acknowledged = 0
    settings = {"run_rows": run_rows, "sample_rows": 64, "checkpoint_seconds": 0.05}
    with shedder.open(small_disk / "data", **settings, log_segment_bytes=1 << 20) as db:
        db.execute(CREATE)
        query = db.register("n", "SELECT COUNT(*) AS n, SUM(hits) AS h FROM requests")
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        filler.write_bytes(b"x" * (free - (1 << 20)))
        with pytest.raises(DiskFull, match=r"space|full"):  # noqa: PT012 - some are stored first
            for _ in range(200):
                db.push("requests", table)
                acknowledged += 1
        filler.unlink()
        for _ in range(3):
            receipt = db.push("requests", table)
            acknowledged += 1
        rows = acknowledged * 2_000
        assert receipt.position == rows
        assert query.answer(after=receipt).rows()[0]["n"] == rows
        assert db.execute("SELECT COUNT(*) AS n FROM requests").rows()[0]["n"] == rows
    with shedder.open(small_disk / "data", **settings) as db:
        assert db.query("n").answer().rows()[0]["n"] == rows
        ledger = db.ledger("requests")
        assert (ledger.accepted, ledger.applied) == (rows, rows)


def test_a_second_server_on_a_directory_is_refused(tmp_path: Path) -> None:
    with (
        shedder.open(tmp_path / "data"),
        pytest.raises(DirectoryLocked, match=str(os.getpid())),
    ):
        shedder.open(tmp_path / "data")
    shedder.open(tmp_path / "data").close()


def test_a_directory_of_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    shedder.open(tmp_path / "data").close()
    (tmp_path / "data" / "FORMAT").write_text("shedder archive 99\n")
    before = sorted(p.name for p in (tmp_path / "data").rglob("*"))
    with pytest.raises(NewerFormat, match="99"):
        shedder.open(tmp_path / "data")
    assert sorted(p.name for p in (tmp_path / "data").rglob("*")) == before


@pytest.mark.slow
def test_else_exact_answers_a_slide_from_the_archive_when_the_synopsis_misses(
    tmp_path: Path,
) -> None:
    table = requests(20_000, seed=2)
    with shedder.open(tmp_path / "data") as db:
        db.execute(CREATE)
        query = db.register(
            "exact",
            f"SELECT QUANTILE(bytes, 0.5) AS d FROM requests {SLIDING} "
            "WITHIN 0.01 PERCENT ELSE EXACT",
        )
        slides = iter(query.subscribe())
        db.push("requests", table)
        db.heartbeat("requests", START_US + 600 * SECOND)
        answer = next(slides)
        while answer.end_us != START_US + 600 * SECOND or "archive" not in answer.sources:
            answer = next(slides)
        row = answer.rows()[0]
        times = table["ts"].cast(pa.int64()).to_numpy()
        window = table.filter(pa.array(times >= answer.start_us))
        values = sorted(v for v in window["bytes"].to_pylist() if v is not None and v == v)
        median = values[(len(values) + 1) // 2 - 1]
        assert (row["d"], row["d_bound"], row["d_met"]) == (median, "exact", True)


@pytest.mark.slow
def test_exact_slides_that_pile_up_neither_go_back_in_time_nor_hold_up_the_end(
    tmp_path: Path,
) -> None:
    table = requests(20_000, seed=3, seconds=6_000)
    text = (
        f"SELECT QUANTILE(bytes, 0.5) AS d FROM requests {SLIDING} WITHIN 0.01 PERCENT ELSE EXACT"
    )
    with shedder.open(tmp_path / "data") as db:
        db.execute(CREATE)
        query = db.register("exact", text)
        ends = []
        db.listen("exact", lambda update: ends.append(query.latest().end_us))
        for first in range(0, 20_000, 500):
            db.push("requests", table.slice(first, 500))
    assert ends == sorted(ends)
    with shedder.open(tmp_path / "data") as db:
        assert db.query("exact").answer().end_us >= ends[-1]


def test_a_listener_that_raises_is_told_no_more_and_halts_nothing(tmp_path: Path) -> None:
    table = requests(2_000, seed=4)
    with shedder.open(tmp_path / "data") as db:
        db.execute(CREATE)
        db.register("n", f"SELECT COUNT(*) AS n FROM requests {SLIDING}")
        updates = []

        def fail(update: object) -> None:
            updates.append(update)
            raise RuntimeError("a listener's own mistake")

        db.listen("n", fail)
        db.push("requests", table)
        db.heartbeat("requests", START_US + 600 * SECOND)
        assert len(updates) == 1
        assert db.ledger("requests").applied == 2_000


def test_else_exact_is_refused_where_there_is_no_time_for_it(tmp_path: Path) -> None:
    with shedder.open(tmp_path / "data") as db:
        db.execute(CREATE)
        with pytest.raises(PrecisionUnavailable, match=r"ELSE EXACT .* this window has none"):
            db.register("q", "SELECT COUNT(DISTINCT bytes) AS d FROM requests "
                        "WITHIN 1 PERCENT ELSE EXACT")  # fmt: skip


@pytest.mark.parametrize("first_us", [-(1 << 63), -(10**17)])
def test_a_promise_of_before_all_calendars_is_shown_as_their_first_day(
    tmp_path: Path, first_us: int
) -> None:
    with shedder.open(tmp_path) as db:
        db.execute(CREATE)
        db.heartbeat("requests", first_us)
        (row,) = db.execute("SHOW STREAMS").rows()
        assert (row["watermark"].year, row["tuples"]) == (1, 0)
