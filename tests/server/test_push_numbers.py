"""One push is one number over the wire and from a spill, whatever is repeated or dies."""

import asyncio

import numpy as np
import pyarrow as pa
import pytest

from shedder import errors
from shedder.client.append_requests import append_request
from shedder.settings import Settings
from shedder.streams.push_parts import in_parts
from tests.scale import scaled
from tests.seeds import seed
from tests.server.worlds import (
    Full,
    connect_async,
    interrupt,
    one_by_one,
    pushed,
    spilling,
    stored,
)
from tests.streams.streams import trades

ROWS_MAX = 10


@pytest.fixture
def settings():
    return Settings(
        listen="127.0.0.1:0", insecure=True, drain_s=5, overload="off", batch_rows_max=ROWS_MAX
    )


@pytest.fixture
def front(engine):
    return Full(engine)


def cut(batch, rows_max=ROWS_MAX):
    """The batches of a push, as a client cuts them."""
    ends = range(0, batch.num_rows, rows_max)
    return in_parts([batch.slice(at, rows_max) for at in ends], trades(0), ends_at_error=False)


def values(batch):
    return batch["value"].to_pylist()


def send_parts(connection, batch, *, sequence, parts, rows_max=ROWS_MAX):
    """Send the first batches of a push, and die."""
    for _, (part, rows) in zip(range(parts), cut(batch, rows_max), strict=False):
        request = append_request("trades", "p", 0, sequence, rows, part=part)
        connection.stubs.ingest.Append(request)


@pytest.mark.slow
def test_pushes_that_die_and_come_again_are_stored_once(client, connection):
    rng = np.random.default_rng(seed("pushes over the wire"))
    sent = []
    for number in range(scaled(12, 60)):
        batch = trades(int(rng.integers(0, 45)), number)
        if rng.random() < 0.6:
            parts, rows_max = int(rng.integers(1, 4)), int(rng.integers(3, ROWS_MAX + 1))
            send_parts(connection, batch, sequence=number, parts=parts, rows_max=rows_max)
        receipt = client.push("trades", batch, producer="p", sequence=number)
        assert receipt.rows == batch.num_rows
        sent.append(batch)
        again = int(rng.integers(max(0, number - 10), number + 1))
        repeated = client.push("trades", sent[again], producer="p", sequence=again)
        assert (repeated.duplicate, repeated.rows) == (True, sent[again].num_rows)
    assert stored(client) == {value: 1 for batch in sent for value in values(batch)}


def test_other_values_under_a_number_are_refused_and_nothing_is_stored(client):
    client.push("trades", trades(25, 0), producer="p", sequence=0)
    for again in (trades(25, 1), trades(24, 0), trades(26, 0)):
        with pytest.raises(errors.SequenceReused):
            client.push("trades", again, producer="p", sequence=0)
    assert stored(client) == dict.fromkeys(values(trades(25, 0)), 1)


def test_a_producer_goes_on_with_the_rest_of_its_push(client, connection):
    send_parts(connection, trades(25, 0), sequence=0, parts=2)
    with pytest.raises(errors.SequenceGap, match="20 rows of it are stored"):
        client.push("trades", trades(5, 1), producer="p")
    with client.producer("trades", "p") as producer:
        assert producer.next_sequence == 0
        assert producer.push(trades(25, 0)) == 1
        receipt = producer.flush()
        assert (receipt.rows, receipt.duplicate) == (25, False)
        assert producer.push(trades(15, 1)) == 2
    assert client.ledger("trades").applied == 40


def test_an_asynchronous_push_is_one_number_too(client, connection, address):
    send_parts(connection, trades(25, 0), sequence=0, parts=2)

    async def pushed():
        async with await connect_async(address) as other:
            with pytest.raises(errors.SequenceGap):
                await other.push("trades", trades(5, 1), producer="p")
            first = await other.push("trades", trades(25, 0), producer="p", sequence=0)
            second = await other.push("trades", trades(25, 1), producer="p", sequence=1)
            return first, second

    first, second = asyncio.run(pushed())
    assert [first.rows, second.rows] == [25, 25]
    assert client.ledger("trades").applied == 50


def test_a_receipt_counts_late_rows(client):
    client.push("trades", trades(10, 0))
    client.heartbeat("trades", 5_000)
    receipt = client.push("trades", trades(25, 1), producer="p", sequence=0)
    assert receipt.late == client.ledger("trades").late > 0


def test_rows_that_follow_their_summaries_are_one_push(client):
    client.register("n", "SELECT COUNT(*) AS n FROM trades")
    client.summarise("trades", trades(35, 0), producer="p", sequence=0, tuples_follow=True)
    assert client.follow("trades", trades(35, 0), producer="p", sequence=0).rows == 35
    assert client.follow("trades", trades(35, 0), producer="p", sequence=0).duplicate
    assert client.last_sequence("trades", "p+rows") == (0, 0)
    assert client.ledger("trades").applied == 35


def dying(batch, parts):
    """The first batches of a push, then an error: the process dies."""
    for _, (_, rows) in zip(range(parts), cut(batch), strict=False):
        yield rows
    yield pa.table({"no": ["such column"]})


@pytest.mark.slow
def test_pushes_into_a_spill_that_die_and_come_again_are_stored_once(
    client, front, connection, tmp_path
):
    rng = np.random.default_rng(seed("pushes into a spill"))
    producer, sent = spilling(connection, tmp_path), []
    for number in range(scaled(15, 60)):
        (front.full.set if rng.random() < 0.5 else front.full.clear)()
        batch = trades(int(rng.integers(0, 45)), number)
        if rng.random() < 0.5 and batch.num_rows > 2 * ROWS_MAX:
            with pytest.raises(errors.SchemaMismatch):
                producer.push(dying(batch, 2), sequence=number)
        if rng.random() < 0.4:
            interrupt(producer)
            producer = spilling(connection, tmp_path)
        assert producer.next_sequence == number
        assert producer.push(batch, sequence=number) == number + 1
        sent.append(batch)
        again = int(rng.integers(max(0, number - 3), number + 1))
        assert producer.push(sent[again], sequence=again) == number + 1
        if sent[again].num_rows:
            with pytest.raises(errors.SequenceReused):
                producer.push(trades(sent[again].num_rows, 10_000), sequence=again)
    front.full.clear()
    producer.close()
    assert client.last_sequence("trades", "p") == (0, len(sent) - 1)
    assert stored(client) == {value: 1 for batch in sent for value in values(batch)}


@pytest.mark.slow
def test_a_lost_batch_in_the_middle_of_a_push_loses_its_rows_only(
    client, front, connection, tmp_path
):
    front.full.set()
    producer = spilling(connection, tmp_path, patience_s=0.1)
    producer.push(trades(35, 0), sequence=0)
    producer.push(trades(5, 1), sequence=1)
    interrupt(producer)
    second = sorted(tmp_path.glob("*/*.arrow"))[1]
    second.rename(second.with_name(second.name + ".lost"))
    front.full.clear()
    with spilling(connection, tmp_path) as producer:
        assert producer.next_sequence == 2
    kept = values(trades(35, 0))[:10] + values(trades(35, 0))[20:] + values(trades(5, 1))
    assert stored(client) == dict.fromkeys(kept, 1)


def test_parts_that_are_stored_before_the_next_is_put_are_sent_once(client, connection, tmp_path):
    with spilling(connection, tmp_path) as producer:
        for number in range(3):
            seeds = range(4 * number, 4 * number + 4)
            assert producer.push(one_by_one(producer, seeds, ROWS_MAX)) == number + 1
    assert client.last_sequence("trades", "p") == (0, 2)
    assert stored(client) == pushed(range(12))
    assert client.ledger("trades").duplicate == 0
    assert not list(tmp_path.glob("*/*.arrow"))
