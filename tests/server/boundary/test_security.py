"""Callers that the server does not know are refused, method by method."""

import contextlib
import random

import grpc
import pytest

import shedder
from shedder.engine.runtime.caller import Scope
from shedder.errors import PermissionDenied, Unauthenticated, Unreachable
from shedder.server.authorization import SCOPES
from tests.server.boundary.calls import bearer, call, refusal
from tests.server.worlds import CREATE_TRADES, METHODS
from tests.server.worlds import connect as connect_to
from tests.server_process import running
from tests.streams.streams import trades


@pytest.fixture
def served(engine, authority):
    with running(engine, authority.settings(tokens_file=authority.tokens_file)) as address:
        yield str(address)


@pytest.fixture
def channel(served, authority):
    with grpc.secure_channel(served, grpc.ssl_channel_credentials(authority.ca_pem)) as channel:
        yield channel


def test_no_method_answers_to_the_unknown(channel, authority):
    for method in METHODS:
        assert type(refusal(channel, method)) is Unauthenticated, method
        for name in ("unknown", "expired"):
            error = refusal(channel, method, bearer(authority.tokens[name]))
            assert type(error) is Unauthenticated, (method, name)
        basic = (("authorization", f"Basic {authority.tokens['admin']}"),)
        assert type(refusal(channel, method, basic)) is Unauthenticated, method


def test_no_method_answers_to_the_wrong_scope(channel, authority):
    for method in METHODS:
        for scope in (Scope.INGEST, Scope.QUERY):
            if scope not in SCOPES[method]:
                error = refusal(channel, method, bearer(authority.tokens[scope.value]))
                assert type(error) is PermissionDenied, (method, scope)


def test_no_method_answers_in_plain_text_or_to_the_wrong_authority(served, authority):
    rival = grpc.ssl_channel_credentials(authority.rival.cert_pem.bytes())
    metadata = bearer(authority.tokens["admin"])
    with grpc.insecure_channel(served) as plain, grpc.secure_channel(served, rival) as wrong:
        for method in METHODS:
            assert type(refusal(plain, method, metadata)) is Unreachable, method
            assert type(refusal(wrong, method, metadata)) is Unreachable, method


def test_probes_need_no_token_and_what_does_not_exist_is_not_there(channel):
    probe = channel.unary_unary("/grpc.health.v1.Health/Check")
    assert probe(b"") == b"\x08\x01"  # SERVING
    with pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary("/shedder.v1.Ingest/Steal")(b"")
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_reflection_is_not_offered_unless_asked_for_and_then_only_to_the_known(
    engine, authority, channel
):
    method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    with pytest.raises(grpc.RpcError) as raised:
        list(channel.stream_stream(method)(iter([b""])))
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
    settings = authority.settings(tokens_file=authority.tokens_file, reflection=True)
    credentials = grpc.ssl_channel_credentials(authority.ca_pem)
    with running(engine, settings) as address, grpc.secure_channel(str(address), credentials) as c:
        with pytest.raises(grpc.RpcError) as raised:
            list(c.stream_stream(method)(iter([b""])))
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        list_services = b"\x3a\x00"
        admin = bearer(authority.tokens["admin"])
        (listed,) = c.stream_stream(method)(iter([list_services]), metadata=admin)
        assert b"shedder.v1.Query" in listed


@pytest.mark.slow
def test_each_scope_does_its_own_work(served, authority):
    def connect(name):
        return connect_to(served, ca=authority.ca_pem, token=authority.tokens[name])

    with connect("admin") as admin, connect("ingest") as ingest, connect("query") as query:
        admin.execute(CREATE_TRADES)
        assert ingest.push("trades", trades(10)).position == 10
        assert query.execute("SELECT COUNT(*) AS n FROM trades").rows()[0]["n"] == 10
        with pytest.raises(PermissionDenied):
            query.push("trades", trades(10))
        with pytest.raises(PermissionDenied):
            ingest.execute("SELECT COUNT(*) FROM trades")
        thinning = "ALTER QUERY q SET THINNING 1/2"
        for statement in (CREATE_TRADES, "DROP STREAM trades", thinning):
            with pytest.raises(PermissionDenied, match="'query' lacks the scope define"):
                query.execute(statement)
        with pytest.raises(PermissionDenied):
            query.seal("trades")
        admin.seal("trades")


@pytest.mark.slow
def test_an_unknown_token_and_a_foreign_server_are_told_apart(served, authority):
    with (
        connect_to(served, ca=authority.ca_pem, token="x" * 43) as stranger,
        pytest.raises(Unauthenticated, match="not known"),
    ):
        stranger.execute("SHOW STREAMS")
    with pytest.raises(Unreachable):
        shedder.connect(served, ca=authority.rival.cert_pem.bytes(), token="x" * 43)
    with pytest.raises(Unreachable, match="If it speaks TLS"):
        shedder.connect(served, insecure=True)


def test_a_server_without_tls_is_told_apart_from_none(address, authority):
    with pytest.raises(Unreachable, match="It speaks without TLS"):
        shedder.connect(address, ca=authority.ca_pem)


def test_a_client_certificate_of_the_right_authority_is_enough(engine, authority):
    clients = authority.directory / "clients.pem"
    authority.ca.cert_pem.write_to_path(clients)
    mine = authority.ca.issue_cert("producer@example.com", common_name="producer")
    foreign = authority.rival.issue_cert("producer@example.com", common_name="producer")

    def connect(address, issued):
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        return connect_to(
            address, ca=authority.ca_pem, cert=chain, key=issued.private_key_pem.bytes()
        )

    with running(engine, authority.settings(tls_client_ca=clients)) as address:
        with connect(address, mine) as client:
            client.execute(CREATE_TRADES)
        with pytest.raises(Unreachable):
            connect(address, foreign)
        with pytest.raises(Unreachable):
            shedder.connect(str(address), ca=authority.ca_pem)


def test_a_renewed_certificate_is_taken_over_without_a_restart(served, authority):
    authority.renew(authority.rival.issue_cert("127.0.0.1", "localhost"))
    token = authority.tokens["admin"]
    with connect_to(served, ca=authority.rival.cert_pem.bytes(), token=token) as client:
        assert client.execute("SHOW STREAMS").rows() == []
    with pytest.raises(Unreachable):
        shedder.connect(served, ca=authority.ca_pem, token=token)


def test_junk_in_any_method_ends_in_an_error_and_leaves_the_server_healthy(channel, authority):
    draw = random.Random(5)
    admin = bearer(authority.tokens["admin"])
    for method in METHODS:
        for size in (1, 10, 1_000):
            with contextlib.suppress(grpc.RpcError):
                call(channel, method, admin, draw.randbytes(size), timeout_s=2.0)
    assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"") == b"\x08\x01"


def test_what_cannot_be_parsed_is_refused_without_internals(channel, authority):
    error = refusal(channel, "/shedder.v1.Query/Invoke", bearer(authority.tokens["admin"]), b"\xff")
    assert "Traceback" not in str(error)
    assert "site-packages" not in str(error)
