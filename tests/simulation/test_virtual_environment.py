"""An engine on a virtual machine: no thread, no clock, and the answers of any other engine."""

from __future__ import annotations

import errno
import threading

import pyarrow as pa
import pytest

from shedder.archive.log.log import Log
from shedder.engine.apply.level_records import submit_levels
from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from shedder.errors import DiskFull, InternalError, StorageFailed
from shedder.simulation.virtual_environment import (
    SteppedExecutor,
    SteppedThread,
    VirtualEnvironment,
)
from shedder.streams.batches import encode
from tests.archive.power import PowerFiles
from tests.engine.world import CREATE, SECOND, START_US, requests

QUERY = (
    "SELECT domain, COUNT(*) AS n, SUM(hits) AS hits, COUNT(DISTINCT client) AS clients "
    "FROM requests [RANGE INTERVAL '20' SECOND SLIDE INTERVAL '10' SECOND] GROUP BY domain"
)


def virtual(tmp_path, seed=1, **overrides) -> tuple[Engine, VirtualEnvironment]:
    machine = VirtualEnvironment(seed, START_US)
    return Engine.open(tmp_path / "virtual", machine=machine, **overrides), machine


def append(engine: Engine, table: pa.Table, rows: int) -> list:
    futures = []
    for batch in table.combine_chunks().to_batches(max_chunksize=rows):
        payload = encode(batch)
        futures.append(engine.append("requests", payload, producer="p", epoch=0, sequence=None))
    return futures


def test_no_thread_is_started(tmp_path):
    before = set(threading.enumerate())
    engine, machine = virtual(tmp_path)
    engine.execute(CREATE)
    engine.register("q", QUERY)
    append(engine, requests(500, seed=1), 100)
    machine.settle()
    assert set(threading.enumerate()) == before
    engine.close()


def test_nothing_happens_until_the_world_says_so(tmp_path):
    engine, machine = virtual(tmp_path)
    engine.execute(CREATE)
    futures = append(engine, requests(500, seed=1), 100)
    assert not any(future.done() for future in futures)
    machine.log.commit(machine.log.gather())
    assert all(future.done() for future in futures)
    assert engine.core.streams["requests"].applied == 0
    machine.applier.step()
    assert engine.core.streams["requests"].applied == 500
    engine.close()


@pytest.mark.slow
def test_the_answers_are_those_of_an_engine_with_threads(tmp_path):
    table = requests(3_000, seed=2, seconds=60.0)
    answers = []
    for name, machine in (("virtual", VirtualEnvironment(1, START_US)), ("real", Environment())):
        with Engine.open(tmp_path / name, machine=machine, run_rows=700) as engine:
            engine.execute(CREATE)
            query = engine.register("q", QUERY)
            futures = append(engine, table, 100)
            if isinstance(machine, VirtualEnvironment):
                machine.settle()
            for future in futures:
                future.result()
            ledger = engine.ledger("requests")
            answers.append((query.answer().rows(), query.answer().end_us, ledger.applied))
    assert answers[0] == answers[1]
    assert answers[0][2] == 3_000


def test_runs_are_written_later_and_a_seal_waits_for_them(tmp_path):
    engine, machine = virtual(tmp_path, run_rows=100)
    engine.execute(CREATE)
    append(engine, requests(500, seed=1), 100)
    machine.log.commit(machine.log.gather())
    machine.applier.step()
    stream = engine.core.streams["requests"].id
    assert not engine.core.store.runs(stream)
    assert len(machine.later) > 0
    engine.seal("requests")
    assert sum(run.rows for run in engine.core.store.runs(stream)) == 500
    engine.close()


def test_levels_are_in_force_behind_what_was_logged_before_them(tmp_path):
    engine, machine = virtual(tmp_path)
    engine.execute(CREATE)
    engine.register("q", QUERY)
    _, standing_query = engine.core.standing_query("q")
    table = requests(1_000, seed=3, seconds=5.0)
    append(engine, table.slice(0, 500), 500)
    core = engine.core
    submit_levels(core, core.stream("requests"), "q", (2,) * len(standing_query.state.levels))
    append(engine, table.slice(500), 500)
    machine.settle()
    assert set(standing_query.state.levels) == {2}
    assert 0 < standing_query.state.thinned[0] < 500
    engine.close()


def test_a_writer_commits_what_waits_where_there_is_no_disk_thread(tmp_path):
    files, durable = PowerFiles(tmp_path / "log"), []
    machine = VirtualEnvironment(1, START_US)
    log = Log.open(tmp_path / "log", files=files)
    queue = machine.log_queue(1_000)
    commit = machine.group_commit(queue, log, durable.extend, lambda entries, error: None)
    first = queue.submit(1, [b"h", b"first"], "first")
    assert not first.done()
    assert queue.write(1, [b"h", b"second"], "second") == 1
    assert first.result(0) == 0
    files.fail_next("sync", errno.ENOSPC)
    with pytest.raises((DiskFull, StorageFailed)):
        queue.write(1, [b"h", b"third"], "third")
    assert [entry.token for entry in durable] == ["first", "second"]
    commit.close()
    log.close()


def test_an_executor_that_halts_says_so():
    executor = SteppedExecutor(lambda: None)
    thread = SteppedThread(executor, lambda: None)
    thread.start()
    executor.post(lambda: 1 / 0)
    assert thread.halted == ""
    assert thread.step() == 0.0
    assert "ZeroDivisionError" in thread.halted
    with pytest.raises(InternalError, match="ZeroDivisionError"):
        executor.post(lambda: None)


def test_seeds_give_the_randomness(tmp_path):
    first, second, other = (VirtualEnvironment(seed, 0) for seed in (1, 1, 2))
    assert first.random_bits(64) == second.random_bits(64) != other.random_bits(64)
    assert Environment().random_bits(64) != Environment().random_bits(64)


def test_virtual_clocks_stand_until_they_are_set():
    machine = VirtualEnvironment(1, 5 * SECOND)
    assert (machine.now_us(), machine.monotonic_s()) == (5 * SECOND, 5.0)
    machine.time_us += 250_000
    assert (machine.now_us(), machine.monotonic_s()) == (5_250_000, 5.25)
