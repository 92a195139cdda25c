"""Each pass of the worker that builds indexes gets somewhere, and does nothing in vain."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from shedder.archive.indexes.value_index import index_name
from tests.engine.hooked import WithHook
from tests.engine.indexing import LITTLE, RUNS, Paced, assert_tidy, catch_up, filled, index_files
from tests.engine.supervised import INDEXES, settle

CLIENT_INDEX = index_name("", "client")


@pytest.mark.parametrize("newest", ["whole", "lost"])
def test_each_pass_builds_one_though_it_is_asked_again_in_each(tmp_path, newest):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        store = engine.core.store
        if newest == "lost":
            (store.directory / "runs" / store.runs(1)[-1].file).unlink()
        missing: list[int] = []

        def at_look(_: Path) -> None:
            missing.append(len(store.indexes.unindexed(1)))
            if len(missing) < 3 * RUNS:
                engine.indexer.catch_up()

        machine.at_look = at_look
        engine.indexer.catch_up()
        while len(missing) < 3 * RUNS:
            settle(engine, INDEXES)
        lost = 0 if newest == "whole" else 1  # In quarantine by the first pass, which goes on.
        after = [max(RUNS - lost - n, 0) for n in range(1, RUNS + 1)]
        assert missing[: RUNS + 1] == [RUNS, *after]


def test_streams_without_an_index_are_not_looked_at(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        engine.execute("CREATE STREAM others (ts TIMESTAMP NOT NULL) TIMESTAMP BY ts")
        looks: set[str] = set()
        machine.at_look = lambda path: looks.add(path.name)
        catch_up(engine)
        assert looks == {"1"}


@pytest.mark.slow
def test_what_is_built_meanwhile_is_not_built_again(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        written: list[str] = []

        def at_file(path: Path) -> None:
            if path.name.startswith("index-"):
                written.append(path.name)
                if len(written) == 1:  # While CREATE INDEX builds its first.
                    engine.indexer.catch_up()

        machine.at_file = at_file
        engine.execute("CREATE INDEX ON requests (hits)")
        settle(engine, INDEXES)
        (row,) = (row for row in engine.execute("SHOW INDEXES").rows() if row["column"] == "hits")
        assert (row["runs_indexed"], row["runs"]) == (RUNS, RUNS)
        of_hits = [name for name in written if not name.endswith(CLIENT_INDEX)]
        assert len(of_hits) == RUNS
        assert_tidy(engine)


@pytest.mark.slow
def test_a_full_disk_ends_it_at_the_first_file_until_the_next_run(tmp_path):
    machine = Paced()
    with filled(tmp_path, machine) as engine:
        tried: list[str] = []

        def at_file(path: Path) -> None:
            if path.name.startswith("index-"):
                tried.append(path.name)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        machine.at_file = at_file
        catch_up(engine)
        assert len(tried) == 1
        assert index_files(engine) == set()
        machine.at_file = lambda _: None
        engine.push("requests", LITTLE)
        engine.seal("requests")
        settle(engine, INDEXES)
        assert_tidy(engine)


def test_who_asks_while_it_is_closed_is_not_told(tmp_path):
    machine = WithHook()
    with filled(tmp_path, machine) as engine:
        indexer = engine.indexer
        machine.hooked.happen = indexer.close
        indexer.catch_up()
        assert len(engine.core.store.indexes.unindexed(1)) == RUNS
