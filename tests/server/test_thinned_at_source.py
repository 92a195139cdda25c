"""A producer that thins while the server asks for help: what it leaves out is declared lost."""

import asyncio
import signal
from contextlib import closing

import pytest

from shedder import errors
from shedder.client.failures import Patience, patiently
from tests.server.worlds import (
    CREATE_TRADES,
    PATIENCE_S,
    Asking,
    Wire,
    connect_async,
    connection_to,
    interrupt,
    one_by_one,
    spilling,
    stored,
)
from tests.server_process import ServerProcess
from tests.streams.streams import trades

ROWS = 1_000
STANDING = (
    "SELECT COUNT(*) AS n, SUM(key) AS s, MAX(value) AS h FROM trades "
    "CONFIDENCE 99.999999 PERCENT"  # Each run draws other rows: an interval misses in 1 of 10^8.
)


@pytest.fixture
def front(engine):
    return Asking(engine)


@pytest.fixture
def standing(client, engine):
    return client.register("q", STANDING)


def pushed(producer, seeds):
    for seed in seeds:
        producer.push(trades(ROWS, seed))
        receipt = producer.flush()
    return receipt


@pytest.mark.slow
@pytest.mark.parametrize("spills", [False, True])
def test_while_help_is_wanted_a_share_is_sent_and_the_rest_is_counted(
    client, front, standing, tmp_path, spills
):
    where = {"spill": tmp_path / "spill"} if spills else {}
    with client.producer("trades", "p", thinning="1/8", **where) as producer:
        pushed(producer, range(5))
        assert producer.left_out == 0  # No receipt has asked for it.
        front.help_wanted = True
        pushed(producer, [5])  # Its receipt asks.
        receipt = pushed(producer, range(6, 16))
        assert receipt.rows + receipt.dropped == ROWS
        assert 0.7 * ROWS < receipt.dropped < ROWS
        front.help_wanted = False
        pushed(producer, range(16, 18))
        gone = producer.left_out
    assert 0.8 * 11 * ROWS < gone < 0.95 * 11 * ROWS
    ledger = client.ledger("trades")
    assert ledger.dropped == gone
    assert ledger.applied + ledger.dropped == 18 * ROWS
    assert ledger.accepted == ledger.applied + ledger.duplicate
    [row] = standing.answer().rows()
    true = {"n": 18 * ROWS, "s": sum(sum(trades(ROWS, s)["key"].to_pylist()) for s in range(18))}
    for name, value in true.items():
        assert row[f"{name}_low"] <= value <= row[f"{name}_high"], name
        assert row[name] == pytest.approx(value, rel=0.1)


@pytest.mark.slow
def test_parts_of_a_spilled_push_are_thinned_and_sent_once(client, front, tmp_path):
    front.help_wanted = True
    with client.producer("trades", "p", thinning="1/8", spill=tmp_path) as producer:
        pushed(producer, [0])
        assert producer.push(one_by_one(producer, range(1, 5), ROWS)) == 2
        producer.flush()
        gone = producer.left_out
    assert 0.7 * 4 * ROWS < gone < 4 * ROWS
    ledger = client.ledger("trades")
    assert (ledger.dropped, ledger.duplicate) == (gone, 0)
    assert ledger.applied + ledger.dropped == 5 * ROWS
    assert set(stored(client).values()) == {1}
    assert not list(tmp_path.glob("*/*.arrow"))


@pytest.mark.slow
def test_who_did_not_opt_in_sends_everything(client, front, standing):
    front.help_wanted = True
    with client.producer("trades", "p") as producer:
        pushed(producer, range(3))
    assert client.ledger("trades").dropped == 0
    assert client.ledger("trades").applied == 3 * ROWS


@pytest.mark.slow
def test_on_an_event_loop_too(client, front, standing, address):
    async def push():
        async with (
            await connect_async(address) as db,
            await db.producer("trades", "p", thinning="1/4") as producer,
        ):
            for seed in range(4):
                await producer.push(trades(ROWS, seed))
                await producer.flush()
            return producer.left_out

    front.help_wanted = True
    gone = asyncio.run(push())
    assert 0.6 * 3 * ROWS < gone < 0.9 * 3 * ROWS
    ledger = client.ledger("trades")
    assert (ledger.dropped, ledger.applied) == (gone, 4 * ROWS - gone)


@pytest.mark.slow
def test_what_is_summarised_is_read_in_part_and_its_rows_follow(client, front, standing, tmp_path):
    front.help_wanted = True
    helping = {"spill": tmp_path, "helps": True, "thinning": "1/8"}
    with client.producer("trades", "p", **helping) as producer:
        pushed(producer, range(4))
        assert producer.left_out == 0
    ledger = client.ledger("trades")
    assert (ledger.dropped, ledger.summarised, ledger.to_follow) == (0, 0, 0)
    assert ledger.applied == 4 * ROWS
    assert 0.7 * 3 * ROWS < ledger.queries[0].thinned < 3 * ROWS
    assert set(stored(client).values()) == {1}


@pytest.mark.slow
def test_after_a_crash_nothing_is_counted_twice_and_no_receipt_lied(tmp_path):
    """The server is killed while thinned batches are on their way, which then come again."""
    server = ServerProcess(tmp_path / "data")
    try:
        with server.connect(patience_s=PATIENCE_S) as client:
            client.execute(CREATE_TRADES)
            client.register("q", STANDING)
            wire = HelpingWire(connection_to(server.address))
            with closing(wire), spilling(wire, tmp_path / "s", thinning="1/4") as producer:
                for seed in range(60):
                    producer.push(trades(ROWS, seed))
                    if seed in (20, 40):
                        server.stop(signal.SIGKILL)
                        server.start_again()
                producer.flush()
                gone = producer.left_out
            ledger = patiently(lambda: client.ledger("trades"), Patience(PATIENCE_S))
            assert ledger.applied + ledger.dropped == 60 * ROWS
            assert ledger.dropped <= gone
            assert ledger.accepted == ledger.applied + ledger.duplicate
            server.stop(signal.SIGKILL)
            server.start_again()
            after = patiently(lambda: client.ledger("trades"), Patience(PATIENCE_S))
            assert (after.applied, after.dropped) == (ledger.applied, ledger.dropped)
            assert set(stored(client).values()) == {1}
    finally:
        server.stop(signal.SIGKILL)


class HelpingWire(Wire):
    """A connection on which every receipt asks for help."""

    def read(self, call):
        response = self.connection.read(call)
        if response is not None:
            response.help_wanted = True
        return response


@pytest.mark.slow
def test_what_waited_on_disk_is_sent_whole_or_thinned_under_one_number(
    client, front, connection, standing, tmp_path
):
    """A batch whose receipt got lost with its producer comes again, thinned otherwise or not."""
    front.help_wanted = True
    producer = spilling(connection, tmp_path, thinning="1/2")
    pushed(producer, range(2))
    front.full.set()
    for seed in range(2, 6):
        producer.push(trades(ROWS, seed))
    interrupt(producer)
    front.full.clear()
    with spilling(connection, tmp_path, thinning="1/2") as found:
        pushed(found, [6])
    ledger = client.ledger("trades")
    assert ledger.applied + ledger.dropped == 7 * ROWS


def test_a_share_that_is_none_is_refused_before_anything_is_sent(client, tmp_path):
    for given in ({}, {"spill": tmp_path}, {"spill": tmp_path, "helps": True}):
        with pytest.raises(errors.BadSetting, match=r"thinning is '0\.1'"):
            client.producer("trades", "p", thinning="0.1", **given)
