"""Syntax trees of queries whose result is rows: a tree of SELECTs, set operations and relations.

Names are not resolved yet. A `Column` carries the qualifier that was written. A subquery inside an
expression is a call of `Op.EXISTS`, `Op.IN_QUERY` or `Op.QUERY`, which holds the subquery's
canonical text; `SelectQuery.subqueries` maps the text to the subquery.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from shedder.cql.expressions.expression import Expression
from shedder.cql.statements.relational_select import QueryTree
from shedder.cql.statements.statement import OrderKey, Output, Window


class SetSyntax(Enum):
    """Word between two queries."""

    UNION = "UNION"
    EXCEPT = "EXCEPT"
    INTERSECT = "INTERSECT"


class StreamSyntax(Enum):
    """Word around a select list."""

    ISTREAM = "ISTREAM"
    DSTREAM = "DSTREAM"
    RSTREAM = "RSTREAM"


class JoinSyntax(Enum):
    """Spelling of a join in FROM."""

    COMMA = ","
    CROSS = "CROSS JOIN"
    INNER = "JOIN"
    LEFT = "LEFT JOIN"
    RIGHT = "RIGHT JOIN"
    FULL = "FULL JOIN"


@dataclass(frozen=True, slots=True)
class Star:
    """All columns of FROM, or of one of its relations."""

    qualifier: str | None = None


@dataclass(frozen=True, slots=True)
class RowsClause:
    """[PARTITION BY columns ROWS n SLIDE m]; expressions of `partition` are columns."""

    rows: int
    slide_rows: int = 1
    partition: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class NowClause:
    """[NOW]."""


@dataclass(frozen=True, slots=True)
class LandmarkClause:
    """[FROM moment SLIDE interval]: all tuples since the moment, as of multiples of slide_us."""

    start_us: int
    slide_us: int


@dataclass(frozen=True, slots=True)
class WindowClause:
    """A window in brackets, and WHERE inside of the brackets."""

    window: Window | RowsClause | NowClause | LandmarkClause
    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class NamedRelation:
    """A stream or table in FROM.

    sample: share in (0, 1] of SAMPLE; None: not said.
    as_of_us: of AS OF, for the rows of a table at an instant; None: now.
    """

    name: str
    alias: str
    window: WindowClause | None = None
    sample: float | None = None
    as_of_us: int | None = None


@dataclass(frozen=True, slots=True)
class DerivedRelation:
    """A subquery in FROM."""

    query: Query
    alias: str
    window: WindowClause | None = None
    sample: float | None = None


@dataclass(frozen=True, slots=True)
class JoinedRelation:
    """Two relations of FROM; `using` and `condition` exclude each other.

    A comma binds less than the others: only its right side may be a join.
    """

    syntax: JoinSyntax
    left: Relation
    right: Relation
    condition: Expression | None = None
    using: tuple[str, ...] = ()


Relation = NamedRelation | DerivedRelation | JoinedRelation


@dataclass(frozen=True, slots=True)
class SelectQuery(QueryTree):
    """SELECT ... FROM ... with its clauses.

    subqueries: those of the expressions, by their canonical text.
    stream: ISTREAM, DSTREAM or RSTREAM around the select list.
    """

    items: tuple[Output | Star, ...]
    source: Relation
    distinct: bool = False
    where: Expression | None = None
    groups: tuple[Expression, ...] = ()
    having: Expression | None = None
    order: tuple[OrderKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    stream: StreamSyntax | None = None
    subqueries: tuple[tuple[str, Query], ...] = ()


@dataclass(frozen=True, slots=True)
class SetQuery(QueryTree):
    """A set operation of two queries; keys of `order` are columns of the result."""

    operator: SetSyntax
    all: bool
    left: Query
    right: Query
    order: tuple[OrderKey, ...] = ()
    limit: int | None = None
    offset: int = 0


Query = SelectQuery | SetQuery


def named_relations(query: Query) -> Iterator[NamedRelation]:
    """The streams and tables in FROM of a query and of all its subqueries, left to right."""
    match query:
        case SetQuery(left=left, right=right):
            yield from named_relations(left)
            yield from named_relations(right)
        case SelectQuery():
            yield from _named(query.source)
            for _, subquery in query.subqueries:
                yield from named_relations(subquery)


def _named(relation: Relation) -> Iterator[NamedRelation]:
    match relation:
        case NamedRelation():
            yield relation
        case DerivedRelation():
            yield from named_relations(relation.query)
        case JoinedRelation():
            yield from _named(relation.left)
            yield from _named(relation.right)
