"""What a process that opens an engine does without, and what an open that fails leaves behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from tests.engine.query_worlds import CREATE, WINDOW, second

RARE = ("duckdb", "scipy.optimize", "scipy.stats")


@pytest.mark.slow
def test_opening_imports_nothing_that_only_rare_questions_need() -> None:
    program = f"import sys, shedder.engine.engine; print([m for m in {RARE} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


class OutOfThreads(Environment):
    """A machine that cannot start the thread of one ticker."""

    def __init__(self, thread_name: str) -> None:
        super().__init__()
        self._thread_name = thread_name

    def ticker(
        self, name: str, period_s: float, tick: Callable[[], None], *, niceness: int = 0
    ) -> Callable[[], None]:
        """Fail for this ticker, as `Thread.start` does."""
        if name == self._thread_name:
            raise RuntimeError("can't start new thread")
        return super().ticker(name, period_s, tick, niceness=niceness)


@pytest.mark.slow
@pytest.mark.parametrize(
    "thread_name", ["shedder-housekeeping", "shedder-overload", "shedder-audit"]
)
def test_an_open_that_fails_leaves_no_thread_and_no_lock(tmp_path: Path, thread_name: str) -> None:
    with Engine.open(tmp_path, overload="off", audit="off") as db:
        db.execute(CREATE)
        db.register("q", f"SELECT COUNT(*) AS n FROM s {WINDOW}")
        db.push("s", second(0, 10))
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="can't start new thread"):
        Engine.open(tmp_path, machine=OutOfThreads(thread_name), overload="on", audit="on")
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert left == []
    with Engine.open(tmp_path, overload="off", audit="off") as db:
        assert db.ledger("s").applied == 10
