"""Changes of a table as log records: the header and the body of TABLE."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

_HEADER = struct.Struct("<IIqQ")


class ChangeKind(IntEnum):
    """What a change does with the rows of its body."""

    UPSERT = 1  # The body has whole rows; each replaces the row with its key, if there is one.
    DELETE = 2  # The body has keys; their rows are removed.


@dataclass(frozen=True, slots=True)
class TableChange:
    """Header of a change. One record is one change, so recovery applies all of it or nothing.

    table: id in the catalog.
    version: number of the change in its table, from 1; a missing number is a lost change.
    arrival_us: when the change was made; us since 1970.
    """

    table: int
    kind: ChangeKind
    version: int
    arrival_us: int

    def to_bytes(self) -> bytes:
        """The header's bytes."""
        return _HEADER.pack(self.table, self.kind, self.arrival_us, self.version)

    @classmethod
    def from_bytes(cls, header: bytes) -> TableChange:
        """Read a header that `to_bytes` wrote (the log has verified its checksum)."""
        table, kind, arrival_us, version = _HEADER.unpack(header)
        return cls(table, ChangeKind(kind), version, arrival_us)


def body_of(batch: pa.RecordBatch) -> pa.Buffer:
    """The rows or keys of a change as an Arrow IPC stream, uncompressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def batch_of_body(body: bytes) -> pa.RecordBatch:
    """Read a body that `body_of` wrote (the log has verified its checksum)."""
    [batch] = pa.ipc.open_stream(body)
    return batch
