"""What the grammar hands over: clauses of CQL around syntax trees of sqlglot, nothing checked."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp


@dataclass(frozen=True, slots=True)
class RawDuration:
    """An amount (a literal or a parameter) and its unit, if one was written."""

    amount: exp.Expr
    unit: str | None
    start: int


@dataclass(frozen=True, slots=True)
class RawWindow:
    """What stands in brackets after a stream. All None: RANGE UNBOUNDED, or no brackets."""

    length: RawDuration | None = None
    slide: RawDuration | None = None
    begin: exp.Expr | None = None
    end: exp.Expr | None = None
    start: int | None = None


@dataclass(frozen=True, slots=True)
class RawNumber:
    """A number (a literal or a parameter) and where it stands."""

    value: exp.Expr
    start: int


@dataclass(frozen=True, slots=True)
class RawSelect:
    """A query; its window is in the meta of its table."""

    select: exp.Select
    target: tuple[RawNumber, str] | None
    confidence: tuple[RawNumber, bool] | None  # and whether PERCENT was said
    contract: str | None
    weight: RawNumber | None
    reduction: tuple[str, tuple[exp.Expr, ...]] | None


@dataclass(frozen=True, slots=True)
class RawColumn:
    """A column of CREATE STREAM."""

    name: exp.Expr
    type: exp.DataType
    nullable: bool


@dataclass(frozen=True, slots=True)
class RawCreateStream:
    """CREATE STREAM."""

    name: exp.Expr
    columns: tuple[RawColumn, ...]
    time_column: exp.Expr | None
    lateness: RawDuration | None
    retain: RawDuration | None
    layout: str | None
    if_not_exists: bool
    start: int


@dataclass(frozen=True, slots=True)
class RawCreateQuery:
    """CREATE QUERY."""

    name: str
    select: RawSelect
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class RawExplain:
    """EXPLAIN of a query or of a name."""

    subject: RawSelect | str
