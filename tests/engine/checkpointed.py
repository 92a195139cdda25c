"""An engine that makes checkpoints only when a test asks for one."""

from __future__ import annotations

from pathlib import Path

from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from tests.archive.power import PowerFiles
from tests.engine.catalogs import reachable


def opened(directory: Path, files: PowerFiles | None = None) -> Engine:
    """Open an engine with small log segments and an accessible catalog."""
    with reachable():
        return Engine.open(
            directory,
            machine=Environment(files=files),
            checkpoint_seconds=1e6,
            allocation_seconds=1e6,
            log_segment_bytes=1 << 16,
            audit="off",
        )


def checkpoint(db: Engine) -> None:
    """Write a checkpoint now, even if no record was applied since the last checkpoint."""
    db.core.executor.call(lambda: db.checkpoints.now(also=lambda: None)).result()
