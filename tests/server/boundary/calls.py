"""Calls of any method with any bytes, which no client makes."""

from __future__ import annotations

from itertools import islice

import grpc
import pytest

from shedder.wire.status import from_call
from tests.server.worlds import PATIENCE_S, SERVICES

DESCRIPTORS = {
    f"/{service.full_name}/{method.name}": method
    for service in SERVICES
    for method in service.methods
}


def call(channel: grpc.Channel, method: str, metadata=(), request=b"", timeout_s=PATIENCE_S):
    """Call a method with these bytes, in the way that its descriptor says."""
    descriptor = DESCRIPTORS[method]
    kind = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[descriptor.client_streaming, descriptor.server_streaming]
    multicallable = kind(method)
    sent = iter([request]) if descriptor.client_streaming else request
    response = multicallable(sent, metadata=metadata, timeout=timeout_s)
    return list(islice(response, 2)) if descriptor.server_streaming else response


def refusal(channel: grpc.Channel, method: str, metadata=(), request=b""):
    """The error that a call ends with; it must end with one."""
    with pytest.raises(grpc.RpcError) as raised:
        call(channel, method, metadata, request)
    error = raised.value
    return from_call(error.code(), error.details(), error.trailing_metadata(), "here")


def bearer(token: str):
    return (("authorization", f"Bearer {token}"),)
