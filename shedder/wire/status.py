"""The one table of errors and status codes, and errors on their way over the wire.

An error travels as a google.rpc.Status: its family is the code, its class the `reason` of an
ErrorInfo, and a RetryInfo says when to come back where that helps. What is not one of ours
travels as a correlation id and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from shedder import errors
from shedder.errors import ShedderError

DOMAIN = "shedder"
STATUS_KEY = "grpc-status-details-bin"  # where grpc-status puts a google.rpc.Status
MESSAGE_CHARS_MAX = 2_000  # Metadata has 8 KiB, for everything together.
DETAILS_CHARS_MAX = 400  # The message once more, percent-encoded, for clients without STATUS_KEY.

CODES: Mapping[type[ShedderError], grpc.StatusCode] = MappingProxyType(
    {
        errors.InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
        errors.NotFound: grpc.StatusCode.NOT_FOUND,
        errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
        errors.FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
        errors.OutOfRange: grpc.StatusCode.OUT_OF_RANGE,
        errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
        errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
        errors.DataLoss: grpc.StatusCode.DATA_LOSS,
        errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
        errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
        errors.DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
        errors.Cancelled: grpc.StatusCode.CANCELLED,
        errors.Unimplemented: grpc.StatusCode.UNIMPLEMENTED,
        errors.InternalError: grpc.StatusCode.INTERNAL,
    }
)
_FAMILIES = {code: family for family, code in CODES.items()}

# When to come back, where the error itself does not say.
_RETRY_MS: Mapping[type[ShedderError], int] = MappingProxyType(
    {errors.Draining: 500, errors.DiskFull: 1_000, errors.Unreachable: 250}
)


def code_of(error: type[ShedderError]) -> grpc.StatusCode:
    """The status code of an error's family."""
    for ancestor in error.__mro__:
        if ancestor in CODES:
            return CODES[ancestor]
    return grpc.StatusCode.INTERNAL


def retry_after_ms(error: ShedderError) -> int | None:
    """Return the time of a retry of the same request; None: a retry would not help."""
    if isinstance(error, errors.Overloaded):
        return error.retry_after_ms
    return _RETRY_MS.get(type(error))


def to_status(error: ShedderError) -> status_pb2.Status:
    """The error as it travels."""
    code = code_of(type(error)).value[0]
    status = status_pb2.Status(code=code, message=str(error)[:MESSAGE_CHARS_MAX])
    info = error_details_pb2.ErrorInfo(reason=type(error).reason, domain=DOMAIN)
    status.details.add().Pack(info)
    wait_ms = retry_after_ms(error)
    if wait_ms is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(wait_ms)
        status.details.add().Pack(retry)
    return status


def to_abort(error: ShedderError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """The error as the arguments of a servicer context's `abort`."""
    status = to_status(error)
    details = status.message[:DETAILS_CHARS_MAX]
    return code_of(type(error)), details, ((STATUS_KEY, status.SerializeToString()),)


def from_status(status: status_pb2.Status) -> ShedderError | None:
    """The error that a status carries; None when it is not one of ours."""
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(retry.DESCRIPTOR):
            detail.Unpack(retry)
    if info.domain != DOMAIN:
        return None
    named = ShedderError.by_reason.get(info.reason, _family(status.code))
    if issubclass(named, errors.Overloaded) and retry.HasField("retry_delay"):
        return named(status.message, retry_after_ms=retry.retry_delay.ToMilliseconds())
    return named.from_message(status.message)


def named_error(
    reason: str, message: str, otherwise: type[ShedderError] = errors.InternalError
) -> ShedderError:
    """The error of a reason; of another class when this version does not know the reason."""
    return ShedderError.by_reason.get(reason, otherwise).from_message(message)


def from_call(
    code: grpc.StatusCode,
    details: str | None,
    metadata: Iterable[tuple[str, str | bytes]] | None,
    address: str,
) -> ShedderError:
    """The error that a failed call carries, or what gRPC itself had to say.

    Args:
      code, details, metadata: the call's status and its trailing metadata.
      address: of the server, for messages.
    """
    for key, value in metadata or ():
        if key == STATUS_KEY and isinstance(value, bytes):
            error = _decoded(value)
            if error is not None:
                return error
    said = (details or code.name).partition("\n")[0][:DETAILS_CHARS_MAX]
    match code:
        case grpc.StatusCode.UNAVAILABLE:
            return errors.Unreachable(f"no server at {address}: {said}")
        case grpc.StatusCode.CANCELLED:
            return errors.Unreachable(f"the call to {address} was cancelled")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return errors.DeadlineExceeded(f"no answer from {address} in the time that was given")
        case _:
            return _family(code.value[0]).from_message(said)


def _decoded(value: bytes) -> ShedderError | None:
    try:
        return from_status(status_pb2.Status.FromString(value))
    except DecodeError:
        return None


def _family(number: int) -> type[ShedderError]:
    for code, family in _FAMILIES.items():
        if code.value[0] == number:
            return family
    return errors.InternalError
