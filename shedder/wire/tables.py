"""Tables that came as Arrow IPC bytes: answers and the control table."""

from __future__ import annotations

import pyarrow as pa

from shedder.errors import CorruptData


def from_bytes(payload: bytes) -> pa.Table:
    """The table in an Arrow IPC stream; its columns are views of the payload.

    Raises:
      CorruptData: the bytes are not such a stream.
    """
    try:
        with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, ValueError, OSError, EOFError) as error:
        problem = str(error).partition("\n")[0][:200]
        raise CorruptData(f"the table of an answer is damaged: {problem}") from None
    return table
