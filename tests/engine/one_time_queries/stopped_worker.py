"""An exact worker that is stopped, so that it answers nothing until it is killed."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from shedder.engine.engine import Engine
from tests.archive.child_processes import exact_worker_process

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes by /proc")


class StoppedWorker:
    """The exact worker of an engine, stopped with all of its threads.

    pid: its process.
    """

    def __init__(self, db: Engine) -> None:
        db.execute(f"SELECT * FROM {next(iter(db.core.streams))} LIMIT 0")
        self.pid = exact_worker_process()
        os.kill(self.pid, signal.SIGSTOP)
        while not all(map(_is_stopped, Path(f"/proc/{self.pid}/task").glob("*/stat"))):
            pass  # Until then, a thread may still read a request.

    def kill(self) -> None:
        """Kill the process."""
        os.kill(self.pid, signal.SIGKILL)

    def once_requested(self, action: Callable[[], object]) -> threading.Thread:
        """Act on another thread as soon as a request lies in the pipe to the process."""

        def act() -> None:
            with Path(f"/proc/{self.pid}/fd/0").open("rb", buffering=0) as pipe:
                while not any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))):
                    pass
            action()

        thread = threading.Thread(target=act)
        thread.start()
        return thread


def _is_stopped(stat: Path) -> bool:
    state = stat.read_text().rpartition(")")[2].split()[0]
    return state == "T"
