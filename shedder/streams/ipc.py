"""Tables as Arrow IPC bytes: what panes, checkpoints and answers are written as."""

from __future__ import annotations

import pyarrow as pa


def table_bytes(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream, uncompressed, its metadata included."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
