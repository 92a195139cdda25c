"""Backfills over the wire, of streams with a tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.client import Client
from shedder.engine.runtime.caller import Scope
from shedder.errors import PermissionDenied, RateExceeded, UnknownStream
from shedder.server.authentication import new_token
from spark_ingest.parts import send_part
from tests.server.worlds import CREATE
from tests.server.worlds import connect as connect_to
from tests.server_process import running

SECOND = 1_000_000
OWN = [Scope.INGEST, Scope.QUERY, Scope.DEFINE]
QUOTAS = """
[tenant.acme]
rows_per_s = 100
queries = 1
"""


def past(rows: int, part: int) -> pa.Table:
    rng = np.random.default_rng(part)
    times = (10 * part + np.sort(rng.uniform(0, 10, rows))) * SECOND
    return pa.table(
        {
            "ts": pa.array(times.astype(np.int64), pa.timestamp("us")),
            "key": rng.integers(0, 100, rows),
            "value": rng.normal(0, 1, rows),
        }
    )


@pytest.fixture
def connect(tmp_path: Path, authority) -> Iterator[Callable[[str], Client]]:
    """Connects as a tenant to one server, on which acme may send little."""
    tokens = dict(authority.tokens)
    for name in ("acme", "bolt"):
        tokens[name], entry = new_token(name, OWN, tenant=name)
        with authority.tokens_file.open("a") as file:
            file.write("\n" + entry)
    quotas = tmp_path / "tenants.toml"
    quotas.write_text(QUOTAS)
    settings = authority.settings(tokens_file=authority.tokens_file, tenants_file=quotas)
    with shedder.open(tmp_path / "data", settings) as engine, running(engine, settings) as address:
        opened = []

        def connect(name: str) -> Client:
            who = {"token": tokens[name], "ca": authority.ca_pem}
            opened.append(connect_to(address, **who, patience_s=0))
            return opened[-1]

        yield connect
        for client in opened:
            client.close()


def test_only_an_operator_backfills_and_not_even_its_owner_begins(connect):
    acme = connect("acme")
    acme.execute(CREATE.format("trades"))
    for client in (acme, connect("bolt")):
        for refused in (
            lambda c=client: c.begin_backfill("trades", "old", "a plan", 1),
            lambda c=client: c.write_backfill("trades", "old", 0, "a", 0, 0, b"x"),
            lambda c=client: c.adopt_backfill("trades", "old", rows=0),
            lambda c=client: c.abandon_backfill("trades", "old"),
        ):
            with pytest.raises(PermissionDenied, match="lacks the scope admin"):
                refused()
    assert acme.ledger("trades").backfilled == 0


@pytest.mark.slow
def test_a_tenant_s_stream_gets_its_past_whatever_its_quota_of_rows(connect):
    acme, admin = connect("acme"), connect("admin")
    acme.execute(CREATE.format("trades"))
    query = acme.register("n", "SELECT COUNT(*) AS n, SUM(key) AS s FROM trades")
    parts = [past(3_000, 0), past(2_000, 1)]
    state = admin.begin_backfill("trades", "old", "a plan", len(parts))
    for number, rows in enumerate(parts):
        send_part(admin, state, "old", number, rows, watermark_us=20 * SECOND)
    assert acme.execute("SELECT COUNT(*) AS n FROM trades").rows()[0]["n"] == 0
    assert admin.adopt_backfill("trades", "old", rows=5_000).rows == 5_000
    total = sum(int(rows["key"].to_numpy().sum()) for rows in parts)
    row = query.answer().rows()[0]
    assert (row["n"], row["s"], row["n_bound"]) == (5_000, total, "exact")
    assert acme.execute("SELECT COUNT(*) AS n FROM trades").rows()[0]["n"] == 5_000
    assert acme.ledger("trades").backfilled == 5_000
    with pytest.raises(UnknownStream):
        connect("bolt").execute("SELECT COUNT(*) FROM trades")
    acme.push("trades", past(5_000, 2))  # Nothing was charged before; this is.
    with pytest.raises(RateExceeded):
        acme.push("trades", past(5_000, 3))
