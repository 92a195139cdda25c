"""EXPLAIN and EXPLAIN PRECISION as they are parsed, with what is explained."""

from __future__ import annotations

from dataclasses import dataclass

from shedder.cql.grammar.parse_nodes import RawCreateQuery, RawRelational, RawSelect
from shedder.cql.grammar.view_grammar import RawCreateInsert, RawCreateView


@dataclass(frozen=True, slots=True)
class RawExplain:
    """EXPLAIN of a query, of a name, or of a query or view that would be created."""

    subject: RawSelect | RawRelational | RawCreateQuery | RawCreateInsert | RawCreateView | str


@dataclass(frozen=True, slots=True)
class RawExplainPrecision:
    """EXPLAIN PRECISION of a query, or of the name of a standing query."""

    query: RawSelect | RawRelational | str
