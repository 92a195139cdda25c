"""Known callers and their scopes; all other callers are refused."""

import os
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf import descriptor_pool

from shedder.errors import BadSetting, PermissionDenied, Unauthenticated
from shedder.server.authentication import (
    Identity,
    Scope,
    Tokens,
    bearer_token,
    new_token,
    parse_tokens,
)
from shedder.server.authorization import SCOPES, Gate
from shedder.server.interceptor import STAYS_OPEN
from shedder.server.listener import checked_address
from shedder.settings import Settings
from tests.server.worlds import METHODS, SERVICES

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def test_a_new_token_is_known_by_its_entry_alone():
    token, entry = new_token("collector", [Scope.INGEST], NOW)
    assert token not in entry
    (identity,) = parse_tokens(entry).values()
    assert identity == Identity("collector", frozenset({Scope.INGEST}), NOW)


@pytest.mark.parametrize("name", ['O"Brien', "O'Brien", "a\\b", "J\u00f6rg \U0001f600"])
def test_a_token_may_have_any_name_that_can_be_printed(name):
    (identity,) = parse_tokens(new_token(name, [Scope.QUERY])[1]).values()
    assert identity.name == name


@pytest.mark.parametrize("name", ["", "a\nb", "a\x7fb", "a\0"])
def test_a_name_that_would_break_the_tokens_file_is_refused(name):
    with pytest.raises(BadSetting, match="cannot be named"):
        new_token(name, [Scope.QUERY])


def test_tokens_are_long_and_never_the_same():
    tokens = {new_token("a", [])[0] for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 43  # 256 bits, base64


@pytest.mark.parametrize(
    "text",
    [
        "not toml [",
        "tokens = 3",
        "token = [3]",
        "[[token]]\nsha256 = 'aa'",
        "[[token]]\nname = 'a'\nsha256 = 'aa'\nscopes = ['query']",
        f"[[token]]\nname = 'a'\nsha256 = '{'0' * 64}'",
        f"[[token]]\nname = 'a'\nsha256 = '{'0' * 64}'\nscopes = ['root']",
        f"[[token]]\nname = 'a'\nsha256 = '{'0' * 64}'\nscopes = 'query'\nexpires = 2026-01-01",
        f"[[token]]\nname = 'a'\nsha256 = '{'0' * 64}'\nscopes = ['query']\nexpires = 2026-01-01",
    ],
)
def test_a_broken_tokens_file_is_refused(text):
    with pytest.raises(BadSetting):
        parse_tokens(text)


def test_an_expired_token_is_refused_from_its_last_moment_on(tmp_path):
    token, entry = new_token("a", [Scope.QUERY], NOW)
    (tmp_path / "tokens").write_text(entry)
    before = Tokens(tmp_path / "tokens", now=lambda: NOW - timedelta(microseconds=1))
    assert before.identify(token).name == "a"
    with pytest.raises(Unauthenticated, match="expired"):
        Tokens(tmp_path / "tokens", now=lambda: NOW).identify(token)


def test_a_changed_tokens_file_is_taken_over_and_a_broken_one_is_not(tmp_path):
    path = tmp_path / "tokens"
    first, first_entry = new_token("first", [Scope.QUERY])
    second, second_entry = new_token("second", [Scope.QUERY])
    path.write_text(first_entry)
    tokens = Tokens(path)
    path.write_text(second_entry + "\n")
    tokens.refresh_or_keep()
    assert tokens.identify(second).name == "second"
    with pytest.raises(Unauthenticated):
        tokens.identify(first)
    for broken in (b"broken [", b"# no text: \xff\n", b"token = [3]"):
        path.write_bytes(broken)
        tokens.refresh_or_keep()
    os.unlink(path)
    tokens.refresh_or_keep()
    assert tokens.identify(second).name == "second"


@pytest.mark.parametrize(
    ("metadata", "token"),
    [
        ([("authorization", "Bearer abc")], "abc"),
        ([("x", "y"), ("authorization", "bearer  abc ")], "abc"),
        ([("authorization", "Basic abc")], None),
        ([("authorization", "Bearer ")], None),
        ([("authorization", b"Bearer abc")], None),
        ([], None),
    ],
)
def test_only_a_bearer_token_is_a_token(metadata, token):
    assert bearer_token(metadata) == token


def test_every_method_of_the_wire_has_its_scopes():
    health = descriptor_pool.Default().FindServiceByName("grpc.health.v1.Health")
    probes = {f"/grpc.health.v1.Health/{method.name}" for method in health.methods}
    assert set(SCOPES) == set(METHODS) | probes
    assert {method for method, scopes in SCOPES.items() if not scopes} == probes


@pytest.mark.parametrize(
    "method", [*METHODS, "/grpc.reflection.v1alpha.ServerReflection/X", "/a/b"]
)
def test_a_scope_opens_what_the_table_says_and_nothing_else(method):
    gate = Gate(Settings(insecure=True))
    gate.check(method, Identity("root", frozenset({Scope.ADMIN})))
    for scope in (Scope.INGEST, Scope.QUERY):
        identity = Identity("reader", frozenset({scope}))
        if scope in SCOPES.get(method, frozenset()):
            gate.check(method, identity)
        else:
            with pytest.raises(PermissionDenied, match="'reader' lacks the scope"):
                gate.check(method, identity)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "needs tls_cert and tls_key"),
        ({"listen": "0.0.0.0:1", "insecure": True}, "this machine only"),
        ({"listen": "example.com:1", "insecure": True}, "this machine only"),
        ({"insecure": True, "tokens_file": "t"}, "leave one of them out"),
        ({"insecure": True, "tls_cert": "c", "tls_key": "k"}, "leave one of them out"),
        ({"tls_cert": "c"}, "needs tls_cert and tls_key"),
        ({"tls_cert": "c", "tls_key": "k"}, "needs tokens_file or tls_client_ca"),
        ({"listen": "nowhere:x:y", "insecure": True}, "no address|this machine"),
    ],
)
def test_a_server_that_would_not_know_who_calls_does_not_start(options, problem):
    with pytest.raises(BadSetting, match=problem):
        checked_address(Settings(**options))


def test_what_is_safe_may_listen():
    assert checked_address(Settings(insecure=True)).is_loopback
    served = {"listen": "0.0.0.0:7077", "tls_cert": "c", "tls_key": "k"}
    assert not checked_address(Settings(**served, tokens_file="t")).is_loopback
    assert not checked_address(Settings(**served, tls_client_ca="ca")).is_loopback


def test_the_boundary_knows_every_method_that_stays_open():
    ours = {
        f"/{service.full_name}/{method.name}"
        for service in SERVICES
        for method in service.methods
        if method.server_streaming and method.name != "Execute"
    }
    assert ours == {method for method in STAYS_OPEN if method.startswith("/shedder.")}
