"""The thread that owns live state: what happens to waiting callers when it halts."""

from __future__ import annotations

import threading

import pytest

from shedder.engine.runtime.serial_executor import ExecutorThread, SerialExecutor
from shedder.errors import InternalError


def test_when_it_halts_whoever_waits_is_told_and_who_had_given_up_keeps_nobody_waiting():
    executor = SerialExecutor()
    thread = ExecutorThread(executor, "acting", lambda: None)
    begun = threading.Event()

    def fails() -> None:
        begun.wait()
        raise ZeroDivisionError

    executor.post(fails)
    waiting = [executor.call(lambda: 1) for _ in range(3)]
    assert waiting[0].cancel()
    thread.start()
    begun.set()
    for each in waiting[1:]:
        with pytest.raises(InternalError, match="ZeroDivisionError"):
            each.result()
    with pytest.raises(InternalError, match="ZeroDivisionError"):
        executor.call(lambda: 1)
    thread.close()
