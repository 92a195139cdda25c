"""Context of all calls: threads for blocking work, the end of the server, deadlines."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc

from shedder.archive.tasks.progress import Progress
from shedder.errors import Draining
from shedder.server.anonymous_calls import AnonymousLimits
from shedder.server.authentication import LOCAL, caller
from shedder.server.call_slots import Places

Result = TypeVar("Result")
Context = grpc.aio.ServicerContext[Any, Any]

SEND_BYTES_MAX = 64 << 20  # Of one message to a client.
THREADS = 16
PART = 0.75  # Of the threads, that one of several tenants may have.
WAITING_MAX = 86  # Blocking calls, running or waiting for a thread; above it they are refused.


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """Limits of a server's calls.

    calls_max: calls in flight, of each of four kinds: questions, appends, AppendStreams and
      subscriptions. One tenant has at most three quarters of a kind. Control calls are not
      counted, and health probes have limits of their own (`anonymous`).
    request_s_max: time for the only request of a call to arrive, once the caller is known; s.
    idle_s_max: time without a batch after which an AppendStream is ended; s.
    idle_s_min: time without a batch after which an AppendStream may be ended for a new one; s.
    receipt_s_max: time for a client to take a receipt of an AppendStream, or rows; s.
    unread_s_max: time for a client to take the last response of a call that ended with an error,
      before its connection is closed; s.
    append_patience_s: time that a batch of an AppendStream waits for room before the call fails; s.
    answer_bytes_max: size of one answer's message.
    quiet_look_s: period after which a subscription without answers looks for its query; s.
    anonymous: limits of calls without an identity.
    """

    calls_max: int = 1_334
    request_s_max: float = 120.0
    idle_s_max: float = 900.0
    idle_s_min: float = 30.0
    receipt_s_max: float = 60.0
    unread_s_max: float = 600.0
    append_patience_s: float = 5.0
    answer_bytes_max: int = SEND_BYTES_MAX - (1 << 10)
    quiet_look_s: float = 2.0
    anonymous: AnonymousLimits = field(default_factory=AnonymousLimits)


CALL_LIMITS = CallLimits()


class Workers:
    """A few threads for engine calls that block; a long queue is refused, not grown.

    Once several tenants call, none of them has more than its part of the threads: its further calls
    wait for its own ones. Of waiting places none ever has all.

    A call whose client has gone runs on to its own deadline, because threads cannot be cancelled;
    long work can (`Attention`).
    """

    def __init__(self, threads: int = THREADS, waiting_max: int = WAITING_MAX) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="shedder-call")
        self._threads = threads
        self._places = Places(waiting_max, "questions")  # running, or waiting for a thread
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def run(self, work: Callable[[], Result], tenant: str | None = None) -> Result:
        """The result of blocking work, done for a tenant; None: for the caller's.

        Raises:
          Overloaded: too many calls are waiting, of all or of the tenant.
        """
        whose = caller.get(LOCAL).tenant if tenant is None else tenant
        waiting = self._waiting.setdefault(whose, deque())
        self._places.take(whose)
        loop = asyncio.get_running_loop()
        if self._running[whose] >= self._part():
            turn: asyncio.Future[None] = loop.create_future()
            waiting.append(turn)
            try:
                await turn  # A call that ends passes its place on.
            except asyncio.CancelledError:
                self._gave_up(whose, turn)
                raise
        else:
            self._running[whose] += 1
        future = self._pool.submit(work)
        future.add_done_callback(lambda _: _call_on(loop, lambda: self._done(whose)))
        try:
            return await asyncio.wrap_future(future)
        finally:
            del future  # Else an error is in a cycle, and keeps the request until it is collected.

    def _part(self) -> int:
        """The threads of one tenant."""
        whole = self._threads
        return whole if len(self._waiting) < 2 else max(1, round(PART * whole))

    def _done(self, tenant: str) -> None:
        self._places.leave(tenant)
        self._hand_on(tenant)

    def _hand_on(self, tenant: str) -> None:
        """A place is free: to the next of the tenant, if it still waits."""
        waiting = self._waiting[tenant]
        while waiting and self._running[tenant] <= self._part():
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._running[tenant] -= 1

    def _gave_up(self, tenant: str, turn: asyncio.Future[None]) -> None:
        """Its client has gone while it waited, or just as its turn came."""
        self._places.leave(tenant)
        if turn.cancelled():
            return
        self._hand_on(tenant)

    def close(self) -> None:
        """Take no more work."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _call_on(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


async def settled(future: Future[Result]) -> Result:
    """The result of work that goes on when the call which waits for it is cancelled."""
    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    finally:
        del future  # As in `Workers.run`.


class Attention:
    """Whether the client of a call still listens; when it leaves, its long work is cancelled."""

    def __init__(self) -> None:
        self._begun: list[Progress] = []
        self._left = False

    def watch(self, progress: Progress) -> None:
        """A piece of work begins, on some thread."""
        self._begun.append(progress)
        if self._left:
            progress.cancel()

    def updates(self) -> list[tuple[int, Progress]]:
        """The pieces of work that go on or went on, by number."""
        return list(enumerate(self._begun))

    def leave(self) -> None:
        """The client has gone."""
        self._left = True
        for progress in self._begun:
            progress.cancel()


class Drain:
    """The end of the server, which calls that stay open wait for."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()

    def begin(self) -> None:
        """Tell them."""
        self._begun.set()

    async def race(
        self, awaitable: Awaitable[Result], timeout_s: float | None = None
    ) -> Result | None:
        """The awaitable's result; None when it took too long.

        Raises:
          Draining: the server is stopping.
        """
        work = asyncio.ensure_future(awaitable)
        stop = asyncio.ensure_future(self._begun.wait())
        try:
            await asyncio.wait({work, stop}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            if stop.done():
                raise Draining("the server is stopping")
            return None
        finally:
            stop.cancel()
            if not work.done():
                work.cancel()


def time_left_s(context: Context, requested_s: float | None) -> float | None:
    """Return how long a call may take: what was asked for, and no longer than its deadline."""
    left = context.time_remaining()
    if left is None:
        return requested_s
    return left if requested_s is None else min(left, requested_s)
