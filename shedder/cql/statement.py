"""Statements: what a text of CQL says, before any stream is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from shedder.cql.expression import Expression
from shedder.cql.types import ColumnType


class Layout(Enum):
    """How a stream's runs are laid out on disk. The others come with the archive issue."""

    PLAIN = "plain"


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
    """[start, end) with end a multiple of slide_us; range_us long. Both > 0."""

    range_us: int
    slide_us: int


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
class Reduction:
    """REDUCE BY name(args); parsed now, given a meaning by the archive issue."""

    name: str
    arguments: tuple[float | str, ...]


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
    reduction: Reduction | None


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """One column of CREATE STREAM."""

    name: str
    type: ColumnType
    nullable: bool


@dataclass(frozen=True, slots=True)
class CreateStream:
    """CREATE STREAM [IF NOT EXISTS] name (...) TIMESTAMP BY c LATENESS i RETAIN i ARCHIVE l."""

    name: str
    columns: tuple[ColumnDefinition, ...]
    time_column: str
    lateness_us: int  # 0 when not said
    retain_us: int | None  # None: for ever
    layout: Layout
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropStream:
    """DROP STREAM [IF EXISTS] name."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateQuery:
    """CREATE QUERY [IF NOT EXISTS] name AS SELECT ..."""

    name: str
    select: Select
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropQuery:
    """DROP QUERY [IF EXISTS] name."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class AlterQuery:
    """ALTER QUERY name SET THINNING 1/n; level: n is 2^level, level 0 reads every tuple."""

    name: str
    level: int


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN SELECT ... or EXPLAIN name of a standing query."""

    subject: Select | str


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW STREAMS | QUERIES | TABLES."""

    what: str


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE stream-or-query."""

    name: str


Statement = (
    Select
    | CreateStream
    | DropStream
    | CreateQuery
    | DropQuery
    | AlterQuery
    | Explain
    | Show
    | Describe
)
