"""The time of day jumps back, and forward again: nothing is lost, nothing goes before its time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.archive.operations.verify import check
from shedder.engine.engine import Engine
from shedder.engine.maintenance.run_rewriter import due_for_purge
from tests.engine.machines import ByHand

HOUR_US = 3_600_000_000
START_US = 472_222 * HOUR_US
HOURS, KEPT, EACH = 24, 16, 60
SETTINGS = {"purge_after_s": 3_600.0, "scrub_days": 0.25}
CREATE = (
    "CREATE STREAM s (ts TIMESTAMP NOT NULL, hour BIGINT NOT NULL) TIMESTAMP BY ts "
    f"LATENESS INTERVAL '0' SECOND RETAIN INTERVAL '{KEPT}' HOUR ARCHIVE lazy"
)
COUNTED = "SELECT hour, COUNT(*) AS n FROM s GROUP BY hour ORDER BY hour"
STANDING = "SELECT COUNT(*) AS n, MAX(hour) AS hour FROM s [RANGE INTERVAL '1' HOUR]"


class World:
    """A day in a stream's life, hour by hour, by a clock that is set by hand."""

    def __init__(self, directory) -> None:
        self.directory, self.hour, self.wrong_us = directory, 0, 0
        self.answered: list[tuple[int, int]] = []
        self.open()
        self.db.execute(CREATE)
        self.db.register("busy", STANDING)

    def open(self) -> None:
        self.db = Engine.open(self.directory, machine=ByHand(self.now_us), **SETTINGS)

    def now_us(self) -> int:
        return START_US + (self.hour + 1) * HOUR_US + self.wrong_us

    def push(self) -> None:
        """The tuples of an hour, spread over it."""
        times = START_US + self.hour * HOUR_US + np.arange(EACH) * (HOUR_US // EACH)
        hours = np.full(EACH, self.hour)
        self.db.push("s", pa.table({"ts": pa.array(times, pa.timestamp("us")), "hour": hours}))

    def work(self) -> None:
        """What an hour has besides: runs, deletions, the vacuum, purges, scrubs, a restart."""
        store = self.db.core.store
        if self.hour % 2:
            self.db.seal("s")  # A run is committed, and compartments that are too old are dropped.
            self.db.core.executor.call(self.db.checkpoints.tidy).result()
        if self.hour % 5 == 1:
            self.db.execute(f"DELETE FROM s WHERE hour = {self.hour - 1}")
        if self.hour % 3 == 0:
            self.db.execute(f"{COUNTED} REDUCE BY uniform(0.5)")
            for run in store.layouts.waste(1):
                store.layouts.vacuum(run)
        for run in due_for_purge(self.db.core, 1):
            store.purger.purge(run)
        self.db.housekeeping.tick()
        if self.hour % 7 == 6:
            self.db.close()
            self.open()

    def counted(self) -> dict[int, int]:
        return {row["hour"]: row["n"] for row in self.db.execute(COUNTED).rows()}

    def deleted(self) -> set[int]:
        return {hour - 1 for hour in range(self.hour + 1) if hour % 5 == 1}

    def day(self, at: int, back_us: int, hours: int) -> dict[str, object]:
        """Live through it; the clock is wrong by so much for some hours from one on."""
        for self.hour in range(HOURS):
            self.wrong_us = -back_us if at <= self.hour < at + hours else 0
            self.push()
            self.work()
            if self.hour % 3 and self.hour < HOURS - 1:  # Asking takes longest.
                continue
            found = self.counted()
            kept = range(max(0, self.hour - KEPT + 2), self.hour + 1)
            assert set(found) >= set(kept) - self.deleted(), (self.hour, found)
            assert set(found.values()) <= {EACH}
            assert not set(found) & self.deleted()
        assert min(found) >= HOURS - KEPT - 3  # What is too old has gone, by whole runs.
        (stream,) = self.db.execute("SHOW STREAMS").rows()
        return {
            "counted": {hour: n for hour, n in found.items() if hour in kept},
            "watermark": stream["watermark"],
            "busy": self.db.query("busy").answer().rows(),
            "to purge": due_for_purge(self.db.core, 1),
            "ledger": self.db.ledger("s").accepted,
        }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return lived(tmp_path_factory.mktemp("clock"), 0, 0, 0)


def lived(directory, at: int, back_us: int, hours: int) -> dict[str, object]:
    world = World(directory)
    try:
        return world.day(at, back_us, hours)
    finally:
        world.db.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "hours", "back_us"),
    [(5, 4, 2 * HOUR_US), (5, 4, 9_000 * HOUR_US), (17, 5, 9_000 * HOUR_US)],
    ids=["by hours", "by a year", "by a year, when much is due"],
)
def test_a_clock_that_jumps_back_loses_nothing_and_drops_nothing_early(
    tmp_path, undisturbed, at, hours, back_us
):
    found = lived(tmp_path, at, back_us, hours)
    assert found == undisturbed
    assert check(tmp_path).ok
