"""Process that has loaded pyarrow and DuckDB, and forks the processes of exact answers.

Loading takes 0.14 s of CPU, and opening a database takes 12 ms. A forked process has both from this
one, so the query after one that was killed waits for neither. The database has no threads until the
forked process starts them: a fork copies only the thread that calls it. The process is started as a
script (see worker_process.py) and imports nothing of Shedder. pyarrow and DuckDB import numpy only
if they find it; numpy is hidden from them, because its import takes 120 ms of CPU.

The first argument is the descriptor of a stream socket. A request is a length (uint32,
little-endian) and a JSON object, either of:

- {"number", "limits"} with three descriptors: forks a process that serves `worker.serve` with
  these limits. The first two are its input and output. How the process ends is written to the
  third as a line of text, which stays open until then.
- {"kill"}: kills the process of that number, if it has not ended.

When the socket closes, the process kills those that it has forked, and exits.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import select
import signal
import socket
import struct
import sys
import traceback
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LENGTH = struct.Struct("<I")
REQUEST_BYTES_MAX = 1 << 16
NOT_STARTED = "not started"
KILLED = f"killed by signal {signal.SIGKILL.value}"  # The kernel kills so when memory is short.


@dataclass(frozen=True, slots=True)
class _Fork:
    """A forked process that has not ended; `status` is where its end is written to."""

    number: int
    status: int


class ForkServer:
    """Forks processes, kills them on request, and says how each of them ended."""

    def __init__(self, control: socket.socket, worker: Any) -> None:
        """Open the database of forked processes; fork nothing yet.

        Args:
          control: where requests come from.
          worker: the module whose `serve` is run in a forked process.
        """
        self._control = control
        self._worker = worker
        self._database = worker.open_database()
        self._forks: dict[int, _Fork] = {}  # By process id.
        self._ended, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        self._inherited = (control.fileno(), self._ended, wake)

    def run(self) -> None:
        """Serve requests until the socket closes."""
        control, is_open = self._control.fileno(), True
        waiting = select.poll()  # The descriptor may be 1,024 or more, which `select` refuses.
        waiting.register(control, select.POLLIN)
        waiting.register(self._ended, select.POLLIN)
        while is_open:
            ready = {descriptor for descriptor, _ in waiting.poll()}
            if self._ended in ready:
                os.read(self._ended, 4096)
                self._report_ended()
            if control in ready:
                is_open = self._serve_one()
        for process in self._forks:
            os.kill(process, signal.SIGKILL)

    def _serve_one(self) -> bool:
        """Serve one request; return whether there was one."""
        try:
            head, descriptors, _, _ = socket.recv_fds(self._control, LENGTH.size, 3)
            request = json.loads(self._exactly(*LENGTH.unpack(head)))
        except (OSError, struct.error):
            return False
        if "kill" in request:
            for process, fork in self._forks.items():
                if fork.number == request["kill"]:
                    os.kill(process, signal.SIGKILL)  # It is a child that was not waited for.
        else:
            self._fork(request["number"], request["limits"], *descriptors)
        return True

    def _exactly(self, size: int) -> bytes:
        assert size <= REQUEST_BYTES_MAX, size
        data = self._control.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise OSError("the socket was closed")
        return data

    def _fork(
        self, number: int, limits: dict[str, Any], source: int, out: int, status: int
    ) -> None:
        try:
            process = os.fork()
        except OSError as error:
            _tell(status, f"{NOT_STARTED}: {error.strerror}")
        else:
            if process == 0:
                self._become_worker(limits, source, out, status)
            self._forks[process] = _Fork(number, status)
        os.close(source)
        os.close(out)

    def _become_worker(self, limits: dict[str, Any], source: int, out: int, status: int) -> None:
        """Serve queries in the forked process, and never return."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(source, 0)
            for each in (*self._inherited, source, status):
                os.close(each)
            for fork in self._forks.values():
                os.close(fork.status)
            self._worker.serve(0, out, limits, self._database)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _report_ended(self) -> None:
        while self._forks:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            text = f"killed by signal {-code}" if code < 0 else f"ended with status {code}"
            _tell(self._forks.pop(process).status, text)


def _tell(status: int, text: str) -> None:
    with suppress(BrokenPipeError):
        os.write(status, text.encode())
    os.close(status)


def main() -> None:
    """Load the libraries, then serve."""
    # jemalloc has a thread of its own in pyarrow, and handlers that make it safe to fork.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    sys.modules["numpy"] = None  # type: ignore[assignment]  # An import of it fails.
    spec = importlib.util.spec_from_file_location("worker", Path(__file__).with_name("worker.py"))
    assert spec is not None
    assert spec.loader is not None
    sys.modules["worker"] = worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    os.dup2(2, 1)  # What prints must not get into the output of the process that started this one.
    server = ForkServer(socket.socket(fileno=int(sys.argv[1])), worker)
    gc.freeze()  # Collections in forked processes then write to none of the shared pages.
    server.run()
    os._exit(0)


if __name__ == "__main__":
    main()
