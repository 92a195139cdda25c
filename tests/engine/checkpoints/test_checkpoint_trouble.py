"""Checkpoints that fail: nothing is lost, nothing halts, nothing is half there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shedder.engine.engine import Engine
from shedder.errors import DiskFull, ShedderError, UnknownQuery
from tests.engine.catalogs import connection_of, full_catalog, reachable
from tests.engine.killed import copy_killed
from tests.engine.world import CREATE, requests

SLIDING = "[RANGE INTERVAL '60' SECOND SLIDE INTERVAL '20' SECOND]"
SELECT = f"SELECT COUNT(*) AS n, COUNT(DISTINCT client) AS c FROM requests {SLIDING}"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with reachable(), Engine.open(tmp_path / "data", checkpoint_seconds=1e6) as engine:
        engine.execute(CREATE)
        yield engine


def checkpoint(db: Engine) -> None:
    db.core.executor.call(db.checkpoints.now).result()


def test_panes_of_a_failed_checkpoint_are_in_the_next_one(db: Engine, tmp_path: Path) -> None:
    query = db.register("n", SELECT)
    table = requests(5_000, seed=1)
    db.push("requests", table)
    with full_catalog(db), pytest.raises(DiskFull):
        checkpoint(db)
    answer = query.answer(after=db.push("requests", table.slice(0, 0)))
    assert answer.rows()[0]["n"] > 0
    checkpoint(db)
    copy_killed(db, tmp_path / "copy")
    with Engine.open(tmp_path / "copy") as again:
        assert again.query("n").answer().rows() == answer.rows()


def test_a_sample_is_stored_again_only_when_tuples_have_come(db: Engine, tmp_path: Path) -> None:
    stream = db.core.stream("requests")
    table = requests(15_000, seed=1)  # The last part exceeds the pages that the others free.

    def stored() -> bytes:
        return db.core.store.catalog.checkpoint_parts()[f"sample/{stream.id}"]

    db.push("requests", table.slice(0, 3_000))
    assert not stream.sample_is_stored
    checkpoint(db)
    assert stream.sample_is_stored
    first = stored()
    db.register("n", SELECT)  # Draws a sharper sample, and stores that beside the checkpoint.
    sharper = stream.sample.to_bytes()
    key = f"joined_sample/{stream.id}"
    assert db.core.store.catalog.checkpoint_parts()[key].endswith(sharper)
    assert stored() == first != sharper
    db.register("m", SELECT)
    checkpoint(db)
    assert stored() == sharper
    db.register("o", SELECT)
    checkpoint(db)
    assert key not in db.core.store.catalog.checkpoint_parts()
    db.push("requests", table.slice(3_000))
    with full_catalog(db), pytest.raises(DiskFull):
        checkpoint(db)
    assert not stream.sample_is_stored
    checkpoint(db)
    assert stream.sample_is_stored
    assert stored() == stream.sample.to_bytes()
    db.query("n").drop()
    db.register("n", SELECT)
    copy_killed(db, tmp_path / "copy")
    with Engine.open(tmp_path / "copy") as again:
        assert again.core.stream("requests").sample.to_bytes() == stream.sample.to_bytes()


@pytest.mark.slow
def test_a_checkpoint_that_fails_when_it_is_due_does_not_halt_the_engine(tmp_path: Path) -> None:
    table = requests(5_000, seed=2)
    with reachable(), Engine.open(tmp_path / "data", checkpoint_seconds=0.001) as db:
        db.execute(CREATE)
        query = db.register("n", SELECT)
        with full_catalog(db):
            for first in range(0, 5_000, 500):
                receipt = db.push("requests", table.slice(first, 500))
            answer = query.answer(after=receipt)
        assert db.ledger("requests").applied == 5_000
    with Engine.open(tmp_path / "data") as again:
        assert again.query("n").answer().rows() == answer.rows()


def test_a_query_that_cannot_be_listed_does_not_stand(db: Engine) -> None:
    db.push("requests", requests(5_000, seed=3))
    with full_catalog(db), pytest.raises(DiskFull):
        db.register("n", SELECT)
    with pytest.raises(UnknownQuery):
        db.query("n")
    assert db.register("n", SELECT).answer().rows()[0]["n"] > 0


def test_what_cannot_be_dropped_durably_stays(db: Engine) -> None:
    db.push("requests", requests(100, seed=4))
    query = db.register("n", SELECT)
    connection = connection_of(db)
    connection.execute("PRAGMA query_only = 1")
    with pytest.raises(ShedderError, match="read"):
        db.execute("DROP QUERY n")
    connection.execute("PRAGMA query_only = 0")
    assert query.answer().window is not None
    db.execute("DROP QUERY n")
    with pytest.raises(UnknownQuery):
        query.answer()


@pytest.mark.parametrize(("log_bytes", "comes"), [(1 << 20, True), (64 << 20, False)])
def test_a_checkpoint_comes_when_the_log_has_grown(
    tmp_path: Path, log_bytes: int, comes: bool
) -> None:
    settings = {"checkpoint_seconds": 1e6, "checkpoint_log_bytes": log_bytes, "sample_rows": 64}
    with Engine.open(tmp_path / "data", **settings) as db:
        db.execute(CREATE)
        for seed in range(8):
            db.push("requests", requests(10_000, seed=seed))
        db.core.executor.call(db.checkpoints.settle).result()
        assert db.core.store.log.next_sequence > 4
        assert (db.core.store.catalog.checkpoint_sequence() > 0) == comes
