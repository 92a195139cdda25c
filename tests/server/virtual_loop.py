"""An event loop in virtual time: the clock jumps to the next timer when no callback is ready."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Jumping(selectors.DefaultSelector):
    """A selector that advances virtual time instead of waiting for files."""

    now_s = 0.0

    def select(self, timeout=None):
        events = super().select(0)
        if not events and timeout is None:
            raise AssertionError("nothing is due: the loop would wait for ever")
        if not events:
            self.now_s += max(0.0, timeout)
        return events


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def run_in_virtual_time(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine as `asyncio.run` does, if it waits only for timers."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        runner.run(main)
