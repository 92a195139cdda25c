"""Blocking calls and operations end when they are interrupted or dropped."""

from threading import Thread

import pytest

from shedder.client.connection import Connection, StreamedCall
from shedder.client.drivers import perform
from shedder.client.steps import Open
from tests.server.worlds import target_of

ENDS_S = 30.0  # Within this time a thread that was told to end has ended.


class Calling:
    """A call of gRPC; Ctrl-C comes while its start is awaited."""

    def __init__(self):
        self.cancelled = 0

    def initial_metadata(self):
        raise KeyboardInterrupt

    def cancel(self):
        self.cancelled += 1


@pytest.fixture
def connection():
    connection = Connection(target_of("localhost:1"))
    yield connection
    connection.close()


def test_a_call_whose_start_is_interrupted_is_cancelled(connection):
    call = Calling()
    with pytest.raises(KeyboardInterrupt):
        connection.open(lambda *_, **__: call, request=b"", awaits_start=True)
    assert call.cancelled == 1


def test_the_thread_that_sends_requests_ends_with_its_call():
    threads, sent = [], []

    def method(requests, **_):
        threads.append(Thread(target=lambda: sent.extend(requests), daemon=True))
        threads[0].start()
        return Calling()

    call = StreamedCall(method, None, None, None)
    call.write(b"row")
    del call
    threads[0].join(ENDS_S)
    assert not threads[0].is_alive()
    assert sent == [b"row"]


class Interrupted:
    """The steps of an operation; Ctrl-C comes when the outcome of the first step is there."""

    def __init__(self):
        self.is_closed = False

    def __next__(self):
        return Open(lambda stubs: lambda *_, **__: Calling(), request=b"")

    def send(self, outcome):
        raise KeyboardInterrupt

    def close(self):
        self.is_closed = True


def test_an_operation_that_is_interrupted_between_two_steps_is_closed(connection):
    steps = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        perform(connection, steps)
    assert steps.is_closed
