"""Checks of names for new objects: other engines cannot read some names."""

from __future__ import annotations

from shedder.cql.statements.statement import CreateStream, Select
from shedder.errors import BadQuery


def check_new_name(what: str, name: str) -> None:
    """Check the name of a new object. Existing objects keep their names.

    Raises:
      BadQuery: the name is empty, or has a NUL character.
    """
    named = f"an {what}" if what[0] in "aeiou" else f"a {what}"
    if not name:
        raise BadQuery(f"{named} cannot have an empty name; give it one character at least")
    if "\0" in name:
        raise BadQuery(f"{named} cannot be named {name[:80]!r}: it has a NUL character")


def check_new_stream(statement: CreateStream) -> None:
    """Check the names of a new stream and of its columns.

    Raises:
      BadQuery: as `check_new_name`.
    """
    check_new_name("stream", statement.name)
    for column in statement.columns:
        check_new_name("column", column.name)


def check_outputs(select: Select) -> None:
    """Check the names of the columns of an answer.

    Raises:
      BadQuery: as `check_new_name`.
    """
    for output in select.outputs:
        check_new_name("output", output.name)
