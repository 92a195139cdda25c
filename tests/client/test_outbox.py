"""The outbox numbers, keeps and resends; what came of a batch is never in doubt."""

import pytest

from shedder.client.outbox import Outbox, epoch_after
from shedder.errors import FailedPrecondition, StaleEpoch
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batches import decode
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
    outbox.credits = 2
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


def test_a_number_that_somebody_else_has_used_is_not_taken_for_a_replay():
    outbox = Outbox("trades", "p")
    outbox.add(trades(1), None)
    with pytest.raises(FailedPrecondition, match=r"sequence 0 of producer 'p'.*somebody else"):
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
