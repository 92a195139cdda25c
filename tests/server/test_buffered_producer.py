"""A producer that spills never waits, loses nothing, and sends nothing twice, if any side dies."""

import errno
import signal
import sys

import numpy as np
import pyarrow as pa
import pytest

from shedder import errors
from tests.server.worlds import (
    CREATE_TRADES,
    Full,
    FullDisk,
    again,
    connection_to,
    flushed,
    interrupt,
    pushed,
    spilling,
    stored,
)
from tests.server_process import ServerProcess, running
from tests.streams.streams import TRADES, trades
from tests.warm_process import WarmProcess

BATCHES = 60


@pytest.fixture
def front(engine):
    return Full(engine)


def push_all(producer, seeds):
    for seed in seeds:
        producer.push(trades(10, seed))


@pytest.mark.slow
def test_while_the_server_is_full_batches_go_to_disk_and_later_to_the_server(
    client, front, connection, tmp_path
):
    with spilling(connection, tmp_path / "spill") as producer:
        front.full.set()
        for seed in range(BATCHES):
            assert producer.push(trades(10, seed)) == seed + 1
        state = producer.spilled
        assert state.batches == BATCHES
        assert state.rows == 10 * BATCHES
        front.full.clear()
        assert producer.flush().position == 10 * BATCHES
        assert producer.spilled.batches == 0
        producer.push(trades(10, BATCHES))
    assert stored(client) == pushed(range(BATCHES + 1))
    assert not list((tmp_path / "spill").glob("*/*.arrow"))


@pytest.mark.slow
def test_what_is_left_when_the_server_is_gone_is_sent_by_the_next(engine, settings, tmp_path):
    engine.execute(CREATE_TRADES)
    with running(engine, settings) as address:
        connection = connection_to(address)
        producer = spilling(connection, tmp_path, patience_s=0.2)
        producer.push(trades(10, 0))
        flushed(producer)
    for seed in range(1, 30):
        producer.push(trades(10, seed))
    with pytest.raises((errors.Unreachable, errors.Draining)):
        producer.flush()
    producer.close()
    assert producer.spilled.batches == 29
    with running(engine, again(settings, address)):
        producer = spilling(connection, tmp_path)
        assert producer.next_sequence == 30
        producer.push(trades(10, 30))
        assert producer.flush().position == 310
        producer.close()
        assert stored(engine) == pushed(range(31))
    connection.close()


@pytest.mark.slow
def test_after_its_end_a_producer_takes_nothing_that_nobody_would_send(
    client, front, connection, tmp_path
):
    front.full.set()
    producer = spilling(connection, tmp_path, patience_s=600.0)
    producer.push(trades(10, 0))
    interrupt(producer)
    with pytest.raises(errors.FailedPrecondition, match="is closed"):
        producer.push(trades(10, 1))
    assert (producer.next_sequence, producer.spilled.batches) == (1, 1)
    producer.close()  # The producer has ended, and waits for no receipt.
    front.full.clear()
    with spilling(connection, tmp_path) as producer:
        assert producer.next_sequence == 1
    assert stored(client) == pushed([0])


@pytest.mark.slow
def test_numbers_that_were_taken_are_not_taken_again(client, front, connection, tmp_path):
    with spilling(connection, tmp_path) as producer:
        front.full.set()
        producer.push(trades(10, 0))
        producer.push(trades(10, 1), sequence=1)
        assert producer.push(trades(10, 0), sequence=0) == 2
        with pytest.raises(errors.SequenceGap):
            producer.push(trades(10, 3), sequence=3)
        front.full.clear()
    assert stored(client) == pushed(range(2))


@pytest.mark.slow
def test_a_disk_that_is_full_says_so_and_takes_nothing(client, front, connection, tmp_path):
    disk = FullDisk()
    with spilling(connection, tmp_path, files=disk) as producer:
        front.full.set()
        push_all(producer, range(20))  # Too many for memory: all of them are on disk.
        disk.errno = errno.ENOSPC
        with pytest.raises(errors.DiskFull):
            push_all(producer, range(20, BATCHES))
        assert producer.next_sequence == 20
        disk.errno = None
        push_all(producer, range(20, BATCHES))
        front.full.clear()
    assert stored(client) == pushed(range(BATCHES))


@pytest.mark.slow
def test_a_damaged_file_stops_the_producer_and_is_named(client, front, connection, tmp_path):
    producer = spilling(connection, tmp_path, patience_s=0.1)
    front.full.set()
    for seed in range(30):
        producer.push(trades(10, seed))
    producer.close()
    front.full.clear()
    path = sorted(tmp_path.glob("*/*.arrow"))[5]
    path.write_bytes(b"rubbish")
    producer = spilling(connection, tmp_path)
    with pytest.raises(errors.CorruptData, match=path.name):
        producer.flush()
    with pytest.raises(errors.CorruptData, match=path.name):
        producer.close()
    assert path.exists()
    path.rename(path.with_name(path.name + ".lost"))
    with spilling(connection, tmp_path) as producer:
        producer.push(trades(10, 30))
    assert stored(client) == pushed([seed for seed in range(31) if seed != 5])


def test_two_producers_of_one_name_notice_each_other(client, tmp_path):
    producer = client.producer("trades", "p", spill=tmp_path)
    producer.push(trades(10, 0))
    producer.flush()
    client.push("trades", trades(10, 1), producer="p")
    producer.push(trades(10, 2))
    for end in (producer.flush, producer.close):
        with pytest.raises(errors.FailedPrecondition, match="its own name"):
            end()


@pytest.mark.slow
def test_a_spill_of_another_epoch_is_sent_first(client, front, connection, tmp_path):
    producer = spilling(connection, tmp_path, epoch=1, patience_s=0.1)
    producer.push(trades(10, 0))
    flushed(producer)
    front.full.set()
    for seed in range(1, 30):
        producer.push(trades(10, seed))
    producer.close()
    with pytest.raises(errors.FailedPrecondition, match="batches of epoch 1, not 2"):
        spilling(connection, tmp_path, epoch=2)
    front.full.clear()
    spilling(connection, tmp_path).close()
    with spilling(connection, tmp_path, epoch=2) as producer:
        assert producer.next_sequence == 0
        producer.push(trades(10, 30))
    assert stored(client) == pushed(range(31))


def push_on_signal(address, spill):
    """A client: prints its next number, then pushes a batch for each line of its stdin."""
    producer = spilling(connection_to(address), spill)
    print(producer.next_sequence, flush=True)
    for _ in sys.stdin:
        print(producer.push(trades(200, producer.next_sequence)), flush=True)
    producer.close()


class Pushing:
    """A client in a process of its own that pushes when it is told to."""

    def __init__(self, address, spill):
        self._process = WarmProcess(push_on_signal, address, spill)
        self.next_sequence = int(self._process.output.readline())

    def push(self, batches):
        for _ in range(batches):
            self._process.say("\n")
            self.next_sequence = int(self._process.output.readline())

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self):
        self._process.input.close()
        assert self._process.wait() == 0


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_kills_of_the_client_and_of_the_server_lose_nothing_and_double_nothing(tmp_path):
    server, spill = ServerProcess(tmp_path / "data"), tmp_path / "spill"
    with server.connect() as client:
        client.execute(CREATE_TRADES)
    rng, spilled = np.random.default_rng(1), 0
    for number in range(5):
        pushing = Pushing(server.address, spill)
        pushing.push(5)
        server.stop(signal.SIGKILL)
        pushing.push(20 + int(rng.integers(40)))  # Some of this is in memory, the rest on disk.
        if number % 2:
            server.start_again()
            pushing.push(int(rng.integers(20)))  # What is on disk is being sent.
        pushing.kill()
        spilled += len(list(spill.glob("*/*.arrow")))
        if number % 2 == 0:
            server.start_again()
    pushing = Pushing(server.address, spill)
    pushing.push(10)
    total = pushing.next_sequence
    pushing.end()
    assert spilled > 0
    with server.connect() as client:
        assert stored(client) == pushed(range(total), rows=200)
        assert client.ledger("trades").applied == 200 * total
        assert client.last_sequence("trades", "p") == (0, total - 1)
    server.stop()


def test_it_takes_what_a_producer_takes(client, tmp_path):
    with client.producer("trades", "p", spill=tmp_path) as producer:
        producer.push(pa.Table.from_batches([trades(100_000)]))
        with pytest.raises(errors.SchemaMismatch):
            producer.push({"a": [1]})
        assert producer.flush().position == 100_000
        assert (producer.stream, producer.name, producer.epoch) == ("trades", "p", 0)
        assert [column.name for column in producer.schema.columns] == [
            column.name for column in TRADES.columns
        ]
