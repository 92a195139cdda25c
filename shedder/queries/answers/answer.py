"""Answers: an Arrow table whose approximate columns carry their intervals."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from shedder.queries.answers.completeness import Completeness
from shedder.queries.answers.python_rows import plain_rows
from shedder.queries.answers.text_format import explained, printed
from synopses.model.estimate import Bound, Estimate

ROLE = b"shedder.role"  # field metadata of the table: what a column is
ESTIMATE = b"estimate"  # ... a value with companions
COMPANION = b"companion"  # ... one of those, or `certain`
CERTAIN = "certain"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class MissingGroups:
    """A bound on groups that are not in the answer at all.

    With probability at least `confidence` no group of `weight_max` tuples or more is missing.
    weight_max None: nothing can be said (reason tells why).
    """

    weight_max: float | None
    confidence: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ArchiveRead:
    """How much of the archive was asked for, given and read; runs outside the window left aside.

    reduction: its name and arguments. asked_*: the reductions that it wanted, of any run, in
    [0, 1). given_*: the shares of tuples that the estimates leave out; they fit whole blocks.
    bytes_read: of bytes_stored, in the files. looks: how often the answer was looked at.
    """

    reduction: str
    asked_min: float
    asked_max: float
    given_min: float
    given_max: float
    blocks_read: int
    blocks: int
    bytes_read: int
    bytes_stored: int
    looks: int = 1


@dataclass(frozen=True, slots=True)
class InputProgress:
    """How far an answer of several relations has read one of them.

    stream: name. alias: in the query. position: tuples below it were read. as_of_us: tuples with
    an event time before it are in the answer; None: no tuple and no heartbeat has come.
    late, dropped, lost: tuples that the answer lacks: too late; dropped under overload; lost with
    damaged bytes of the log.
    """

    stream: str
    alias: str
    position: int
    as_of_us: int | None
    late: int = 0
    dropped: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The answer to a query, or the status of another statement.

    table: for each approximate output c the columns c, c_low, c_high, c_bound ('exact',
      'interval', 'none') and c_met (bool; null when the query has no target). low and high are
      null where the bound is 'none' and on a side where an integer interval has no end. Group
      keys and functions of them are plain. TOP and FREQUENT are list<struct<value, count, low,
      high, guaranteed>> with c_bound and c_met. A query with HAVING or ORDER BY has `certain`:
      false where an interval straddles the decision.
    start_us, end_us: the stretch of event time it covers, half open; None is open.
    resolution_us: the window was asked to begin less than this after start_us (COLLAPSE); 0: there.
    position: all tuples below this position are in the answer.
    late: tuples of the window that came too late for their pane (in the archive only).
    complete: the watermark has passed the window's end.
    confidence: of each interval, each value taken by itself.
    thinning: the smallest share of tuples that any source read.
    archive_share_read: of the archive's tuples in the window, in [0, 1].
    archive: how the archive was read in part; None where it was not.
    others: the row that stands for all groups that found no room, or None.
    missed: answers that a slow subscriber did not get since the last one.
    certified: whether the exact answers that the service compares its query's answers with have
      borne these out; None where nothing was compared yet, or never is.
    cut: the limit that left out rows at the end of the table, in words; empty: none did.
    inputs: progress of each input of a row query.
    resume: token of a row query; `subscribe(after=resume)` sends the rows after this answer's.
    completeness: of the rows of a query with ON OVERLOAD SHED; else None: no key is left out.
    """

    table: pa.Table
    query: str = ""
    start_us: int | None = None
    end_us: int | None = None
    resolution_us: int = 0
    watermark_us: int | None = None
    position: int = 0
    late: int = 0
    complete: bool = True
    confidence: float = 1.0
    thinning: float = 1.0
    archive_share_read: float = 0.0
    archive: ArchiveRead | None = None
    sources: tuple[str, ...] = ()
    missing: MissingGroups | None = None
    others: int | None = None
    notes: tuple[str, ...] = ()
    missed: int = 0
    elapsed_ms: float = 0.0
    certified: bool | None = None
    cut: str = ""
    inputs: tuple[InputProgress, ...] = ()
    resume: str | None = None
    completeness: Completeness | None = None

    @classmethod
    def status(cls, text: str) -> Self:
        """The answer to a statement that is not a question: one row, one column `status`."""
        return cls(pa.table({"status": pa.array([text], pa.string())}))

    @property
    def window(self) -> tuple[datetime | None, datetime | None]:
        """[start, end) in UTC; None is open."""
        return _datetime(self.start_us), _datetime(self.end_us)

    @property
    def resolution(self) -> timedelta:
        """Up to how much earlier than asked the window begins: less than this; 0: not at all."""
        return timedelta(microseconds=self.resolution_us)

    @property
    def watermark(self) -> datetime | None:
        """The event time before which the stream was complete; None before any tuple."""
        return _datetime(self.watermark_us)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The columns that the query asked for, without companions."""
        return tuple(f.name for f in self.table.schema if _role(f) != COMPANION)

    @property
    def approximate(self) -> tuple[str, ...]:
        """The outputs that have companions."""
        return tuple(f.name for f in self.table.schema if _role(f) == ESTIMATE)

    @property
    def met(self) -> bool | None:
        """Return whether every value meets the target; None without one."""
        flags = [self.table[name + "_met"] for name in self.approximate]
        known = [column for column in flags if column.null_count < len(column)]
        return all(pc.all(column).as_py() for column in known) if known else None

    def rows(self) -> list[dict[str, Any]]:
        """All columns, companions included, as one dict per row.

        A day or moment outside of the years 1 to 9999, which Python's have not, is a datetime64.
        """
        return plain_rows(self.table)

    def estimate(self, row: int, column: str) -> Estimate:
        """One value with its interval (numbers, timestamps in microseconds, dates in days).

        Raises:
          KeyError: no such column. TypeError: the column has no numeric interval.
        """
        table, schema = self.table, self.table.schema
        at = schema.get_field_index(column)
        if at < 0:
            raise KeyError(f"no column {column!r}; the answer has {', '.join(self.outputs)}")
        value, field = _number(table.column(at)[row]), schema.field(at)
        if _role(field) != ESTIMATE:
            return Estimate(value, value, value, 1.0, Bound.EXACT, "key")
        if pa.types.is_list(field.type):
            raise TypeError(f"{column!r} is a list; each of its items has low and high")

        def companion(suffix: str) -> pa.Scalar[Any]:
            scalar: pa.Scalar[Any] = table.column(schema.get_field_index(column + suffix))[row]
            return scalar

        low = _number(companion("_low"), float("-inf"))
        high = _number(companion("_high"), float("inf"))
        bound = Bound[companion("_bound").as_py().upper()]
        if bound is Bound.EXACT:
            low = high = value
        confidence = 1.0 if bound is Bound.EXACT else self.confidence
        return Estimate(value, low, high, confidence, bound, ",".join(self.sources))

    def facts(self) -> dict[str, Any]:
        """Everything but the table, in plain JSON types."""
        facts = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "table"
        }
        facts["sources"] = list(self.sources)
        facts["notes"] = list(self.notes)
        facts["inputs"] = [dataclasses.asdict(each) for each in self.inputs]
        facts["completeness"] = None if self.completeness is None else self.completeness.facts()
        for name in ("missing", "archive"):
            part = facts[name]
            facts[name] = None if part is None else dataclasses.asdict(part)
        return facts

    def explain(self) -> str:
        """Return where the answer came from and what it rests on, a line each."""
        return explained(self)

    def __str__(self) -> str:
        return printed(self)

    def __repr__(self) -> str:  # What a notebook shows, as of data frames.
        return printed(self)


def _datetime(us: int | None) -> datetime | None:
    if us is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=us)
    except OverflowError:  # a window may reach beyond the years that datetime has
        return None


def _role(field: pa.Field[Any]) -> bytes | None:
    return (field.metadata or {}).get(ROLE)


def _number(scalar: pa.Scalar[Any], missing: float = float("nan")) -> float:
    if not scalar.is_valid:
        return missing
    if isinstance(scalar, pa.TimestampScalar):
        return float(scalar.cast(pa.int64()).as_py())
    if isinstance(scalar, (pa.Date32Scalar, pa.Date64Scalar)):
        return float(scalar.cast(pa.int32()).as_py())
    value = scalar.as_py()
    if not isinstance(value, (bool, int, float)):
        raise TypeError(f"{value!r} is not a number")
    return float(value)
