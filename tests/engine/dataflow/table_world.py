"""Worlds of row queries over tables: random pushes, changes of a table, checkpoints and kills."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shedder.engine.engine import Engine
from tests.engine.dataflow.worlds import LATENESS_US, Subscriber, applied
from tests.engine.killed import copy_killed

TABLE = "CREATE TABLE c (k BIGINT PRIMARY KEY, n BIGINT, tier VARCHAR)"
WINDOW = "s [RANGE INTERVAL '0.00004' SECOND]"
RANGE_US = 40
Version = dict[int, tuple[int | None, str]]
Tuple = tuple[int, int, int | None]  # Event time after START_US, id, kind.


@dataclass
class ChangedTable:
    """The table c as it is now."""

    rows: Version = field(default_factory=dict)

    def change(self, rng: np.random.Generator) -> str:
        """Change the table; return the statement that does the same."""
        key, n = (int(each) for each in rng.integers(0, 8, 2))
        match rng.choice(["upsert", "upsert", "upsert", "delete one", "delete some", "update"]):
            case "upsert":
                value, tier = (None if n == 7 else n), str(rng.choice(["a", "b"]))
                self.rows = {**self.rows, key: (value, tier)}
                literal = "NULL" if value is None else value
                return f"INSERT OR REPLACE INTO c VALUES ({key}, {literal}, '{tier}')"
            case "delete one":
                self.rows = {at: row for at, row in self.rows.items() if at != key}
                return f"DELETE FROM c WHERE k = {key}"
            case "delete some":
                self.rows = {at: row for at, row in self.rows.items() if at < key}
                return f"DELETE FROM c WHERE k >= {key}"
            case _:
                self.rows = {at: (n, tier) for at, (_, tier) in self.rows.items()}
                return f"UPDATE c SET n = {n}"


@dataclass
class PushedStream:
    """The stream s: tuples that are drawn around a clock, and the watermark that they move."""

    watermark: int | None = None
    drawn: int = 0
    clock: int = 0

    def draw(self, rng: np.random.Generator, kind: Callable[[], int | None]) -> list[Tuple]:
        """Return up to 8 tuples, some of them too late."""
        times = self.clock + rng.integers(-2 * LATENESS_US, 10, rng.integers(1, 9))
        rows = [(int(time), self.drawn + at, kind()) for at, time in enumerate(times)]
        self.drawn += len(rows)
        return rows

    def in_time(self, rows: list[Tuple]) -> list[Tuple]:
        """Return the tuples of a push that are not late, and move the watermark."""
        mark = self.watermark
        newest = max(time for time, _, _ in rows) - LATENESS_US
        self.watermark = newest if mark is None else max(mark, newest)
        return [row for row in rows if mark is None or row[0] >= mark]


class KilledEngine:
    """An engine in a directory, with subscribers of its queries; a kill opens a copy of it.

    db: the engine that is open now. readers: in the order of their queries.
    """

    def __init__(self, directory: Path, rng: np.random.Generator, **settings: Any) -> None:
        self._directory, self._rng, self._settings = directory, rng, settings
        self._kills = 0
        self.db = Engine.open(directory / "0", **settings)
        self.readers: list[Subscriber] = []

    def register(self, queries: Mapping[str, str]) -> None:
        """Register queries, and begin to read the rows of each."""
        for name, text in queries.items():
            self.db.register(name, text)
        self.readers = [Subscriber(name) for name in queries]
        for reader in self.readers:
            reader.begin(self.db)

    def do(self, what: str) -> None:
        """Seal the stream s, write a checkpoint, or kill the process."""
        match what:
            case "seal":
                self.db.seal("s")
            case "checkpoint":
                self.db.core.executor.call(self.db.checkpoints.now).result()
            case "kill":
                self._kill()
            case _:
                raise AssertionError(what)

    def read_all(self) -> None:
        """Read all rows that there are."""
        applied(self.db)
        for reader in self.readers:
            reader.read(self.db)

    def _kill(self) -> None:
        """Kill the process after half of the readers have read."""
        for reader in self.readers:
            if self._rng.random() < 0.5:
                reader.read(self.db)
        self._kills += 1
        copied = copy_killed(self.db, self._directory / str(self._kills))
        self.db.close()
        self.db = Engine.open(copied, **self._settings)
