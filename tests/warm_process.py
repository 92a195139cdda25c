"""Processes that are there at once: forked from one that has loaded all modules and kernels.

They are processes of their own like any other, to be killed and traced; only the second or two
that each would spend on loading is spent once. What must be the command itself, from its first
instruction on, starts an interpreter instead.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.preloaded"])
READY = "ready\n"
# Limit for the end of a process: an idle machine takes a second, a busy one many times as long.
# Below the 300 s of a test, so that the failure names the process.
EXIT_S_MAX = 240.0


class WarmProcess:
    """Runs target(*arguments) in a process of its own.

    input, output: its standard ones, as text streams. errors: the file that takes what it says on
    stderr; without one, that goes where this process's own goes. waits: until `go`, so that
    a tracer can follow it from its first call on.
    """

    def __init__(
        self,
        target: Callable[..., object],
        *arguments: Any,
        errors: Path | None = None,
        environment: Mapping[str, str] | None = None,
        waits: bool = False,
    ) -> None:
        output, its_output = _FORKS.Pipe(duplex=False)
        its_input, input_ = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(
            target=_run,
            args=(its_input, its_output, errors, dict(environment or {}), target, arguments),
            daemon=True,  # What a test that failed has left ends with this process.
        )
        self._process.start()
        with output, its_output, its_input, input_:
            self.output = os.fdopen(os.dup(output.fileno()))
            self.input = os.fdopen(os.dup(input_.fileno()), "w")
        assert self.output.readline() == READY
        if not waits:
            self.go()

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process.pid is not None
        return self._process.pid

    def go(self) -> None:
        """Let it begin."""
        self.say("\n")

    def say(self, text: str) -> None:
        """Write to its standard input."""
        self.input.write(text)
        self.input.flush()

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self, timeout_s: float = EXIT_S_MAX) -> int:
        """Its exit status, negative for the signal that ended it."""
        self._process.join(timeout_s)
        status = self._process.exitcode
        assert status is not None, f"process {self.pid} goes on after {timeout_s} s"
        self._close()
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._close()

    def _close(self) -> None:
        self.output.close()
        with suppress(BrokenPipeError):  # Input that the process did not read.
            self.input.close()


class Traced:
    """strace on a warm process that waits, and lets it go: calls fail or kill as `inject` says.

    path: calls with this file alone are traced; None: all are.
    """

    def __init__(
        self,
        process: WarmProcess,
        trace: Path,
        *,
        call: str,
        inject: str,
        path: Path | None = None,
    ) -> None:
        command = ["strace", "-f", "-p", str(process.pid), "-o", str(trace)]
        command += [] if path is None else ["-P", str(path)]
        command += ["-e", f"trace={call}", "-e", f"inject={call}:{inject}"]
        self._trace = trace
        self._strace = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._strace.stderr is not None
        line = self._strace.stderr.readline()
        assert "attached" in line, line
        process.go()

    def injected(self, status: int) -> bool:
        """Whether the call came about, of a process that has ended with that status."""
        self._strace.communicate(timeout=EXIT_S_MAX)
        return status == -signal.SIGKILL or "(INJECTED)" in self._trace.read_text()


def _run(
    input_: Connection,
    output: Connection,
    errors: Path | None,
    environment: Mapping[str, str],
    target: Callable[..., object],
    arguments: tuple[Any, ...],
) -> None:
    with input_, output:
        os.dup2(input_.fileno(), 0)
        os.dup2(output.fileno(), 1)
    if errors is not None:
        with errors.open("ab") as file:
            os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    sys.stdin = os.fdopen(0, closefd=False)
    os.write(1, READY.encode())  # A tracer that attaches now sees the target's calls alone.
    os.read(0, 1)  # The word to begin.
    target(*arguments)
