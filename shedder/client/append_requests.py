"""Requests that append one batch by a call of its own."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from shedder.streams.batches import encode
from shedder.streams.push_parts import WHOLE, Part
from shedder.v1 import ingest_pb2


def append_request(
    stream: str,
    producer: str,
    epoch: int,
    sequence: int,
    batch: pa.RecordBatch,
    *,
    summarised: bool = False,
    part: Part = WHOLE,
) -> ingest_pb2.AppendRequest:
    """Return a request of Append with one numbered batch.

    Args:
      stream: to append to.
      producer: its name.
      epoch: of the producer.
      sequence: of the push.
      batch: rows of the push.
      summarised: the batch's summary came before.
      part: the batch's place in its push.
    """
    message: dict[str, Any] = {"sequence": sequence, "summarised": summarised}
    message |= {"first_row": part.first_row, "more": not part.is_last}
    message |= {"rows": batch.num_rows, "arrow": encode(batch)}
    return ingest_pb2.AppendRequest(
        stream=stream,
        producer=ingest_pb2.Producer(name=producer, epoch=epoch),
        batch=cast(Any, message),
    )
