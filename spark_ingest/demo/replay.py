"""The replay: a producer that numbers its batches, so that it may send them again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from shedder.client import PATIENCE_S
from shedder.client.failures import Patience
from shedder.errors import Overloaded, Unavailable, Unreachable
from shedder.queries.answers.database_api import Database
from spark_ingest.flights import STREAM

PRODUCER = "replay"
_REWIND = 4
"""Batches sent again after a failure, although most were acknowledged: replays must not count."""


@dataclass(slots=True)
class ReplayProgress:
    """What the producer knows: rows acknowledged for the first time, rows acknowledged again."""

    rows: int = 0
    rows_again: int = 0
    failures: int = 0


def batches(table: pa.Table, rows: int) -> list[pa.RecordBatch]:
    """The table in batches of at most `rows` rows, in order."""
    return list(table.to_batches(max_chunksize=rows))


def replay(
    stream_batches: list[pa.RecordBatch],
    database: Database,
    reconnect: Callable[[], Database],
    *,
    seconds: float,
) -> Iterator[ReplayProgress]:
    """Push all batches with their numbers, evenly over about `seconds`; yield after each one.

    When the server cannot be reached, reconnect, go back a few batches, and go on: what was stored
    before is acknowledged again and not stored again. When it says that more comes than it can
    apply, as after a restart with a long log, wait as long as it says.
    """
    progress = ReplayProgress()
    patience = Patience(PATIENCE_S)
    began = time.monotonic()
    number = 0
    while number < len(stream_batches):
        batch = stream_batches[number]
        try:
            receipt = database.push(STREAM, batch, producer=PRODUCER, sequence=number)
        except (Unreachable, Unavailable):
            progress.failures += 1
            database = reconnect()
            number = max(0, number - _REWIND)
            continue
        except Overloaded as full:
            time.sleep(patience.wait_s(full))
            continue
        patience = Patience(PATIENCE_S)
        if receipt.duplicate:
            progress.rows_again += batch.num_rows
        progress.rows = max(progress.rows, receipt.position)
        number += 1
        yield progress
        ahead = began + seconds * number / len(stream_batches) - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
