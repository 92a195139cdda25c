"""SQLite connections of catalogs, with which a test fills the disk or acts at a COMMIT."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shedder.engine.engine import Engine


class Connection(sqlite3.Connection):
    """A connection to a catalog.

    before_commit, after_commit: called around each COMMIT, with the tables that its transaction
    has inserted into.
    """

    before_commit: Callable[[set[str]], object] = staticmethod(lambda _: None)
    after_commit: Callable[[set[str]], object] = staticmethod(lambda _: None)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._changed: set[str] = set()

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        words = sql.split()
        if "INTO" in words[:4]:
            self._changed.add(words[words.index("INTO") + 1].partition("(")[0])
        if words[0] != "COMMIT":
            return super().execute(sql, *args)
        changed, self._changed = self._changed, set()
        self.before_commit(changed)
        done = super().execute(sql, *args)
        self.after_commit(changed)
        return done


_OPEN: weakref.WeakValueDictionary[str, Connection] = weakref.WeakValueDictionary()


@contextmanager
def reachable() -> Iterator[None]:
    """Let `connection_of` reach the catalogs of engines that are opened within the block."""
    connect = sqlite3.connect

    def recorded(database: Any, *args: Any, **options: Any) -> sqlite3.Connection:
        made = connect(database, *args, **options, factory=Connection)
        assert isinstance(made, Connection)
        _OPEN[str(database)] = made
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", recorded)
        yield


def connection_of(db: Engine) -> Connection:
    """Return the connection to an engine's catalog."""
    return _OPEN[f"{db.core.store.catalog.path.absolute().as_uri()}?mode=rw"]


@contextmanager
def full_catalog(db: Engine) -> Iterator[None]:
    """Make SQLite report a full disk within the block."""
    run = connection_of(db).execute
    (pages,) = run("PRAGMA page_count").fetchone()
    run(f"PRAGMA max_page_count = {pages}")
    try:
        yield
    finally:
        run(f"PRAGMA max_page_count = {1 << 30}")
