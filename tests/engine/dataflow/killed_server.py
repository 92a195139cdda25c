"""A real server that is killed again and again, and a producer that outlives it."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from shedder.client.client import Client
from shedder.client.producer import Producer
from tests.engine.world import START_US
from tests.server_process import ServerProcess

ROWS = 199
APART_US = 1_000
CREATE = "CREATE STREAM events (ts TIMESTAMP, id BIGINT, kind BIGINT) TIMESTAMP BY ts"
SETTINGS = {
    "run_rows": "2000",
    "checkpoint_seconds": "0.1",
    "log_segment_bytes": "262144",
    "sample_rows": "256",
}


@contextmanager
def serving(directory: Path) -> Iterator[ServerProcess]:
    """Serve a directory, with small runs and many checkpoints, until the block ends."""
    running = ServerProcess(directory, **SETTINGS)
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):  # The block has killed the last process.
            running.stop(signal.SIGKILL)


def batch_of(sequence: int) -> pa.Table:
    """Rows of a push; the oracle needs no more than its number."""
    ids = sequence * ROWS + np.arange(ROWS, dtype=np.int64)
    return pa.table(
        {"ts": pa.array(START_US + ids * APART_US, pa.timestamp("us")), "id": ids, "kind": ids % 6}
    )


@dataclass
class Pushes:
    """Pushes of a producer that outlives every server, also with pushes in flight."""

    service: ServerProcess
    client: Client

    @cached_property
    def producer(self) -> Producer:
        """The producer; its stream must be there by then."""
        return self.client.producer("events", "p")

    @property
    def end(self) -> int:
        """The id after the last one."""
        return self.producer.next_sequence * ROWS

    @property
    def end_us(self) -> int:
        """The event time of that id."""
        return START_US + self.end * APART_US

    def push(self, chance: random.Random) -> Iterator[int]:
        """Push some batches; yield the number of each among these."""
        for at in range(chance.randrange(1, 60)):
            self.producer.push(batch_of(self.producer.next_sequence))
            yield at

    def kill(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Kill the server and start it again; what was in flight is sent again, and stored once."""
        self.service.stop(signal.SIGKILL)
        meanwhile()
        self.service.start_again()
        self.producer.flush()


@contextmanager
def pushing(service: ServerProcess) -> Iterator[Pushes]:
    """Push to the stream `events` until the block ends."""
    with service.connect(patience_s=60) as patient:
        yield Pushes(service, patient)
