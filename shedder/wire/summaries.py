"""Summaries in several messages, for those that exceed one message."""

from __future__ import annotations

from collections.abc import Iterator

from shedder.engine.remote_summaries.wire_format import AT_LEAST_BYTES
from shedder.v1.synopses_pb2 import MergeInPartsRequest, MergeRequest

PART_BYTES = 1 << 20
"""Of a message, unless the server takes less: both ends hold a few of them at a time."""


def merge_in_parts(
    merge: MergeRequest, summaries: bytes, message_bytes_max: int
) -> Iterator[MergeInPartsRequest]:
    """The requests of one MergeInParts.

    Args:
      merge: of whom, by whom, under which number; without the summaries.
      summaries: all of them. message_bytes_max: what the server takes of a batch.
    """
    whole = MergeInPartsRequest.Whole(merge=merge, size_bytes=len(summaries))
    yield MergeInPartsRequest(whole=whole)
    size = min(PART_BYTES, max(message_bytes_max, AT_LEAST_BYTES))
    for first in range(0, len(summaries), size):
        yield MergeInPartsRequest(part=summaries[first : first + size])
