"""Stored query text: a standing query as the catalog keeps it, and its parser."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from shedder.cql.binding.parse import parse
from shedder.cql.statements.statement import Select, Statement
from shedder.cql.text.size_limits import Limits

# What was registered is read again whatever the settings are by now.
_LIMITS = Limits(
    text_bytes_max=1 << 28,
    depth_max=1_000,
    levels_max=1_000,
    tokens_max=1 << 20,
    nodes_max=1 << 20,
    panes_max=1 << 62,
)


def read_stored(text: str) -> Select:
    """Parse the SELECT of a query of aggregates, as `parse_stored`."""
    select = parse_stored(text)
    assert isinstance(select, Select), text
    return select


def parse_stored(text: str) -> Statement:
    """Parse the canonical text of a standing query.

    Parsing recurses, so it runs on a stack of its own: a query that was registered can be
    recovered, however deep the present stack is.

    Raises:
      BadQuery: it is nested too deeply to be read again.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="shedder-parse") as fresh_stack:
        return fresh_stack.submit(parse, text, limits=_LIMITS).result()
