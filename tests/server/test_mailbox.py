"""A mailbox on an event loop holds the newest answer, and counts the ones missed."""

import asyncio
import threading

import pytest

from shedder.errors import UnknownQuery
from shedder.server.mailbox import AsyncMailbox

UPDATES = [UnknownQuery(name, []) for name in "abc"]


def test_reader_gets_the_newest_answer_of_other_threads_and_how_many_it_missed():
    async def read() -> list:
        mailbox = AsyncMailbox(asyncio.get_running_loop())
        writer = threading.Thread(target=lambda: [mailbox.put(update) for update in UPDATES[:2]])
        writer.start()
        writer.join()  # The loop has had no turn yet.
        found = [await mailbox.get()]
        waiting = asyncio.ensure_future(mailbox.get())
        await asyncio.sleep(0)
        assert not waiting.done()
        mailbox.put(UPDATES[2])
        return [*found, await waiting]

    assert asyncio.run(read()) == [(UPDATES[1], 1), (UPDATES[2], 0)]


def test_reader_that_gives_up_takes_no_answer():
    async def read() -> tuple:
        mailbox = AsyncMailbox(asyncio.get_running_loop())
        waiting = asyncio.ensure_future(mailbox.get())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        mailbox.put(UPDATES[0])
        return await mailbox.get()

    assert asyncio.run(read()) == (UPDATES[0], 0)


def test_answer_for_a_closed_loop_is_dropped():
    loop = asyncio.new_event_loop()
    mailbox = AsyncMailbox(loop)
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon_threadsafe(print)
    mailbox.put(UPDATES[0])
