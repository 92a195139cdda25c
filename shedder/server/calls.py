"""What calls share: threads for what blocks, the end of the server, deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import grpc

from shedder.errors import Draining, Overloaded

Result = TypeVar("Result")
Context = grpc.aio.ServicerContext[Any, Any]

SEND_BYTES_MAX = 64 << 20  # Of one message to a client.
THREADS = 16
WAITING_MAX = 64  # Blocking calls, running or waiting for a thread; above it they are refused.


class Workers:
    """A few threads for engine calls that block; a long queue is refused, not grown.

    A call whose client has gone runs on to its own deadline: threads cannot be cancelled.
    """

    def __init__(self, threads: int = THREADS, waiting_max: int = WAITING_MAX) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="shedder-call")
        self._waiting_max = waiting_max
        self._busy = 0

    async def run(self, work: Callable[[], Result]) -> Result:
        """The result of blocking work.

        Raises:
          Overloaded: too many calls are waiting.
        """
        if self._busy >= self._waiting_max:
            raise Overloaded(f"{self._busy} questions are being answered already")
        self._busy += 1
        future = self._pool.submit(work)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _call_on(loop, self._done))
        return await asyncio.wrap_future(future)

    def _done(self) -> None:
        self._busy -= 1

    def close(self) -> None:
        """Take no more work."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _call_on(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


async def settled(future: Future[Result]) -> Result:
    """The result of work that goes on when the call which waits for it is cancelled."""
    return await asyncio.shield(asyncio.wrap_future(future))


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


def time_left_s(context: Context, asked_s: float | None) -> float | None:
    """How long a call may take: what was asked for, and no longer than its deadline."""
    left = context.time_remaining()
    if left is None:
        return asked_s
    return left if asked_s is None else min(left, asked_s)
