"""Indexes are built beside writers, who keep nine tenths of the time, and whatever happens then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from shedder.archive.files import OsFiles, OsReadFile, ReadFile, WriteFile
from shedder.engine.engine import Engine
from shedder.engine.indexer import QUIET_S, SHARE
from shedder.engine.machine import Machine
from shedder.engine.pace import LOOK_S
from tests.engine.world import CREATE, requests

ROWS = 6_000
RUNS = 4
HYBRID = "hybrid(blocks=16, block_rows=50)"
CALL_S = 2e-3  # What a call to the file system takes who builds indexes.
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


class Paced(Machine, OsFiles):
    """A machine on which the thread that builds indexes takes time when it uses the file system,
    and as long as it is told to at each rest: at each of these something may happen.

    worked_s, rested_s: of that thread. rests: how many began.
    """

    def __init__(self) -> None:
        super().__init__(files=self)
        self.worked_s = self.rested_s = 0.0
        self.rests = 0
        self.at_rest: Callable[[int], None] = lambda _: None

    def monotonic_s(self) -> float:
        return self.worked_s + self.rested_s

    def rest(self, seconds: float) -> None:
        self.rested_s += seconds
        self.rests += 1
        self.at_rest(self.rests)

    def open(self, path: Path) -> ReadFile:
        return SlowReadFile(path, self._pass_time)

    def create(self, path: Path) -> WriteFile:
        self._pass_time()
        return super().create(path)

    def _pass_time(self) -> None:
        if is_builder():
            self.worked_s += CALL_S

    @property
    def share(self) -> float:
        return self.worked_s / (self.worked_s + self.rested_s)


def filled(directory: Path, machine: Machine, layout: str = HYBRID) -> Engine:
    """Runs without an index, of a column that is to have one."""
    engine = Engine.open(directory, machine=machine)
    engine.execute(f"{CREATE} ARCHIVE {layout}")
    table = requests(ROWS, 0)
    for first in range(0, ROWS, ROWS // RUNS):
        engine.push("requests", table.slice(first, ROWS // RUNS))
        engine.seal("requests")
    engine.core.indexer.settle()
    assert engine.core.store.create_index(1, "client")
    return engine


def catch_up(engine: Engine) -> None:
    engine.core.indexer.catch_up()
    engine.core.indexer.settle()


def writing(engine: Engine, machine: Paced, at: int, happen: Callable[[Engine], object]) -> int:
    """Have somebody write in each rest until, at a later one, something happens; at which."""
    due = machine.rests + at

    def at_rest(number: int) -> None:
        engine.push("requests", LITTLE)
        if number == due:
            machine.at_rest = lambda _: None
            happen(engine)

    machine.at_rest = at_rest
    return due


def assert_index_changes_nothing(engine: Engine) -> None:
    """Answers are those of who has no index."""
    looked_up = answers(engine)
    engine.core.store.drop_index(1, "client")
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
    return {store._path(run, name).name for run in store.runs(1) for name in store.indexes(1)}


def assert_tidy(engine: Engine) -> None:
    """What should have its index has it, and there is nothing else."""
    assert index_files(engine) == wanted_files(engine)
    assert [p for p in (engine.core.store.directory / "tmp").iterdir() if p.is_file()] == []


def test_while_somebody_writes_builders_take_their_share_and_no_more(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        machine.worked_s = machine.rested_s = 0.0
        machine.at_rest = lambda _: engine.push("requests", LITTLE)
        catch_up(engine)
        assert_tidy(engine)
        assert machine.rests > RUNS
        assert machine.share <= 1.01 * SHARE


def test_two_builders_share_it(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        machine.worked_s = machine.rested_s = 0.0

        def at_rest(number: int) -> None:
            engine.push("requests", LITTLE)
            if number == first:
                engine.execute("CREATE INDEX ON requests (hits)")

        first = machine.rests + 1
        machine.at_rest = at_rest
        catch_up(engine)
        assert_tidy(engine)
        assert engine.core.store.indexes(1) == ("client", "hits")
        assert machine.share <= 1.01 * SHARE


def test_who_writes_a_run_writes_though_no_batch_comes(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        engine.push("requests", LITTLE)
        with engine.core.store._state(1).cutting:  # Who seals waits for it.
            sealing = threading.Thread(target=engine.seal, args=("requests",))
            sealing.start()
            while not engine.core.cutter.writes:
                pass
            machine.worked_s = machine.rested_s = 0.0
            catch_up(engine)
            assert machine.rested_s > 2 * QUIET_S
            assert machine.share <= 1.01 * SHARE
        sealing.join()
        catch_up(engine)
        assert_tidy(engine)


def test_a_quiet_moment_later_they_take_it_all(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        machine.worked_s = machine.rested_s = 0.0
        catch_up(engine)
        assert_tidy(engine)
        assert machine.rested_s <= QUIET_S + LOOK_S  # The last writes are a moment ago.


def test_the_newest_runs_come_first_and_answers_are_right_meanwhile(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        store = engine.core.store
        positions = [run.first_position for run in store.runs(1)]
        seen: list[int] = []

        def at_rest(_: int) -> None:
            engine.push("requests", LITTLE)
            missing = [run.first_position for run, _ in store.unindexed(1)]
            assert missing == positions[: len(missing)]
            if len(missing) not in seen:
                seen.append(len(missing))
                found = engine.execute(QUESTION + WHERES[1]).rows()
                expected.setdefault(len(missing), found)

        expected: dict[int, list] = {}
        machine.at_rest = at_rest
        catch_up(engine)
        assert seen == list(range(RUNS, -1, -1))
        assert len({str(rows) for rows in expected.values()}) == 1
        assert_index_changes_nothing(engine)


def test_progress_is_seen_and_a_cancel_ends_it_until_somebody_asks_again(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        done: list[int] = []

        def at_rest(_: int) -> None:
            engine.push("requests", LITTLE)
            ((number, facts),) = engine.tasks.facts()
            assert (facts["what"], facts["total"]) == ("value indexes", ROWS)
            done.append(facts["done"])
            if len(engine.core.store.unindexed(1)) == 2:
                engine.tasks.cancel(number)

        machine.at_rest = at_rest
        catch_up(engine)
        (row,) = engine.execute("SHOW INDEXES").rows()
        assert (row["runs_indexed"], row["runs"]) == (2, RUNS)
        assert done == sorted(done)
        assert 0 < done[0] < done[-1] < ROWS
        machine.at_rest = lambda _: None
        catch_up(engine)
        assert_tidy(engine)


def drop_index(engine: Engine) -> None:
    engine.execute("DROP INDEX ON requests (client)")


def drop_stream(engine: Engine) -> None:
    engine.execute("DROP STREAM requests")


def retire(engine: Engine) -> None:
    store = engine.core.store
    store.apply_retention(1, store.runs(1)[-1].high_us)


def lay_out_anew(engine: Engine) -> None:
    engine.execute("ALTER STREAM requests SET ARCHIVE plain")
    engine.relayouts._worker.submit(int).result()
    assert all(not run.is_dealt for run in engine.core.store.runs(1))


def purge(engine: Engine) -> None:
    engine.execute("DELETE FROM requests WHERE client = 17 OR hits > 20")
    engine.purge("requests")


def lose_a_file(engine: Engine) -> None:
    store = engine.core.store
    (store.directory / "runs" / store.unindexed(1)[0][0].file).unlink()
    engine.execute("SCRUB")


@pytest.mark.parametrize("at", [1, 12])
@pytest.mark.parametrize(
    "happen", [drop_index, drop_stream, retire, lay_out_anew, purge, lose_a_file]
)
def test_what_happens_to_runs_and_indexes_meanwhile_leaves_all_right(tmp_path, happen, at):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        due = writing(engine, machine, at, happen)
        catch_up(engine)
        assert machine.rests >= due, "nothing has happened"
        catch_up(engine)
        store = engine.core.store
        if happen is lose_a_file:
            assert store.unindexed(1) == []
            assert not engine.execute(QUESTION + WHERES[0]).complete
            return
        assert_tidy(engine)
        if store.streams():
            assert_index_changes_nothing(engine)


def test_a_backup_in_the_middle_is_whole_and_its_indexes_come_by_themselves(tmp_path):
    machine = Paced()
    with filled(tmp_path / "data", machine) as engine:
        due = writing(engine, machine, 20, lambda engine: engine.backup(tmp_path / "copy"))
        catch_up(engine)
        assert machine.rests >= due
        expected = answers(engine)
    with Engine.open(tmp_path / "copy") as copy:
        assert answers(copy) == expected
        copy.core.indexer.settle()
        assert copy.core.store.unindexed(1) == []
        assert answers(copy) == expected


def test_closing_ends_it_and_the_next_start_goes_on(tmp_path):
    machine = Paced()
    engine = filled(tmp_path, machine)
    expected = answers(engine)
    rests, closing = threading.Event(), threading.Event()

    def at_rest(_: int) -> None:
        rests.set()
        closing.wait(60)

    machine.at_rest = at_rest
    engine.core.indexer.catch_up()
    assert rests.wait(60)
    closer = threading.Thread(target=engine.close)
    closer.start()
    while not engine.tasks._closed:
        pass
    closing.set()
    closer.join()
    assert len(list((tmp_path / "indexes").rglob("*.index"))) < RUNS
    assert list((tmp_path / "tmp").iterdir()) == []
    with Engine.open(tmp_path) as again:
        again.core.indexer.settle()
        assert_tidy(again)
        assert answers(again) == expected


def test_a_backfilled_file_that_is_sent_counts_as_writing(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        catch_up(engine)
        before = machine.rested_s
        engine.core.indexer.give_way()
        engine.execute("CREATE INDEX ON requests (hits)")
        assert machine.rested_s == before  # Only the indexes' own thread takes time here.
        assert engine.core.indexer._share() == SHARE
        machine.rested_s += 2 * QUIET_S
        assert engine.core.indexer._share() == 1.0
