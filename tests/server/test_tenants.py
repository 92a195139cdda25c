"""Tenants of one server: their tokens and certificates, and what each may do over the wire."""

from __future__ import annotations

import pytest

import shedder
from shedder.engine.runtime.caller import Scope
from shedder.errors import (
    BadSetting,
    PermissionDenied,
    Unauthenticated,
    UnknownQuery,
    UnknownStream,
)
from shedder.server.authentication import new_token, parse_certificates, parse_tokens
from shedder.server.authorization import Gate
from tests.server.worlds import CREATE
from tests.server.worlds import connect as connect_to
from tests.server_process import running
from tests.streams.streams import trades

REFERS = " FOREIGN KEY (ts) REFERENCES trades (ts) WITHIN 0 TUPLES"
OWN = [Scope.INGEST, Scope.QUERY, Scope.DEFINE]
CERTIFICATE = """
[[certificate]]
name = "collector.acme.example"
scopes = ["ingest"]
tenant = "acme"
"""


@pytest.fixture
def tokens(authority):
    """By name; acme has two."""
    made = dict(authority.tokens)
    for name, tenant, scopes in (
        ("acme", "acme", OWN),
        ("acme-2", "acme", [Scope.INGEST, Scope.QUERY]),
        ("bolt", "bolt", OWN),
    ):
        made[name], entry = new_token(name, scopes, tenant=tenant)
        with authority.tokens_file.open("a") as file:
            file.write("\n" + entry)
    return made


@pytest.fixture
def connect(tmp_path, authority, tokens):
    """Connects as a tenant to one server."""
    settings = authority.settings(tokens_file=authority.tokens_file)
    with shedder.open(tmp_path / "data", settings) as engine, running(engine, settings) as address:
        opened = []

        def connect(name):
            opened.append(connect_to(address, token=tokens[name], ca=authority.ca_pem))
            return opened[-1]

        yield connect
        for client in opened:
            client.close()


@pytest.mark.slow
def test_a_tenant_makes_fills_asks_and_drops_its_own(connect):
    acme = connect("acme")
    acme.execute(CREATE.format("trades"))
    query = acme.register("n", "SELECT COUNT(*) AS n FROM trades")
    receipt = acme.push("trades", trades(100))
    assert query.answer(after=receipt).rows()[0]["n"] == 100
    assert acme.ledger("trades").accepted == 100
    query.drop()
    acme.execute("DROP STREAM trades")


@pytest.mark.slow
def test_nothing_of_another_tenant_is_there_by_any_method(connect):
    acme, bolt = connect("acme"), connect("bolt")
    acme.execute(CREATE.format("trades"))
    acme.register("n", "SELECT COUNT(*) AS n FROM trades")
    for refused in (
        lambda: bolt.push("trades", trades(10)),
        lambda: bolt.producer("trades", "p"),
        lambda: bolt.heartbeat("trades", 0),
        lambda: bolt.ledger("trades"),
        lambda: bolt.execute("SELECT COUNT(*) FROM trades"),
        lambda: bolt.register("m", "SELECT COUNT(*) AS n FROM trades"),
        lambda: bolt.plans("trades"),
        lambda: bolt.merge("trades", b""),
        lambda: bolt.execute(CREATE.format("mine") + REFERS),
    ):
        with pytest.raises(UnknownStream, match="there are no streams yet"):
            refused()
    for refused in (
        lambda: bolt.query("n").answer(),
        lambda: next(bolt.query("n").subscribe()),
        lambda: bolt.query("n").explain(),
        lambda: bolt.query("n").drop(),
    ):
        with pytest.raises(UnknownQuery, match="there are no queries yet"):
            refused()
    assert connect("admin").ledger("trades").accepted == 0


@pytest.mark.slow
def test_two_tokens_of_one_tenant_share_its_names_and_each_has_its_scopes(connect):
    first, second = connect("acme"), connect("acme-2")
    first.execute(CREATE.format("trades"))
    second.push("trades", trades(10))
    assert first.ledger("trades").accepted == 10
    with pytest.raises(PermissionDenied, match="lacks the scope define"):
        second.execute("DROP STREAM trades")


@pytest.mark.slow
def test_who_has_no_tenant_is_the_default_one_and_admin_is_everybody(connect):
    connect("acme").execute(CREATE.format("trades"))
    assert len(connect("query").execute("SHOW STREAMS").table) == 0
    admin = connect("admin")
    assert admin.execute("SHOW STREAMS").table["stream"].to_pylist() == ["trades"]
    admin.execute("DROP STREAM trades")


@pytest.mark.parametrize("name", ["", "Acme", "a b", "-a", "a" * 64, 3, None])
def test_no_tenant_has_such_a_name(name):
    _, entry = new_token("x", [Scope.QUERY])
    wrong = "0" if name is None else repr(name).replace("'", '"')
    with pytest.raises(BadSetting, match="a tenant cannot be named"):
        parse_tokens(f"{entry}tenant = {wrong}\n")


def test_a_certificate_that_the_file_names_stands_for_a_token(authority):
    authority.tokens_file.write_text(CERTIFICATE)
    gate = Gate(authority.settings(tokens_file=authority.tokens_file))
    known = gate.identify((), {"x509_common_name": [b"collector.acme.example"]})
    assert (known.tenant, known.scopes) == ("acme", {Scope.INGEST})
    others = [b"other", b"collector.acme.example"]
    assert gate.identify((), {"x509_subject_alternative_name": others}) == known
    for unnamed in ({}, {"x509_common_name": [b"collector.bolt.example"]}):
        with pytest.raises(Unauthenticated):
            gate.identify((), unnamed)


@pytest.mark.parametrize(
    "text",
    [
        CERTIFICATE.replace("acme.example", "x").replace("name", "nam"),
        CERTIFICATE.replace("ingest", "root"),
        CERTIFICATE.replace('"acme"', '"ACME"'),
        "certificate = 3",
    ],
)
def test_a_wrong_entry_of_a_certificate_is_refused(text):
    with pytest.raises(BadSetting):
        parse_certificates(text)
