"""A producer that helps: summaries while the server asks for it, their rows later, once each."""

from dataclasses import replace

import pytest

from shedder import errors
from shedder.client import backlog
from shedder.client.helping import Helper
from shedder.client.spill import Spill
from shedder.overload.controller import NORMAL, STRETCH_MAX
from tests.server.test_spilling import pushed, stored
from tests.server.test_summarising import answers, twins
from tests.streams.streams import TRADES, trades

__all__ = ["twins"]  # A fixture.
BATCHES = 40


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    """Batches are spilled as soon as there is no room."""
    monkeypatch.setattr(backlog, "HOLD_S", 0.0)


def asks(engine, *, help_wanted):
    """From now on receipts say so."""
    engine.overload.state = replace(NORMAL, stretch=STRETCH_MAX if help_wanted else 1)


def helped(client, producer, seeds):
    """Push batches of these seeds, each of them once the one before has its receipt."""
    for seed in seeds:
        producer.push(trades(10, seed))
        producer.flush()


@pytest.fixture
def producer(twins, tmp_path):
    """Of a server that looks at no load: it asks for help when the test says so."""
    twins.set_control("overload", "", "mode", "off")
    with twins.producer("trades", "p", spill=tmp_path / "spill", helps=True) as producer:
        yield producer


@pytest.mark.slow
def test_while_help_is_wanted_summaries_go_and_their_rows_follow(twins, engine, producer, tmp_path):
    followed = []
    merge, append = engine.merge, engine.append

    def watching(*args, **kwargs):
        followed.append(kwargs.get("summarised", False))
        return append(*args, **kwargs)

    engine.append = watching
    merged = []
    engine.merge = lambda *args, **kwargs: merged.append(1) or merge(*args, **kwargs)
    for seed in range(3 * BATCHES):
        asks(engine, help_wanted=BATCHES <= seed < 2 * BATCHES)
        producer.push(trades(10, seed))
        twins.push("twins", trades(10, seed))
        if seed % BATCHES < 3:
            producer.flush()
    producer.flush()
    assert 3 <= len(merged) <= 3 * BATCHES
    assert followed.count(True) == len(merged)
    assert followed.count(False) == 3 * BATCHES - len(merged) + 3 * BATCHES
    assert producer.to_follow.batches == 0
    assert stored(twins) == pushed(range(3 * BATCHES))
    assert answers(twins, "trades").equals(answers(twins, "twins"))
    ledger = twins.ledger("trades")
    assert (ledger.summarised, ledger.to_follow) == (0, 0)
    assert ledger.accepted == ledger.applied + ledger.duplicate == 30 * BATCHES
    assert not list((tmp_path / "spill").glob("*/*.arrow"))


@pytest.mark.slow
def test_answers_know_what_was_summarised_before_its_rows_follow(
    twins, engine, producer, monkeypatch
):
    def not_now(helper):
        raise errors.Overloaded("full")

    asks(engine, help_wanted=True)
    helped(twins, producer, [0])
    monkeypatch.setattr(Helper, "follow", not_now)
    monkeypatch.setattr(producer, "_patience_s", 0.2)
    for seed in range(1, 4):
        producer.push(trades(10, seed))
    for _ in range(100):
        with pytest.raises(errors.Overloaded):
            producer.flush()
        if twins.ledger("trades").to_follow == 30:
            break
    assert producer.to_follow.rows == 30
    assert answers(twins, "trades")["n"].to_pylist() == [40]
    assert twins.ledger("trades").to_follow == 30
    monkeypatch.undo()
    producer.flush()
    assert stored(twins) == pushed(range(4))


@pytest.mark.slow
def test_receipts_that_get_lost_store_nothing_twice(twins, engine, producer):
    merge, losses = engine.merge, iter([True, False, True, True])

    def lossy(*args, **kwargs):
        receipt = merge(*args, **kwargs)
        if next(losses, False):
            raise errors.Draining("the receipt got lost")
        return receipt

    engine.merge = lossy
    asks(engine, help_wanted=True)
    helped(twins, producer, range(6))
    assert stored(twins) == pushed(range(6))
    assert twins.ledger("trades").applied == 60


@pytest.mark.slow
def test_what_cannot_be_summarised_is_sent_as_it_is(twins, engine, producer):
    def refusing(*args, **kwargs):
        raise errors.PlansChanged("queries come and go")

    asks(engine, help_wanted=True)
    helped(twins, producer, [0])
    engine.merge = refusing
    helped(twins, producer, range(1, 4))
    assert producer.to_follow.batches == 0
    assert stored(twins) == pushed(range(4))
    assert twins.ledger("trades").summarised == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_stored", [False, True])
def test_after_a_crash_rows_follow_when_the_server_has_their_summary(
    twins, tmp_path, monkeypatch, is_stored
):
    """The crash comes behind the rows on disk, before or behind the summary at the server."""

    died_at(1, twins, tmp_path, monkeypatch, is_stored=is_stored)
    again = Helper(twins._connection, TRADES, "p", directory=tmp_path)
    if not is_stored:
        help_with(again, 1)
    assert again.waiting.rows == 20
    while again.owes:
        again.follow()
    again.close()
    assert stored(twins) == pushed(range(2))
    assert twins.ledger("trades").to_follow == 0


def help_with(helper, sequence):
    helper.keep(trades(10, sequence), epoch=0, sequence=sequence)
    helper.summarise(trades(10, sequence), epoch=0, sequence=sequence)


def died_at(sequence, twins, directory, monkeypatch, *, is_stored):
    """A helper summarised the batches before, and died when this one's rows were on disk."""
    helper = Helper(twins._connection, TRADES, "p", directory=directory)
    for before in range(sequence):
        help_with(helper, before)
    merge = helper._merge

    def dying(*args):
        if is_stored:
            merge(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(helper, "_merge", dying)
    with pytest.raises(KeyboardInterrupt):
        help_with(helper, sequence)
    helper.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_stored", [False, True])
def test_after_a_crash_it_goes_on_in_a_new_epoch(twins, engine, tmp_path, monkeypatch, is_stored):
    twins.set_control("overload", "", "mode", "off")
    died_at(1, twins, tmp_path, monkeypatch, is_stored=is_stored)
    asks(engine, help_wanted=True)
    with twins.producer("trades", "p", epoch=1, spill=tmp_path, helps=True) as producer:
        assert producer.to_follow.batches == 1 + is_stored
        helped(twins, producer, range(1 + is_stored, 5))
    assert stored(twins) == pushed(range(5))
    ledger = twins.ledger("trades")
    assert (ledger.applied, ledger.summarised, ledger.to_follow) == (50, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("is_stored", [False, True])
def test_what_is_owed_of_an_older_epoch_follows_and_nothing_else(
    twins, tmp_path, monkeypatch, is_stored
):
    """The producer has gone on in another epoch meanwhile, without its spill."""
    died_at(1, twins, tmp_path, monkeypatch, is_stored=is_stored)
    twins.push("trades", trades(10, 2), producer="p", epoch=3)
    again = Helper(twins._connection, TRADES, "p", directory=tmp_path)
    while again.owes:
        again.follow()
    again.close()
    assert stored(twins) == pushed([0, 1, 2] if is_stored else [0, 2])
    assert twins.ledger("trades").to_follow == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_stored", [False, True])
def test_rows_that_are_declared_lost_keep_nobody_from_going_on(
    twins, tmp_path, monkeypatch, is_stored
):
    """The newest of them, of which nobody can tell any more whether they were to follow."""
    died_at(1, twins, tmp_path, monkeypatch, is_stored=is_stored)
    newest = sorted(tmp_path.glob("*/*.arrow"))[-1]
    newest.write_bytes(b"")
    with pytest.raises(errors.CorruptData, match=newest.name):
        Helper(twins._connection, TRADES, "p", directory=tmp_path)
    newest.rename(newest.with_name(f"{newest.name}.lost"))
    again = Helper(twins._connection, TRADES, "p", directory=tmp_path)
    if not is_stored:
        help_with(again, 1)
    while again.owes:
        again.follow()
    again.close()
    assert stored(twins) == pushed([0] if is_stored else [0, 1])
    assert twins.ledger("trades").to_follow == 10 * is_stored


@pytest.mark.slow
@pytest.mark.parametrize("error", [errors.DiskFull, errors.StorageFailed])
def test_what_its_own_disk_does_not_take_is_sent_as_it_is(
    twins, engine, producer, monkeypatch, error
):
    def no_room(spill, *args, **kwargs):
        raise error("of the client")

    asks(engine, help_wanted=True)
    helped(twins, producer, [0, 1])
    monkeypatch.setattr(Spill, "write", no_room)
    helped(twins, producer, range(2, 5))
    monkeypatch.undo()
    monkeypatch.setattr(backlog, "HOLD_S", 0.0)
    merged = engine.merge
    engine.merge = lambda *args, **kwargs: helpful.append(1) or merged(*args, **kwargs)
    helpful = []
    helped(twins, producer, range(5, 7))
    assert helpful  # It helps again as soon as there is room.
    assert stored(twins) == pushed(range(7))


@pytest.mark.slow
def test_whatever_ends_the_sending_thread_is_told_to_who_pushes(twins, monkeypatch, tmp_path):
    def broken():
        raise ZeroDivisionError("a bug")

    producer = twins.producer("trades", "p", spill=tmp_path, helps=True)
    producer.push(trades(10, 0))
    producer.flush()
    monkeypatch.setattr(producer._sender, "_step", broken)
    producer.push(trades(10, 1))
    for call in (producer.flush, lambda: producer.push(trades(10, 2)), producer.close):
        with pytest.raises(errors.InternalError, match="ZeroDivisionError"):
            call()
    assert producer.spilled.batches == 1
    with twins.producer("trades", "p", spill=tmp_path) as again:
        again.push(trades(10, 2))
    assert stored(twins) == pushed(range(3))


def test_to_help_a_producer_needs_a_disk(client):
    with pytest.raises(errors.BadSetting, match="spill=DIR"):
        client.producer("trades", "p", helps=True)
