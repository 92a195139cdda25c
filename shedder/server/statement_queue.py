"""Queue of large statements: one is parsed at a time, with a share of one core."""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from shedder.server.authentication import LOCAL, caller
from shedder.server.call_slots import Places

Result = TypeVar("Result")

Runs = Callable[[Callable[[], Any], str], Coroutine[Any, Any, Any]]
"""Does work for a tenant on a worker thread."""

_TOKEN = re.compile(r"\w+|[^\w\s]")
_ROUNDING_S = 1e-9  # A timer of less may not advance the clock.


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLimits:
    """What parsing and explaining of large statements may take.

    characters_min: length from which a text is large.
    tokens_min: words and signs from which a text is large. Fewer are parsed within about 2 ms.
    share: part of one core that large statements use at most, on average.
    burst_s: CPU time that they may use at once after a rest; s.
    waiting_max: large statements that run or wait; above it they are refused.
    """

    characters_min: int = 2_048
    tokens_min: int = 256
    share: float = 0.25
    burst_s: float = 0.25
    waiting_max: int = 86


STATEMENT_LIMITS = StatementLimits()


class StatementQueue:
    """Admits large statements to the worker threads, tenant by tenant. Of one event loop.

    Parsing is Python code. Each further thread that runs Python code delays the event loop and
    the apply thread by one switch interval of the interpreter (5 ms).
    """

    def __init__(
        self,
        run: Runs,
        *,
        limits: StatementLimits = STATEMENT_LIMITS,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """Begin empty. run: of the worker threads. cpu_s: CPU time of the calling thread."""
        self._run = run
        self._limits = limits
        self._cpu_s = cpu_s
        self._places = Places(limits.waiting_max, "large statements")
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._is_busy = False
        self._debt_s = 0.0  # CPU time that was used beyond the share.
        self._at_s = 0.0  # When the debt was computed; time of the event loop.
        self._timer: asyncio.TimerHandle | None = None

    def is_large(self, text: str) -> bool:
        """Return whether a statement has to wait for its turn."""
        tokens_min = self._limits.tokens_min
        if len(text) < min(tokens_min, self._limits.characters_min):
            return False
        if len(text) >= self._limits.characters_min:
            return True
        return sum(1 for _ in islice(_TOKEN.finditer(text), tokens_min)) >= tokens_min

    async def run(self, work: Callable[[], Result], tenant: str | None = None) -> Result:
        """Return the result of work on a large statement, done in the tenant's turn.

        Args:
          work: runs on a worker thread. tenant: takes the turn; None: that of the caller.

        Raises:
          Overloaded: too many large statements wait, of all tenants or of this one.
        """
        whose = caller.get(LOCAL).tenant if tenant is None else tenant
        with self._places.taken(whose):
            await self._turn(whose)
            return await self._charged(work, whose, ends_turn=True)

    async def run_aside(self, work: Callable[[], Result]) -> Result:
        """Return the result of work that takes no turn; later turns wait for its CPU time.

        For work that may wait for a lock: in a turn, it would keep all others waiting.
        """
        return await self._charged(work, caller.get(LOCAL).tenant, ends_turn=False)

    async def _charged(self, work: Callable[[], Result], tenant: str, *, ends_turn: bool) -> Result:
        used_s: list[float] = []

        def measured() -> Result:
            began_s = self._cpu_s()
            try:
                return work()
            finally:
                used_s.append(self._cpu_s() - began_s)

        running = asyncio.ensure_future(self._run(measured, tenant))
        running.add_done_callback(lambda done: self._end(done, sum(used_s), ends_turn=ends_turn))
        return await asyncio.shield(running)  # The thread goes on if the client has gone.

    async def _turn(self, tenant: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # The turn had come when the client left.
                self._is_busy = False
                self._admit()
            raise

    def _end(self, running: asyncio.Future[Result], used_s: float, *, ends_turn: bool) -> None:
        if not running.cancelled():
            running.exception()  # If the caller has gone, asyncio would log the exception.
        self._pay()
        self._debt_s += used_s
        if ends_turn:
            self._is_busy = False
        self._admit()

    def _pay(self) -> None:
        """Lower the debt by the share of the time that has passed."""
        now_s = asyncio.get_running_loop().time()
        self._debt_s = max(0.0, self._debt_s - self._limits.share * (now_s - self._at_s))
        self._at_s = now_s

    def _admit(self) -> None:
        """Give the turn to the tenant that waits longest, once the CPU time allows for it."""
        if self._is_busy or self._timer is not None:
            return
        self._pay()
        over_s = self._debt_s - self._limits.burst_s
        if over_s > _ROUNDING_S and self._waiting:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(over_s / self._limits.share, self._resume)
            return
        while self._waiting and not self._is_busy:
            tenant, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[tenant] = turns  # Behind the other tenants.
            if not turn.done():
                self._is_busy = True
                turn.set_result(None)

    def _resume(self) -> None:
        self._timer = None
        self._admit()
