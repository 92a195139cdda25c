"""Runs are scrubbed by themselves, when it is time, the oldest first, and ingest goes before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shedder.archive.files.file_system import OsFiles, OsReadFile, ReadFile
from shedder.engine.engine import Engine
from tests.engine.machines import ByHand
from tests.engine.relaid import CREATE, rows

DAY_US = 86_400_000_000
START_US = 1_700_000_000_000_000


class CountedFiles(OsFiles):
    """Real files that record which files were opened for reading, and call `at_read` at a read."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.at_read: Callable[[], None] = lambda: None

    def open(self, path: Path) -> ReadFile:
        self.opened.append(path.name)
        return CountedFile(path, self)


class CountedFile(OsReadFile):
    def __init__(self, path: Path, files: CountedFiles) -> None:
        super().__init__(path)
        self._files = files

    def read(self, offset: int, length: int) -> bytes:
        self._files.at_read()
        return super().read(offset, length)


class World:
    """A database whose clock is set by hand; its runs are looked after when a test says so."""

    def __init__(self, directory, create: str = CREATE, **settings) -> None:
        self.now_us = START_US
        self.directory, self.settings = directory, settings
        self.db = self.opened()
        self.db.execute(create)

    def opened(self) -> Engine:
        self.files = CountedFiles()
        self.machine = ByHand(lambda: self.now_us, self.files)
        return Engine.open(self.directory, machine=self.machine, **self.settings)

    def add(self, number: int) -> None:
        self.db.push("s", rows(number * 100, number * 100 + 100))
        self.db.seal("s")
        self.db.housekeeping.tick()

    def after(self, days: float, looks: int = 1) -> dict[str, int]:
        self.now_us += int(days * DAY_US)
        for _ in range(looks):
            self.db.housekeeping.tick()
        return self.facts()

    def facts(self) -> dict[str, int]:
        table = self.db.control().to_pylist()
        return {row["key"]: int(row["value"]) for row in table if row["entity"] == "scrub"}

    def fill_queue(self, share: float) -> None:
        """Report from now on that this share of the apply queue is full."""
        self.machine.waiting_bytes = int(share * self.db.core.settings.ingest_queue_bytes)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.db.close()


@pytest.mark.slow
def test_each_run_is_read_once_in_its_period(world):
    world.add(0)
    assert world.after(3.0) == {"due_runs": 0, "runs": 0, "read_bytes": 0, "damaged_runs": 0}
    world.add(1)
    assert world.after(3.9)["runs"] == 0
    found = world.after(0.2)
    size = world.db.core.store.runs(1)[0].size_bytes
    assert found == {"due_runs": 0, "runs": 1, "read_bytes": size, "damaged_runs": 0}
    assert world.after(3.0, looks=3)["runs"] == 2  # The second one, three days later.
    assert world.after(7.0)["due_runs"] == 1  # One per look, the oldest first.
    assert world.after(0.0) == {**world.facts(), "due_runs": 0, "runs": 4}


@pytest.mark.slow
def test_after_the_clock_has_jumped_back_runs_are_read_as_often_as_before(world):
    world.add(0)
    assert world.after(8.0)["runs"] == 1
    assert world.after(-400.0, looks=3)["runs"] == 2
    assert world.after(6.0)["runs"] == 2
    assert world.after(1.1)["runs"] == 3


@pytest.mark.slow
def test_a_restart_begins_nothing_anew(world):
    world.add(0)
    assert world.after(8.0)["runs"] == 1
    world.db.close()
    world.db = world.opened()
    assert world.after(6.0)["runs"] == 0
    assert world.after(1.1)["runs"] == 1


@pytest.mark.slow
def test_rot_is_found_by_itself(world):
    world.add(0)
    world.add(1)
    run = world.db.core.store.runs(1)[1]
    path = world.directory / "runs" / run.file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert world.after(8.0, looks=2)["damaged_runs"] == 1
    assert [found for found, _ in world.db.core.store.quarantine.runs(1)] == [run]
    assert world.after(8.0, looks=2)["runs"] == 3  # The damaged one is not read again.


def test_while_ingest_is_behind_nothing_is_read(world):
    world.add(0)
    world.fill_queue(0.5)
    found = world.after(8.0)
    assert (found["due_runs"], found["runs"]) == (1, 0)
    world.fill_queue(0.0)
    assert world.after(0.0)["runs"] == 1


@pytest.mark.slow
def test_ingest_that_falls_behind_ends_the_reading(world):
    world.add(0)
    world.now_us += 8 * DAY_US
    reads: list[str] = []

    def fall_behind() -> None:
        reads.append(world.files.opened[-1])
        world.fill_queue(0.5)

    world.files.at_read = fall_behind
    world.machine.tick("shedder-housekeeping")
    (run,) = world.db.core.store.runs(1)
    assert reads == [Path(run.file).name]
    assert world.facts()["runs"] == 0
    assert world.facts()["due_runs"] == 1
    world.files.at_read = lambda: None
    world.fill_queue(0.0)
    assert world.after(0.0)["runs"] == 1


@pytest.mark.slow
def test_it_can_be_turned_off(tmp_path):
    world = World(tmp_path, scrub_days=0)
    world.add(0)
    assert world.after(1_000.0) == {"due_runs": 0, "runs": 0, "read_bytes": 0, "damaged_runs": 0}
    world.db.close()


@pytest.mark.slow
def test_new_runs_are_opened_for_the_first_question_to_a_part_of_them(tmp_path):
    sql = "SELECT COUNT(*) AS n FROM s REDUCE BY uniform(0.5)"
    world = World(tmp_path, f"{CREATE.split(' ARCHIVE')[0]} ARCHIVE hybrid(blocks=4, block_rows=1)")
    for _ in range(2):
        for number in range(2):
            world.add(number)
        world.files.opened.clear()
        assert world.db.execute(sql).archive is not None
        world.db.housekeeping.tick()
        assert world.files.opened == []
        world.db.close()
        world.db = world.opened()
        world.files.opened.clear()  # All of this happened before it was open.
        assert world.db.execute(sql).archive is not None
        assert world.files.opened == []
    assert world.db.core.store.runs(1)
    world.db.execute("DROP STREAM s")
    world.db.housekeeping.tick()
    world.db.close()
