"""How often everything is shared out anew: every five seconds at most, and only if things drift."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.simulation.virtual_environment import VirtualEnvironment
from shedder.streams.batches import encode

SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
STEP_US = SECOND_US // 2
CREATE = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts"
WINDOW = "[RANGE INTERVAL '10' SECOND SLIDE INTERVAL '1' SECOND]"
QUERIES = {
    "sums": f"SELECT k, SUM(v) AS t FROM s {WINDOW} GROUP BY k",
    "values": f"SELECT COUNT(DISTINCT k) AS d FROM s {WINDOW} WITHIN 2 PERCENT",
}


class World:
    """An engine in virtual time, and when it shared everything out anew."""

    def __init__(self, directory: Path) -> None:
        self.machine = VirtualEnvironment(1, START_US)
        self.db = Engine.open(
            directory, machine=self.machine, allocation_seconds=5.0, checkpoint_seconds=1e9
        )
        self.db.execute(CREATE)
        for name, text in QUERIES.items():
            self.db.register(name, text)
        self.solved_s: list[float] = []

    def live(self, seconds: int, groups_at_first: float, times: float) -> None:
        """Let time pass in which so many times as many groups come each second."""
        last = self.db.sharing.last
        for step in range(2 * seconds):
            self.machine.time_us += STEP_US
            groups = round(groups_at_first * times ** (step / 2))
            self.db.append("s", self._batch(groups), producer="p", epoch=0, sequence=None)
            self.machine.settle()
            self.machine.applier.step()  # What there is to do when idle.
            self.machine.settle()
            if self.db.sharing.last is not last:
                last = self.db.sharing.last
                self.solved_s.append((self.machine.time_us - START_US) / SECOND_US)

    def _batch(self, groups: int) -> bytes:
        times = self.machine.time_us - STEP_US + np.arange(groups) * STEP_US // groups
        return encode(
            pa.record_batch(
                {
                    "ts": pa.array(times, pa.timestamp("us")),
                    "k": pa.array(np.arange(groups)),
                    "v": pa.array(np.ones(groups)),
                }
            )
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.machine.settle()
    world.db.close()


@pytest.mark.slow
def test_however_fast_a_stream_drifts_it_is_solved_every_five_seconds_at_most(
    world: World,
) -> None:
    world.live(30, 20, 1.25)
    assert len(world.solved_s) >= 5
    assert (np.diff(world.solved_s) >= 5.0).all()


@pytest.mark.slow
def test_nothing_is_solved_while_nothing_drifts_and_soon_after_it_does(world: World) -> None:
    world.live(30, 400, 1.0)
    world.solved_s.clear()
    world.live(30, 400, 1.0)
    assert world.solved_s == []
    world.live(11, 4_000, 1.0)  # Ten times the groups.
    assert 1 <= len(world.solved_s) <= 3
    assert world.solved_s[0] <= 60 + 5.5
