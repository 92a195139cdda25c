"""Summaries in parts: gathered as a whole in bounded memory before they are merged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from shedder.engine.admission.summary_ingest import too_large
from shedder.errors import BadBatch, InvalidRequest, Overloaded
from shedder.server.append_stream import next_of
from shedder.server.call_context import Drain
from shedder.server.call_slots import TIMES
from shedder.v1.synopses_pb2 import MergeInPartsRequest

PART_S_MAX = 30.0
"""Time for the next part to arrive; s. A silent sender would keep its reserved room."""

BYTES_PER_S_MIN = 64 << 10
"""The least pace of the parts. A sender may lag behind it by PART_S_MAX at any time."""

Requests = AsyncIterator[MergeInPartsRequest]


@dataclass(slots=True, eq=False)
class Room:
    """Bytes that are reserved for one whole message, gathered from its parts.

    tenant: sender of the message. size_bytes: size of the message.
    exceeds_share: with this message, the tenant exceeds its share; another tenant may end the call.
    is_ended: another tenant's message has ended this one.
    """

    tenant: str
    size_bytes: int
    exceeds_share: bool
    is_ended: bool = False
    wait: asyncio.Timeout | None = field(default=None, repr=False)


class Parts:
    """Memory bound of all messages that are being received in parts.

    A tenant may take all free bytes. Three quarters of the free bytes are its share. A tenant
    without room ends calls beyond another tenant's share, the newest first. Clients send again.
    """

    def __init__(self, bytes_max: int, drain: Drain, part_s_max: float = PART_S_MAX) -> None:
        self.bytes_max = bytes_max
        self._rooms: list[Room] = []  # oldest first
        self._drain = drain
        self._part_s_max = part_s_max

    @property
    def held_bytes(self) -> int:
        """Bytes that are reserved."""
        return sum(room.size_bytes for room in self._rooms)

    @contextmanager
    def room(self, size_bytes: int, tenant: str) -> Iterator[Room]:
        """Reserve room for a tenant's message until the message has been merged.

        Raises:
          BatchTooLarge: there never will be. Overloaded: not now. InvalidRequest: nothing comes.
        """
        if size_bytes <= 0:
            raise InvalidRequest(f"size_bytes is {size_bytes}; it must be positive")
        if size_bytes > self.bytes_max:
            raise too_large(size_bytes, self.bytes_max)
        self._reclaim(size_bytes, tenant)
        if self.held_bytes + size_bytes > self.bytes_max:
            raise Overloaded(f"summaries of {self.held_bytes:,} bytes are on their way already")
        mine = size_bytes + sum(each.size_bytes for each in self._rooms if each.tenant == tenant)
        free = self.bytes_max - self.held_bytes - size_bytes
        room = Room(tenant, size_bytes, exceeds_share=mine > TIMES * free)
        self._rooms.append(room)
        try:
            yield room
        finally:
            if not room.is_ended:
                self._rooms.remove(room)

    def _reclaim(self, size_bytes: int, tenant: str) -> None:
        """End calls beyond the share of other tenants if this makes room for a message."""
        lacking = self.held_bytes + size_bytes - self.bytes_max
        beyond = [room for room in self._rooms if room.exceeds_share and room.tenant != tenant]
        if sum(room.size_bytes for room in beyond) < lacking:
            return
        while lacking > 0:
            room = beyond.pop()
            room.is_ended = True
            self._rooms.remove(room)
            if room.wait is not None and not room.wait.expired():
                room.wait.reschedule(asyncio.get_running_loop().time())
            lacking -= room.size_bytes

    async def whole(self, requests: Requests) -> MergeInPartsRequest.Whole:
        """What the first request says of the others.

        Raises:
          InvalidRequest: it says something else, or nothing in time. Draining.
        """
        due_s = asyncio.get_running_loop().time() + self._part_s_max
        first = await self._next(requests, due_s, self._silence())
        if first is None or first.WhichOneof("message") != "whole":
            raise InvalidRequest("the first request of MergeInParts must be `whole`")
        return first.whole

    async def gathered(self, requests: Requests, room: Room) -> bytes:
        """The bytes of all parts.

        Raises:
          BadBatch: they are more or fewer than was said.
          InvalidRequest: something else came, an empty part, or nothing in time, or not all.
          Overloaded: another tenant's message took the room. Draining.
        """
        size_bytes = room.size_bytes
        gathered = bytearray()  # In one piece: a part of one byte takes no more than that.
        now_s = asyncio.get_running_loop().time
        due_s, late = now_s() + self._part_s_max, self._silence()
        while (request := await self._next(requests, due_s, late, room)) is not None:
            if request.WhichOneof("message") != "part":
                raise InvalidRequest("after `whole`, MergeInParts takes parts only")
            if not request.part:
                raise InvalidRequest("a part is empty")
            if len(gathered) + len(request.part) > size_bytes:
                size = len(gathered) + len(request.part)
                raise BadBatch(f"{size_bytes:,} bytes were to come, and {size:,} or more came")
            gathered += request.part
            due_s, silence_s = (
                due_s + len(request.part) / BYTES_PER_S_MIN,
                now_s() + self._part_s_max,
            )
            late = f"the parts come at less than {BYTES_PER_S_MIN:,} bytes/s"
            if due_s >= silence_s:
                due_s, late = silence_s, self._silence()
        if len(gathered) != size_bytes:
            raise BadBatch(f"{size_bytes:,} bytes were to come, and {len(gathered):,} came")
        room.exceeds_share = False  # Merging has begun, so the memory stays in use.
        return bytes(gathered)

    def _silence(self) -> str:
        return f"no part came for {self._part_s_max:.0f} s"

    async def _next(
        self, requests: Requests, due_s: float, late: str, room: Room | None = None
    ) -> MergeInPartsRequest | None:
        wait = asyncio.timeout_at(due_s)
        if room is not None:
            _check_is_there(room)
            room.wait = wait
        try:
            async with wait:
                return await self._drain.race(next_of(requests))
        except TimeoutError:
            if room is not None:
                _check_is_there(room)
            raise InvalidRequest(late) from None
        finally:
            if room is not None:
                room.wait = None


def _check_is_there(room: Room) -> None:
    """Raise Overloaded if the room was given to another tenant's message."""
    if room.is_ended:
        raise Overloaded(
            f"another tenant needs the room of these {room.size_bytes:,} bytes; send them again"
        )
