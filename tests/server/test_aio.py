"""The asynchronous client speaks the same words."""

import asyncio
import inspect

import pyarrow as pa
import pytest

from shedder import errors
from shedder.client import AsyncClient, Client
from shedder.client.aio_connection import AsyncConnection
from shedder.client.aio_producer import AsyncProducer
from shedder.client.source_summaries import summaries_of
from shedder.engine.remote_summaries.summary_builder import Plans
from shedder.server.server import Server
from tests.server.worlds import (
    CREATE_TRADES,
    PATIENCE_S,
    Holding,
    Listened,
    again,
    connect_async,
    target_of,
)
from tests.server_process import running
from tests.streams.streams import trades

COUNTS = "SELECT COUNT(*) AS n FROM trades [RANGE INTERVAL '1' SECOND SLIDE INTERVAL '1' SECOND]"
TOTAL = "SELECT COUNT(*) AS n FROM trades"


@pytest.mark.slow
async def test_every_word_works_on_an_event_loop(address):
    async with await connect_async(address) as client:
        await client.execute(CREATE_TRADES)
        assert (await client.schema("trades")).time_column == "ts"
        query = await client.register("counts", COUNTS)
        assert query.text == (await client.query("counts")).text
        assert query.granted
        assert await query.explain()
        slides = await query.subscribe()
        table = pa.Table.from_batches([trades(65_536, 1), trades(10, 2)])
        receipt = await client.push("trades", table)
        assert receipt.position == 65_546
        assert (await anext(slides)).rows()[0]["n"] == 1_000
        await slides.aclose()
        assert (await query.answer(after=receipt)).rows()[0]["n"] == 1_000
        assert (await query.latest()).rows()[0]["n"] == 1_000
        assert (await client.execute(TOTAL)).rows()[0]["n"] == 65_546
        await client.heartbeat("trades", 100_000_000)
        await client.seal("trades")
        assert (await client.ledger("trades")).applied == 65_546
        assert "trades" in (await client.control("stream"))["name"].to_pylist()
        await query.drop()
        with pytest.raises(errors.UnknownQuery):
            await query.answer()


@pytest.mark.slow
async def test_a_producer_goes_on_and_bad_rows_stop_it(address):
    async with await connect_async(address) as client:
        await client.execute(CREATE_TRADES)
        async with await client.producer("trades", "p", epoch=1) as producer:
            for seed in range(40):
                await producer.push(trades(10, seed))
            assert (await producer.flush()).position == 400
        resumed = await client.producer("trades", "p")
        assert (resumed.epoch, resumed.next_sequence) == (1, 40)
        with pytest.raises(errors.SchemaMismatch):
            await resumed.push({"ts": [1]})
        await resumed.push(trades(10), sequence=99)
        with pytest.raises(errors.SequenceGap):
            await resumed.flush()


async def test_who_gives_up_waiting_for_receipts_gets_them_later(engine, settings):
    front = Holding(engine)
    with running(front, settings) as address:
        async with await connect_async(str(address)) as client:
            await client.execute(CREATE_TRADES)
            producer = await client.producer("trades", "p")
            await producer.push(trades(10, 1))
            await producer.flush()
            front.holds = True
            await producer.push(trades(10, 2))
            flushing = asyncio.ensure_future(producer.flush())
            await asyncio.to_thread(front.came.acquire)  # The batch has no receipt yet.
            flushing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await flushing
            await producer.push(trades(10, 3))
            front.let_go()
            assert (await producer.flush()).position == 30
            await producer.close()


class Remembering(AsyncConnection):
    """A connection that remembers the call that was opened last."""

    async def open(self, *args, **options):
        self.opened = await super().open(*args, **options)
        return self.opened


async def test_a_producer_goes_on_when_the_server_has_ended_its_call(engine, settings):
    engine.execute(CREATE_TRADES)
    server = Server(engine, settings)
    address = await server.start()
    connection = Remembering(target_of(address))
    producer = await AsyncProducer(connection, "trades", "p", patience_s=PATIENCE_S).begin(None)
    await producer.push(trades(10, 1))
    await producer.flush()
    await server.stop(0)
    await connection.opened.code()  # Known when the end of the call has come.
    await producer.push(trades(10, 2))
    started = Server(engine, again(settings, address))
    await started.start()
    assert (await producer.flush()).position == 20
    await producer.close()
    await connection.close()
    await started.stop(0)


async def test_a_subscription_of_which_nothing_was_read_ends_with_its_reader(engine, settings):
    front = Listened(engine)
    with running(front, settings) as address:
        await subscribe_and_leave(str(address), front)


async def subscribe_and_leave(address, front):
    async with await connect_async(address) as client:
        await client.execute(CREATE_TRADES)
        query = await client.register("counts", COUNTS)
        listeners = front.core.standing_query("counts")[1].listeners
        for _ in range(3):
            slides = await query.subscribe()
            await slides.aclose()
            with pytest.raises(StopAsyncIteration):
                await anext(slides)
            await asyncio.to_thread(front.left.acquire)
        assert len(listeners) == 0


async def test_a_closed_client_ends_its_calls_and_refuses_others(address):
    """The reader got CancelledError, as if its task had been cancelled; calls got gRPC's errors."""
    client = await connect_async(address)
    await client.execute(CREATE_TRADES)
    query = await client.register("counts", COUNTS)
    slides = await query.subscribe()
    producer = await client.producer("trades", "p")
    await producer.push(trades(10))
    reading = asyncio.create_task(anext(slides))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(errors.FailedPrecondition, match="is closed; connect again"):
        await reading
    calls = (query.subscribe, query.latest, producer.flush, lambda: client.execute(TOTAL))
    for call in (*calls, lambda: client.push("trades", trades(3))):
        with pytest.raises(errors.FailedPrecondition, match="is closed; connect again"):
            await call()


async def test_a_reader_whose_subscription_is_closed_elsewhere_is_not_cancelled(address):
    async with await connect_async(address) as client:
        await client.execute(CREATE_TRADES)
        slides = await (await client.register("counts", COUNTS)).subscribe()
        reading = asyncio.create_task(anext(slides))
        await asyncio.sleep(0)
        await slides.aclose()
        with pytest.raises(errors.Unreachable, match="was cancelled"):
            await reading


async def test_a_cancelled_reader_is_cancelled(address):
    async with await connect_async(address) as client:
        await client.execute(CREATE_TRADES)
        slides = await (await client.register("counts", COUNTS)).subscribe()
        reading = asyncio.create_task(anext(slides))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        with pytest.raises(StopAsyncIteration):
            await anext(slides)


async def test_nobody_there_is_said_to_be_unreachable():
    with pytest.raises(errors.Unreachable):
        await connect_async("127.0.0.1:1", timeout_s=5.0)


@pytest.mark.slow
async def test_summaries_and_numbers_of_pushes_work_on_an_event_loop(address):
    async with await connect_async(address) as client:
        await client.execute(CREATE_TRADES)
        query = await client.register("total", TOTAL)
        assert await client.last_sequence("trades", "p") is None
        rows = trades(100, 1)
        summaries = summaries_of(Plans.from_json(await client.plans("trades")), [rows])
        merged = await client.merge("trades", summaries, producer="p", tuples_follow=True)
        assert (await query.answer(after=merged)).rows()[0]["n"] == 100
        await client.follow("trades", rows, producer="p")
        assert (await client.execute(TOTAL)).rows()[0]["n"] == 100
        await client.push("trades", trades(10, 2), producer="q", sequence=0)
        assert await client.last_sequence("trades", "q") == (0, 0)
        await client.set_control("query", "total", "weight", "2")
        values = (await client.control("query", "total")).to_pylist()
        assert {"weight": "2"}.items() <= {row["key"]: row["value"] for row in values}.items()


@pytest.mark.parametrize("name", ["execute", "push", "register", "merge", "follow"])
def test_an_operation_takes_the_same_arguments_on_an_event_loop(name):
    blocking = inspect.signature(getattr(Client, name)).parameters
    on_a_loop = inspect.signature(getattr(AsyncClient, name)).parameters
    assert [*on_a_loop] == [each for each in blocking if each != "watch"]
