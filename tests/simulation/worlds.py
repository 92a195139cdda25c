"""Worlds for tests: small, and run where nothing lasts."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from shedder.simulation.result import Result
from shedder.simulation.scenario import Scenario
from shedder.simulation.verdict import FALSE_ALARM
from shedder.simulation.world import World

MEMORY = Path("/dev/shm")  # A tmpfs, where there is one: nothing of a world is to last.

QUERY = (
    "SELECT COUNT(*) AS n, SUM(value) AS total, QUANTILE(value, 0.5) AS middle FROM requests "
    "[RANGE INTERVAL '1' SECOND SLIDE INTERVAL '1' SECOND] WITHIN 1 PERCENT"
)


def scenario(**changes: Any) -> Scenario:
    """A few thousand tuples in three seconds."""
    values: dict[str, Any] = {
        "title": "a test",
        "seconds": 3,
        "queries": [{"name": "q", "sql": QUERY}],
        "producers": [{"arrivals": {"rate": 2_000}}],
        "machine": {"sample_rows": 64},
        "stream": {"lateness_s": 0.1, "keys": 50},
    }
    return Scenario.of(values | changes)


def run(
    scenario: Scenario, *, keep_all: bool = True, alarm: float = FALSE_ALARM
) -> tuple[World, Result]:
    """A world that has ended, and what came out."""
    directory = tempfile.mkdtemp(prefix="shedder-world-", dir=MEMORY if MEMORY.is_dir() else None)
    try:
        world = World(scenario, Path(directory), keep_all=keep_all, alarm=alarm)
        world.run()
        return world, Result.of(world)
    finally:
        shutil.rmtree(directory)
