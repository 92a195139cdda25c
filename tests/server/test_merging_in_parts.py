"""Summaries that are larger than a message: all of them count, once, or nothing does."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from shedder import errors
from shedder.client.client import Client
from shedder.client.source_summaries import summaries_of
from shedder.engine.remote_summaries.summary_builder import Plans
from shedder.server.call_context import Drain
from shedder.server.multipart import Parts
from shedder.streams.batch_conversion import conform
from shedder.v1 import ingest_pb2
from shedder.v1.synopses_pb2 import MergeInPartsRequest, MergeRequest
from shedder.v1.synopses_pb2_grpc import SynopsesStub
from shedder.wire.status import from_call
from shedder.wire.summaries import PART_BYTES, merge_in_parts
from tests.server.virtual_loop import run_in_virtual_time
from tests.server.worlds import CREATE_TRADES, connect_async
from tests.server_process import ServerProcess
from tests.streams.streams import trades

QUERY = "SELECT key, COUNT(*) AS n, SUM(key) AS s, COUNT(DISTINCT value) AS d FROM {} GROUP BY key"
SMALL = "80000"  # bytes of a message


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data", batch_bytes_max=SMALL, ingest_queue_bytes="1MiB")
    with process.connect() as client:
        for name in ("trades", "twins"):
            client.execute(CREATE_TRADES.replace("STREAM trades", f"STREAM {name}"))
            client.register(f"of_{name}", QUERY.format(name))
    yield process
    process.stop()


def built(client: Client, rows: int = 4_000) -> bytes:
    plans = Plans.from_json(client.plans("trades"))
    return summaries_of(plans, list(conform(trades(rows), plans.schema, limits=plans.limits)))


def rows_of(client: Client, name: str) -> list[dict[str, object]]:
    client.ledger(name)
    return sorted(client.query(f"of_{name}").answer().rows(), key=str)


def as_whole(size_bytes: int, sequence: int = 0) -> MergeInPartsRequest:
    producer = ingest_pb2.Producer(name="p")
    merge = MergeRequest(stream="trades", producer=producer, sequence=sequence)
    return MergeInPartsRequest(whole=MergeInPartsRequest.Whole(merge=merge, size_bytes=size_bytes))


def refusal(address: str, requests: list[MergeInPartsRequest]) -> errors.ShedderError:
    with grpc.insecure_channel(address) as channel:
        with pytest.raises(grpc.RpcError) as found:
            SynopsesStub(channel).MergeInParts(iter(requests), timeout=60)
        call = found.value
        return from_call(call.code(), call.details(), call.trailing_metadata(), address)


@pytest.mark.slow
def test_what_is_larger_than_a_message_is_merged_whole_and_once(server: ServerProcess) -> None:
    with server.connect() as client:
        data = built(client)
        assert len(data) > int(SMALL)
        receipt = client.merge("trades", data, producer="p", sequence=0)
        assert (receipt.rows, receipt.duplicate) == (4_000, False)
        client.push("twins", trades(4_000))
        assert rows_of(client, "trades") == rows_of(client, "twins")
        assert client.merge("trades", data, producer="p", sequence=0).duplicate

        async def again() -> bool:
            async with await connect_async(server.address, insecure=True) as other:
                merged = await other.merge("trades", data, producer="p", sequence=1)
            return merged.duplicate

        assert asyncio.run(again()) is False
    server.stop(signal.SIGKILL)
    server.start_again()
    with server.connect() as client:
        ledger = client.ledger("trades")
        assert (ledger.applied, ledger.queries[0].read) == (8_000, 8_000)
        assert sum(row["n"] for row in rows_of(client, "trades")) == 8_000


KILLED = """
import os, signal, sys
import grpc
from shedder.v1.synopses_pb2 import MergeInPartsRequest
from shedder.v1.synopses_pb2_grpc import SynopsesStub

def requests(of):
    while size := int.from_bytes(of.read(4), "big"):
        yield MergeInPartsRequest.FromString(of.read(size))
    print("sent", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)  # The request stream has not ended, so the server waits.
    yield MergeInPartsRequest()

channel = grpc.insecure_channel(sys.argv[1])
SynopsesStub(channel).MergeInParts(requests(sys.stdin.buffer))
"""


@pytest.mark.slow
def test_a_sender_that_is_killed_between_parts_leaves_nothing(server: ServerProcess) -> None:
    with server.connect() as client:
        data = built(client)
    first = list(merge_in_parts(as_whole(1).whole.merge, data, int(SMALL)))[:-1]
    frames = b"".join(
        len(text).to_bytes(4, "big") + text for text in (each.SerializeToString() for each in first)
    )
    for attempt in range(2):  # Nor does the second find its room taken.
        command = [sys.executable, "-c", KILLED, server.address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sender:
            assert sender.stdin is not None
            assert sender.stdout is not None
            sender.stdin.write(frames + bytes(4))
            sender.stdin.flush()
            assert sender.stdout.readline() == b"sent\n"
            sender.kill()
        with server.connect() as client:
            ledger = client.ledger("trades")
            assert (ledger.accepted, ledger.applied) == (0, 0), attempt
            assert client.last_sequence("trades", "p") is None
    with server.connect() as client:
        assert client.merge("trades", data, producer="p", sequence=0).rows == 4_000
        assert client.ledger("trades").applied == 4_000


@pytest.mark.slow
def test_a_server_that_is_killed_between_parts_has_nothing_afterwards(
    server: ServerProcess,
) -> None:
    with server.connect() as client:
        data = built(client)

    def requests() -> Iterator[MergeInPartsRequest]:
        *most, last = merge_in_parts(as_whole(1).whole.merge, data, int(SMALL))
        yield from most
        server.stop(signal.SIGKILL)
        yield last

    with grpc.insecure_channel(server.address) as channel:
        with pytest.raises(grpc.RpcError) as found:
            SynopsesStub(channel).MergeInParts(requests(), timeout=60)
        assert found.value.code() == grpc.StatusCode.UNAVAILABLE
    server.start_again()
    with server.connect() as client:
        assert client.ledger("trades").accepted == 0
        client.merge("trades", data, producer="p", sequence=0)
        client.push("twins", trades(4_000))
        assert rows_of(client, "trades") == rows_of(client, "twins")


@pytest.mark.slow
def test_parts_that_are_not_what_was_said_are_refused_and_nothing_is_kept(
    server: ServerProcess,
) -> None:
    with server.connect() as client:
        data = built(client)
    half, part = len(data) // 4, MergeInPartsRequest(part=data[: len(data) // 4])
    for requests, kind, words in (
        ([as_whole(len(data)), part], errors.BadBatch, f"{len(data):,} bytes were to come"),
        ([as_whole(half - 1), part], errors.BadBatch, "or more came"),
        ([as_whole(half), part], errors.BadBatch, "no summaries of format"),
        ([part], errors.InvalidRequest, "must be `whole`"),
        ([as_whole(9), as_whole(9)], errors.InvalidRequest, "takes parts only"),
        ([as_whole(0)], errors.InvalidRequest, "size_bytes is 0"),
        ([as_whole(1 << 40)], errors.BatchTooLarge, "the limit is 1,048,576"),
    ):
        error = refusal(server.address, requests)
        assert type(error) is kind
        assert words in str(error)
    with server.connect() as client:
        ledger = client.ledger("trades")
        assert ledger.accepted == 0
        assert ledger.refused_batches == 6  # One named no stream.


def test_what_is_on_its_way_at_the_same_time_has_one_bound() -> None:
    parts = Parts(100, Drain())
    with parts.room(60, "a"):
        with (
            pytest.raises(errors.Overloaded, match="60 bytes are on their way"),
            parts.room(41, "a"),
        ):
            pass
        with parts.room(40, "a"):
            assert parts.held_bytes == 100
    assert parts.held_bytes == 0


async def received(requests, size_bytes: int, parts: Parts | None = None, tenant="a") -> bytes:
    """Receive a whole of a size in parts, in a room of its own."""
    parts = parts or Parts(1 << 20, Drain())
    with parts.room(size_bytes, tenant) as room:
        return await parts.gathered(requests, room)


def test_who_sends_nothing_is_not_waited_for_for_ever() -> None:
    async def nothing() -> None:
        async def silent():
            await asyncio.Event().wait()
            yield MergeInPartsRequest()

        with pytest.raises(errors.InvalidRequest, match="no part came for 30 s"):
            await received(silent(), 9)

    run_in_virtual_time(nothing())


def test_who_sends_a_byte_at_a_time_does_not_keep_the_room_for_ever() -> None:
    async def trickle() -> None:
        async def drops():
            while True:
                await asyncio.sleep(7.0)
                yield MergeInPartsRequest(part=b"x")

        with pytest.raises(errors.InvalidRequest, match="the parts come at less than"):
            await received(drops(), 100)

    run_in_virtual_time(trickle())


@pytest.mark.parametrize("pause_s", [20.0, 29.0])
@pytest.mark.parametrize("at_once", [1, 700_000])
def test_a_byte_now_and_then_holds_the_room_for_half_a_minute_however_much_came_before(
    pause_s, at_once
) -> None:
    """700,000 bytes at once would be eleven seconds ahead of the least pace."""

    async def drip() -> None:
        async def drops():
            yield MergeInPartsRequest(part=bytes(at_once))
            while True:
                await asyncio.sleep(pause_s)
                yield MergeInPartsRequest(part=b"x")

        with pytest.raises(errors.InvalidRequest, match="the parts come at less than 65,536"):
            await received(drops(), 1 << 20)
        assert asyncio.get_running_loop().time() <= 31.0

    run_in_virtual_time(drip())


def test_a_sender_at_the_least_pace_is_not_ended() -> None:
    async def steady() -> None:
        async def parts():
            for _ in range(16):
                await asyncio.sleep(1.0)
                yield MergeInPartsRequest(part=bytes(1 << 16))

        assert await received(parts(), 1 << 20) == bytes(1 << 20)

    run_in_virtual_time(steady())


def test_what_a_tenant_has_beyond_its_share_gives_way_to_another_tenant() -> None:
    """Of 100 bytes a has 60 that stay, and 40 that are lent; then b comes."""
    parts = Parts(100, Drain())

    async def silent():
        await asyncio.Event().wait()
        yield MergeInPartsRequest()

    async def world() -> None:
        first = asyncio.create_task(received(silent(), 60, parts, "a"))
        second = asyncio.create_task(received(silent(), 40, parts, "a"))
        await asyncio.sleep(1.0)
        with pytest.raises(errors.Overloaded, match="are on their way"), parts.room(50, "b"):
            pass  # More than what is lent: nothing is ended for it.
        with pytest.raises(errors.Overloaded, match="are on their way"), parts.room(30, "a"):
            pass  # A tenant does not end calls of its own.
        with parts.room(30, "b"):
            with pytest.raises(errors.Overloaded, match="another tenant needs the room"):
                await second
            assert parts.held_bytes == 90
            assert asyncio.get_running_loop().time() == 1.0
        with pytest.raises(errors.InvalidRequest, match="no part came for 30 s"):
            await first
        assert parts.held_bytes == 0

    run_in_virtual_time(world())


def test_what_is_being_merged_is_not_ended() -> None:
    async def world() -> None:
        async def at_once():
            yield MergeInPartsRequest(part=bytes(100))

        parts = Parts(100, Drain())
        with parts.room(100, "a") as room:
            await parts.gathered(at_once(), room)
            with pytest.raises(errors.Overloaded, match="are on their way"), parts.room(1, "b"):
                pass

    asyncio.run(world())


def test_empty_parts_do_not_keep_the_room_for_ever() -> None:
    async def empties() -> None:
        async def endless():
            for _ in range(1_000):
                yield MergeInPartsRequest(part=b"")

        with pytest.raises(errors.InvalidRequest, match="a part is empty"):
            await received(endless(), 9)

    asyncio.run(empties())


def test_parts_are_as_large_as_the_server_takes_messages() -> None:
    data = bytes(3 * PART_BYTES + 1)
    for limit, largest in ((1 << 30, PART_BYTES), (100_000, 100_000), (1, 65_536)):
        whole, *parts = merge_in_parts(MergeRequest(stream="s"), data, limit)
        assert whole.whole.size_bytes == len(data)
        assert b"".join(each.part for each in parts) == data
        assert max(len(each.part) for each in parts) == largest


@pytest.mark.slow
@pytest.mark.parametrize("rows", [300, 4_000], ids=["one message", "in parts"])
def test_what_follows_others_is_merged_only_where_these_are(
    server: ServerProcess, rows: int
) -> None:
    with server.connect() as client:
        data = built(client, rows)
        assert (len(data) > int(SMALL)) == (rows == 4_000)
        for sequence in range(2):
            client.merge("trades", built(client, 10), producer="p/0", epoch=3, sequence=sequence)
        for lacking in ({"p/0": (3, 2)}, {"p/0": (4, 0)}, {"p/0": (3, 1), "p/1": (3, 0)}):
            with pytest.raises(errors.FailedPrecondition, match=r"came back with an older"):
                client.merge("trades", data, producer="end", sequence=0, after=lacking)
        assert client.last_sequence("trades", "end") is None
        assert client.ledger("trades").applied == 20
        for _ in range(2):
            reached = {"p/0": (3, 1)}
            client.merge("trades", data, producer="end", sequence=0, after=reached)
        assert client.ledger("trades").applied == 20 + rows
