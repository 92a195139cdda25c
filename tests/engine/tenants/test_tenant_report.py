"""Quotas of tenants: what comes, what stands, what is refused, each exactly counted."""

from __future__ import annotations

import pytest

import shedder
from shedder.engine.engine import Engine
from shedder.errors import (
    BadBatch,
    BadQuery,
    BadSetting,
    Overloaded,
    QuotaExceeded,
    RateExceeded,
    UnknownTenant,
)
from shedder.simulation.virtual_environment import VirtualEnvironment
from tests.engine.two_tenants import ACME, BOLT, CREATE, SEND, START, batch


class Clocked(VirtualEnvironment):
    """A virtual machine whose clock is put on."""

    def __init__(self):
        super().__init__(1, START)
        self.s = 0.0

    def monotonic_s(self):
        return self.s


@pytest.fixture
def machine():
    return Clocked()


@pytest.fixture
def engine(tmp_path, machine):
    engine = Engine.open(tmp_path / "data", machine=machine)
    for caller, name in ((ACME, "a"), (BOLT, "b")):
        engine.execute(CREATE.format(name), caller=caller)
    yield engine
    engine.close()


def facts(engine, tenant):
    rows = engine.control().to_pylist()
    return {r["key"]: r["value"] for r in rows if (r["entity"], r["name"]) == ("tenant", tenant)}


def test_what_is_over_the_rate_is_refused_undecoded_and_counted(engine, machine):
    engine.quotas.set_quota("acme", "rows_per_s", "100")
    came = refused = 0
    waits_ms = []
    for step in range(200):  # 1,000 rows/s for ten seconds: ten times the quota.
        machine.s = step / 20
        try:
            engine.append("a", batch(50), rows=50, **SEND)
            came += 50
        except RateExceeded as error:
            waits_ms.append(error.retry_after_ms)
            refused += 1
        engine.append("b", batch(50), rows=50, **SEND)
    machine.settle()
    ledger = engine.ledger("a")
    assert (ledger.accepted, ledger.refused_batches) == (came, refused)
    assert ledger.refused_rows == 50 * refused
    assert all(20 <= wait_ms <= 5_500 for wait_ms in waits_ms)  # Each has another turn,
    assert min(waits_ms) <= 500  # ... and there is room for a batch every 500 ms.
    assert 100 * 10 <= came <= 100 * 11 + 50
    assert engine.ledger("b").accepted == 200 * 50
    assert facts(engine, "acme")["refused_rows"] == str(50 * refused)
    assert facts(engine, "bolt")["refused_batches"] == "0"


def test_who_waits_was_not_refused(engine):
    engine.quotas.set_quota("acme", "bytes_per_s", "1KiB")
    engine.append("a", batch(5_000), rows=5_000, **SEND)
    with pytest.raises(RateExceeded):
        engine.append("a", batch(1), rows=1, will_retry=True, **SEND)
    assert engine.ledger("a").refused_batches == 0


def test_a_batch_that_declares_fewer_rows_than_it_has_is_refused(engine):
    with pytest.raises(BadBatch, match="declares 1 rows and has 500"):
        engine.append("a", batch(500), rows=1, **SEND)
    assert engine.ledger("a").refused_rows == 500


def test_what_the_load_refuses_does_not_use_the_quota_up(engine, machine):
    engine.quotas.set_quota("acme", "rows_per_s", "100")
    engine.core.door.hold(1.0, {"a": 1.0}, 0.0, 0.1)
    engine.core.door.wait_ms("a", 1, 1.0)  # In debt from here on.
    machine.s = 1.0
    for _ in range(5):
        with pytest.raises(Overloaded) as refused:
            engine.append("a", batch(90), rows=90, **SEND)
        assert type(refused.value) is Overloaded
    engine.core.door.hold(float("inf"), {"a": 1.0}, 1.0, 0.1)
    engine.append("a", batch(90), rows=90, **SEND)


def test_an_archive_grows_up_to_its_quota_and_goes_on_when_there_is_room(tmp_path):
    def send(stream, rows):
        engine.append(stream, batch(rows), rows=rows, **SEND).result()

    with Engine.open(tmp_path / "data") as engine:
        for caller, name in ((ACME, "a"), (BOLT, "b")):
            engine.execute(CREATE.format(name), caller=caller)
        send("a", 100)
        engine.seal("a")
        there = int(facts(engine, "acme")["archive_bytes"])
        (run,) = engine.core.store.runs(engine.core.stream("a").id)
        assert there == run.size_bytes == run_file_bytes(tmp_path)
        engine.quotas.set_quota("acme", "archive_bytes", str(there + 1))
        send("a", 100)
        engine.ledger("a")  # Once it is applied.
        with pytest.raises(QuotaExceeded, match="RETAIN"):
            send("a", 7)
        ledger = engine.ledger("a")
        assert (ledger.accepted, ledger.refused_rows) == (200, 7)
        send("b", 7)  # A stream of another tenant.
        engine.quotas.set_quota("acme", "archive_bytes", "none")
        send("a", 7)
        assert engine.ledger("a").accepted == 207


def run_file_bytes(directory):
    return sum(path.stat().st_size for path in directory.rglob("*.parquet"))


def test_queries_stand_up_to_the_quota_and_stay_when_it_is_lowered(engine):
    engine.quotas.set_quota("acme", "queries", "2")
    for name in ("p", "q"):
        engine.register(name, "SELECT SUM(x) AS s FROM a", caller=ACME)
    with pytest.raises(QuotaExceeded, match="'acme' has 2 standing queries, its quota is 2"):
        engine.register("r", "SELECT AVG(x) AS s FROM a", caller=ACME)
    assert engine.register("q", "SELECT SUM(x) AS s FROM a").name == "q"  # It stands already.
    with pytest.raises(QuotaExceeded):  # An operator's, too: it would be the tenant's.
        engine.register("r", "SELECT AVG(x) AS s FROM a")
    engine.register("r", "SELECT AVG(x) AS s FROM b", caller=BOLT)
    engine.quotas.set_quota("acme", "queries", "0")
    assert facts(engine, "acme")["queries"] == "2"
    engine.query("p").drop()
    with pytest.raises(QuotaExceeded):
        engine.register("p", "SELECT SUM(x) AS s FROM a", caller=ACME)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rows_per_s", "-1"),
        ("rows_per_s", "nan"),
        ("rows_per_s", "inf"),
        ("rows_per_s", ""),
        ("queries", "1e400"),
        ("weight", "0"),
        ("rows", "5"),
        ("rows", "default"),
    ],
)
def test_what_no_quota_can_be_changes_nothing(engine, key, value):
    engine.quotas.set_quota("acme", "rows_per_s", "7")
    with pytest.raises(BadSetting):
        engine.set_control("tenant", "acme", key, value)
    assert facts(engine, "acme")["rows_per_s_max"] == "7.0"


def test_nobody_has_a_quota_who_is_not_known(engine):
    with pytest.raises(UnknownTenant, match="'absent'; there are acme, bolt, default"):
        engine.set_control("tenant", "absent", "queries", "1")


def test_a_control_goes_before_the_file_and_holds_over_a_restart(tmp_path):
    file = tmp_path / "tenants.toml"
    file.write_text("[tenant.acme]\nrows_per_s = 100\nqueries = 3\n")
    with shedder.open(tmp_path / "d", tenants_file=file) as engine:
        assert facts(engine, "acme")["rows_per_s_max"] == "100.0"
        engine.set_control("tenant", "acme", "rows_per_s", "50")
        engine.set_control("tenant", "acme", "queries", "none")
    file.write_text("[tenant.acme]\nrows_per_s = 200\nqueries = 3\nweight = 2\n")
    with shedder.open(tmp_path / "d", tenants_file=file) as engine:
        assert engine.core.tenants.quota("acme").rows_per_s == 50.0
        assert engine.core.tenants.quota("acme").queries is None
        assert engine.core.tenants.quota("acme").weight == 2.0
        for key in ("rows_per_s", "queries"):
            engine.set_control("tenant", "acme", key, "default")
        assert engine.core.tenants.quota("acme").rows_per_s == 200.0
    with shedder.open(tmp_path / "d", tenants_file=file) as engine:
        assert engine.core.tenants.quota("acme").queries == 3


def test_a_changed_file_is_taken_over_and_a_broken_one_is_not(tmp_path):
    file = tmp_path / "tenants.toml"
    file.write_text("[tenant.acme]\nqueries = 3\n")
    with shedder.open(tmp_path / "d", tenants_file=file) as engine:
        file.write_text("[tenant.acme]\nqueries = 30\n")
        engine.quotas.refresh_tenants()
        assert engine.core.tenants.quota("acme").queries == 30
        file.write_text("[tenant.acme]\nqueries = -30\n")
        engine.quotas.refresh_tenants()
        file.unlink()
        engine.quotas.refresh_tenants()
        assert engine.core.tenants.quota("acme").queries == 30
    with pytest.raises(BadSetting, match="cannot read the tenants file"):
        shedder.open(tmp_path / "d", tenants_file=file)


def test_tenants_are_shown_to_operators_and_each_to_itself(engine):
    engine.register("p", "SELECT COUNT(DISTINCT x) AS d FROM a", caller=ACME)
    shown = {row["tenant"]: row for row in engine.execute("SHOW TENANTS").table.to_pylist()}
    assert list(shown) == ["acme", "bolt", "default"]
    assert (shown["acme"]["streams"], shown["acme"]["queries"]) == (1, 1)
    assert shown["acme"]["synopsis_bytes"] == int(engine.query("p").granted["bytes"])
    assert shown["bolt"]["synopsis_bytes"] == 0
    own = engine.execute("SHOW TENANTS", caller=ACME).table
    assert own["tenant"].to_pylist() == ["acme"]
    with pytest.raises(BadQuery, match="TENANTS"):
        engine.execute("SHOW TENNANTS")
