"""Bound parameters on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from shedder.errors import InvalidRequest
from shedder.queries.answers.database_api import Params
from shedder.v1 import query_pb2

_EPOCH = datetime(1970, 1, 1)  # without a zone: UTC, as everywhere here
_INT64 = range(-(2**63), 2**63)


def parameters_to_wire(params: Params | None) -> query_pb2.Parameters | None:
    """Positional or named values as their message; None when there are none.

    Raises:
      InvalidRequest: a value is of a type that no column has.
    """
    match params:
        case None:
            return None
        case Mapping():
            named = {str(name): _to_wire(value) for name, value in params.items()}
            return query_pb2.Parameters(named=named)
        case Sequence() if not isinstance(params, str | bytes):
            return query_pb2.Parameters(positional=[_to_wire(value) for value in params])
        case _:
            raise InvalidRequest(f"parameters are a sequence or a mapping, not {params!r:.100}")


def parameters_from_wire(message: query_pb2.Parameters) -> Params | None:
    """The values in a message; None when there are none.

    Raises:
      InvalidRequest: there are positional and named ones, or a timestamp that no calendar has.
    """
    if message.positional and message.named:
        raise InvalidRequest("parameters are positional or named, not both")
    if message.named:
        return {name: _from_wire(value) for name, value in message.named.items()}
    return [_from_wire(value) for value in message.positional] or None


def _to_wire(value: Any) -> query_pb2.Value:
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()  # A scalar of numpy.
    match value:
        case None:
            return query_pb2.Value()
        case bool():
            return query_pb2.Value(boolean=value)
        case int() if value in _INT64:
            return query_pb2.Value(integer=value)
        case float():
            return query_pb2.Value(real=value)
        case str():
            return query_pb2.Value(text=value)
        case datetime():
            naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return query_pb2.Value(timestamp_us=(naive - _EPOCH) // timedelta(microseconds=1))
        case date():
            return query_pb2.Value(date_days=(value - _EPOCH.date()).days)
        case timedelta():
            return query_pb2.Value(interval_us=_microseconds(value))
        case _:
            raise InvalidRequest(f"no column can hold the parameter {value!r:.100}")


def _microseconds(interval: timedelta) -> int:
    length_us = interval // timedelta(microseconds=1)
    if length_us not in _INT64:
        raise InvalidRequest(f"the interval {interval} has too many microseconds")
    return length_us


def _from_wire(value: query_pb2.Value) -> Any:
    match value.WhichOneof("kind"):
        case None:
            return None
        case "timestamp_us":
            return _moment(microseconds=value.timestamp_us)
        case "date_days":
            return _moment(days=value.date_days).date()
        case "interval_us":
            return timedelta(microseconds=value.interval_us)
        case kind:
            return getattr(value, kind)


def _moment(*, days: int = 0, microseconds: int = 0) -> datetime:
    try:
        return _EPOCH + timedelta(days=days, microseconds=microseconds)
    except OverflowError:
        raise InvalidRequest(
            f"no calendar has {days} days and {microseconds} us after 1970"
        ) from None
