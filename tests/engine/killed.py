"""Copies of the directory of an open engine, as a kill of its process would leave it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from shedder.archive.files.durable_marks import FILE_NAME
from shedder.engine.engine import Engine


def copy_killed(db: Engine, to: Path) -> Path:
    """Copy an open data directory in a state that a kill can leave; return the copy.

    The engine's own threads may commit at any time, the more so on a loaded machine. No commit of
    the catalog falls into the copy, and no file is deleted meanwhile. The marks are read first, so
    that they are not ahead of the log. A run that is written meanwhile is not in the catalog of
    the copy: its unfinished file is left out, because it may be renamed under the copy.
    """
    store = db.core.store
    marks = (store.directory / FILE_NAME).read_bytes()
    with store.kept(), store.catalog.turn():
        shutil.copytree(store.directory, to, ignore=_unfinished(store.directory / "tmp"))
    (to / FILE_NAME).write_bytes(marks)
    return to


def _unfinished(temporary: Path) -> Callable[[str, list[str]], list[str]]:
    """Return what leaves the files of a directory out of a copy."""
    return lambda folder, names: names if Path(folder) == temporary else []
