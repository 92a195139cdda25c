"""A repair lost a DELETE: its rows are counted again, and no answer claims a bound over them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from shedder.archive.files.repair_record import REPAIRED, read_repairs
from shedder.archive.operations.backup import backup, restore
from shedder.archive.operations.repair import repair
from shedder.archive.operations.verify import check
from shedder.cli.commands import run as command
from shedder.cli.exit_codes import ExitCode
from shedder.engine.engine import Engine
from shedder.errors import CorruptData
from tests.archive.recovery.worlds import flip_frame, frames
from tests.engine.checkpointed import checkpoint
from tests.engine.killed import copy_killed
from tests.engine.world import CREATE, SECOND, START_US, requests

ROWS, LEFT = 1_000, 700
NOW_US = START_US + 100 * SECOND
LATER_US = NOW_US + 3_600 * SECOND
FUTURE_US = 60 * SECOND
STANDING = "SELECT COUNT(*) AS n FROM requests [RANGE UNBOUNDED]"
SLIDING = "SELECT COUNT(*) AS n FROM requests [RANGE INTERVAL '60' SECOND]"
QUERY = "SELECT COUNT(*) AS n, MIN(hits) AS lo FROM requests"
BY_DOMAIN = "SELECT domain, COUNT(*) AS n FROM requests GROUP BY domain"
SAID = "a repair lost commits of the catalog"


def opened(directory: Path, now_us: int = NOW_US) -> Engine:
    settings = {"checkpoint_seconds": 3_600.0, "future_us_max": FUTURE_US, "purge_share": 1.0}
    return Engine.open(directory, clock_us=lambda: now_us, **settings)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that has lost the commits from a DELETE of 300 rows on."""
    directory = tmp_path_factory.mktemp("lost")
    pushed = requests(ROWS, 5, seconds=70.0)
    hits = pa.array([number % 10 for number in range(ROWS)], pa.int64())
    with opened(directory / "served") as engine:
        engine.execute(CREATE)
        engine.register("all", STANDING)
        engine.register("sliding", SLIDING)
        at = pushed.schema.get_field_index("hits")
        engine.push("requests", pushed.set_column(at, "hits", hits))
        engine.seal("requests")
        checkpoint(engine)
        kept = frames(directory / "served" / "catalog.sqlite-wal")
        engine.execute("DELETE FROM requests WHERE hits < 3")
        assert engine.execute(QUERY).rows()[0]["n"] == LEFT
        copy_killed(engine, directory / "data")
    flip_frame(directory / "data" / "catalog.sqlite-wal", kept)
    return directory / "data"


@pytest.fixture
def data(tmp_path: Path, template: Path) -> Path:
    return shutil.copytree(template, tmp_path / "data")


@pytest.mark.slow
def test_no_answer_over_tuples_from_before_the_repair_claims_a_bound(data):
    with pytest.raises(CorruptData, match="commits are missing"):
        opened(data)
    lost = repair(data, now_us=NOW_US).lost
    assert any("deletions" in what for what in lost)
    for _ in range(2):  # It is no matter of one start.
        with opened(data) as engine:
            answers = [
                engine.execute(QUERY),
                engine.execute(BY_DOMAIN),
                engine.query("all").answer(),
            ]
            for answer in answers:
                assert not answer.complete
                assert any(SAID in note for note in answer.notes)
                assert {row["n_bound"] for row in answer.rows()} == {"none"}
            row = answers[0].rows()[0]
            assert (row["n"], row["lo_bound"]) == (ROWS, "none")
            (said,) = (r for r in engine.control().to_pylist() if r["key"] == "repair_lost")
            assert said["value"] == "; ".join(lost)


@pytest.mark.slow
def test_what_cannot_hold_such_tuples_is_exact(data):
    repair(data, now_us=NOW_US)
    with opened(data, LATER_US) as engine:
        engine.execute(CREATE.replace("requests", "later"))
        late = requests(ROWS, 6)
        times = pa.array(late["ts"].cast(pa.int64()).to_numpy() + 3_000 * SECOND)
        moved = late.set_column(0, "ts", times.cast("timestamp[us]"))
        engine.push("later", moved)
        assert engine.execute("SELECT COUNT(*) AS n FROM later").rows()[0]["n_bound"] == "exact"
        receipt = engine.push("requests", moved)
        sliding = engine.query("sliding").answer(receipt)
        assert (sliding.complete, sliding.rows()[0]["n_bound"]) == (True, "exact")
        assert engine.execute(QUERY).rows()[0]["n_bound"] == "none"


@pytest.mark.slow
def test_a_check_names_the_loss_until_the_operator_removes_the_record(data, capfd):
    assert command(["check", "-d", str(data), "--repair"]) == ExitCode.DAMAGED
    said = capfd.readouterr().err
    assert "a repair could not rebuild commits" in said
    assert str(data / REPAIRED) in said
    record = (data / REPAIRED).rename(data.with_name("record"))
    with opened(data) as engine:  # Without the record nothing tells of the DELETE.
        row = engine.execute(QUERY).rows()[0]
        assert (row["n"], row["n_bound"]) == (ROWS, "exact")
    record.rename(data / REPAIRED)
    with opened(data) as engine:
        engine.execute("DELETE FROM requests WHERE hits < 3")
    assert check(data).damages == []
    assert not check(data).ok
    (data / REPAIRED).unlink()
    assert check(data).ok
    with opened(data) as engine:
        row = engine.execute(QUERY).rows()[0]
        assert (row["n"], row["n_bound"]) == (LEFT, "exact")


@pytest.mark.slow
def test_copies_of_a_repaired_directory_say_it_too(data, tmp_path):
    repair(data, now_us=NOW_US)
    before = read_repairs(data)
    with opened(data) as engine:
        backup(engine.core.store, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    for copy in ("backup", "restored"):
        assert read_repairs(tmp_path / copy) == before
        with opened(tmp_path / copy) as engine:
            assert engine.execute(QUERY).rows()[0]["n_bound"] == "none"


@pytest.mark.slow
def test_a_damaged_record_covers_everything(data):
    repair(data, now_us=NOW_US)
    whole = (data / REPAIRED).read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 2):
        (data / REPAIRED).write_bytes(whole[:size])
        (record,) = read_repairs(data)
        assert record.covers(1 << 40)
        assert not check(data).ok
    with opened(data) as engine:
        assert engine.execute(QUERY).rows()[0]["n_bound"] == "none"
