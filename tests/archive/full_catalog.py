"""A limit on the pages of the catalog, which simulates a full disk."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest


class CatalogPages:
    """A page limit for the catalog that was opened last; beyond it SQLite reports a full disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Record the connections to catalogs that SQLite opens from now on."""
        self._connection: sqlite3.Connection | None = None
        connect = sqlite3.connect

        def noted(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection = connect(*args, **kwargs)
            if "mode=rw" in str(args[0]):
                self._connection = connection
            return connection

        monkeypatch.setattr(sqlite3, "connect", noted)

    def leave(self, pages: int) -> None:
        """Let the catalog grow by some pages and no further."""
        self._run(f"PRAGMA max_page_count = {self._run('PRAGMA page_count') + pages}")

    def _run(self, sql: str) -> int:
        assert self._connection is not None
        (value,) = self._connection.execute(sql).fetchone()
        return int(value)
