"""A producer that helps: summaries while the server asks for it, their rows later, once each."""

import errno
import threading

import pytest

from shedder import errors
from shedder.client.source_summaries import Helper
from shedder.v1.synopses_pb2 import MergeRequest
from tests.server.worlds import (
    DISK_ERRNOS,
    Asking,
    FullDisk,
    Wire,
    answers,
    flushed,
    interrupt,
    overloaded,
    pushed,
    spilling,
    stored,
)
from tests.streams.streams import TRADES, trades

BATCHES = 40


class Helped(Asking):
    """An engine that asks for help, counts it, and may lose or refuse it.

    losses: for each merge, whether its receipt gets lost. plans_change: every merge is refused.
    rows_wait: rows that follow are refused.
    """

    def __init__(self, engine):
        super().__init__(engine)
        self.losses = iter(())
        self.plans_change = False
        self.rows_wait = False
        self.merged = threading.Semaphore(0)
        self.merges = 0
        self.summarised = []  # For each batch: whether its summary came before.

    def merge(self, *args, **named):
        if self.plans_change:
            raise errors.PlansChanged("queries come and go")
        receipt = self.engine.merge(*args, **named)
        self.merges += 1
        self.merged.release()
        if next(self.losses, False):
            raise errors.Draining("the receipt got lost")
        return receipt

    def append(self, *args, **named):
        summarised = named.get("summarised", False)
        if summarised and self.rows_wait:
            raise overloaded(5)
        self.summarised.append(summarised)
        return super().append(*args, **named)


@pytest.fixture
def front(engine):
    return Helped(engine)


def helped(client, producer, seeds):
    """Push batches of these seeds, each of them once the one before has its receipt."""
    for seed in seeds:
        producer.push(trades(10, seed))
        producer.flush()


@pytest.fixture
def producer(twins, connection, tmp_path):
    with spilling(connection, tmp_path / "spill", helps=True) as producer:
        yield producer


@pytest.mark.slow
def test_while_help_is_wanted_summaries_go_and_their_rows_follow(twins, front, producer, tmp_path):
    for seed in range(3 * BATCHES):
        front.help_wanted = BATCHES <= seed < 2 * BATCHES
        producer.push(trades(10, seed))
        twins.push("twins", trades(10, seed))
        if seed % BATCHES < 3:
            producer.flush()
    producer.flush()
    assert 3 <= front.merges <= 3 * BATCHES
    assert front.summarised.count(True) == front.merges
    assert front.summarised.count(False) == 3 * BATCHES - front.merges + 3 * BATCHES
    assert producer.to_follow.batches == 0
    assert stored(twins) == pushed(range(3 * BATCHES))
    assert answers(twins, "trades").equals(answers(twins, "twins"))
    ledger = twins.ledger("trades")
    assert (ledger.summarised, ledger.to_follow) == (0, 0)
    assert ledger.accepted == ledger.applied + ledger.duplicate == 30 * BATCHES
    assert not list((tmp_path / "spill").glob("*/*.arrow"))


@pytest.mark.slow
def test_parts_of_a_push_are_summarised_once_and_their_rows_follow(
    twins, front, producer, tmp_path
):
    """The outbox is empty whenever a summary is sent, so each part has its receipt at once."""
    front.help_wanted = True
    helped(twins, producer, [0])
    for number in range(1, 4):
        seeds = range(4 * number, 4 * number + 4)
        producer.push([trades(10, seed) for seed in seeds])
        producer.flush()
    assert front.merges == 12
    assert front.summarised == [False] + [True] * 12
    assert producer.to_follow.batches == 0
    assert stored(twins) == pushed([0, *range(4, 16)])
    ledger = twins.ledger("trades")
    assert (ledger.summarised, ledger.to_follow, ledger.duplicate) == (0, 0, 0)
    assert twins.last_sequence("trades", "p") == (0, 3)
    assert not list((tmp_path / "spill").glob("*/*.arrow"))


@pytest.mark.slow
def test_answers_know_what_was_summarised_before_its_rows_follow(twins, front, producer):
    front.help_wanted = True
    helped(twins, producer, [0])
    front.rows_wait = True
    for seed in range(1, 4):
        producer.push(trades(10, seed))
    for _ in range(3):
        front.merged.acquire()
    assert producer.to_follow.rows == 30
    assert answers(twins, "trades")["n"].to_pylist() == [40]
    assert twins.ledger("trades").to_follow == 30
    front.rows_wait = False
    producer.flush()
    assert stored(twins) == pushed(range(4))


@pytest.mark.slow
def test_a_flush_is_told_that_rows_cannot_follow(twins, front, connection, tmp_path):
    front.help_wanted = True
    producer = spilling(connection, tmp_path, patience_s=0.2, helps=True)
    producer.push(trades(10, 0))  # Its receipt asks for help.
    flushed(producer)
    front.rows_wait = True
    producer.push(trades(10, 1))
    with pytest.raises(errors.Overloaded):
        producer.flush()
    interrupt(producer)
    front.rows_wait = False
    spilling(connection, tmp_path, helps=True).close()
    assert stored(twins) == pushed(range(2))


@pytest.mark.slow
def test_receipts_that_get_lost_store_nothing_twice(twins, front, producer):
    front.losses = iter([True, False, True, True])
    front.help_wanted = True
    helped(twins, producer, range(6))
    assert stored(twins) == pushed(range(6))
    assert twins.ledger("trades").applied == 60


@pytest.mark.slow
def test_what_cannot_be_summarised_is_sent_as_it_is(twins, front, producer):
    front.help_wanted = True
    helped(twins, producer, [0])
    front.plans_change = True
    helped(twins, producer, range(1, 4))
    assert producer.to_follow.batches == 0
    assert stored(twins) == pushed(range(4))
    assert twins.ledger("trades").summarised == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_stored", [False, True])
def test_after_a_crash_rows_follow_when_the_server_has_their_summary(
    twins, connection, tmp_path, is_stored
):
    """The crash comes behind the rows on disk, before or behind the summary at the server."""
    died_at(1, connection, tmp_path, is_stored=is_stored)
    again = Helper(connection, TRADES, "p", directory=tmp_path)
    if not is_stored:
        help_with(again, 1)
    assert again.waiting.rows == 20
    while again.has_rows_to_follow:
        again.follow()
    again.close()
    assert stored(twins) == pushed(range(2))
    assert twins.ledger("trades").to_follow == 0


def help_with(helper, sequence):
    helper.keep(trades(10, sequence), epoch=0, sequence=sequence)
    helper.summarise(trades(10, sequence), epoch=0, sequence=sequence)


class Dying(Wire):
    """A connection that fails at the next summary, before or after the summary is stored."""

    def __init__(self, connection, *, is_stored):
        super().__init__(connection)
        self.dies = False
        self._is_stored = is_stored

    def call(self, method, request, timeout_s=None):
        if self.dies and isinstance(request, MergeRequest):
            if self._is_stored:
                self.connection.call(method, request, timeout_s)
            raise KeyboardInterrupt
        return self.connection.call(method, request, timeout_s)


def died_at(sequence, connection, directory, *, is_stored):
    """A helper summarised the batches before, and died when this one's rows were on disk."""
    wire = Dying(connection, is_stored=is_stored)
    helper = Helper(wire, TRADES, "p", directory=directory)
    for before in range(sequence):
        help_with(helper, before)
    wire.dies = True
    with pytest.raises(KeyboardInterrupt):
        help_with(helper, sequence)
    helper.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_stored", [False, True])
def test_after_a_crash_it_goes_on_in_a_new_epoch(twins, front, connection, tmp_path, is_stored):
    died_at(1, connection, tmp_path, is_stored=is_stored)
    front.help_wanted = front.rows_wait = True  # Else rows may follow before the test looks.
    with spilling(connection, tmp_path, epoch=1, helps=True) as producer:
        assert producer.to_follow.batches == 1 + is_stored
        front.rows_wait = False
        helped(twins, producer, range(1 + is_stored, 5))
    assert stored(twins) == pushed(range(5))
    ledger = twins.ledger("trades")
    assert (ledger.applied, ledger.summarised, ledger.to_follow) == (50, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("is_stored", [False, True])
def test_what_is_owed_of_an_older_epoch_follows_and_nothing_else(
    twins, connection, tmp_path, is_stored
):
    """The producer has gone on in another epoch meanwhile, without its spill."""
    died_at(1, connection, tmp_path, is_stored=is_stored)
    twins.push("trades", trades(10, 2), producer="p", epoch=3)
    again = Helper(connection, TRADES, "p", directory=tmp_path)
    while again.has_rows_to_follow:
        again.follow()
    again.close()
    assert stored(twins) == pushed([0, 1, 2] if is_stored else [0, 2])
    assert twins.ledger("trades").to_follow == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_stored", [False, True])
def test_rows_that_are_declared_lost_keep_nobody_from_going_on(
    twins, connection, tmp_path, is_stored
):
    """It is unknown whether rows of the newest ones were to follow."""
    died_at(1, connection, tmp_path, is_stored=is_stored)
    newest = sorted(tmp_path.glob("*/*.arrow"))[-1]
    newest.write_bytes(b"")
    with pytest.raises(errors.CorruptData, match=newest.name):
        Helper(connection, TRADES, "p", directory=tmp_path)
    newest.rename(newest.with_name(f"{newest.name}.lost"))
    again = Helper(connection, TRADES, "p", directory=tmp_path)
    if not is_stored:
        help_with(again, 1)
    while again.has_rows_to_follow:
        again.follow()
    again.close()
    assert stored(twins) == pushed([0] if is_stored else [0, 1])
    assert twins.ledger("trades").to_follow == 10 * is_stored


@pytest.mark.slow
@pytest.mark.parametrize("problem", DISK_ERRNOS, ids=errno.errorcode.get)
def test_what_its_own_disk_does_not_take_is_sent_as_it_is(
    twins, front, connection, tmp_path, problem
):
    disk = FullDisk()
    front.help_wanted = True
    with spilling(connection, tmp_path, helps=True, files=disk) as producer:
        helped(twins, producer, [0, 1])
        assert front.merges == 1
        disk.errno = problem
        helped(twins, producer, range(2, 5))
        assert front.merges == 1
        disk.errno = None
        helped(twins, producer, range(5, 7))
        assert front.merges > 1  # The producer helps again as soon as there is room.
    assert stored(twins) == pushed(range(7))


@pytest.mark.slow
def test_whatever_ends_the_sending_thread_is_told_to_who_pushes(twins, connection, tmp_path):
    wire = Broken(connection)
    producer = spilling(wire, tmp_path, helps=True)
    producer.push(trades(10, 0))
    producer.flush()
    wire.is_broken = True
    producer.push(trades(10, 1))
    for call in (producer.flush, lambda: producer.push(trades(10, 2)), producer.close):
        with pytest.raises(errors.InternalError, match="ZeroDivisionError"):
            call()
    assert producer.spilled.batches == 1
    with spilling(connection, tmp_path) as again:
        again.push(trades(10, 2))
    assert stored(twins) == pushed(range(3))


class Broken(Wire):
    """A connection with a bug that shows when the next receipt is read."""

    is_broken = False

    def read(self, call):
        if self.is_broken:
            raise ZeroDivisionError("a bug")
        return self.connection.read(call)


def test_to_help_a_producer_needs_a_disk(client):
    with pytest.raises(errors.BadSetting, match="spill=DIR"):
        client.producer("trades", "p", helps=True)
