"""Requests arrive within a time limit, and bytes that are none are refused."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress

import grpc
import pytest

from shedder.errors import Draining, InvalidRequest, Overloaded
from shedder.server.arrival import RequestReader, ResponseWriter, idle_stream, late_request, parser
from shedder.server.call_slots import StreamPlaces
from shedder.v1.ingest_pb2 import AppendRequest
from shedder.wire.batches import read_append
from tests.server.virtual_loop import run_in_virtual_time


async def never():
    await asyncio.Event().wait()
    yield b""


async def each(*pauses_s):
    for pause_s in pauses_s:
        await asyncio.sleep(pause_s)
        yield pause_s


def reader(requests):
    """Read from an iterator as gRPC reads from a call."""

    async def read():
        return await anext(requests, grpc.aio.EOF)

    return read


def now_s():
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("deserialize", [AppendRequest.FromString, read_append])
@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05abc", bytes(3)])
def test_bytes_that_are_no_protobuf_are_a_bad_request(deserialize, data):
    with pytest.raises(InvalidRequest, match=f"cannot be read: .*{len(data)} bytes"):
        parser(deserialize)(data)


def test_a_request_that_does_not_arrive_ends_the_call_at_its_limit():
    async def world():
        with pytest.raises(InvalidRequest, match="no request arrived within 9 s"):
            await RequestReader(reader(never()), late_request, 9.0).only()
        assert now_s() == 9.0

    run_in_virtual_time(world())


def test_each_request_has_the_whole_limit():
    async def world():
        requests = RequestReader(reader(each(8.0, 8.0, 10.0)), late_request, 9.0)
        assert [await anext(requests), await anext(requests)] == [8.0, 8.0]
        with pytest.raises(InvalidRequest):
            await anext(requests)
        assert now_s() == 25.0

    run_in_virtual_time(world())


def test_a_call_without_a_request_is_refused():
    async def world():
        with pytest.raises(InvalidRequest, match="has no request"):
            await RequestReader(reader(each()), late_request, 9.0).only()
        assert [
            request async for request in RequestReader(reader(each(1.0)), late_request, None)
        ] == [1.0]

    run_in_virtual_time(world())


def test_a_timeout_of_the_requests_themselves_stays_one():
    async def world():
        async def failing():
            raise TimeoutError("theirs")
            yield

        with pytest.raises(TimeoutError, match="theirs"):
            await anext(RequestReader(reader(failing()), late_request, 9.0))

    run_in_virtual_time(world())


class Calls:
    """Open streams of tenants in four places, each of which waits for one batch after the other."""

    def __init__(self, **limits):
        self._places = StreamPlaces(4, "streams", **{"idle_s_min": 30.0} | limits)
        self.ended: list[str] = []

    def open(self, name, requests):
        """Open a call of the tenant that its name begins with."""
        return asyncio.create_task(
            self._serve(name, RequestReader(reader(requests), idle_stream, 900.0))
        )

    async def _serve(self, name, requests):
        with self._places.taken(name[0], requests.wait):
            try:
                async for _ in requests:
                    pass
            except Draining:
                self.ended.append(name)
                raise


async def refused(call):
    with pytest.raises(Overloaded):
        await call


def test_an_idle_stream_ends_after_fifteen_minutes_and_its_client_comes_again():
    async def world():
        calls = Calls()
        with pytest.raises(Draining, match="no batch arrived for 900 s"):
            await calls.open("a1", never())
        assert now_s() == 900.0

    run_in_virtual_time(world())


def test_when_all_places_are_taken_the_stream_that_is_idle_longest_gives_way():
    async def world():
        calls = Calls()
        opened = [calls.open("a1", each(20.0, *[1e6])), calls.open("a2", never())]
        await asyncio.sleep(5.0)
        opened.append(calls.open("a3", never()))
        await asyncio.sleep(5.0)
        await refused(calls.open("a4", never()))  # None has been idle for 30 s.
        await asyncio.sleep(40.0)
        opened.append(calls.open("a5", never()))
        await asyncio.sleep(1.0)
        assert calls.ended == ["a2"]  # a1 had a batch at 20 s, a3 came at 5 s.
        opened.append(calls.open("b1", never()))  # The fourth place, which a may not have.
        opened.append(calls.open("b2", never()))
        await asyncio.sleep(1.0)
        assert calls.ended == ["a2", "a3"]  # Not of b, which has fewer.
        for call in opened:
            call.cancel()
            with suppress(asyncio.CancelledError, Draining):
                await call
        with pytest.raises(Draining):
            await calls.open("c1", never())  # All places are free again.

    run_in_virtual_time(world())


def test_a_stream_that_waits_for_its_receipts_does_not_give_way():
    async def world():
        places = StreamPlaces(4, "streams", idle_s_min=30.0)
        requests = [RequestReader(reader(each(1.0)), idle_stream, 900.0) for _ in range(4)]
        with ExitStack() as stack:
            for number in range(3):
                stack.enter_context(places.taken("a", requests[number].wait))
            for each_of in requests:
                await anext(each_of)
            await asyncio.sleep(1_000.0)  # The disk is slow; no read waits.
            with pytest.raises(Overloaded), places.taken("a", requests[3].wait):
                pass

    run_in_virtual_time(world())


def test_a_subscriber_that_takes_nothing_gives_way_and_one_that_has_no_news_does_not():
    async def world():
        places = StreamPlaces(4, "subscriptions", idle_s_min=30.0)

        async def blocked(_):
            await asyncio.Event().wait()

        async def subscribe(writes):
            writer = ResponseWriter(blocked)
            with places.taken("a", writer.wait):
                if writes:
                    await writer.write("news")
                await asyncio.sleep(1e6)

        quiet = [asyncio.create_task(subscribe(writes=False)) for _ in range(2)]
        stuck = asyncio.create_task(subscribe(writes=True))
        await asyncio.sleep(29.0)
        await refused(asyncio.create_task(subscribe(writes=False)))
        await asyncio.sleep(1.0)
        newcomer = asyncio.create_task(subscribe(writes=False))
        with pytest.raises(Overloaded, match="took no response for 30 s"):
            await stuck
        await refused(asyncio.create_task(subscribe(writes=False)))
        for task in (*quiet, newcomer):
            assert not task.done()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    run_in_virtual_time(world())


def test_a_connection_is_closed_if_the_last_response_is_not_taken_within_its_limit():
    async def world():
        taken, closed = asyncio.Event(), []

        async def blocked(_):
            await taken.wait()

        writer = ResponseWriter(blocked, 60.0)
        with pytest.raises(InvalidRequest, match="took no response for 60 s"):
            await writer.write("news")

        def close():
            closed.append(now_s())
            taken.set()  # The write fails with the connection.

        await writer.finish(600.0, close)
        assert closed == [660.0]

    run_in_virtual_time(world())


def test_a_connection_stays_if_the_last_response_is_taken_late():
    async def world():
        closed = []
        writer = ResponseWriter(lambda _: asyncio.sleep(100.0), 60.0)
        with pytest.raises(InvalidRequest):
            await writer.write("news")
        await writer.finish(600.0, lambda: closed.append(now_s()))
        assert now_s() == 100.0
        await asyncio.sleep(1_000.0)
        assert closed == []

    run_in_virtual_time(world())
