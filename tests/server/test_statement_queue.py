"""Large statements take turns: one at a time, tenant by tenant, within a share of one core."""

from __future__ import annotations

import asyncio

import pytest

from shedder.errors import Overloaded
from shedder.server.statement_queue import StatementLimits, StatementQueue
from tests.server.virtual_loop import run_in_virtual_time

COST_S = 0.125  # Of a statement; a binary fraction, so that sums have no rounding.


class Thread:
    """A worker thread in virtual time, on which each statement takes CPU."""

    def __init__(self):
        self.used_s = 0.0
        self.running = 0
        self.most = 0
        self.ended = []

    async def run(self, work, tenant):
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(COST_S)
        self.running -= 1
        result = work()
        self.ended.append((tenant, asyncio.get_running_loop().time()))
        return result

    def work(self):
        self.used_s += COST_S
        return self.used_s

    def fail(self):
        self.used_s += COST_S
        raise ValueError("no statement")


def queue_of(thread, **limits):
    limits = StatementLimits(**{"share": 0.25, "burst_s": 0.25} | limits)
    return StatementQueue(thread.run, limits=limits, cpu_s=lambda: thread.used_s)


def test_statements_take_no_more_than_the_share_and_the_burst():
    async def world():
        thread = Thread()
        queue = queue_of(thread)
        await asyncio.gather(*(queue.run(thread.work, "a") for _ in range(40)))
        elapsed_s = asyncio.get_running_loop().time()
        assert thread.most == 1
        assert thread.used_s == 40 * COST_S
        assert thread.used_s <= 0.25 * elapsed_s + 0.25 + COST_S
        assert elapsed_s <= 40 * COST_S / 0.25  # The share is used.

    run_in_virtual_time(world())


def test_a_client_that_is_alone_does_not_wait():
    async def world():
        thread = Thread()
        queue = queue_of(thread)
        for _ in range(3):
            began_s = asyncio.get_running_loop().time()
            await queue.run(thread.work, "a")
            assert asyncio.get_running_loop().time() == began_s + COST_S
            await asyncio.sleep(COST_S / 0.25)

    run_in_virtual_time(world())


def test_tenants_take_turns_however_many_statements_one_sends():
    async def world():
        thread = Thread()
        queue = queue_of(thread)
        flood = [asyncio.ensure_future(queue.run(thread.work, "greedy")) for _ in range(20)]
        await asyncio.sleep(0)
        await asyncio.gather(*(queue.run(thread.work, "modest") for _ in range(3)))
        assert [tenant for tenant, _ in thread.ended[:6]].count("modest") >= 2
        await asyncio.gather(*flood)

    run_in_virtual_time(world())


def test_a_statement_that_fails_is_paid_for_and_leaves_its_turn():
    async def world():
        thread = Thread()
        queue = queue_of(thread, burst_s=0.0)
        with pytest.raises(ValueError, match="no statement"):
            await queue.run(thread.fail, "a")
        await queue.run(thread.work, "a")
        assert asyncio.get_running_loop().time() == COST_S + COST_S / 0.25 + COST_S

    run_in_virtual_time(world())


@pytest.mark.parametrize("left_after_s", [0.0, COST_S / 2])
def test_a_client_that_leaves_gives_its_turn_to_the_next(left_after_s):
    async def world():
        thread = Thread()
        queue = queue_of(thread)
        first, second, third = (
            asyncio.ensure_future(queue.run(thread.work, "a")) for _ in range(3)
        )
        await asyncio.sleep(left_after_s)
        for gone in (first, second):
            gone.cancel()
        assert await third
        assert thread.most == 1
        assert first.cancelled()
        assert second.cancelled()
        assert await queue.run(thread.work, "a")

    run_in_virtual_time(world())


def test_statements_above_the_limit_are_refused_and_other_tenants_have_room():
    async def world():
        thread = Thread()
        queue = queue_of(thread, waiting_max=8)
        calls = [asyncio.ensure_future(queue.run(thread.work, "greedy")) for _ in range(10)]
        await asyncio.sleep(0)
        refused = [call for call in calls if call.done()]
        assert len(refused) == 10 - 6  # Three quarters of eight places.
        assert all(isinstance(call.exception(), Overloaded) for call in refused)
        assert await queue.run(thread.work, "modest")
        await asyncio.gather(*(call for call in calls if call not in refused))

    run_in_virtual_time(world())


def test_work_aside_takes_no_turn_and_is_paid_for():
    async def world():
        thread = Thread()
        queue = queue_of(thread, burst_s=0.0)
        await asyncio.gather(queue.run_aside(thread.work), queue.run(thread.work, "a"))
        assert thread.most == 2
        assert asyncio.get_running_loop().time() == COST_S
        await queue.run(thread.work, "a")
        assert asyncio.get_running_loop().time() == COST_S + 2 * COST_S / 0.25 + COST_S

    run_in_virtual_time(world())


@pytest.mark.parametrize(
    ("text", "is_large"),
    [
        ("x" * 29, False),
        ("x" * 30, True),
        ("a,b,c,d,e", False),
        ("a,b,c,d,ef", False),
        ("a,b,c,d,e,", True),
        ("a b = (1)  +  22 < c", True),
        ("   a   b   c   d   e    ", False),
    ],
)
def test_texts_are_large_by_their_length_or_by_their_tokens(text, is_large):
    assert queue_of(Thread(), characters_min=30, tokens_min=10).is_large(text) is is_large


def test_a_list_of_short_constants_is_large():
    """900 nodes within 2,000 characters take 15 ms to parse."""
    queue = StatementQueue(Thread().run)
    assert queue.is_large(f"SELECT COUNT(*) FROM s WHERE k IN ({','.join(['1'] * 900)})")
    assert not queue.is_large(f"SELECT COUNT(*) FROM s WHERE k IN ({','.join(['1'] * 20)})")
    assert not queue.is_large("SELECT COUNT(*) FROM s" + " " * 2_000)
