"""A server in a process of its own, that can be killed."""

import signal
import subprocess
import sys

SERVE = """
import sys
import shedder
from shedder.server.server import serve
from shedder.settings import Settings

settings = Settings(listen=sys.argv[2], insecure=True, drain_s=10, checkpoint_seconds=0.5,
                    run_rows=20_000, log_segment_bytes=1 << 20)
with shedder.open(sys.argv[1], settings) as engine:
    serve(engine, settings, lambda address: print("listening", address, flush=True))
"""


class ServerProcess:
    """Serves a directory until it is told or made to stop."""

    def __init__(self, directory, listen="127.0.0.1:0"):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(directory), listen],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._address()

    def _address(self):
        for line in self.process.stdout:
            if line.startswith("listening "):
                return line.split()[1]
        raise AssertionError(f"the server ended with {self.process.wait()}")

    def stop(self, number=signal.SIGTERM):
        """Send a signal and wait; returns the exit status."""
        self.process.send_signal(number)
        self.process.stdout.read()
        self.process.stdout.close()
        return self.process.wait(30)
