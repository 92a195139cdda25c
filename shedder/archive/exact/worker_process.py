"""Client of the fork server: start, pipes, kill and end of processes of exact answers."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import select
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from typing import Any, BinaryIO

from shedder.archive.exact import fork_server
from shedder.archive.exact.fork_server import LENGTH
from shedder.archive.exact.worker import WorkerLimits

_FIRST_FREE = 3  # Smaller descriptors are stdin, stdout and stderr of a process that is started.


class _Server:
    """A fork server: its process, and the socket to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        if not sys.executable:
            raise FileNotFoundError(
                f"sys.executable is {sys.executable!r}; set it to Python's path"
            )
        stderr = _inherited_stderr()
        self._control, theirs = _socket_pair()
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603  (our own script)
                    [sys.executable, "-P", str(fork_server.__file__), str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stderr=stderr,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl-C is for this process, which then disconnects.
                )
        except OSError:
            self.disconnect()
            raise

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def start(self, limits: WorkerLimits) -> WorkerProcess:
        number = next(self._numbers)
        (source, to_source), (from_out, out), (end, status) = _pipes(3)
        theirs = (source, out, status)
        self.request({"number": number, "limits": asdict(limits)}, theirs)
        for each in theirs:
            os.close(each)
        return WorkerProcess(self, number, (to_source, from_out, end))

    def request(self, request: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        """Send a request; a server that is gone gets none, and its processes end with it."""
        text = json.dumps(request).encode()
        with self._lock, suppress(OSError):
            socket.send_fds(self._control, [LENGTH.pack(len(text))], descriptors)
            self._control.sendall(text)

    def disconnect(self) -> None:
        self._control.close()

    def close(self) -> None:
        self.disconnect()
        self._process.kill()
        self._process.wait()


def _inherited_stderr() -> int | None:
    """Return where a child's stderr goes: None, as here, or nowhere, if this process has none.

    A process that has closed its stderr may have another file there, which no child inherits.
    """
    try:
        return None if os.get_inheritable(2) else subprocess.DEVNULL
    except OSError:
        return subprocess.DEVNULL


def _socket_pair() -> list[socket.socket]:
    """Make two sockets that stdin, stdout and stderr of a child do not replace."""
    found = list[socket.socket]()
    one, two = socket.socketpair()
    with one, two:
        try:
            for end in (one, two):
                moved = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
                found.append(socket.socket(fileno=moved))
        except OSError:
            for made in found:
                made.close()
            raise
    return found


def _pipes(count: int) -> list[tuple[int, int]]:
    """Make pipes, or none of them if a descriptor is lacking."""
    found = list[tuple[int, int]]()
    try:
        while len(found) < count:
            found.append(os.pipe())
    except OSError:
        for each in itertools.chain(*found):
            os.close(each)
        raise
    return found


class WorkerProcess:
    """A process of exact answers.

    stdin: pipe to its input.
    stdout: pipe from its output.
    end: how it ended, after `wait`: `fork_server.KILLED`, another signal, a status, or that the
      fork server is gone.
    """

    def __init__(self, server: _Server, number: int, pipes: tuple[int, int, int]) -> None:
        """Take over three descriptors: of its input, its output and its end."""
        self._server = server
        self._number = number
        self.stdin: BinaryIO = os.fdopen(pipes[0], "wb")
        self.stdout: BinaryIO = os.fdopen(pipes[1], "rb")
        self._status: BinaryIO = os.fdopen(pipes[2], "rb")
        self._at_end = select.poll()
        self._at_end.register(self._status, select.POLLIN)
        self._at_end.register(self.stdout, 0)  # Its end is seen before the server reports it.
        self.end = ""

    @property
    def is_running(self) -> bool:
        """True until the process has ended."""
        return not self.end and not self._at_end.poll(0)

    def kill(self) -> None:
        """Kill the process, if it has not ended. From any thread."""
        self._server.request({"kill": self._number})

    def wait(self) -> None:
        """Wait until the process has ended, and close the pipes."""
        self.end = self.end or self._status.read().decode() or "ended with its fork server"
        for pipe in (self.stdin, self.stdout, self._status):
            with suppress(OSError):  # What was not sent yet cannot be.
                pipe.close()


class SharedForkServer:
    """The fork server of this process, which runs from its first use to the end of its last user.

    Safe to share by threads. A forked child of this process has no server until its first use.
    """

    def __init__(self) -> None:
        """Start nothing yet."""
        self._server: _Server | None = None
        self._start_afresh()
        os.register_at_fork(after_in_child=self._start_afresh)

    def _start_afresh(self) -> None:
        if self._server is not None:  # It is the parent's.
            self._server.disconnect()
            self._server = None
        self._lock = threading.Lock()
        self._users: set[object] = set()

    def add(self, user: object) -> None:
        """Keep the server running until this user is removed."""
        with self._lock:
            self._users.add(user)

    def remove(self, user: object) -> None:
        """End the server if this was the last user."""
        with self._lock:
            self._users.discard(user)
            if not self._users and self._server is not None:
                self._server.close()
                self._server = None

    def start(self, limits: WorkerLimits) -> WorkerProcess:
        """Start a process for a user.

        Raises:
          OSError: the server cannot be started.
        """
        with self._lock:
            if self._server is not None and not self._server.is_running:
                self._server.disconnect()
                self._server = None
            if self._server is None:
                self._server = _Server()
            return self._server.start(limits)


SHARED_FORK_SERVER = SharedForkServer()
