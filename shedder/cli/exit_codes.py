"""Exit codes: one per kind of trouble, so that scripts can tell them apart."""

from __future__ import annotations

from enum import IntEnum

from shedder.errors import (
    AlreadyExists,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidRequest,
    NotFound,
    OutOfRange,
    PermissionDenied,
    PrecisionUnavailable,
    ResourceExhausted,
    ShedderError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    Unreachable,
)


class ExitCode(IntEnum):
    """What the process ends with."""

    FINE = 0
    INTERNAL = 1  # a bug
    USAGE = 2  # the command or the statement cannot work as it is
    UNREACHABLE = 3  # no server, or one that cannot serve now: trying later may help
    IDENTITY = 4  # no identity, or one that may not do this
    DAMAGED = 5  # stored bytes are damaged
    PRECISION = 6  # answered, but a value misses its target
    INTERRUPTED = 130  # Ctrl-C: 128 + SIGINT, as shells have it


def exit_code(error: ShedderError) -> ExitCode:
    """The code for an error; families as in errors.py, the special before the general."""
    match error:
        case PrecisionUnavailable():
            return ExitCode.PRECISION
        case Cancelled():
            return ExitCode.INTERRUPTED
        case DataLoss():
            return ExitCode.DAMAGED
        case Unauthenticated() | PermissionDenied():
            return ExitCode.IDENTITY
        case Unreachable() | Unavailable() | ResourceExhausted() | DeadlineExceeded():
            return ExitCode.UNREACHABLE
        case InvalidRequest() | NotFound() | AlreadyExists() | FailedPrecondition():
            return ExitCode.USAGE
        case OutOfRange() | Unimplemented():
            return ExitCode.USAGE
        case _:
            return ExitCode.INTERNAL
