"""Clauses that the language has and this version refuses."""

from __future__ import annotations

from shedder.errors import Unimplemented

# Statements by their first word.
LATER = {
    "UPDATE": "UPDATE",
    "MERGE": "MERGE",
    "TRUNCATE": "TRUNCATE",
    "COPY": "COPY (push loads files)",
    "WITH": "WITH (common table expressions)",
    "VALUES": "VALUES",
    "FROM": "a query that begins with FROM",
    "SET": "SET",
    "BEGIN": "transactions",
    "COMMIT": "transactions",
    "ROLLBACK": "transactions",
    "USE": "USE",
    "PRAGMA": "PRAGMA",
    "GRANT": "GRANT",
    "REVOKE": "REVOKE",
}


def rows_later(what: str) -> Unimplemented:
    """The refusal of questions for tuples as such."""
    return Unimplemented(
        f"{what} asks for rows, and answers here are aggregates: select COUNT(*), AVG(x), ... or "
        "add GROUP BY; the rows are Parquet under runs/ of the data directory"
    )


def later(what: str) -> Unimplemented:
    """The refusal of what the language has and this version does not."""
    return Unimplemented(f"{what}: not in this version")
