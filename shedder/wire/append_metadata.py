"""Metadata of an Append call: the declaration of its batch, readable before the batch."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import DecodeError

from shedder.errors import InvalidRequest
from shedder.v1.ingest_pb2 import AppendRequest, Declared
from shedder.wire.batches import Carrying

KEY = "shedder-declared-bin"


def declared_metadata(stream: str, rows: int, size_bytes: int) -> tuple[str, bytes]:
    """For the metadata of a call: whose batch follows, and how large it is.

    size_bytes: of its `arrow`.
    """
    declared = Declared(stream=stream, rows=rows, size_bytes=size_bytes)
    return KEY, declared.SerializeToString()


def declared_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> Declared | None:
    """What a call declares; None: nothing.

    Raises:
      InvalidRequest: it is said twice, or is no Declared, or less than nothing.
    """
    found = [value for key, value in metadata or () if key == KEY]
    if not found:
        return None
    if len(found) > 1:
        raise InvalidRequest(f"the metadata have {KEY} {len(found)} times; once says it")
    [data] = found
    try:
        declared = Declared.FromString(data if isinstance(data, bytes) else data.encode())
    except DecodeError:
        raise InvalidRequest(f"the metadata's {KEY} is no shedder.v1.Declared") from None
    if declared.rows < 0 or declared.size_bytes < 0:
        raise InvalidRequest(
            f"a batch of {declared.rows} rows and {declared.size_bytes} bytes is declared; "
            "neither can be negative"
        )
    return declared


def check_declared(declared: Declared, carrying: Carrying[AppendRequest]) -> None:
    """Check that a batch has the rows and bytes that the call declared.

    Raises:
      InvalidRequest: it has others.
    """
    request, size_bytes = carrying.request, memoryview(carrying.payload).nbytes
    for what, said, found in (
        ("stream", declared.stream, request.stream),
        ("rows", declared.rows, request.batch.rows),
        ("size_bytes", declared.size_bytes, size_bytes),
    ):
        if said != found:
            raise InvalidRequest(f"{KEY} declares {what} {said!r}, the request has {found!r}")
