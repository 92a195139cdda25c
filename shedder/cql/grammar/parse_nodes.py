"""Parse nodes: clauses of CQL around syntax trees of sqlglot, not checked yet."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from shedder.cql.statements.foreign_key import ForeignKey
from shedder.cql.statements.overload_policy import OnOverload


@dataclass(frozen=True, slots=True)
class RawDuration:
    """An amount (a literal or a parameter) and its unit, if one was written."""

    amount: exp.Expr
    unit: str | None
    start: int


@dataclass(frozen=True, slots=True)
class RawNumber:
    """A number (a literal or a parameter) and where it stands."""

    value: exp.Expr
    start: int


@dataclass(frozen=True, slots=True)
class RawCollapse:
    """COLLAPSE [BY rate AFTER depth]; both None: as it is best for the window."""

    rate: RawNumber | None = None
    depth: RawNumber | None = None


@dataclass(frozen=True, slots=True)
class RawWindow:
    """What stands in brackets after a stream. All None: RANGE UNBOUNDED, or no brackets.

    rows, slide_rows, partition: of ROWS. condition: WHERE inside of the brackets.
    """

    length: RawDuration | None = None
    slide: RawDuration | None = None
    collapse: RawCollapse | None = None
    begin: exp.Expr | None = None
    end: exp.Expr | None = None
    rows: RawNumber | None = None
    slide_rows: RawNumber | None = None
    partition: tuple[exp.Expr, ...] = ()
    is_now: bool = False
    condition: exp.Expr | None = None
    start: int | None = None

    @property
    def is_of_rows(self) -> bool:
        """Return whether only row queries have such a window."""
        slides = self.begin is not None and self.slide is not None
        return self.rows is not None or self.is_now or self.condition is not None or slides


@dataclass(frozen=True, slots=True)
class RawSelect:
    """A query; its window is in the meta of its table."""

    select: exp.Select
    target: tuple[RawNumber, str] | None
    confidence: tuple[RawNumber, bool] | None  # and whether PERCENT was said
    contract: str | None
    weight: RawNumber | None
    reduction: tuple[str, tuple[exp.Expr, ...]] | None
    thinning: int = 0  # level
    costing: tuple[tuple[RawNumber, str], ...] = ()  # AT MOST: amounts and their units
    rewrites: tuple[str, ...] | None = None  # of REWRITE; () is NEVER


@dataclass(frozen=True, slots=True)
class RawRelational:
    """A row query; windows are in the meta of its relations."""

    query: exp.Expr
    confidence: tuple[RawNumber, bool] | None = None
    sheds: bool = False


@dataclass(frozen=True, slots=True)
class RawColumn:
    """A column of CREATE STREAM."""

    name: exp.Expr
    type: exp.DataType
    nullable: bool


@dataclass(frozen=True, slots=True)
class RawLayout:
    """A layout's name, its arguments (each with its name, if it has one), and where it stands."""

    name: str
    arguments: tuple[tuple[str | None, RawNumber], ...]
    start: int


@dataclass(frozen=True, slots=True)
class RawCreateStream:
    """CREATE STREAM."""

    name: exp.Expr
    columns: tuple[RawColumn, ...]
    time_column: exp.Expr | None
    lateness: RawDuration | None
    retain: RawDuration | None
    layout: RawLayout | None
    on_overload: OnOverload
    foreign_keys: tuple[ForeignKey, ...]
    if_not_exists: bool
    start: int


@dataclass(frozen=True, slots=True)
class RawCreateQuery:
    """CREATE QUERY."""

    name: str
    select: RawSelect | RawRelational
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class RawCreateRollup:
    """CREATE [LAZY] ROLLUP."""

    name: str
    select: RawSelect
    if_not_exists: bool
    lazy: bool


@dataclass(frozen=True, slots=True)
class RawAlterStream:
    """ALTER STREAM name SET ARCHIVE."""

    name: str
    layout: RawLayout


@dataclass(frozen=True, slots=True)
class RawAlterQuery:
    """ALTER QUERY name SET THINNING."""

    name: str
    level: int | None
    of: tuple[exp.Expr, ...]


@dataclass(frozen=True, slots=True)
class RawInsert:
    """INSERT: of a query (`everything`: its select list is *), or of rows of values."""

    stream: str
    columns: tuple[str, ...] | None
    select: RawSelect | None
    everything: bool
    rows: tuple[tuple[exp.Expr, ...], ...]
    producer: str | None
    replaces: bool = False  # OR REPLACE


@dataclass(frozen=True, slots=True)
class RawDelete:
    """DELETE: its rows as a query of a constant."""

    select: RawSelect
