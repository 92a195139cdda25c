"""Summaries that come in parts: gathered whole before anybody looks at them, in bounded memory."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from shedder.engine.admission.summary_ingest import too_large
from shedder.errors import BadBatch, InvalidRequest, Overloaded
from shedder.server.append_stream import next_of
from shedder.server.call_context import Drain
from shedder.v1.synopses_pb2 import MergeInPartsRequest

PART_S_MAX = 30.0
"""How long the next part may take: who has reserved room and sends nothing keeps others out."""

BYTES_PER_S_MIN = 64 << 10
"""The pace of all parts, beside that time: who sends a byte now and then keeps others out, too."""

Requests = AsyncIterator[MergeInPartsRequest]


class Parts:
    """What is being received at the same time shares one bound."""

    def __init__(self, bytes_max: int, drain: Drain, part_s_max: float = PART_S_MAX) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._drain = drain
        self._part_s_max = part_s_max

    @contextmanager
    def room(self, size_bytes: int) -> Iterator[None]:
        """Room for the whole, until it has been merged.

        Raises:
          BatchTooLarge: there never will be. Overloaded: not now. InvalidRequest: nothing comes.
        """
        if size_bytes <= 0:
            raise InvalidRequest(f"size_bytes is {size_bytes}; it must be positive")
        if size_bytes > self.bytes_max:
            raise too_large(size_bytes, self.bytes_max)
        if self.held_bytes + size_bytes > self.bytes_max:
            raise Overloaded(f"summaries of {self.held_bytes:,} bytes are on their way already")
        self.held_bytes += size_bytes
        try:
            yield
        finally:
            self.held_bytes -= size_bytes

    async def whole(self, requests: Requests) -> MergeInPartsRequest.Whole:
        """What the first request says of the others.

        Raises:
          InvalidRequest: it says something else, or nothing in time. Draining.
        """
        first = await self._next(requests)
        if first is None or first.WhichOneof("message") != "whole":
            raise InvalidRequest("the first request of MergeInParts must be `whole`")
        return first.whole

    async def gathered(self, requests: Requests, size_bytes: int) -> bytes:
        """The bytes of all parts.

        Raises:
          BadBatch: they are more or fewer than was said.
          InvalidRequest: something else came, an empty part, or nothing in time, or not all.
          Draining.
        """
        gathered = bytearray()  # In one piece: a part of one byte takes no more than that.
        until_s = math.inf  # Of the loop's clock, once the first part is there.
        while (request := await self._next(requests, until_s)) is not None:
            if request.WhichOneof("message") != "part":
                raise InvalidRequest("after `whole`, MergeInParts takes parts only")
            if not request.part:
                raise InvalidRequest("a part is empty")
            if len(gathered) + len(request.part) > size_bytes:
                size = len(gathered) + len(request.part)
                raise BadBatch(f"{size_bytes:,} bytes were to come, and {size:,} or more came")
            if not gathered:
                takes_s = size_bytes / BYTES_PER_S_MIN
                until_s = asyncio.get_running_loop().time() + self._part_s_max + takes_s
            gathered += request.part
        if len(gathered) != size_bytes:
            raise BadBatch(f"{size_bytes:,} bytes were to come, and {len(gathered):,} came")
        return bytes(gathered)

    async def _next(
        self, requests: Requests, until_s: float = math.inf
    ) -> MergeInPartsRequest | None:
        by_s = asyncio.get_running_loop().time() + self._part_s_max
        try:
            async with asyncio.timeout_at(min(by_s, until_s)):
                return await self._drain.race(next_of(requests))
        except TimeoutError:
            if until_s < by_s:
                raise InvalidRequest(
                    f"the parts come at less than {BYTES_PER_S_MIN:,} bytes/s"
                ) from None
            raise InvalidRequest(f"no part came for {self._part_s_max:.0f} s") from None
