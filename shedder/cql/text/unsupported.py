"""Clauses that the language has and this version refuses."""

from __future__ import annotations

from shedder.errors import BadQuery, Unimplemented

# Statements by their first word.
LATER = {
    "MERGE": "MERGE",
    "TRUNCATE": "TRUNCATE",
    "COPY": "COPY (push loads files)",
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


def stars_alone(what: str) -> BadQuery:
    """The refusal of a star among aggregates or inside of an expression."""
    return BadQuery(
        f"{what} is all columns of rows; it stands in the select list of a query without "
        "aggregates and GROUP BY, or in COUNT(*)"
    )


def later(what: str) -> Unimplemented:
    """The refusal of what the language has and this version does not."""
    return Unimplemented(f"{what}: not in this version")
