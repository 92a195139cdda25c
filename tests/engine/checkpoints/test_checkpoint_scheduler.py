"""Checkpoints that are made little by little: a crash at any moment loses nothing of them."""

from __future__ import annotations

import datetime
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.engine import Engine
from shedder.simulation.virtual_environment import VirtualEnvironment
from shedder.streams.batches import arrow_schema, encode
from tests.engine.catalogs import full_catalog, reachable

START_US = int(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()) * 1_000_000
SECOND = 1_000_000
SLIDING = "[RANGE INTERVAL '4' SECOND SLIDE INTERVAL '1' SECOND]"
QUERIES = {
    "distinct": f"SELECT COUNT(*) AS n, COUNT(DISTINCT k) AS d FROM s {SLIDING}",
    "groups": f"SELECT k, COUNT(*) AS n, SUM(v) AS v FROM s {SLIDING} GROUP BY k",
    "old": (
        "SELECT COUNT(*) AS n, QUANTILE(v, 0.5) AS m FROM s "
        "[RANGE INTERVAL '16' SECOND SLIDE INTERVAL '1' SECOND COLLAPSE BY 2 AFTER 4]"
    ),
    "ever": "SELECT COUNT(*) AS n, SUM(v) AS v FROM s [RANGE UNBOUNDED]",
}
LARGE = "SELECT {} FROM s {} WITHIN 0.4 PERCENT".format(  # Each synopsis has 256 KiB.
    ", ".join(f"COUNT(DISTINCT v + {number}) AS d{number}" for number in range(8)),
    SLIDING.replace("'4'", "'16'"),
)
EVERY_S = 6.0


class Slow(VirtualEnvironment):
    """A machine whose CPU clock runs fast: every look finds that much CPU was used."""

    looks = 0

    def cpu_ns(self) -> int:
        self.looks += 1
        return self.looks * 3_000_000


class World:
    """A stream whose groups come and go, with a batch of `rows` rows every second."""

    def __init__(self, directory: Path, rows: int = 300, **settings: Any) -> None:
        self.rows = rows
        self.directory = directory
        self.machine = Slow(1, START_US)
        with reachable():
            self.engine = Engine.open(
                directory,
                machine=self.machine,
                checkpoint_seconds=EVERY_S,
                allocation_seconds=1e6,
                **settings,
            )
        self.engine.execute(
            "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts "
            "LATENESS INTERVAL '0' SECOND"
        )
        for name, text in QUERIES.items():
            self.engine.register(name, text)
        self.second = 0

    @property
    def sequence(self) -> int:
        """Of the newest checkpoint that was written."""
        return self.engine.core.store.catalog.checkpoint_sequence()

    @property
    def begun(self) -> bool:
        """Whether there is one that was not written yet."""
        return self.waiting_panes is not None

    @property
    def waiting_panes(self) -> int | None:
        """Closed panes of the checkpoint that has begun, without bytes; None: none has begun."""
        rows = self.engine.control("checkpoint").to_pylist()
        (waiting,) = (row["value"] for row in rows if row["key"] == "waiting_panes")
        return int(waiting) if waiting else None

    def push(self) -> None:
        """A second: durable, applied, and what is done beside."""
        at_us = START_US + self.second * SECOND
        self.machine.time_us = max(self.machine.time_us, at_us)
        rng = np.random.default_rng(self.second)
        rows = self.rows
        columns = {
            "ts": pa.array(np.sort(rng.integers(at_us, at_us + SECOND, rows)), pa.timestamp("us")),
            "k": pa.array(rng.integers(0, 40, rows) + 25 * self.second),
            "v": pa.array(rng.lognormal(0, 1, rows)),
        }
        schema = arrow_schema(self.engine.schema("s"))
        batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
        self.engine.append("s", encode(batch), producer="p", epoch=0, sequence=None)
        self.machine.settle()
        self.second += 1

    def until_begun(self) -> None:
        """Until a checkpoint has begun, and panes of it wait."""
        while not self.begun:
            self.push()

    def recovered(self, to: Path) -> dict[str, object]:
        """What an engine answers that begins with what is on disk now."""
        shutil.copytree(self.directory, to)
        machine = VirtualEnvironment(2, self.machine.time_us)
        with Engine.open(to, machine=machine, checkpoint_seconds=1e6) as again:
            return state_of(again)


def facts_of(engine: Engine, query: str) -> dict[str, str]:
    return {row["key"]: row["value"] for row in engine.control("query", query).to_pylist()}


def state_of(engine: Engine) -> dict[str, object]:
    names = [name for stream in engine.core.streams.values() for name in stream.queries]
    answers = {name: engine.query(name).answer() for name in names}
    return {
        name: (each.start_us, each.end_us, sorted(map(str, each.rows())))
        for name, each in answers.items()
    }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "data")
    yield made
    made.engine.close()


@pytest.mark.slow
def test_a_crash_at_any_moment_of_a_checkpoint_recovers_what_was_durable(
    world: World, tmp_path: Path
) -> None:
    begun, sequences = set(), set()
    while len(sequences) < 3:
        world.push()
        begun.add(world.begun)
        sequences.add(world.sequence)
        if world.second % 2:
            recovered = world.recovered(tmp_path / str(world.second))
            assert recovered == state_of(world.engine), world.second
    assert begun == {True, False}


@pytest.mark.slow
def test_after_each_group_a_few_panes_are_made_bytes_and_the_rest_waits(world: World) -> None:
    world.until_begun()
    begun_at = world.engine.core.applied_sequence
    before, waited = world.sequence, []
    while (waiting := world.waiting_panes) is not None:
        waited.append(waiting)
        assert world.sequence == before
        world.push()
    assert waited[0] > 10
    assert all(0 <= was - now <= 8 for was, now in itertools.pairwise(waited))
    assert world.sequence == begun_at


@pytest.mark.slow
def test_panes_of_a_checkpoint_that_fails_later_are_in_the_next_one(
    world: World, tmp_path: Path
) -> None:
    world.until_begun()
    before = world.sequence
    with full_catalog(world.engine):
        while world.begun:
            world.push()
    assert world.sequence == before
    assert world.recovered(tmp_path / "failed") == state_of(world.engine)
    world.engine.core.executor.call(world.engine.checkpoints.now).result()
    assert world.sequence > before
    assert world.recovered(tmp_path / "stored") == state_of(world.engine)


@pytest.mark.slow
def test_what_is_too_large_to_be_held_is_written_at_once(tmp_path: Path) -> None:
    world = World(tmp_path / "data", 30_000, memory_bytes=256 << 20)  # A 32nd of that is 8 MiB.
    world.engine.register("large", LARGE)
    while not world.sequence:
        assert not world.begun
        world.push()
    assert world.sequence == world.engine.core.applied_sequence
    assert int(facts_of(world.engine, "large")["size_bytes"]) > 8 << 20
    assert world.recovered(tmp_path / "copy") == state_of(world.engine)
    world.engine.close()


@pytest.mark.slow
def test_a_query_that_is_dropped_while_its_panes_wait_leaves_none_to_another_of_its_name(
    world: World, tmp_path: Path
) -> None:
    world.until_begun()
    before = world.sequence
    world.engine.query("distinct").drop()
    assert world.begun
    assert world.sequence == before
    world.engine.register("distinct", QUERIES["distinct"].replace("DISTINCT k", "DISTINCT k + 1"))
    assert not world.begun
    assert world.sequence > before
    world.push()
    assert world.recovered(tmp_path / "again") == state_of(world.engine)
    catalog = world.engine.core.store.catalog
    world.engine.query("distinct").drop()
    assert world.recovered(tmp_path / "dropped") == state_of(world.engine)
    world.engine.checkpoints.tidy()
    assert catalog.panes("distinct", -(1 << 62), 1 << 62) == []


@pytest.mark.slow
def test_who_closes_does_not_leave_a_checkpoint_half_made(tmp_path: Path) -> None:
    world = World(tmp_path / "data")
    world.until_begun()
    expected = state_of(world.engine)
    sequence = world.engine.core.applied_sequence
    world.engine.close()
    with Engine.open(tmp_path / "data", machine=VirtualEnvironment(2, START_US)) as again:
        assert again.core.store.catalog.checkpoint_sequence() == sequence
        assert state_of(again) == expected


@pytest.mark.slow
@pytest.mark.parametrize("end", [Checkpoints.settle, Checkpoints.end_begun])
def test_the_time_since_a_checkpoint_has_begun_is_not_the_time_to_write_one(
    world: World, end: Callable[[Checkpoints], None]
) -> None:
    world.until_begun()
    world.machine.time_us += 60 * SECOND
    end(world.engine.checkpoints)
    assert not world.begun
    world.push()
    world.engine.close(within_s=10.0)
    with Engine.open(world.directory, machine=VirtualEnvironment(2, START_US)) as again:
        catalog = again.core.store.catalog
        assert catalog.checkpoint_sequence() == world.engine.core.applied_sequence
