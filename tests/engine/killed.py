"""Copies of the directory of an open engine, as a kill of its process would leave it."""

from __future__ import annotations

import shutil
from pathlib import Path

from shedder.archive.files.durable_marks import FILE_NAME
from shedder.engine.engine import Engine


def copy_killed(db: Engine, to: Path) -> Path:
    """Copy an open data directory in a state that a kill can leave; return the copy.

    The engine's own threads may commit at any time, the more so on a loaded machine. No commit of
    the catalog falls into the copy, and no file is deleted meanwhile. The marks are read first, so
    that they are not ahead of the log. The caller sees to it that no run is written meanwhile.
    """
    store = db.core.store
    marks = (store.directory / FILE_NAME).read_bytes()
    with store.kept(), store.catalog.turn():
        shutil.copytree(store.directory, to)
    (to / FILE_NAME).write_bytes(marks)
    return to
