"""Summaries that come in parts: gathered whole before anybody looks at them, in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from shedder.engine.merge import too_large
from shedder.errors import BadBatch, InvalidRequest, Overloaded
from shedder.server.append_stream import next_of
from shedder.server.calls import Drain
from shedder.v1.synopses_pb2 import MergeInPartsRequest

PART_S_MAX = 30.0
"""How long the next part may take: who has reserved room and sends nothing keeps others out."""

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
          InvalidRequest: something else came, or nothing in time. Draining.
        """
        parts, size = list[bytes](), 0
        while (request := await self._next(requests)) is not None:
            if request.WhichOneof("message") != "part":
                raise InvalidRequest("after `whole`, MergeInParts takes parts only")
            size += len(request.part)
            if size > size_bytes:
                break
            parts.append(request.part)
        if size != size_bytes:
            more = "or more " if size > size_bytes else ""
            raise BadBatch(f"{size_bytes:,} bytes were to come, and {size:,} {more}came")
        return b"".join(parts)

    async def _next(self, requests: Requests) -> MergeInPartsRequest | None:
        try:
            async with asyncio.timeout(self._part_s_max):
                return await self._drain.race(next_of(requests))
        except TimeoutError:
            raise InvalidRequest(f"no part came for {self._part_s_max:.0f} s") from None
