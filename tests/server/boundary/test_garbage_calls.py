"""Any bytes and any headers at any method end in an error that says what is wrong with them."""

from __future__ import annotations

import random

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from shedder.errors import InvalidRequest, Unauthenticated
from tests.scale import scaled
from tests.seeds import seed
from tests.server.boundary.calls import DESCRIPTORS, bearer, call, refusal
from tests.server.worlds import METHODS
from tests.server_process import running

DECLARED = "shedder-declared-bin"
TRUNCATED = b"\x0a\x7f"  # A field of 127 bytes that do not follow.
HEADERS = [
    (),
    ((DECLARED, b"\xff"),),
    ((DECLARED, b""), (DECLARED, b"")),
    (("authorization", "Bearer"), ("authorization", "~")),
    (("shedder-declared-bin", bytes(4_000)),),
    (("grpc-timeout-of-mine", "1H"), ("te", "x")),
]
# What may come of bytes that happen to be a request of a method; never UNKNOWN or INTERNAL.
ORDERLY = frozenset(grpc.StatusCode) - {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}


@pytest.fixture
def served(engine, authority):
    with running(engine, authority.settings(tokens_file=authority.tokens_file)) as address:
        yield str(address)


@pytest.fixture
def channel(served, authority):
    with grpc.secure_channel(served, grpc.ssl_channel_credentials(authority.ca_pem)) as channel:
        yield channel


@pytest.fixture
def admin(authority):
    return bearer(authority.tokens["admin"])


def outcome(channel, method, metadata, data):
    """Return the status of a call, and what it says."""
    try:
        call(channel, method, metadata, data, timeout_s=5.0)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return grpc.StatusCode.OK, ""


def parses(method: str, data: bytes) -> bool:
    kind = message_factory.GetMessageClass(DESCRIPTORS[method].input_type)
    try:
        kind.FromString(data)
    except DecodeError:
        return False
    return True


@pytest.mark.parametrize("data", [b"\xff", TRUNCATED, b"\x08" + b"\xff" * 11])
def test_bytes_that_are_no_protobuf_are_invalid_arguments_of_every_method(channel, admin, data):
    for method in METHODS:
        assert not parses(method, data)
        error = refusal(channel, method, admin, data)
        assert type(error) is InvalidRequest, method
        assert "cannot be read: Error parsing message" in str(error)
        assert str(error).endswith(f"({len(data)} bytes)")


def test_without_an_identity_no_method_looks_at_the_bytes(channel, authority):
    for method in METHODS:
        for metadata in ((), bearer("x" * 43), bearer(authority.tokens["expired"])):
            assert type(refusal(channel, method, metadata, b"\xff")) is Unauthenticated, method


@pytest.mark.slow
def test_no_bytes_and_no_headers_come_to_a_bug(channel, admin):
    draw = random.Random(seed("garbage calls"))
    for number in range(scaled(6, 60)):
        for method in METHODS:
            data = draw.randbytes(draw.choice((0, 1, 2, 3, 10, 100, 10_000)))
            headers = HEADERS[number % len(HEADERS)]
            code, details = outcome(channel, method, (*headers, *admin), data)
            said = f"{method} {headers} {data[:20]!r}: {code} {details}"
            assert code in ORDERLY, said
            if not parses(method, data) and not headers:
                assert code is grpc.StatusCode.INVALID_ARGUMENT, said


def test_reflection_refuses_bytes_that_are_no_request(engine, authority, admin):
    method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    settings = authority.settings(tokens_file=authority.tokens_file, reflection=True)
    credentials = grpc.ssl_channel_credentials(authority.ca_pem)
    with running(engine, settings) as address, grpc.secure_channel(str(address), credentials) as c:
        with pytest.raises(grpc.RpcError) as found:
            list(c.stream_stream(method)(iter([b"\xff"]), metadata=admin))
        assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_probes_with_bytes_that_are_no_request_are_refused(channel):
    for method, kind in (("Check", channel.unary_unary), ("Watch", channel.unary_stream)):
        with pytest.raises(grpc.RpcError) as found:
            list(kind(f"/grpc.health.v1.Health/{method}")(b"\xff"))
        assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_call_without_a_request_is_refused(channel, admin):
    method = channel.stream_unary("/shedder.v1.Ingest/GetLedger")
    with pytest.raises(grpc.RpcError) as found:
        method(iter([]), metadata=admin)
    assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "has no request" in found.value.details()
