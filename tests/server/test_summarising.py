"""A client that sends what rows come to: the same answers, and an archive that becomes whole."""

from dataclasses import replace

import pytest

from shedder import errors
from shedder.overload.controller import NORMAL, STRETCH_MAX
from tests.server.conftest import CREATE_TRADES
from tests.streams.streams import trades

ASKED = (
    "SELECT COUNT(*) AS n, SUM(key) AS s, MIN(value) AS l, MAX(value) AS h, "
    "COUNT(DISTINCT key) AS d, QUANTILE(value, 0.9) AS q FROM {}"
)
ONCE = "SELECT COUNT(*) AS n, SUM(key) AS s FROM trades"


@pytest.fixture
def twins(client):
    """Two streams of the same tuples, of which one comes as summaries."""
    client.execute(CREATE_TRADES.replace("STREAM trades", "STREAM twins"))
    for name in ("trades", "twins"):
        client.register(f"of_{name}", ASKED.format(name))
    return client


def answers(client, name):
    client.ledger(name)
    return client.query(f"of_{name}").answer().table


@pytest.mark.slow
def test_what_comes_as_summaries_is_answered_as_what_comes_as_tuples(twins):
    for seed in range(3):
        twins.push("twins", trades(5_000, seed))
        receipt = twins.summarise(
            "trades", trades(5_000, seed), producer="p", sequence=seed, tuples_follow=True
        )
        assert (receipt.rows, receipt.duplicate) == (5_000, False)
        assert answers(twins, "trades").equals(answers(twins, "twins"))
    assert twins.summarise("trades", trades(5_000, 2), producer="p", sequence=2).duplicate
    assert twins.execute(ONCE).rows()[0]["n_bound"] == "none"
    for seed in range(3):
        assert twins.follow("trades", trades(5_000, seed), producer="p").rows == 5_000
    ledger = twins.ledger("trades")
    assert (ledger.applied, ledger.summarised, ledger.to_follow) == (15_000, 0, 0)
    assert ledger.accepted == ledger.applied + ledger.duplicate
    (row,) = twins.execute(ONCE).rows()
    assert (row["n"], row["n_bound"]) == (15_000, "exact")
    assert answers(twins, "trades").equals(answers(twins, "twins"))


@pytest.mark.slow
def test_a_producer_thins_at_the_source_and_what_was_offered_travels_along(twins):
    """Of the same tuples an eighth is read, and the intervals know it."""
    table = trades(40_000, 1)
    twins.push("twins", table)
    told = {"producer": "p", "sequence": 0}
    with pytest.raises(errors.BadSetting, match="thinning is '1/3'; it must be a share"):
        twins.summarise("trades", table, **told, thinning="1/3")
    twins.summarise("trades", table, **told, tuples_follow=True, thinning="1/8")
    thinned, full = (twins.query(f"of_{name}").answer() for name in ("trades", "twins"))
    assert (thinned.thinning, full.thinning) == (1 / 8, 1.0)
    (row,), (truth,) = thinned.rows(), full.rows()
    for name in "nslhdq":
        assert row[f"{name}_low"] <= truth[name] <= row[f"{name}_high"], name
    assert row["n"] == 40_000  # As many were offered.
    (ledger,) = twins.ledger("trades").queries
    assert ledger.read + ledger.thinned == 40_000
    assert 4_000 < ledger.read < 6_000
    twins.follow("trades", table, producer="p")
    (row,) = twins.execute(ONCE).rows()
    assert (row["n"], row["n_bound"]) == (40_000, "exact")


@pytest.mark.slow
def test_queries_that_come_meanwhile_are_in_the_summaries_too(twins, monkeypatch):
    old = twins.plans("trades")
    twins.register("later", "SELECT AVG(value) AS a FROM trades")
    plans = iter([old])
    ask = twins.plans
    monkeypatch.setattr(twins, "plans", lambda stream: next(plans, None) or ask(stream))
    twins.summarise("trades", iter([trades(100, 1)]))
    assert {(q.query, q.read) for q in twins.ledger("trades").queries} == {
        ("of_trades", 100),
        ("later", 100),
    }


@pytest.mark.slow
def test_what_follows_nothing_is_refused_and_kept_nowhere(client):
    with pytest.raises(errors.BadBatch, match="no summaries have come from producer 'p'"):
        client.follow("trades", trades(10), producer="p")
    client.register("q", ONCE)
    client.summarise("trades", trades(10))  # These are given up.
    with pytest.raises(errors.BadBatch, match="no summaries have come from producer 'p'"):
        client.follow("trades", trades(10), producer="p")
    ledger = client.ledger("trades")
    assert (ledger.applied, ledger.summarised, ledger.to_follow) == (10, 10, 0)


@pytest.mark.slow
def test_receipts_ask_for_help_before_the_door_is_held(client, engine, tmp_path):
    client.register("q", ONCE)
    open_ones = [client.producer("trades", "p"), client.producer("trades", "s", spill=tmp_path)]
    for stretch, wanted in ((1, False), (STRETCH_MAX, True), (8, False)):
        engine.overload.state = replace(NORMAL, budget_ns=1.0, stretch=stretch)
        for producer in open_ones:
            producer.push(trades(10))
            producer.flush()
            assert producer.help_wanted is wanted
        facts = client.control("overload").to_pylist()
        assert {row["value"] for row in facts if row["key"] == "asks_help"} == {str(int(wanted))}
    for producer in open_ones:
        producer.close()
