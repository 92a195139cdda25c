"""A client that sends what rows come to: the same answers, and an archive that becomes whole."""

import pytest

from shedder import errors
from tests.server.worlds import CALM, FLOOD, Front, SteeredMachine, answers, connect, ticks_until
from tests.server_process import running
from tests.streams.streams import trades

ONCE = "SELECT COUNT(*) AS n, SUM(key) AS s FROM trades"


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
    summary_id = {"producer": "p", "sequence": 0}
    with pytest.raises(errors.BadSetting, match="thinning is '1/3'; it must be a share"):
        twins.summarise("trades", table, **summary_id, thinning="1/3")
    twins.summarise("trades", table, **summary_id, tuples_follow=True, thinning="1/8")
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
def test_queries_that_come_meanwhile_are_in_the_summaries_too(twins, engine, settings):
    """A query is registered right after the plans were asked for, once."""
    with (
        running(Registering(engine), settings) as address,
        connect(address) as client,
    ):
        client.summarise("trades", iter([trades(100, 1)]))
    assert {(q.query, q.read) for q in twins.ledger("trades").queries} == {
        ("of_trades", 100),
        ("later", 100),
    }


class Registering(Front):
    """An engine on which a query is registered right after its plans were returned."""

    def plans(self, stream):
        plans = self.engine.plans(stream)
        self.engine.register("later", "SELECT AVG(value) AS a FROM trades")  # Once, by its name.
        return plans


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
@pytest.mark.parametrize("machine", [SteeredMachine()])
def test_receipts_ask_for_help_before_the_door_is_held(client, engine, machine, tmp_path):
    client.register("q", ONCE)
    open_ones = [client.producer("trades", "p"), client.producer("trades", "s", spill=tmp_path)]
    for load, wanted in ((CALM, False), (FLOOD, True), (CALM, False)):
        machine.load = load
        ticks_until(engine, lambda state, wanted=wanted: state.asks_help is wanted)
        assert not engine.core.door.held
        for producer in open_ones:
            producer.push(trades(10))
            producer.flush()
            assert producer.help_wanted is wanted
        facts = client.control("overload").to_pylist()
        assert {row["value"] for row in facts if row["key"] == "asks_help"} == {str(int(wanted))}
    for producer in open_ones:
        producer.close()
