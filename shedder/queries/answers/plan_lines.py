"""EXPLAIN as text for people: the lines of a plan as they are, long ones wrapped."""

from __future__ import annotations

import textwrap
from typing import Final

import pyarrow as pa

from shedder.queries.answers.allocation_text import LAYOUT
from shedder.queries.answers.control_characters import escaped

PLAN: Final = b"plan"
"""Value of `LAYOUT` of a table whose rows are lines of text."""

_HANGING = 4  # Further columns of indentation of a wrapped line.


def plan_table(text: str) -> pa.Table:
    """Return a table with a row for each line of a plan."""
    schema = pa.schema([("plan", pa.string())], metadata={LAYOUT: PLAN})
    return pa.table([pa.array(text.splitlines(), pa.string())], schema=schema)


def wrapped_plan(table: pa.Table, columns_max: int | None) -> str:
    """Return the lines of a plan; lines of more than columns_max characters are wrapped."""
    lines = [escaped(str(line)) for line in table["plan"].to_pylist()]
    return "\n".join(part for line in lines for part in _wrapped(line, columns_max))


def _wrapped(line: str, columns_max: int | None) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + _HANGING)
    if columns_max is None or len(line) <= columns_max or len(indent) >= columns_max // 2:
        return [line]
    return textwrap.wrap(line, columns_max, subsequent_indent=indent, break_long_words=False)
