"""Threads for calls: one tenant's long questions leave the others theirs."""

from __future__ import annotations

import asyncio
import threading

import pytest

from shedder.errors import Overloaded
from shedder.server.call_context import Workers


async def busy(workers, tenant, calls, gate):
    """So many calls of a tenant, which end when the gate opens; those that were refused."""
    begun = [asyncio.ensure_future(workers.run(gate.wait, tenant)) for _ in range(calls)]
    await asyncio.sleep(0)
    return begun


def test_one_of_several_tenants_leaves_threads_and_places_to_the_others():
    async def world():
        workers, gate = Workers(threads=4, waiting_max=8), threading.Event()
        try:
            assert await workers.run(lambda: 1, "modest") == 1
            greedy = await busy(workers, "greedy", 10, gate)
            refused = [one for one in greedy if one.done()]
            assert len(refused) == 10 - 6  # Three quarters of eight places.
            assert all(isinstance(one.exception(), Overloaded) for one in refused)
            assert await workers.run(lambda: 2, "modest") == 2
            gate.set()
            assert (
                await asyncio.gather(*(one for one in greedy if one not in refused)) == [True] * 6
            )
            assert await workers.run(lambda: 3, "greedy") == 3
        finally:
            gate.set()
            workers.close()

    asyncio.run(world())


def test_who_is_alone_has_all_threads():
    async def world():
        workers, gate = Workers(threads=4, waiting_max=8), threading.Event()
        meeting = threading.Barrier(4)
        try:
            calls = [workers.run(meeting.wait, "alone") for _ in range(4)]
            assert sorted(await asyncio.gather(*calls)) == [0, 1, 2, 3]
        finally:
            gate.set()
            workers.close()

    asyncio.run(world())


def test_who_gives_up_while_it_waits_leaves_its_place_to_the_next():
    async def world():
        workers, gate = Workers(threads=1, waiting_max=8), threading.Event()
        try:
            first, second, third = await busy(workers, "a", 3, gate)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            gate.set()
            assert await asyncio.gather(first, third) == [True, True]
            assert await workers.run(lambda: 4, "a") == 4
        finally:
            gate.set()
            workers.close()

    asyncio.run(world())
