"""The outbox numbers, keeps and resends; what came of a batch is never in doubt."""

import pytest

from shedder.client.outbox import Outbox, check_whole, epoch_after
from shedder.errors import (
    FailedPrecondition,
    ProducerForgotten,
    SequenceGap,
    StaleEpoch,
    Unimplemented,
)
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batches import decode
from shedder.streams.dropped_counts import Dropped
from shedder.streams.push_parts import WHOLE, Part
from shedder.v1 import ingest_pb2
from tests.streams.streams import TRADES, trades


def described(**last):
    response = ingest_pb2.DescribeStreamResponse(stream="trades")
    if last:
        response.last.epoch, response.last.sequence = last["epoch"], last["sequence"]
    return response


def sent(request):
    return ingest_pb2.AppendStreamRequest.FromString(request).batch


def test_numbers_go_on_without_gaps_also_after_a_given_one():
    outbox = Outbox("trades", "p")
    requests = [outbox.add(trades(1), given) for given in (None, None, 7, None)]
    assert [sent(request).sequence for request in requests] == [0, 1, 7, 8]
    assert outbox.next_sequence == 9


def test_what_is_sent_says_its_rows_and_holds_them():
    message = sent(Outbox("trades", "p").add(trades(5), None))
    assert message.rows == 5
    assert decode(message.arrow, TRADES).equals(trades(5))


def test_it_is_full_at_its_credits_and_a_receipt_makes_room():
    outbox = Outbox("trades", "p")
    outbox.grant(2)
    outbox.add(trades(1), None)
    assert not outbox.is_full
    outbox.add(trades(1), None)
    assert outbox.is_full
    outbox.acknowledge(Receipt("trades", 1, 1), credits_left=2)
    assert not outbox.is_full
    assert len(outbox) == 1


def test_after_a_loss_exactly_what_has_no_receipt_is_sent_again():
    outbox = Outbox("trades", "p")
    for _ in range(3):
        outbox.add(trades(1), None)
    outbox.acknowledge(Receipt("trades", 1, 1), credits_left=8)
    assert [sent(request).sequence for request in outbox.resend()] == [1, 2]
    outbox.acknowledge(Receipt("trades", 2, 1, duplicate=True), credits_left=8)
    assert outbox.receipt.position == 2


def test_a_number_that_another_sender_has_used_is_not_taken_for_a_replay():
    outbox = Outbox("trades", "p")
    outbox.add(trades(1), None)
    with pytest.raises(FailedPrecondition, match=r"sequence 0 of producer 'p'.*another sender"):
        outbox.acknowledge(Receipt("trades", 1, 1, duplicate=True), credits_left=8)


def test_a_replay_that_the_caller_asked_for_is_fine():
    outbox = Outbox("trades", "p")
    outbox.add(trades(1), 0)
    assert outbox.acknowledge(Receipt("trades", 1, 1, duplicate=True), 8).duplicate


@pytest.mark.parametrize(
    ("last", "epoch", "then"),
    [
        ({}, None, (0, 0)),
        ({}, 3, (3, 0)),
        ({"epoch": 2, "sequence": 5}, None, (2, 6)),
        ({"epoch": 2, "sequence": 5}, 2, (2, 6)),
        ({"epoch": 2, "sequence": 5}, 3, (3, 0)),
    ],
)
def test_a_producer_goes_on_where_it_stopped(last, epoch, then):
    assert epoch_after(described(**last), "p", epoch) == then


def test_an_old_incarnation_is_told_that_it_was_replaced():
    with pytest.raises(StaleEpoch):
        epoch_after(described(epoch=2, sequence=5), "p", 1)


def test_batches_of_one_push_have_one_number_and_their_receipts_are_one():
    outbox = Outbox("trades", "p")
    parts = [Part(0, False), Part(5, False), Part(10, True)]
    requests = [sent(outbox.add(trades(5), None, part=part)) for part in parts]
    assert [(it.sequence, it.first_row, it.more) for it in requests] == [
        (0, 0, True),
        (0, 5, True),
        (0, 10, False),
    ]
    assert outbox.next_sequence == 1
    assert outbox.unacknowledged == (0, 0)
    for position in (5, 10, 15):
        outbox.acknowledge(Receipt("trades", position, 5, late=1), credits_left=8)
    assert outbox.receipt == Receipt("trades", 15, 15, late=3)
    assert outbox.unacknowledged == (1, 0)


@pytest.mark.parametrize("is_skipped", [False, True])
def test_with_nothing_waiting_the_place_in_the_push_is_kept(is_skipped):
    """A receipt may arrive before the caller puts the next part of the push."""
    outbox = Outbox("trades", "p")
    parts = [Part(0, False), Part(5, False), Part(10, True), Part(0, False), Part(5, True)]
    places = []
    for part in parts:
        if is_skipped:
            outbox.skip(Receipt("trades", 5, 5), 5, part)
        else:
            outbox.add(trades(5), None, part=part)
            outbox.acknowledge(Receipt("trades", 5, 5), credits_left=8)
        places.append(outbox.unacknowledged)
    assert places == [(0, 5), (0, 10), (1, 0), (1, 5), (2, 0)]


def test_the_place_in_the_push_counts_rows_that_are_not_sent():
    outbox = Outbox("trades", "p")
    left_out = Dropped.of(trades(4), TRADES.time_column)
    outbox.add(trades(6), None, left_out, Part(0, False))
    outbox.acknowledge(Receipt("trades", 6, 10), credits_left=8)
    assert outbox.unacknowledged == (0, 10)
    outbox.add(trades(0), None, None, Part(10, False, skipped=7))
    outbox.acknowledge(Receipt("trades", 6, 0), credits_left=8)
    assert outbox.unacknowledged == (0, 17)


@pytest.mark.parametrize(("epoch", "place"), [(None, (6, 5)), (2, (6, 5)), (3, (0, 0))])
def test_a_producer_goes_on_behind_the_rows_that_are_stored(epoch, place):
    outbox = Outbox("trades", "p")
    response = described(epoch=2, sequence=5)
    response.open_rows = 5
    outbox.go_on(response, epoch)
    assert outbox.unacknowledged == place


def test_a_push_that_was_begun_before_may_find_its_batches_stored():
    outbox = Outbox("trades", "p")
    response = described(epoch=2, sequence=5)
    response.open_rows = 5
    assert outbox.go_on(response, None) == 2
    outbox.add(trades(5), None, part=Part(0, False))
    outbox.acknowledge(Receipt("trades", 5, 5, duplicate=True), credits_left=8)
    with pytest.raises(SequenceGap, match=r"expected 6 \(5 rows of it are stored"):
        check_whole(response, "p", 2)


def test_an_older_server_gets_a_number_for_each_batch_or_nothing():
    outbox = Outbox("trades", "p")
    outbox.go_on(described(), None)
    assert outbox.check(Part(5, False), is_numbered=False) == WHOLE
    assert outbox.check(WHOLE, is_numbered=True) == WHOLE
    with pytest.raises(Unimplemented, match="older than this client"):
        outbox.check(Part(5, False), is_numbered=True)


def test_a_name_that_may_have_been_forgotten_begins_in_no_epoch_that_nobody_gave():
    response = described()
    assert epoch_after(response, "p", None) == (0, 0)
    response.epoch_min = 4
    with pytest.raises(ProducerForgotten, match="begin it in epoch 4"):
        epoch_after(response, "p", None)
    assert epoch_after(response, "~drawn for this process", None) == (4, 0)
    assert epoch_after(response, "p", 4) == (4, 0)
    assert epoch_after(response, "p", 0) == (0, 0)  # The server refuses it.
