"""Index builders leave nine tenths of the time to writers; faults and races beside them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from shedder.archive.tasks.progress import LOOK_S, Progress
from shedder.engine.engine import Engine
from shedder.engine.maintenance.index_builder import QUIET_S, SHARE
from shedder.engine.runtime.background_pace import SHARE_MIN, STEP_S
from shedder.errors import Cancelled, Draining, UnknownStream
from spark_ingest.parts import send_part
from tests.engine.indexing import (
    LITTLE,
    QUESTION,
    ROWS,
    RUNS,
    WHERES,
    Paced,
    answers,
    assert_index_changes_nothing,
    assert_tidy,
    catch_up,
    filled,
    writing,
)
from tests.engine.supervised import INDEXES, REWRITES, Supervised, settle
from tests.engine.world import requests


@pytest.mark.slow
def test_while_somebody_writes_builders_take_their_share_and_no_more(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        machine.worked_s = machine.rested_s = 0.0
        machine.at_rest = lambda _: engine.push("requests", LITTLE)
        catch_up(engine)
        assert_tidy(engine)
        assert machine.rests > RUNS
        assert machine.share <= 1.01 * SHARE


@pytest.mark.slow
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
        assert engine.core.store.indexes.columns(1) == ("client", "hits")
        assert machine.share <= 1.01 * SHARE


def test_who_writes_a_run_writes_though_no_batch_comes(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        engine.push("requests", LITTLE)
        writes, may_go_on = threading.Event(), threading.Event()

        def at_file(_: Path) -> None:
            if threading.current_thread().name.startswith("shedder-runs"):
                writes.set()
                may_go_on.wait()

        machine.at_file = at_file
        sealing = threading.Thread(target=engine.seal, args=("requests",))
        sealing.start()
        writes.wait()
        try:
            machine.worked_s = machine.rested_s = 0.0
            catch_up(engine)
            assert machine.rested_s > 2 * QUIET_S
            assert machine.share <= 1.01 * SHARE
        finally:
            may_go_on.set()
            sealing.join()
        catch_up(engine)
        assert_tidy(engine)


@pytest.mark.slow
def test_however_many_build_they_share_it(tmp_path):
    machine, builders = Paced(), 2 * int(SHARE / SHARE_MIN)
    with filled(tmp_path, machine) as engine, ExitStack() as stack:
        indexer = engine.indexer
        paces = [stack.enter_context(indexer.building()) for _ in range(builders)]
        machine.at_rest = lambda _: engine.push("requests", LITTLE)
        for pace in paces:
            engine.push("requests", LITTLE)
            machine.rested_s = 0.0
            pace.begin()
            machine.worked_s += STEP_S
            pace.rest()
            assert builders * STEP_S / (STEP_S + machine.rested_s) <= 1.01 * SHARE


@pytest.mark.parametrize("is_called_off", [False, True])
def test_a_run_that_two_want_to_build_is_built_once(tmp_path, is_called_off):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        last = engine.core.store.runs(1)[-1]
        made: list[Path] = []
        ended: list[str] = []
        advanced = threading.Event()

        class Heard(Progress):
            def advance(self, amount: int = 0) -> None:
                advanced.set()
                super().advance(amount)

        progress = Heard("an index", "rows")

        def build_it_too() -> None:
            try:
                engine.indexer.build(last, "client", progress)
            except Cancelled:
                ended.append("called off")

        other = threading.Thread(target=build_it_too)

        def at_file(path: Path) -> None:
            if not path.name.startswith("index-"):
                return
            made.append(path)
            if len(made) == 1:  # of the newest run, by the worker
                other.start()
                advanced.wait()
                if is_called_off:
                    progress.cancel()
                    other.join()

        machine.at_file = at_file
        catch_up(engine)
        other.join()
        assert_tidy(engine)
        assert len(made) == RUNS
        assert ended == (["called off"] if is_called_off else [])


def looked_at(engine: Engine) -> tuple:
    """Of the index of hits: runs that have it, runs, is it being made; and whether it is used."""
    rows = engine.execute("SHOW INDEXES").rows()
    found = [tuple(row.values())[2:] for row in rows if row["column"] == "hits"]
    return (*found, "index on hits" in engine.execute(f"{QUESTION} hits = 123456").sources)


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["whole", "cancelled"])
def test_an_index_that_is_being_made_is_said_to_be_and_not_used(tmp_path, ends):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        catch_up(engine)
        looks: list[tuple] = []
        begun: list[Progress] = []

        def at_file(path: Path) -> None:
            if path.name.startswith("index-"):
                looks.append(looked_at(engine))
                if ends == "cancelled" and len(looks) == 3:
                    begun[0].cancel()

        machine.at_file = at_file
        if ends == "whole":
            engine.execute("CREATE INDEX ON requests (hits)", watch=begun.append)
            assert looked_at(engine) == ((RUNS, RUNS, False), True)
        else:
            with pytest.raises(Cancelled):
                engine.execute("CREATE INDEX ON requests (hits)", watch=begun.append)
            assert looked_at(engine) == (False,)
        assert looks == [((number, RUNS, True), False) for number in range(len(looks))]
        assert_tidy(engine)


@pytest.mark.slow
def test_of_two_that_make_the_same_index_one_may_be_called_off(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        catch_up(engine)
        begun: list[Progress] = []
        made: list[str] = []
        said: list[str] = []

        def make(progress: Callable[[Progress], None]) -> None:
            try:
                made.append(
                    engine.execute("CREATE INDEX ON requests (hits)", watch=progress).rows()[0]
                )
            except Cancelled as error:
                said.append(str(error))

        def at_file(path: Path) -> None:
            if path.name.startswith("index-") and not said:
                machine.at_file = lambda _: None
                first = begun[0]
                make(lambda progress: (begun.append(progress), progress.cancel()))
                assert begun[0] is first

        machine.at_file = at_file
        make(begun.append)
        assert len(said) == len(made) == 1
        assert looked_at(engine) == ((RUNS, RUNS, False), True)
        assert_tidy(engine)


def test_a_stream_that_is_dropped_while_an_index_is_made_has_none(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        catch_up(engine)

        def at_file(path: Path) -> None:
            if path.name.startswith("index-"):
                machine.at_file = lambda _: None
                engine.execute("DROP STREAM requests")

        machine.at_file = at_file
        with pytest.raises(UnknownStream):
            engine.execute("CREATE INDEX ON requests (hits)")
        assert_tidy(engine)


@pytest.mark.slow
def test_runs_that_come_while_an_index_is_made_get_theirs(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        catch_up(engine)

        def at_file(path: Path) -> None:
            if path.name.startswith("index-"):
                machine.at_file = lambda _: None
                engine.push("requests", LITTLE)
                engine.seal("requests")

        machine.at_file = at_file
        engine.execute("CREATE INDEX ON requests (hits)")
        settle(engine, INDEXES)
        assert engine.core.store.indexes.unindexed(1) == []
        assert looked_at(engine) == ((RUNS + 1, RUNS + 1, False), True)


def test_a_quiet_moment_later_they_take_it_all(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        machine.worked_s = machine.rested_s = 0.0
        catch_up(engine)
        assert_tidy(engine)
        assert machine.rested_s <= QUIET_S + LOOK_S  # The last writes are a moment ago.


@pytest.mark.slow
def test_the_newest_runs_come_first_and_answers_are_right_meanwhile(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        store = engine.core.store
        positions = [run.first_position for run in store.runs(1)]
        seen: list[int] = []

        def at_rest(_: int) -> None:
            engine.push("requests", LITTLE)
            missing = [run.first_position for run, _ in store.indexes.unindexed(1)]
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
            if len(engine.core.store.indexes.unindexed(1)) == 2:
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
    store.retention.apply(1, store.runs(1)[-1].high_us)


def lay_out_anew(engine: Engine) -> None:
    engine.execute("ALTER STREAM requests SET ARCHIVE plain")
    settle(engine, REWRITES)
    assert all(not run.is_dealt for run in engine.core.store.runs(1))


def purge(engine: Engine) -> None:
    engine.execute("DELETE FROM requests WHERE client = 17 OR hits > 20")
    engine.files.purge("requests")


def lose_a_file(engine: Engine) -> None:
    store = engine.core.store
    (store.directory / "runs" / store.indexes.unindexed(1)[0][0].file).unlink()
    engine.execute("SCRUB")


@pytest.mark.slow
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
            assert store.indexes.unindexed(1) == []
            assert not engine.execute(QUESTION + WHERES[0]).complete
            return
        assert_tidy(engine)
        if store.streams():
            assert_index_changes_nothing(engine)


@pytest.mark.slow
def test_a_backup_in_the_middle_is_whole_and_its_indexes_come_by_themselves(tmp_path):
    machine = Paced()
    with filled(tmp_path / "data", machine) as engine:
        due = writing(engine, machine, 20, lambda engine: engine.backup(tmp_path / "copy"))
        catch_up(engine)
        assert machine.rests >= due
        expected = answers(engine)
    with Engine.open(tmp_path / "copy", machine=Supervised()) as copy:
        assert answers(copy) == expected
        settle(copy, INDEXES)
        assert copy.core.store.indexes.unindexed(1) == []
        assert answers(copy) == expected


def takes_work(engine: Engine) -> bool:
    """Return whether the engine still accepts long work."""
    try:
        with engine.tasks.running(Progress("a look", "rows")):
            return True
    except Draining:
        return False


@pytest.mark.slow
def test_closing_ends_it_and_the_next_start_goes_on(tmp_path):
    machine = Paced()
    engine = filled(tmp_path, machine)
    expected = answers(engine)
    closer = threading.Thread(target=engine.close)

    def at_rest(_: int) -> None:
        machine.at_rest = lambda _: None
        closer.start()
        while takes_work(engine):
            os.sched_yield()

    machine.at_rest = at_rest
    catch_up(engine)
    closer.join()
    assert len(list((tmp_path / "indexes").rglob("*.index"))) < RUNS
    assert list((tmp_path / "tmp").iterdir()) == []
    with Engine.open(tmp_path, machine=Supervised()) as again:
        settle(again, INDEXES)
        assert_tidy(again)
        assert answers(again) == expected


def test_who_sends_and_examines_a_backfilled_part_is_given_way(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        indexer = engine.indexer
        shares: dict[str, set[float]] = {"create": set(), "read": set()}

        sender = threading.current_thread()

        def at_file(path: Path) -> None:
            if threading.current_thread() is not sender:  # The thread that opens new runs ahead.
                return
            machine.rested_s += 2 * QUIET_S  # Longer than it takes to be forgotten.
            shares["read" if path.exists() else "create"].add(indexer.share())

        machine.rested_s += 2 * QUIET_S
        indexer.share()  # The indexer notices the last push.
        machine.rested_s += 2 * QUIET_S
        assert indexer.share() == 1.0
        state = engine.backfills.begin_backfill("requests", "old", "a plan", 1)
        machine.at_file = at_file
        send_part(engine.backfills, state, "old", 0, requests(500, 1), watermark_us=None)
        machine.at_file = lambda _: None
        assert shares == {"create": {SHARE}, "read": {SHARE}}
        assert indexer.share() == SHARE
        machine.rested_s += 2 * QUIET_S
        assert indexer.share() == 1.0
