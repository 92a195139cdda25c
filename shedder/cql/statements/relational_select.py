"""The statement of a query whose result is rows."""

from __future__ import annotations

from dataclasses import dataclass


class QueryTree:
    """Syntax tree of a query: a `SelectQuery` or a `SetQuery` of `relational_tree`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class RelationalSelect:
    """A query whose result is rows, before binding.

    text: canonical. relations: names of streams and tables in FROM at any depth, each once.
    confidence: of the intervals of counts that may be approximate; None: rows are exact.
    sheds: when its bytes are short, it keeps the rows of a sample of keys; else it fails.
    """

    text: str
    query: QueryTree
    relations: tuple[str, ...]
    confidence: float | None = None
    sheds: bool = False
