"""Logical plans: trees of relational operators with typed expressions and unique column names.

A `Scan` names its columns `alias.column`, and aliases are unique in a plan. So expressions above a
join refer to columns by plain names. A `Project` gives outputs the names that the query wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from shedder.cql.expressions.expression import Aggregate, Expression
from shedder.cql.statements.foreign_key import ForeignKey
from shedder.cql.statements.statement import ColumnDefinition, OrderKey, Output, Window


class RelationKind(Enum):
    """Kind of a named relation in FROM."""

    STREAM = "STREAM"
    TABLE = "TABLE"


class JoinKind(Enum):
    """Kind of a join. SEMI and ANTI have the columns of the left side alone."""

    INNER = "INNER"
    LEFT = "LEFT"
    FULL = "FULL"
    SEMI = "SEMI"  # [NOT] IN and [NOT] EXISTS are joins of these two kinds
    ANTI = "ANTI"
    ANTI_NULL_AWARE = "ANTI NULL AWARE"  # NOT IN: the condition is false for every right row


class SetOperator(Enum):
    """Bag operator over two relations with equal column types."""

    UNION = "UNION"
    EXCEPT = "EXCEPT"
    INTERSECT = "INTERSECT"


class StreamOperator(Enum):
    """Relation-to-stream operator (CQL, Arasu, Babu, Widom 2006)."""

    ISTREAM = "ISTREAM"
    DSTREAM = "DSTREAM"
    RSTREAM = "RSTREAM"


@dataclass(frozen=True, slots=True)
class Scan:
    """Tuples of a stream, or rows of a table.

    relation: name of the stream or table.
    alias: unique in the plan.
    kind: stream or table.
    columns: those that the plan reads, named `alias.column`, in the order of the schema.
    time_column: `alias.column` of a stream's event time; None: of a table.
    sample: share in (0, 1] of tuples that SAMPLE keeps; None: all.
    as_of_us: of a table: the instant of AS OF, whose rows are read; None: now.
    foreign_keys: of a stream; a standing query may rely on them.
    retroactive: of a table: its changes correct rows of a standing query that were made before.
    """

    relation: str
    alias: str
    kind: RelationKind
    columns: tuple[ColumnDefinition, ...]
    time_column: str | None
    sample: float | None = None
    retroactive: bool = False
    as_of_us: int | None = None
    foreign_keys: tuple[ForeignKey, ...] = ()


@dataclass(frozen=True, slots=True)
class RowsWindow:
    """The n newest tuples, by event time and position, of the input or of each partition.

    rows: n > 0.
    slide_rows: evaluated after so many tuples; 1: after each.
    partition: names of columns; (): one partition.
    numbered: alias of the columns that the window adds for PREV; None: it adds none.
    """

    rows: int
    slide_rows: int = 1
    partition: tuple[str, ...] = ()
    numbered: str | None = None

    @property
    def added(self) -> tuple[str, ...]:
        """Names of the added columns: `number` and `previous` of a tuple, or none."""
        return () if self.numbered is None else numbers_under(self.numbered)


def numbers_under(alias: str) -> tuple[str, str]:
    """Return names of two BIGINT columns that a window of rows adds under an alias.

    The first is a number of the tuple, and larger for later tuples. The second is the number of the
    tuple before it in its partition, also if that tuple has left; NULL: there was none.
    """
    return f"{alias}.#number", f"{alias}.#previous"


@dataclass(frozen=True, slots=True)
class NowWindow:
    """The tuples of the last tick (1 us)."""


@dataclass(frozen=True, slots=True)
class WindowOf:
    """A window over a stream, or over a subquery that is a stream.

    condition: WHERE inside of the brackets, applied before the window. The rows of ROWS and its
      slide are counted among the tuples that fulfil it, the slide over all partitions together.
    """

    input: Plan
    window: Window | RowsWindow | NowWindow
    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which a BOOLEAN condition is true."""

    input: Plan
    condition: Expression


@dataclass(frozen=True, slots=True)
class Project:
    """One output per expression over columns of the input; names are unique."""

    input: Plan
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows for which a condition is true. condition None: it is true for all pairs.

    ANTI keeps a left row whose condition is true for no right row; ANTI_NULL_AWARE one whose
    condition is false for every right row, so that NULL on either side leaves it out.
    """

    kind: JoinKind
    left: Plan
    right: Plan
    condition: Expression | None


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each row once; NULLs are equal."""

    input: Plan


@dataclass(frozen=True, slots=True)
class SetOperation:
    """Bag union, difference or intersection; columns are matched by place, names are the left's.

    all: multiplicities are kept (v1 + v2, max(0, v1 - v2), min(v1, v2)); else rows are distinct.
    """

    operator: SetOperator
    all: bool
    left: Plan
    right: Plan


@dataclass(frozen=True, slots=True)
class KeySampling:
    """Counting of a sample of a join's keys, where all keys need too many bytes.

    confidence: of the interval. seed: of the keys that are sampled. bytes_max: of the counts, as
      the query was registered. resizes: first instant, in µs, and bytes from then on; they ascend.
    """

    confidence: float
    seed: int = 0
    bytes_max: int = 0
    resizes: tuple[tuple[int, int], ...] = ()


GUARANTEED = "guaranteed"  # Whether no group without a row has a larger count.


@dataclass(frozen=True, slots=True)
class Aggregated:
    """One row per group, or one row where there are no groups.

    groups: outputs g0, g1, ... ; aggregates: outputs a0, a1, ...
    sampling: the aggregates may be approximate, and have companions; None: they are exact.
    listed: of one group and its count, over a window of rows: so many groups with the largest
      counts have rows, whose counts have companions, and a column GUARANTEED; None: all have rows.
    kept: values that the list of each pane has at most; None: as many as have rows.
    """

    input: Plan
    groups: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]
    sampling: KeySampling | None = None
    listed: int | None = None
    kept: int | None = None


@dataclass(frozen=True, slots=True)
class Ordered:
    """Rows in order, NULLs last, and a stretch of them. limit None: to the end."""

    input: Plan
    keys: tuple[OrderKey, ...]
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ToStream:
    """The stream of insertions, deletions, or whole contents of a relation."""

    operator: StreamOperator
    input: Plan


Plan = (
    Scan
    | WindowOf
    | Filter
    | Project
    | Join
    | Distinct
    | SetOperation
    | Aggregated
    | Ordered
    | ToStream
)


def companions_of(name: str) -> tuple[str, str, str, str]:
    """Return names of the companions of an approximate column: low, high, bound and met."""
    return f"{name}_low", f"{name}_high", f"{name}_bound", f"{name}_met"


def inputs_of(plan: Plan) -> tuple[Plan, ...]:
    """Return the direct inputs of a node, left before right."""
    match plan:
        case Scan():
            return ()
        case Join(left=left, right=right) | SetOperation(left=left, right=right):
            return (left, right)
        case _:
            return (plan.input,)


def with_inputs(plan: Plan, make: Callable[[Plan], Plan]) -> Plan:
    """Return a node with what `make` returns of each of its inputs."""
    match plan:
        case Scan():
            return plan
        case Join(left=left, right=right) | SetOperation(left=left, right=right):
            return replace(plan, left=make(left), right=make(right))
        case _:
            return replace(plan, input=make(plan.input))


def scans_of(plan: Plan) -> Iterator[Scan]:
    """The scans of a plan, left to right."""
    if isinstance(plan, Scan):
        yield plan
    for part in inputs_of(plan):
        yield from scans_of(part)


@dataclass(frozen=True, slots=True)
class BoundRelational:
    """A bound query whose result is rows: its text, its plan and its columns.

    text: canonical. plan: every expression is typed. columns: of the result, in order.
    """

    text: str
    plan: Plan
    columns: tuple[ColumnDefinition, ...]
