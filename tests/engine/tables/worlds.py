"""A table of engine tests, its dict of rows, and statements that change both."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from shedder.engine.engine import Engine

CREATE = "CREATE TABLE t (k BIGINT, s VARCHAR, n BIGINT, x DOUBLE, PRIMARY KEY (k, s))"
Key = tuple[int, str]
Row = tuple[int | None, float | None]


def rows_of(db: Engine, name: str = "t") -> dict[Key, Row]:
    """The rows of the table, by key."""
    return {
        (row["k"], row["s"]): (row["n"], row["x"])
        for row in db.core.tables[name].rows.table().to_pylist()
    }


@dataclass
class Changes:
    """Random statements, and what they make of a dict.

    rows: after all statements of `next`.
    """

    chance: random.Random
    rows: dict[Key, Row] = field(default_factory=dict)

    def next(self) -> str:
        """Return a statement that succeeds and changes rows, and change the rows as it does."""
        before = self.rows
        statement = self._any()
        return self.next() if self.rows == before else statement

    def _any(self) -> str:
        keys = [(self.chance.randrange(8), self.chance.choice(["", "a", "b'"])) for _ in range(3)]
        number = self.chance.randrange(100)
        match self.chance.choice(
            ["insert", "replace", "update", "update all", "delete", "delete k"]
        ):
            case "insert":
                new = {key: (number, None) for key in keys if key not in self.rows}
                if not new:
                    return self._any()
                self.rows = self.rows | new
                return f"INSERT INTO t (s, k, n) VALUES {_values(new)}"
            case "replace":
                new = dict.fromkeys(keys, (number, None))
                self.rows = self.rows | new
                return f"INSERT OR REPLACE INTO t (s, k, n) VALUES {_values(new)}"
            case "update":
                self.rows = {
                    key: (n + 1, n / 2) if key[0] == keys[0][0] else (n, x)
                    for key, (n, x) in self.rows.items()
                }
                return f"UPDATE t SET n = n + 1, x = n / 2 WHERE k = {keys[0][0]}"
            case "update all":
                self.rows = {key: (n, float(number)) for key, (n, _) in self.rows.items()}
                return f"UPDATE t SET x = {number}"
            case "delete":
                self.rows = {key: row for key, row in self.rows.items() if key != keys[0]}
                return f"DELETE FROM t WHERE k = {keys[0][0]} AND s = {_text(keys[0][1])}"
            case _:
                self.rows = {key: row for key, row in self.rows.items() if key[0] < keys[0][0]}
                return f"DELETE FROM t WHERE k >= {keys[0][0]}"


def _values(rows: dict[Key, Row]) -> str:
    return ", ".join(f"({_text(s)}, {k}, {n})" for (k, s), (n, _) in rows.items())


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
