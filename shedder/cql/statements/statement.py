"""Statements: what a text of CQL says, before any stream is looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Expression, Literal
from shedder.cql.statements.archive_layout import Layout
from shedder.cql.statements.foreign_key import ForeignKey
from shedder.cql.statements.overload_policy import THINS, OnOverload
from shedder.cql.statements.pane_coarsening import Coarsening, Collapse
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.text.unsupported import later
from shedder.errors import BadSetting

WEIGHT_MAX = 1e9
"""The largest weight that a query may have."""


class Contract(Enum):
    """What happens to a value that misses its target."""

    WIDEN = "WIDEN"
    OMIT = "OMIT"
    EXACT = "EXACT"
    FAIL = "FAIL"


class TargetKind(Enum):
    """In which unit a precision target is given."""

    RELATIVE = "PERCENT"  # size is a fraction: 1 PERCENT is 0.01
    ABSOLUTE = "ABSOLUTE"  # size is in the value's unit
    RANK = "RANK"  # size is a fraction of rank, quantiles only


@dataclass(frozen=True, slots=True)
class Target:
    """Met when max(high - value, value - low) <= size (times |value| when RELATIVE)."""

    kind: TargetKind
    size: float


@dataclass(frozen=True, slots=True)
class RangeWindow:
    """[start, end) with end a multiple of slide_us; range_us long. Both > 0.

    collapse: how old panes become coarser, so that it begins up to one of those earlier.
    """

    range_us: int
    slide_us: int
    collapse: Collapse | None = None

    @property
    def width_us(self) -> int:
        """Of the panes that it is cut into."""
        return math.gcd(self.range_us, self.slide_us)

    @property
    def resolution_us(self) -> int:
        """It begins at a multiple of this, up to so much too early; 0: where it should."""
        coarsening = Coarsening.of(self.range_us // self.width_us, self.collapse)
        return 0 if coarsening.longest == 1 else coarsening.longest * self.width_us


@dataclass(frozen=True, slots=True)
class LandmarkWindow:
    """All tuples with event time >= start_us, growing."""

    start_us: int


@dataclass(frozen=True, slots=True)
class SnapshotWindow:
    """All tuples with start_us <= event time < end_us."""

    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class UnboundedWindow:
    """All tuples."""


Window = RangeWindow | LandmarkWindow | SnapshotWindow | UnboundedWindow


@dataclass(frozen=True, slots=True)
class Output:
    """One item of a select list; name is the alias or a derived, unique column name."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One key of ORDER BY, over outputs, groups and aggregates. NULLs come last."""

    expression: Expression
    descending: bool


@dataclass(frozen=True, slots=True)
class ReductionClause:
    """REDUCE BY name(args); parsed now, given a meaning by the archive issue."""

    name: str
    arguments: tuple[float | str, ...]


class Rewrite(Enum):
    """What may be changed of a query so that it keeps its limits."""

    SLIDE = "SLIDE"  # coarser: answers come less often
    COLLAPSE = "COLLAPSE"  # old panes become coarser: windows begin a little earlier
    RANGE = "RANGE"  # shorter: answers are of less time
    THINNING = "THINNING"  # from the first tuple on


@dataclass(frozen=True, slots=True)
class Costing:
    """COSTING AT MOST: what the synopses of a standing query may take. None: as there is.

    size_bytes: > 0. ns_per_tuple: > 0, of CPU per arriving tuple.
    rewrites: what may be changed to that end; the rest must stay as it was written.
    """

    size_bytes: int | None
    ns_per_tuple: float | None
    rewrites: tuple[Rewrite, ...] = tuple(Rewrite)


@dataclass(frozen=True, slots=True)
class Select:
    """A query: continuous when registered, one-time when executed."""

    text: str
    outputs: tuple[Output, ...]
    stream: str
    window: Window
    where: Expression | None
    groups: tuple[Expression, ...]
    having: Expression | None
    order: tuple[OrderKey, ...]
    limit: int | None
    target: Target | None
    confidence: float  # 0.95 when not said
    contract: Contract  # WIDEN when not said
    weight: float  # 1 when not said
    reduction: ReductionClause | None
    thinning: int = 0  # level: a standing query begins with reading the share 2^-level
    costing: Costing | None = None


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """One column of CREATE STREAM."""

    name: str
    type: ColumnType
    nullable: bool


@dataclass(frozen=True, slots=True)
class CreateStream:
    """CREATE STREAM [IF NOT EXISTS] name (...) TIMESTAMP BY c LATENESS i RETAIN i ARCHIVE l
    ON OVERLOAD p FOREIGN KEY ….
    """

    name: str
    columns: tuple[ColumnDefinition, ...]
    time_column: str
    lateness_us: int  # 0 when not said
    retain_us: int | None  # None: for ever
    layout: Layout
    if_not_exists: bool
    on_overload: OnOverload = THINS
    foreign_keys: tuple[ForeignKey, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE [IF NOT EXISTS] name (..., PRIMARY KEY (...)) [RETROACTIVE].

    key: names of columns; these are NOT NULL.
    """

    name: str
    columns: tuple[ColumnDefinition, ...]
    key: tuple[str, ...]
    retroactive: bool
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropTable:
    """DROP TABLE [IF EXISTS] name."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE table SET column = expression, ... [WHERE condition]."""

    table: str
    assignments: tuple[Output, ...]
    where: Expression | None


@dataclass(frozen=True, slots=True)
class DropStream:
    """DROP STREAM [IF EXISTS] name."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateQuery:
    """CREATE QUERY [IF NOT EXISTS] name AS SELECT ..."""

    name: str
    select: Select | RelationalSelect
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropQuery:
    """DROP QUERY [IF EXISTS] name."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE VIEW [IF NOT EXISTS] name [RETAIN i] AS SELECT ...: a derived stream.

    retain_us: as of a stream; None: for ever.
    """

    name: str
    select: RelationalSelect
    retain_us: int | None
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropView:
    """DROP VIEW [IF EXISTS] name."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateInsert:
    """CREATE QUERY [IF NOT EXISTS] name AS INSERT INTO stream [(columns)] SELECT ...

    columns: None is all, in order.
    """

    name: str
    stream: str
    columns: tuple[str, ...] | None
    select: RelationalSelect
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class CreateRollup:
    """CREATE [LAZY] ROLLUP [IF NOT EXISTS] name AS SELECT ... FROM stream [RANGE i] GROUP BY ..."""

    name: str
    select: Select
    if_not_exists: bool
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class DropRollup:
    """DROP ROLLUP [IF EXISTS] name."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class AlterQuery:
    """ALTER QUERY name SET THINNING 1/n | AUTO [FOR output or aggregate, ...].

    level: n is 2^level, level 0 reads every tuple; None: AUTO, as load has it. of: what is read
    so; empty: everything.
    """

    name: str
    level: int | None
    of: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterWeight:
    """ALTER QUERY name SET WEIGHT w."""

    name: str
    weight: float


@dataclass(frozen=True, slots=True)
class AlterBytes:
    """ALTER QUERY name SET BYTES n KIB."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class AlterActivity:
    """ALTER QUERY name SET ACTIVE | INACTIVE."""

    name: str
    active: bool


@dataclass(frozen=True, slots=True)
class AlterStream:
    """ALTER STREAM name SET ARCHIVE layout."""

    name: str
    layout: Layout


@dataclass(frozen=True, slots=True)
class AlterOverload:
    """ALTER STREAM name SET ON OVERLOAD policy."""

    name: str
    on_overload: OnOverload


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT [OR REPLACE] INTO stream [(columns)] SELECT ... | VALUES ... [PRODUCER 'name'].

    stream: or a table. columns: None is all, in order. select: without outputs when its select
    list was *. rows: of VALUES. producer: makes the statement idempotent. replaces: rows of a
    table with the same keys are replaced.
    """

    stream: str
    columns: tuple[str, ...] | None
    select: Select | None
    rows: tuple[tuple[Literal, ...], ...]
    producer: str | None
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE FROM stream [window] [WHERE condition].

    select: the rows, without outputs. text: canonical.
    """

    select: Select
    text: str


@dataclass(frozen=True, slots=True)
class Backup:
    """BACKUP TO 'name', in the operator's directory of backups."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """CREATE INDEX [IF NOT EXISTS] ON stream (column)."""

    stream: str
    column: str
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropIndex:
    """DROP INDEX [IF EXISTS] ON stream (column)."""

    stream: str
    column: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Scrub:
    """SCRUB: read every run against its checksum."""


@dataclass(frozen=True, slots=True)
class Purge:
    """PURGE STREAM name: take deleted rows out of the files of runs."""

    stream: str


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN SELECT ..., CREATE QUERY ..., CREATE VIEW ..., or the name of a standing query."""

    subject: Select | RelationalSelect | CreateQuery | CreateView | CreateInsert | str


@dataclass(frozen=True, slots=True)
class ExplainAllocation:
    """EXPLAIN ALLOCATION."""


@dataclass(frozen=True, slots=True)
class ExplainPrecision:
    """EXPLAIN PRECISION SELECT ..., or the name of a standing query."""

    query: Select | RelationalSelect | str


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW STREAMS | QUERIES | VIEWS | TABLES | RUNS | INDEXES | ROLLUPS | TENANTS."""

    what: str


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE stream, table or query."""

    name: str


Statement = (
    Select
    | RelationalSelect
    | CreateStream
    | DropStream
    | CreateTable
    | DropTable
    | Update
    | CreateQuery
    | DropQuery
    | CreateView
    | DropView
    | CreateInsert
    | CreateRollup
    | DropRollup
    | AlterQuery
    | AlterWeight
    | AlterBytes
    | AlterActivity
    | AlterStream
    | AlterOverload
    | Insert
    | Delete
    | CreateIndex
    | DropIndex
    | Backup
    | Scrub
    | Purge
    | Explain
    | ExplainAllocation
    | ExplainPrecision
    | Show
    | Describe
)


def aggregates_of_one_stream(statement: Statement) -> Select:
    """The statement, if it is a query of aggregates over one stream.

    Raises:
      Unimplemented: the result of the query is rows. BadSetting: it is no query.
    """
    if isinstance(statement, RelationalSelect):
        raise later("a query whose result is rows")
    if not isinstance(statement, Select):
        raise BadSetting(f"only a SELECT can be registered, not {type(statement).__name__}")
    return statement
