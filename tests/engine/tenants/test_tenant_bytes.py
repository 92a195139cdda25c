"""Bytes of synopses by tenant: each within its quota, and told whose quota was in the way."""

from __future__ import annotations

import re

import pytest

import shedder
from shedder.engine.apply.size_records import shrinks
from shedder.engine.runtime.caller import Caller
from shedder.errors import BudgetExceeded, PrecisionUnavailable
from tests.engine.query_worlds import reallocate

KIB = 1024
WINDOW = "[RANGE INTERVAL '10' SECOND SLIDE INTERVAL '5' SECOND]"


@pytest.fixture
def db(tmp_path):
    quotas = tmp_path / "tenants.toml"
    quotas.touch()
    settings = {"checkpoint_seconds": 1e6, "allocation_seconds": 1e6, "tenants_file": quotas}
    with shedder.open(tmp_path / "data", **settings) as engine:
        for tenant in ("acme", "bolt"):
            engine.execute(
                f"CREATE STREAM {tenant} (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts",
                caller=Caller(tenant),
            )
        yield engine


def distinct(tenant, k=0, target="WITHIN 1 PERCENT"):
    return f"SELECT COUNT(DISTINCT k + {k}) AS d FROM {tenant} {WINDOW} {target}"


def taken(db):
    return {row["tenant"]: row["synopsis_bytes"] for row in db.quotas.tenants().to_pylist()}


def settled(db):
    """Once all records of sizes are in force."""
    while db.core.executor.call(lambda: shrinks(db.core)).result():
        pass
    for tenant in ("acme", "bolt"):
        db.heartbeat(tenant, 0)


def test_a_query_over_its_tenants_quota_is_told_so_with_the_price(db):
    whole = int(db.register("free", distinct("bolt")).granted["bytes"])
    db.quotas.set_quota("acme", "synopsis_bytes", str(whole // 2))
    granted = db.register("bound", distinct("acme")).granted
    assert int(granted["bytes"]) <= whole // 2
    assert granted["limited_by"] == "the quota of tenant 'acme'"
    assert "are free in the quota of tenant 'acme'" in granted["missed"]
    assert "error falls by" in granted["count distinct price"]
    assert int(granted["free_bytes"]) <= whole // 2
    assert "limited_by" not in db.query("free").granted
    with pytest.raises(PrecisionUnavailable, match="in the quota of tenant 'acme'"):
        db.register("promised", distinct("acme", 1, "WITHIN 1 PERCENT ELSE FAIL"))
    db.register("promised", distinct("bolt", 1, "WITHIN 1 PERCENT ELSE FAIL"))


@pytest.mark.parametrize("share", [1.02, 1.5, 1.9])
def test_a_quota_that_is_raised_by_what_is_told_to_lack_is_enough(db, share):
    promised = "WITHIN 1 PERCENT ELSE FAIL"
    first = int(db.register("first", distinct("acme", 0, promised)).granted["bytes"])
    quota = int(share * first)
    db.quotas.set_quota("acme", "synopsis_bytes", str(quota))
    more = distinct("acme", 1, promised)
    with pytest.raises(PrecisionUnavailable) as refused:
        db.register("more", more)
    words = r"needs ([\d,]+) KiB for its targets, ([\d,]+) KiB are free in the quota of"
    sizes = re.search(words, str(refused.value))
    assert sizes is not None, refused.value
    needed, free = (int(number.replace(",", "")) for number in sizes.groups())
    assert free == (quota - first) // 1024
    db.quotas.set_quota("acme", "synopsis_bytes", str(quota + (needed - free) * 1024))
    assert "missed" not in db.register("more", more).granted
    assert "missed" not in db.query("first").granted


def test_a_tenants_own_queries_make_room_and_no_others(db):
    other = int(db.register("other", distinct("bolt", target="")).granted["bytes"])
    first = int(db.register("first", distinct("acme", target="")).granted["bytes"])
    db.quotas.set_quota("acme", "synopsis_bytes", str(first + first // 8))
    db.register("second", distinct("acme", 1, target=""))
    settled(db)
    now = taken(db)
    assert now["acme"] <= first + first // 8
    assert now["bolt"] >= other
    rows = db.budgets.allocation().to_pylist()
    assert sum(row["size_bytes"] for row in rows if row["query"] == "first") < first


def test_a_quota_that_is_lowered_shrinks_its_queries_alone(db):
    for tenant in ("acme", "bolt"):
        for number in range(3):
            db.register(f"{tenant}{number}", distinct(tenant, number))
    settled(db)
    before = taken(db)
    db.quotas.set_quota("acme", "synopsis_bytes", str(before["acme"] // 2))
    settled(db)
    assert taken(db)["acme"] <= before["acme"] // 2
    assert taken(db)["bolt"] >= before["bolt"]
    db.quotas.set_quota("acme", "synopsis_bytes", "none")
    settled(db)
    assert taken(db) == before


def test_a_quota_below_the_smallest_synopses_is_refused_and_one_in_a_file_harms_nobody(
    db, tmp_path
):
    for tenant in ("acme", "bolt"):
        db.register(tenant, distinct(tenant))
    settled(db)
    before = taken(db)
    with pytest.raises(BudgetExceeded, match=r"'acme' take .* bytes more than that"):
        db.quotas.set_quota("acme", "synopsis_bytes", "1KiB")
    reallocate(db)
    settled(db)
    assert taken(db) == before
    (tmp_path / "tenants.toml").write_text("[tenant.acme]\nsynopsis_bytes = '1KiB'\n")
    db.quotas.refresh_tenants()
    reallocate(db)  # As small as it can be; the others as they were.
    settled(db)
    assert 1 * KIB < taken(db)["acme"] < before["acme"]
    assert taken(db)["bolt"] == before["bolt"]
    with pytest.raises(BudgetExceeded, match="does not fit the quota of tenant 'acme'"):
        db.register("more", distinct("acme", 1))
    db.register("others", distinct("bolt", 1))


def test_nobody_is_told_whose_promise_is_in_the_way(db):
    whole = int(
        db.register("secret", distinct("bolt", 0, "WITHIN 1 PERCENT ELSE FAIL")).granted["bytes"]
    )
    db.budgets.set_synopsis_bytes(whole + 4 * KIB)
    with pytest.raises((PrecisionUnavailable, BudgetExceeded)) as refused:
        db.register("x", distinct("acme", 0, "WITHIN 1 PERCENT ELSE FAIL"))
    assert "secret" not in str(refused.value)
