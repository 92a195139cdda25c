"""What all parts of the blocking client call by: one connection, tried again when it is lost."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from shedder.client.connection import Connection
from shedder.client.failures import Patience, patiently
from shedder.client.identifiers import OwnNames
from shedder.client.source_summaries import append_request
from shedder.queries.answers.database_api import Receipt
from shedder.streams.push_parts import WHOLE, Part
from shedder.v1 import ingest_pb2
from shedder.wire.ingest import receipt_from_wire


class Calls:
    """A connection, how long a call is tried again, and names for who gives none."""

    def __init__(self, connection: Connection, patience_s: float) -> None:
        self._connection = connection
        self._patience_s = patience_s
        self._names = OwnNames()

    def _append(
        self,
        stream: str,
        producer: str,
        epoch: int,
        sequence: int,
        batch: pa.RecordBatch,
        *,
        summarised: bool = False,
        part: Part = WHOLE,
    ) -> Receipt:
        request = append_request(
            stream, producer, epoch, sequence, batch, summarised=summarised, part=part
        )
        return receipt_from_wire(self._patiently(self._connection.ingest.Append, request).receipt)

    def _describe(self, stream: str, producer: str) -> ingest_pb2.DescribeStreamResponse:
        request = ingest_pb2.DescribeStreamRequest(stream=stream, producer=producer)
        described: ingest_pb2.DescribeStreamResponse = self._patiently(
            self._connection.ingest.DescribeStream, request
        )
        return described

    def _patiently(self, method: Any, request: Any) -> Any:
        """A call that may be repeated without harm."""
        return patiently(lambda: self._connection.call(method, request), Patience(self._patience_s))
