"""Calls without an identity are few, and a first call of a peer is always let in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from shedder.errors import InvalidRequest, Overloaded
from shedder.server.anonymous_calls import AnonymousCalls, AnonymousLimits
from tests.server.virtual_loop import run_in_virtual_time


class World:
    """Watches and reads of peers, and which of them have been ended."""

    def __init__(self, **limits: float) -> None:
        self.calls = AnonymousCalls(AnonymousLimits(**limits))
        self.ended: list[str] = []
        self.order: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    def watch(self, peer: str) -> asyncio.Task[None]:
        """Open a call that stays open."""
        return self._begin(self._watch(peer))

    def read(self, peer: str, takes_s: float) -> asyncio.Task[None]:
        """Open a call whose request takes a time to arrive."""
        return self._begin(self._read(peer, takes_s))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, Overloaded, InvalidRequest):
                await task

    def _begin(self, work) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def _watch(self, peer: str) -> None:
        try:
            async with self.calls.taken(peer):
                await asyncio.Event().wait()
        except Overloaded:
            self.ended.append(peer)
            raise

    async def _read(self, peer: str, takes_s: float) -> None:
        async with self.calls.taken(peer), self.calls.turn(peer):
            await asyncio.sleep(takes_s)
        self.order.append(peer)


def peers(host: str, ports: Sequence[int]) -> list[str]:
    return [f"ipv4:10.0.0.{host}:{port}" for port in ports]


def test_one_connection_has_few_calls_and_keeps_them():
    async def world():
        found = World(per_connection_max=3)
        for peer in peers("1", [7, 7, 7]):
            found.watch(peer)
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match=r"3 calls without an identity.* the limit is 3"):
            await found.watch("ipv4:10.0.0.1:7")
        found.watch("ipv4:10.0.0.1:8")
        await asyncio.sleep(0)
        assert found.ended == ["ipv4:10.0.0.1:7"]  # The fourth itself.
        await found.close()

    run_in_virtual_time(world())


def test_a_newcomer_ends_the_oldest_call_of_the_busiest_connection_of_the_busiest_address():
    async def world():
        found = World(calls_max=6, per_connection_max=4)
        watched = [*peers("1", [1, 2, 3, 3]), *peers("2", [5, 5])]
        for peer in watched:
            found.watch(peer)
        for peer in peers("3", [9, 8]):
            found.watch(peer)
            await asyncio.sleep(0.1)
        assert found.ended == ["ipv4:10.0.0.1:3", "ipv4:10.0.0.1:1"]
        await found.close()
        for peer in watched:  # All places are free again.
            found.watch(peer)
        await asyncio.sleep(0.1)
        assert len(found.ended) == 2
        await found.close()

    run_in_virtual_time(world())


def test_a_flood_from_many_connections_never_ends_the_call_of_another_address():
    async def world():
        found = World(calls_max=16)
        probe = found.watch("ipv4:10.0.0.9:1")
        for port in range(500):
            found.watch(f"ipv4:10.0.0.1:{port}")
        await asyncio.sleep(0.1)
        assert not probe.done()
        assert len(found.ended) == 500 - 15
        await found.close()

    run_in_virtual_time(world())


def test_requests_are_received_a_few_at_a_time_and_each_has_its_limit():
    async def world():
        found = World(reads_max=2, read_s_max=1.0, read_s_min=0.25)
        slow = [found.read(peer, 60.0) for peer in peers("1", range(6))]
        for task in slow:
            with pytest.raises(InvalidRequest, match="no request arrived within 1 s"):
                await task
        assert asyncio.get_running_loop().time() == 1.5  # Six, two at a time; a wait counts.

    run_in_virtual_time(world())


def test_requests_that_never_arrive_do_not_starve_a_probe_of_the_same_address():
    """Each of these had a second from its turn on, so the probe waited 255 s."""

    async def world():
        found = World(per_connection_max=1, read_s_min=1 / 64)
        for port in range(510):
            found.read(f"ipv4:10.0.0.1:{port}", 60.0)
        await asyncio.sleep(0)
        await found.read("ipv4:10.0.0.1:9999", 0.0)
        assert asyncio.get_running_loop().time() == 1.0 + 508 / 2 / 64
        await found.close()

    run_in_virtual_time(world())


def test_a_request_that_waited_has_the_rest_of_its_time():
    async def world():
        found = World(reads_max=1, read_s_max=1.0, read_s_min=0.25)
        found.read("ipv4:10.0.0.1:1", 0.5)
        await asyncio.sleep(0)
        await found.read("ipv4:10.0.0.1:2", 0.25)  # It waits 0.5 s, and 0.5 s are left.
        assert asyncio.get_running_loop().time() == 0.75
        found.read("ipv4:10.0.0.1:1", 0.875)
        await asyncio.sleep(0)
        with pytest.raises(InvalidRequest, match="no request arrived within 1 s"):
            await found.read("ipv4:10.0.0.1:2", 0.5)
        assert asyncio.get_running_loop().time() == 0.75 + 0.875 + 0.25
        await found.close()

    run_in_virtual_time(world())


def test_addresses_of_one_network_of_ipv6_count_as_one():
    async def world():
        found = World(calls_max=16)
        probe = found.watch("ipv6:%5B2001:db8:0:1::1%5D:7")
        for number in range(500):
            found.watch(f"ipv6:%5B2001:db8:0:2:{number:x}::1%5D:7")
        await asyncio.sleep(0.1)
        assert not probe.done()
        await found.close()

    run_in_virtual_time(world())


def test_a_network_of_ipv6_waits_for_turns_as_one():
    async def world():
        found = World()
        for number in range(40):
            found.read(f"ipv6:%5B2001:db8:0:3::{number:x}%5D:7", 60.0)
        await asyncio.sleep(0.5)
        await found.read("ipv6:%5B2001:db8:0:4::1%5D:7", 0.0)
        assert asyncio.get_running_loop().time() == 1.0
        await found.close()

    run_in_virtual_time(world())


def test_a_probe_waits_for_one_turn_however_many_others_wait():
    async def world():
        found = World(reads_max=2, read_s_max=1.0)
        for port in [*range(40), *[50] * 7]:
            found.read(f"ipv4:10.0.0.1:{port}", 60.0)
        await asyncio.sleep(0.5)
        await found.read("ipv4:10.0.0.2:1", 0.0)
        assert asyncio.get_running_loop().time() == 1.0
        found.read("ipv4:10.0.0.1:50", 0.0)
        await found.read("ipv4:10.0.0.1:77", 0.0)  # At one address, connections with few first.
        assert found.order == ["ipv4:10.0.0.2:1", "ipv4:10.0.0.1:77"]
        await found.close()

    run_in_virtual_time(world())


def test_a_caller_that_leaves_gives_its_turn_on():
    async def world():
        found = World(reads_max=1, read_s_max=100.0)
        first = found.read("ipv4:10.0.0.1:1", 60.0)
        waits = found.read("ipv4:10.0.0.1:2", 60.0)
        last = found.read("ipv4:10.0.0.1:3", 0.0)
        await asyncio.sleep(1.0)
        waits.cancel()
        await asyncio.sleep(0)
        first.cancel()
        await last
        assert asyncio.get_running_loop().time() == 1.0
        # Both at once: its turn comes in the moment in which it leaves.
        first, waits = (found.read("ipv4:10.0.0.1:1", each) for each in (60.0, 60.0))
        last = found.read("ipv4:10.0.0.1:3", 0.0)
        await asyncio.sleep(1.0)
        first.cancel()
        waits.cancel()
        await last
        assert asyncio.get_running_loop().time() == 2.0

    run_in_virtual_time(world())
