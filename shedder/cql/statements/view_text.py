"""Canonical text of CREATE VIEW and of a standing INSERT."""

from __future__ import annotations

from collections.abc import Sequence

from shedder.cql.expressions.expression_text import quoted
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.text.durations import duration_text


def text_of_view(schema: StreamSchema, query: str) -> str:
    """The statement that makes a view. query: its text."""
    retain = "" if schema.retain_us is None else f" RETAIN {duration_text(schema.retain_us)}"
    return f"CREATE VIEW {quoted(schema.name)}{retain} AS {query}"


def text_of_insert(stream: str, columns: Sequence[str], query: str) -> str:
    """What stands behind AS in the statement that makes a standing INSERT."""
    return f"INSERT INTO {quoted(stream)} ({', '.join(map(quoted, columns))}) {query}"
