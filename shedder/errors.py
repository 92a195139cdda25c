"""Every error that Shedder raises on purpose, named for what happened.

Each family below is one gRPC status code (the table is wire/status.py) and one exit code of the
command line. `reason` is the UPPER_SNAKE name that travels over the wire, so that a client gets
back the same class that the engine raised.
"""

from __future__ import annotations

import re
from typing import ClassVar, Self


class ShedderError(Exception):
    """The root of all errors that Shedder raises on purpose."""

    reason: ClassVar[str] = "SHEDDER_ERROR"
    by_reason: ClassVar[dict[str, type[ShedderError]]] = {}

    def __init_subclass__(cls, travels_as: type[ShedderError] | None = None) -> None:
        """Derive the wire name from the class name.

        travels_as: the class that a client gets instead, because older clients know it.
        """
        if travels_as is not None:
            cls.reason = travels_as.reason
            return
        cls.reason = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).upper()
        ShedderError.by_reason[cls.reason] = cls

    @classmethod
    def from_message(cls, message: str) -> Self:
        """Rebuild the error on the other side of the wire."""
        error = cls.__new__(cls)
        Exception.__init__(error, message)
        return error


# --- the families -----------------------------------------------------------------------------


class InvalidRequest(ShedderError):
    """The caller sent something that can never work."""


class NotFound(ShedderError):
    """The named thing does not exist."""


class AlreadyExists(ShedderError):
    """The named thing exists, and differently."""


class FailedPrecondition(ShedderError):
    """The request is well formed, but the present state does not allow it."""


class OutOfRange(ShedderError):
    """The request reaches before what is retained or past what can be."""


class ResourceExhausted(ShedderError):
    """A budget or a quota is used up; trying later may help."""


class Unavailable(ShedderError):
    """The service cannot serve now; trying later may help."""


class DataLoss(ShedderError):
    """Stored bytes are damaged."""


class Unauthenticated(ShedderError):
    """No identity, or one that is not known."""


class PermissionDenied(ShedderError):
    """The identity is known and may not do this."""


class DeadlineExceeded(ShedderError):
    """The answer was not ready in the time that was given."""


class Cancelled(ShedderError):
    """The caller has cancelled the work; nothing of it is left behind."""


class Unimplemented(ShedderError):
    """The language has it, this version does not; the message says which issue brings it."""


class Unreachable(ShedderError):
    """The server could not be reached (client side only)."""


class InternalError(ShedderError):
    """A bug. The message holds a correlation id and nothing else."""


# --- what happened ----------------------------------------------------------------------------


class BadQuery(InvalidRequest):
    """The text of a statement is wrong; the message shows where."""


class BadBatch(InvalidRequest):
    """The bytes or rows of a batch are not what the wire contract allows."""


class SchemaMismatch(InvalidRequest):
    """A batch's columns are not those of its stream or table."""

    def __init__(self, stream: str, problem: str) -> None:
        super().__init__(f"the batch does not fit {stream!r}: {problem}")


class BadTimestamp(InvalidRequest):
    """The event-time column is missing, null or out of range in some row."""


class BadSetting(InvalidRequest):
    """A setting or argument has a value it cannot have."""


class UnknownColumn(InvalidRequest):
    """A statement names a column that its stream or table does not have."""

    def __init__(self, column: str, known: list[str]) -> None:
        super().__init__(f"no column {column!r}; there are {', '.join(known)}")


class TypeMismatch(InvalidRequest):
    """An operator or function is given a type that it does not take."""


class BadReduction(InvalidRequest):
    """An r-UDF raised something, or said something that is no reduction; the message names it."""


class UnknownReduction(NotFound):
    """REDUCE BY names a reduction that is neither built in nor installed."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"no reduction {name!r}; there are {', '.join(known)}")


class UnknownStream(NotFound):
    """No stream has this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        have = f"; there are {', '.join(known)}" if known else "; there are no streams yet"
        super().__init__(f"no stream {name!r}{have}")


class UnknownTable(NotFound):
    """No table has this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"no table {name!r}; there are: {', '.join(known) or 'none'}")


class UnknownQuery(NotFound):
    """No standing query has this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        have = f"; there are {', '.join(known)}" if known else "; there are no queries yet"
        super().__init__(f"no query {name!r}{have}")


class UnknownTenant(NotFound):
    """No tenant of this name has a stream or a quota."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(
            f"no tenant {name!r}; there are {', '.join(known)}. One is there once it has a stream, "
            "or a table in the tenants file"
        )


class UnknownIndex(NotFound):
    """The column has no value index."""


class UnknownRollup(NotFound):
    """There is no rollup of this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"no rollup {name!r}; there are: {', '.join(known) or 'none'}")


class RollupExists(AlreadyExists):
    """A rollup of this name exists with another text."""


class TableExists(AlreadyExists):
    """A table of this name exists with another definition."""


class KeyExists(AlreadyExists):
    """An INSERT has a key that the table has; the message names the key."""


class StreamExists(AlreadyExists):
    """A stream of this name exists with another definition."""


class QueryExists(AlreadyExists):
    """A query of this name exists with another text."""


class SequenceGap(FailedPrecondition):
    """A producer skipped a sequence number, or rows of a push."""

    def __init__(self, producer: str, expected: int, got: int, *, rows: int = 0) -> None:
        """rows: of the expected push that are stored, while its rest is missing."""
        rest = f" ({rows:,} rows of it are stored, the rest is missing)" if rows else ""
        super().__init__(
            f"producer {producer!r} sent sequence {got}, expected {expected}{rest}; "
            f"resend from {expected}"
        )

    @classmethod
    def in_push(cls, producer: str, sequence: int, stored: int, first_row: int) -> Self:
        """Of a push, rows are missing between those that are stored and those that come."""
        return cls.from_message(
            f"producer {producer!r} sent sequence {sequence} from row {first_row:,} on, and "
            f"{stored:,} rows of it are stored; resend it from its first row"
        )


class SequenceReused(FailedPrecondition):
    """A producer sent other rows under a number that has some."""

    def __init__(self, producer: str, sequence: int, stored: int, got: int) -> None:
        super().__init__(
            f"sequence {sequence} of producer {producer!r} has {stored:,} rows, and came again "
            f"with {got:,}; a push is sent again as it was, and other rows have another number. "
            "Two producers need two names: give each its own name"
        )

    @classmethod
    def other_content(cls, producer: str, sequence: int, rows: int) -> Self:
        """As many rows came again, and with other values."""
        return cls.from_message(
            f"sequence {sequence} of producer {producer!r} came again with {rows:,} rows that have "
            "other values than those that are stored; a push is sent again as it was, and other "
            "rows have another number. Two producers need two names: give each its own name"
        )


class ProducerForgotten(FailedPrecondition):
    """A producer is not known, and may be one that was forgotten: a retry could be stored twice."""

    def __init__(self, producer: str, epoch: int, epoch_min: int) -> None:
        super().__init__(
            f"producer {producer!r} is not known in epoch {epoch}, and may have been forgotten in "
            f"an epoch below {epoch_min}: it may have stored rows, and a retry could be stored "
            f"twice. If it has stored none, begin it in epoch {epoch_min}, or give another name"
        )


class StaleEpoch(FailedPrecondition):
    """A newer incarnation of this producer has taken over."""

    def __init__(self, producer: str, current: int, got: int) -> None:
        super().__init__(f"producer {producer!r} is at epoch {current}, got {got}; it was replaced")


class PlansChanged(FailedPrecondition):
    """Summaries were built for other queries, or sizes, than the stream has now."""


class PrecisionUnavailable(FailedPrecondition):
    """A target with ELSE FAIL cannot be met; the message says what can."""


class RowQueryFailed(FailedPrecondition):
    """A standing query makes no more rows; the message says why."""


class IndexExists(AlreadyExists):
    """The column has a value index."""


class TargetExists(AlreadyExists):
    """A directory that was to be made is there, and not empty."""


class StreamInUse(FailedPrecondition):
    """A stream cannot be dropped while queries stand on it."""


class TableInUse(FailedPrecondition):
    """A table cannot be dropped while queries stand on it."""


class DirectoryLocked(FailedPrecondition):
    """Another process serves this data directory."""


class NewerFormat(FailedPrecondition):
    """The data directory was written by a newer version."""


class BeforeRetention(OutOfRange):
    """The window begins before what is retained."""


class OutputDiscarded(OutOfRange):
    """Rows after a token are not kept any more; the message says from where rows are kept."""


class BatchTooLarge(ResourceExhausted):
    """A batch has more rows or bytes than the limit."""


class Overloaded(ResourceExhausted):
    """The ingest queue is full; `retry_after_ms` says when to come back."""

    retry_after_ms: int = 100

    def __init__(self, message: str, *, retry_after_ms: int | None = None) -> None:
        """retry_after_ms: milliseconds until a retry; None: those of the class."""
        super().__init__(message)
        if retry_after_ms is not None:
            self.retry_after_ms = retry_after_ms


class RateExceeded(Overloaded):
    """A tenant sends more than its quota; `retry_after_ms` says when to come back."""


class QuotaExceeded(ResourceExhausted):
    """A tenant has as much as it may have; waiting does not help."""


class BudgetExceeded(ResourceExhausted):
    """A query or a table needs more memory than is free."""


class DiskFull(Unavailable):
    """The disk is full; nothing was acknowledged that was not stored."""


class ResourcesShort(Overloaded, DiskFull, travels_as=Overloaded):
    """The process has no descriptor, thread or memory left; the same request may work later.

    Code that goes on after `DiskFull` goes on after this error, too.
    """

    retry_after_ms = 1_000


class StorageFailed(Unavailable):
    """A write or fsync failed; ingest has stopped, queries go on."""


class CommitUnknown(StorageFailed, travels_as=StorageFailed):
    """A commit of the catalog failed, and a restart may find it unless a later commit succeeds.

    Files that the commit names are kept: the next start removes them if the catalog lacks it.
    """


class Draining(Unavailable):
    """The server is shutting down or still recovering."""


class CorruptData(DataLoss):
    """A checksum does not match; the message names the file and the range."""
