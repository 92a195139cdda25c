"""Calls without an identity (health probes): bounded in number, memory and time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from shedder.errors import InvalidRequest, Overloaded
from shedder.server.peers import network, parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class AnonymousLimits:
    """Limits of calls without an identity.

    calls_max: calls at once, of all peers. A further call ends an older one.
    per_connection_max: calls at once of one connection. A further call is refused.
    reads_max: requests received at once; each may take as much memory as the largest message.
    read_s_max: time for a request to arrive. A wait for the turn counts; s.
    read_s_min: time for a request to arrive from its turn on, however long the call waited; s. The
    beginning of a request arrives during the wait, and that of a probe is all of it.
    """

    calls_max: int = 512
    per_connection_max: int = 8
    reads_max: int = 2
    read_s_max: float = 1.0
    read_s_min: float = 0.02


@dataclass(slots=True, eq=False)
class _Call:
    """An open call. end: ends it at once."""

    network: str
    connection: str
    end: asyncio.Timeout


@dataclass(slots=True, eq=False)
class _Waiter:
    """A call whose request is not received yet."""

    network: str
    connection: str
    turn: asyncio.Future[None]


class AnonymousCalls:
    """Counts calls without an identity by connection and by network. Of one event loop.

    When there are too many, the oldest call of the connection with most calls is ended, at the
    network with most calls. So a peer with few calls keeps them, and a first call is let in.
    """

    def __init__(self, limits: AnonymousLimits) -> None:
        self._limits = limits
        self._calls: list[_Call] = []  # oldest first
        self._reads = 0
        self._waiters: list[_Waiter] = []  # oldest first

    @asynccontextmanager
    async def taken(self, peer: str) -> AsyncIterator[None]:
        """Count a call of a peer while the block runs.

        Raises:
          Overloaded: the connection has too many calls, or a newer call took the place.
        """
        connections = Counter(call.connection for call in self._calls)
        if connections[peer] >= self._limits.per_connection_max:
            raise Overloaded(
                f"{connections[peer]} calls without an identity are open on this connection; the "
                f"limit is {self._limits.per_connection_max}"
            )
        if len(self._calls) >= self._limits.calls_max:
            self._end_one(connections)
        call = _Call(network(parsed(peer)[0]), peer, asyncio.timeout(None))
        self._calls.append(call)
        try:
            async with call.end:
                yield
        except TimeoutError:
            if not call.end.expired():
                raise
            raise Overloaded(
                f"a newer call took the place of this one; the limit is {self._limits.calls_max} "
                "calls without an identity"
            ) from None
        finally:
            with suppress(ValueError):  # A call that was ended is gone already.
                self._calls.remove(call)

    @asynccontextmanager
    async def turn(self, peer: str) -> AsyncIterator[None]:
        """Wait for a turn to receive a request, and receive it inside of the block.

        Raises:
          InvalidRequest: the request did not arrive in time.
        """
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._limits.read_s_max
        await self._wait_for_turn(peer)
        limit = asyncio.timeout_at(max(ends_s, loop.time() + self._limits.read_s_min))
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise InvalidRequest(
                f"no request arrived within {self._limits.read_s_max:g} s"
            ) from None
        finally:
            self._hand_on()

    async def _wait_for_turn(self, peer: str) -> None:
        if self._reads < self._limits.reads_max:
            self._reads += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(network(parsed(peer)[0]), peer, turn)
        self._waiters.append(waiter)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # Its turn had come.
                self._hand_on()
            raise
        finally:
            with suppress(ValueError):
                self._waiters.remove(waiter)

    def _hand_on(self) -> None:
        """Give a turn to the network with fewest waiting calls, there to such a connection."""
        waiters = [waiter for waiter in self._waiters if not waiter.turn.done()]
        if not waiters:
            self._reads -= 1
            return
        networks = Counter(waiter.network for waiter in waiters)
        connections = Counter(waiter.connection for waiter in waiters)
        first = min(
            waiters,
            key=lambda waiter: (networks[waiter.network], connections[waiter.connection]),
        )
        first.turn.set_result(None)

    def _end_one(self, connections: Counter[str]) -> None:
        networks = Counter(call.network for call in self._calls)
        last = max(
            self._calls,
            key=lambda call: (networks[call.network], connections[call.connection]),
        )
        self._calls.remove(last)
        last.end.reschedule(asyncio.get_running_loop().time())
