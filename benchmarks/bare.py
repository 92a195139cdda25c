"""The floor under ingest: Shedder's own transport that only decodes, validates and fsyncs.

python -m benchmarks.bare DIRECTORY HOST:PORT serves one stream `trades` without samples, synopses,
tail, runs or checkpoints: what no ingest over this wire into this log can be faster than.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from benchmarks.trades import CREATE
from shedder.archive.commit import Entry, GroupCommit
from shedder.archive.log import Log
from shedder.cql.parse import parse
from shedder.cql.query import StreamSchema
from shedder.cql.statement import CreateStream
from shedder.engine.intake import Arrived, Intake
from shedder.queries.database import Ledger, Receipt
from shedder.server.server import serve
from shedder.settings import Settings
from shedder.streams.batches import BatchLimits


class BareEngine:
    """As much of an engine as AppendStream needs."""

    def __init__(self, directory: Path) -> None:
        statement = parse(CREATE)
        assert isinstance(statement, CreateStream)
        self._schema = StreamSchema(
            name=statement.name,
            columns=statement.columns,
            time_column=statement.time_column,
            lateness_us=statement.lateness_us,
            retain_us=None,
            layout=statement.layout,
            seed=1,
        )
        self._commit = GroupCommit(Log.open(directory / "log"), self._durable)
        self._intake = Intake(
            0, self._schema, self._commit, BatchLimits(), lambda: time.time_ns() // 1000
        )

    def _durable(self, entries: list[Entry]) -> None:
        for entry in entries:
            assert isinstance(entry.token, Arrived)
            self._intake.made_durable(entry.token)

    def schema(self, stream: str) -> StreamSchema:
        """The one stream's."""
        assert stream == self._schema.name
        return self._schema

    def append(
        self,
        stream: str,
        payload: bytes | memoryview,
        *,
        producer: str,
        epoch: int,
        sequence: int | None,
    ) -> Future[Receipt]:
        """Decode, validate, log, fsync."""
        assert stream == self._schema.name
        return self._intake.append(payload, producer=producer, epoch=epoch, sequence=sequence)

    def last_sequence(self, stream: str, producer: str) -> tuple[int, int] | None:
        """For the handshake."""
        assert stream == self._schema.name
        progress = self._intake.progress(producer)
        return None if progress is None else (progress.epoch, progress.sequence)

    def control(self) -> pa.Table:
        """No entities to tell of."""
        names = ("entity", "name", "key", "value")
        return pa.table({name: pa.array([], pa.string()) for name in names})

    def ledger(self, stream: str) -> Ledger:
        """Nothing is applied here; what is durable is all there is."""
        rows = self._intake.accepted
        return Ledger(stream, rows, rows, 0, 0, 0, 0)


def main() -> None:
    """Serve until SIGTERM."""
    settings = Settings(listen=sys.argv[2], insecure=True)
    engine: Any = BareEngine(Path(sys.argv[1]))
    serve(cast(Any, engine), settings, lambda address: print(address, flush=True))


if __name__ == "__main__":
    main()
