"""The service Control."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import grpc

from shedder.engine.engine import Engine
from shedder.errors import BadSetting
from shedder.server.call_context import Drain, Workers
from shedder.streams.ipc import table_bytes
from shedder.v1 import control_pb2
from shedder.v1.control_pb2_grpc import ControlServicer

PERIOD_S = 1.0
PERIOD_S_MIN = 0.1

Context = grpc.aio.ServicerContext[Any, Any]


class ControlService(ControlServicer):
    """Reads and turns the knobs of the engine."""

    def __init__(self, engine: Engine, *, workers: Workers, drain: Drain) -> None:
        self._engine = engine
        self._workers = workers
        self._drain = drain

    async def Get(
        self, request: control_pb2.GetRequest, context: Context
    ) -> control_pb2.GetResponse:
        """The control table now."""
        return control_pb2.GetResponse(table=await self._table(request.entity, request.name))

    async def Set(
        self, request: control_pb2.SetRequest, context: Context
    ) -> control_pb2.SetResponse:
        """Set one value of the control table."""
        await self._workers.run(
            lambda: self._engine.set_control(
                request.entity, request.name, request.key, request.value
            )
        )
        return control_pb2.SetResponse()

    async def Watch(
        self, request: control_pb2.WatchRequest, context: Context
    ) -> AsyncIterator[control_pb2.WatchResponse]:
        """The control table again and again."""
        period_s = request.period_s or PERIOD_S
        if not (math.isfinite(period_s) and period_s >= PERIOD_S_MIN):
            raise BadSetting(f"a period of {period_s} s; at least {PERIOD_S_MIN} s")
        while True:
            table = await self._table(request.entity, request.name)
            yield control_pb2.WatchResponse(table=table)
            await self._drain.race(asyncio.sleep(period_s))

    async def _table(self, entity: str, name: str) -> bytes:
        table = await self._workers.run(lambda: self._engine.control(entity, name))
        return table_bytes(table)
