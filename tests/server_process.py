"""Servers of tests: in a process that can be killed, or on a thread of this process."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import shedder
from shedder.cli.main import main
from shedder.client.client import Client
from shedder.engine.engine import Engine
from shedder.server.call_context import CALL_LIMITS, CallLimits
from shedder.server.server import Server
from shedder.settings import Settings
from shedder.wire.addresses import Address
from tests.warm_process import WarmProcess


class ServerProcess:
    """Serves a directory until it is told or made to stop; started again, it has the same port.

    settings: by their names, as text. What it says goes to server.log beside the directory.
    limits: of the process, by their numbers in `resource`. is_insecure: no TLS and no tokens.
    """

    def __init__(
        self,
        directory: Path,
        *,
        limits: dict[int, int] | None = None,
        is_insecure: bool = True,
        **settings: str,
    ) -> None:
        self.address = "127.0.0.1:0"
        self._limits = dict(limits or {})
        self._is_insecure = is_insecure
        self._directory = directory
        self._log = directory.parent / "server.log"
        # Counts must not depend on how busy the machine is, unless a test asks for overload.
        given = {"overload": "off", **settings}
        self._environment = {f"SHEDDER_{name.upper()}": value for name, value in given.items()}
        self._process = self._started()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; returns the exit status."""
        self._process.send_signal(number)
        return self._process.wait()

    def said(self) -> str:
        """Return the end of the server's log."""
        return self._log.read_text()[-4000:]

    def rss_bytes(self) -> int:
        """Return the resident memory of the process."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) << 10

    def wait(self) -> int:
        """Wait for the end of the process, whatever the cause; return the exit status."""
        return self._process.wait()

    def start_again(self) -> None:
        """After `stop`: the same directory, at the same address."""
        self._process = self._started()

    def connect(self, **options: Any) -> Client:
        """A client of it."""
        return shedder.connect(self.address, **{"insecure": True, "timeout_s": 120.0} | options)

    def _started(self) -> WarmProcess:
        arguments = ["serve", "--insecure"] if self._is_insecure else ["serve"]
        arguments += ["--data", str(self._directory), "--listen", self.address]
        process = WarmProcess(
            shedder_command,
            arguments,
            self._limits,
            errors=self._log,
            environment=self._environment,
        )
        line = process.output.readline()  # The address, as soon as calls are answered.
        assert line, self.said()
        self.address = line.strip()
        return process


def shedder_command(arguments: list[str], limits: dict[int, int] | None = None) -> None:
    """The command `shedder`, in the process that runs this, with limits of resources."""
    for number, limit in (limits or {}).items():
        resource.setrlimit(number, (limit, limit))
    sys.argv[1:] = arguments
    main()


@contextmanager
def running(
    engine: Engine, settings: Settings, limits: CallLimits = CALL_LIMITS
) -> Iterator[Address]:
    """Run a server on a thread of this process, for as long as the block lasts.

    Raises:
      BadSetting: the settings are not safe, or the address is taken.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="shedder-server", daemon=True)
    thread.start()

    async def start() -> tuple[Server, Address]:
        server = Server(engine, settings, limits)
        return server, await server.start()

    try:
        server, address = asyncio.run_coroutine_threadsafe(start(), loop).result()
        try:
            yield address
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _cancel_others() -> None:
    """Cancel all other tasks of the loop, and return when they have ended, as `asyncio.run` does.

    A call that is still open, such as a watch, would never be resumed. The garbage collector would
    close its coroutine, which may not await then: the error would be reported as a bug.
    """
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
