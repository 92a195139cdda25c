"""An event loop whose clock jumps: where nothing happens, the next timer is due at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Jumping(selectors.DefaultSelector):
    """Does not wait for files, and lets virtual time pass instead."""

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
    """As `asyncio.run`, for what waits for timers and nothing else."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        runner.run(main)
