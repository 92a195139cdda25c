"""The floor under ingest: Shedder's own transport that only decodes, validates and fsyncs.

python -m benchmarks.workloads.bare DIRECTORY HOST:PORT serves one stream `trades` and applies none
of its batches: no samples, synopses, tail, runs or checkpoints exist. No ingest over this wire into
this log is faster.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import shedder
from benchmarks.workloads.trades import CREATE
from shedder.archive.log.group_commit import GroupCommit
from shedder.archive.log.log import Log
from shedder.archive.log.log_queue import Entry, LogQueue
from shedder.engine.ingest.arrived_record import PendingRecord
from shedder.engine.ingest.stream_intake import Intake
from shedder.queries.answers.database_api import Ledger, Receipt
from shedder.server.server import serve
from shedder.settings import Settings
from shedder.streams.batches import BatchLimits
from shedder.streams.push_parts import WHOLE, Part

STREAM = "trades"


class BareEngine:
    """An engine whose tuples go into a log and are never applied; all else is a real one's."""

    def __init__(self, directory: Path) -> None:
        self._engine = shedder.open(directory / "engine")
        self._engine.execute(CREATE)
        self._queue = LogQueue()
        self._commit = GroupCommit(self._queue, Log.open(directory / "log"), self._durable)
        self._commit.start()
        schema = self._engine.schema(STREAM)
        self._intake = Intake(0, schema, self._queue, BatchLimits(), lambda: time.time_ns() // 1000)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def _durable(self, entries: list[Entry]) -> None:
        for entry in entries:
            assert isinstance(entry.token, PendingRecord)
            self._intake.durable.note(entry.token)

    def append(
        self,
        stream: str,
        payload: bytes | memoryview,
        *,
        producer: str,
        epoch: int,
        sequence: int | None,
        part: Part = WHOLE,
        **_: object,
    ) -> Future[Receipt]:
        """Decode, validate, log, fsync."""
        assert stream == STREAM
        return self._intake.append(
            payload, producer=producer, epoch=epoch, sequence=sequence, part=part
        )

    def last_sequence(self, stream: str, producer: str) -> tuple[int, int] | None:
        """For the handshake."""
        assert stream == STREAM
        progress = self._intake.producers.progress(producer)
        return None if progress is None else (progress.epoch, progress.sequence)

    def ledger(self, stream: str) -> Ledger:
        """Nothing is applied here; what is durable is all there is."""
        rows = self._intake.durable.accepted
        return Ledger(stream, rows, rows, 0, 0, 0, 0)


def main() -> None:
    """Serve until SIGTERM."""
    settings = Settings(listen=sys.argv[2], insecure=True)
    engine: Any = BareEngine(Path(sys.argv[1]))
    serve(cast(Any, engine), settings, lambda address: print(address, flush=True))


if __name__ == "__main__":
    main()
