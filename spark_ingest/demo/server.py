"""Server process of the tour, which can be killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from shedder.client import Client, connect
from shedder.errors import InternalError, Unavailable, Unreachable

_POLL_S = 0.05
_LOG_LINES_SHOWN = 20


class ServerProcess:
    """`shedder serve` on loopback, without identity, in a process of its own.

    address: HOST:PORT, the same for every start. log: what the process wrote.
    """

    def __init__(self, data: Path, settings: Mapping[str, str]) -> None:
        self.data = data
        self.address = f"127.0.0.1:{_free_port()}"
        self.log = data.parent / "server.log"
        self._settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; `wait` tells when it answers."""
        command = [
            *(sys.executable, "-m", "shedder.cli.main", "serve"),
            *("--data", str(self.data), "--listen", self.address, "--insecure"),
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own command)
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self._settings,
                start_new_session=True,  # Ctrl-C of the tour is not its own
            )

    def wait(self, timeout_s: float = 120.0) -> Client:
        """A client of the server, as soon as it answers.

        Raises:
          InternalError: the process ended, or did not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                raise InternalError(f"the server ended:\n{self.last_words()}")
            try:
                # No patience: that the server is gone is what the tour wants to see.
                client = connect(self.address, insecure=True, patience_s=0)
            except (Unreachable, Unavailable):
                time.sleep(_POLL_S)
                continue
            try:
                client.execute("SHOW STREAMS", timeout_s=5)
            except (Unreachable, Unavailable):
                client.close()
                time.sleep(_POLL_S)
            else:
                return client
        raise InternalError(f"the server did not answer in {timeout_s:.0f} s:\n{self.last_words()}")

    def kill(self) -> None:
        """End it with SIGKILL: nothing is written, closed or said any more."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self, timeout_s: float = 30.0) -> None:
        """End it in good order, or with SIGKILL when it takes too long."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def last_words(self) -> str:
        """The last lines that the process wrote."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES_SHOWN:])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
