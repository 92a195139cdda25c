"""A real server in a process of its own, and clients in theirs, for benchmarks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: where it listens, where its data are, its process."""

    address: str
    directory: Path
    process: psutil.Process

    @property
    def resident_bytes(self) -> int:
        """Memory of the server and its workers."""
        processes = [self.process, *self.process.children(recursive=True)]
        return sum(process.memory_info().rss for process in processes)


@contextmanager
def server(*, bare: bool = False, **settings: object) -> Iterator[Server]:
    """Start a server on a fresh directory, and stop it afterwards.

    Args:
      bare: the floor (benchmarks/bare.py) in place of Shedder.
      settings: of Shedder.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    environment = os.environ | {
        f"SHEDDER_{name.upper()}": str(value) for name, value in settings.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "data"
        command = [sys.executable, "-m"]
        if bare:
            command += ["benchmarks.bare", str(directory), address]
        else:
            command += ["shedder.cli.main", "serve", "--insecure"]
            command += ["--data", str(directory), "--listen", address]
        process = subprocess.Popen(
            command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            if not process.stdout.readline():  # The address, as soon as calls are answered.
                raise RuntimeError(f"the server ended with code {process.wait()}")
            yield Server(address, directory, psutil.Process(process.pid))
        finally:
            process.terminate()
            process.wait(30)
