"""A machine on which time passes as builders of indexes work, and something happens as they do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from shedder.archive.files.file_system import OsFiles, OsReadFile, ReadFile, WriteFile
from shedder.archive.indexes.value_index import index_name
from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from tests.engine.supervised import INDEXES, Supervised, settle
from tests.engine.world import CREATE, requests

ROWS = 6_000
RUNS = 4
HYBRID = "hybrid(blocks=16, block_rows=50)"
CALL_S = 2e-3  # Time of one call to the file system by an index builder.
LITTLE = requests(3, 99)
WHERES = ("client = 17", "client IN (3, 4999, 70)", "client BETWEEN 40 AND 44", "client = -1")
QUESTION = "SELECT COUNT(*) AS n, SUM(hits) AS s, MIN(domain) AS d FROM requests WHERE "


def is_builder() -> bool:
    return threading.current_thread().name.startswith("shedder-indexes")


class SlowReadFile(OsReadFile):
    """Time passes while it is read."""

    def __init__(self, path: Path, pass_time: Callable[[], None]) -> None:
        super().__init__(path)
        self._pass_time = pass_time

    def read(self, offset: int, length: int) -> bytes:
        self._pass_time()
        return super().read(offset, length)


class Paced(Supervised, OsFiles):
    """A machine on which the thread that builds indexes takes time when it uses the file system,
    and as long as it is told to at each rest: at each of these something may happen.

    worked_s, rested_s: of that thread. rests: how many began. at_look: it looks for what is there
    of a stream's indexes. at_file: any thread creates a file, or opens one to read it or to append.
    """

    def __init__(self) -> None:
        super().__init__(files=self)
        self.worked_s = self.rested_s = 0.0
        self.rests = 0
        self.at_rest: Callable[[int], None] = lambda _: None
        self.at_look: Callable[[Path], None] = lambda _: None
        self.at_file: Callable[[Path], None] = lambda _: None

    def monotonic_s(self) -> float:
        return self.worked_s + self.rested_s

    def rest(self, seconds: float) -> None:
        self.rested_s += seconds
        self.rests += 1
        self.at_rest(self.rests)

    def names(self, path: Path) -> list[str]:
        if is_builder():
            self.at_look(path)
        return super().names(path)

    def open(self, path: Path) -> ReadFile:
        self.at_file(path)
        return SlowReadFile(path, self._pass_time)

    def append(self, path: Path) -> WriteFile:
        self.at_file(path)
        return super().append(path)

    def create(self, path: Path) -> WriteFile:
        self.at_file(path)
        self._pass_time()
        return super().create(path)

    def _pass_time(self) -> None:
        if is_builder():
            self.worked_s += CALL_S

    @property
    def share(self) -> float:
        return self.worked_s / (self.worked_s + self.rested_s)


def filled(directory: Path, machine: Environment, layout: str = HYBRID) -> Engine:
    """Runs without an index, of a column that is to have one."""
    engine = Engine.open(directory, machine=machine)
    engine.execute(f"{CREATE} ARCHIVE {layout}")
    table = requests(ROWS, 0)
    for first in range(0, ROWS, ROWS // RUNS):
        engine.push("requests", table.slice(first, ROWS // RUNS))
        engine.seal("requests")
    settle(engine, INDEXES)
    assert engine.core.store.indexes.create(1, "client")
    return engine


def catch_up(engine: Engine) -> None:
    engine.indexer.catch_up()
    settle(engine, INDEXES)


def writing(engine: Engine, machine: Paced, at: int, happen: Callable[[Engine], object]) -> int:
    """Write in each pause until something happens at a later one, whose number is returned."""
    due = machine.rests + at

    def at_rest(number: int) -> None:
        engine.push("requests", LITTLE)
        if number == due:
            machine.at_rest = lambda _: None
            happen(engine)

    machine.at_rest = at_rest
    return due


def assert_index_changes_nothing(engine: Engine) -> None:
    """Check that answers are the same with and without indexes."""
    looked_up = answers(engine)
    engine.core.store.indexes.drop(1, "client")
    assert answers(engine) == looked_up


def answers(engine: Engine) -> list:
    return [engine.execute(QUESTION + where).rows() for where in WHERES]


def index_files(engine: Engine) -> set[str]:
    folder = engine.core.store.directory / "indexes" / "1"
    return {path.name for path in folder.glob("*")}


def wanted_files(engine: Engine) -> set[str]:
    store = engine.core.store
    if not store.streams():
        return set()
    return {
        index_name(run.file, name) for run in store.runs(1) for name in store.indexes.columns(1)
    }


def assert_tidy(engine: Engine) -> None:
    """What should have its index has it, and there is nothing else."""
    assert index_files(engine) == wanted_files(engine)
    assert [p for p in (engine.core.store.directory / "tmp").iterdir() if p.is_file()] == []
