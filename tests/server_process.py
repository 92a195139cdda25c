"""`shedder serve` in a process of its own, that can be stopped, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import shedder
from shedder.client.client import Client


class ServerProcess:
    """Serves a directory until it is told or made to stop; started again, it has the same port.

    settings: by their names, as text. What it says goes to server.log beside the directory.
    """

    def __init__(self, directory: Path, **settings: str) -> None:
        self.address = "127.0.0.1:0"
        self._directory = directory
        self._log = directory.parent / "server.log"
        # What is counted must not depend on how busy the machine is, where nobody asks for that.
        given = {"overload": "off", **settings}
        named = {f"SHEDDER_{name.upper()}": value for name, value in given.items()}
        self._environment = os.environ | named
        self._process = self._started()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; returns the exit status."""
        self._process.send_signal(number)
        status = self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return status

    def start_again(self) -> None:
        """After `stop`: the same directory, at the same address."""
        self._process = self._started()

    def connect(self, **options: Any) -> Client:
        """A client of it."""
        return shedder.connect(self.address, insecure=True, **options)

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "shedder.cli.main", "serve", "--insecure"]
        command += ["--data", str(self._directory), "--listen", self.address]
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command, env=self._environment, stdout=subprocess.PIPE, stderr=log
            )
        assert process.stdout is not None
        line = process.stdout.readline()  # The address, as soon as calls are answered.
        assert line, self._log.read_text()[-4000:]
        self.address = line.decode().strip()
        return process
