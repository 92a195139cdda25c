"""A producer's session against a model of the server whose connections fail at any step."""

from collections import Counter, deque
from itertools import pairwise

import numpy as np
import pytest

from shedder.client.append_session import AppendSession
from shedder.client.steps import Delay, Open, Read, UnaryCall, Write
from shedder.errors import SchemaMismatch, Unreachable
from shedder.v1 import ingest_pb2
from shedder.wire.ingest import schema_to_wire
from tests.seeds import seed
from tests.streams.streams import TRADES, trades

LIMIT_ROWS = 7


class Calling:
    """One call of the model: its responses, of which the client has not read all."""

    def __init__(self):
        self.responses = deque()
        self.is_open = True

    def cancel(self):
        self.is_open = False


class Model:
    """A server that stores batches by number and first row, behind connections that fail.

    A step fails with chance `loss`, before or after the server has done it; each of its calls is
    then ended, and receipts that were not read are lost.
    """

    def __init__(self, rng, loss):
        self.rng = rng
        self.loss = loss
        self.stored = {}  # (sequence, first row): rows, in order of arrival
        self.calls = []
        self.tries = Counter()  # By type of step.

    def perform(self, steps):
        try:
            step = next(steps)
            while True:
                try:
                    outcome = self._outcome(step)
                except Unreachable as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as end:
            return end.value

    def _outcome(self, step):
        self.tries[type(step)] += 1
        if isinstance(step, Delay):
            return None
        is_lost = self.rng.random() < self.loss
        if is_lost and self.rng.random() < 0.5:
            self._lose()
        outcome = self._done(step)
        if is_lost:
            self._lose()
        return outcome

    def _lose(self):
        for call in self.calls:
            call.cancel()
        raise Unreachable("the connection is lost")

    def _done(self, step):
        match step:
            case UnaryCall():
                response = schema_to_wire(TRADES)
                response.batch_rows_max, response.batch_bytes_max = LIMIT_ROWS, 1 << 20
                response.takes_parts = True
                return response
            case Open():
                self.calls.append(Calling())
                return self.calls[-1]
            case Write(call, request):
                assert call.is_open
                call.responses.append(self._response(request))
            case Read(call):
                assert call.is_open
                return call.responses.popleft()
        return None

    def _response(self, request):
        message = ingest_pb2.AppendStreamRequest.FromString(request)
        response = ingest_pb2.AppendStreamResponse(credits=int(self.rng.integers(1, 5)))
        if message.HasField("hello"):
            response.welcome.stream = message.hello.stream
            return response
        place = message.batch.sequence, message.batch.first_row
        response.receipt.duplicate = place in self.stored
        response.receipt.stream, response.receipt.rows = "trades", message.batch.rows
        self.stored.setdefault(place, message.batch.rows)
        response.receipt.position = sum(self.stored.values())
        return response


@pytest.mark.parametrize("loss", [0.0, 0.05, 0.4])
def test_each_row_is_stored_once_in_order_whichever_steps_fail(loss):
    rng = np.random.default_rng(seed("append session", str(loss)))
    model = Model(rng, loss)
    session = AppendSession("trades", "p", patience_s=1e9)
    model.perform(session.begin(None))
    pushes = [int(rows) for rows in rng.integers(1, 30, 60)]
    for number, rows in enumerate(pushes):
        assert model.perform(session.push(trades(rows), None)) == number + 1
        if rng.random() < 0.1:
            session.disconnect()
    receipt = model.perform(session.flush())
    model.perform(session.close())
    assert not any(call.is_open for call in model.calls)
    assert receipt.position == sum(pushes)
    places = list(model.stored)
    assert places == sorted(places)
    for (number, first), (next_number, next_first) in pairwise(places):
        end = first + model.stored[number, first]
        is_whole = end == pushes[number]
        assert (next_number, next_first) == ((number + 1, 0) if is_whole else (number, end))
    assert places[-1][0] == len(pushes) - 1


def test_rows_before_bad_rows_are_durable_when_the_push_fails():
    model = Model(np.random.default_rng(1), 0.0)
    session = AppendSession("trades", "p", patience_s=1.0)
    model.perform(session.begin(None))

    def parts():
        yield from session.parts(trades(10), ends_at_error=False)
        raise SchemaMismatch("trades", "the next row has a text for a number")

    with pytest.raises(SchemaMismatch):
        model.perform(session.push_parts(parts(), 0))
    assert sum(model.stored.values()) == 10


def test_a_push_that_lost_the_server_does_not_try_again_after_its_patience():
    model = Model(np.random.default_rng(1), 0.0)
    session = AppendSession("trades", "p", patience_s=0.0)
    model.perform(session.begin(None))

    def parts():
        for each in session.parts(trades(6 * LIMIT_ROWS), ends_at_error=False):
            yield each
            session.disconnect()
            model.loss = 1.0

    with pytest.raises(Unreachable):
        model.perform(session.push_parts(parts(), 0))
    assert model.tries[Open] == 2  # At the beginning, and after the loss.


def test_a_cancelled_wait_ends_the_call_and_the_batch_is_sent_again():
    model = Model(np.random.default_rng(1), 0.0)
    session = AppendSession("trades", "p", patience_s=1.0)
    model.perform(session.begin(None))
    model.perform(session.push(trades(3), None))
    waiting = session.flush()
    assert isinstance(next(waiting), Read)
    with pytest.raises(KeyboardInterrupt):
        waiting.throw(KeyboardInterrupt())
    assert not model.calls[-1].is_open
    assert model.perform(session.flush()).position == 3
    assert len(model.calls) == 2


def test_a_call_whose_welcome_does_not_come_can_be_ended():
    """Another thread disconnects; `SpillingProducer.close` waited for the welcome before."""
    model = Model(np.random.default_rng(1), 0.0)
    session = AppendSession("trades", "p", patience_s=1.0)
    model.perform(session.begin(None))
    opening = session.open()
    assert isinstance(next(opening), Open)
    call = Calling()
    assert isinstance(opening.send(call), Write)
    assert isinstance(opening.send(None), Read)
    session.disconnect()
    assert not call.is_open
    opening.close()
