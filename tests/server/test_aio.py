"""The asynchronous client speaks the same words."""

import pyarrow as pa
import pytest

from shedder import errors
from shedder.client import connect_async
from tests.server.conftest import CREATE_TRADES
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


async def test_nobody_there_is_said_to_be_unreachable():
    with pytest.raises(errors.Unreachable):
        await connect_async("127.0.0.1:1")
