"""The service Backfill."""

from __future__ import annotations

from typing import Any

import grpc

from shedder.archive.catalog.backfill_table import Summarised
from shedder.archive.runs.external_run import SentFile
from shedder.engine.engine import Engine
from shedder.server.call_context import Workers
from shedder.v1 import backfill_pb2 as pb
from shedder.v1.backfill_pb2_grpc import BackfillServicer

Context = grpc.aio.ServicerContext[Any, Any]


class BackfillService(BackfillServicer):
    """Takes in a past; what reads or writes files happens on a worker's thread."""

    def __init__(self, engine: Engine, *, workers: Workers) -> None:
        self._engine = engine
        self._workers = workers

    async def Begin(self, request: pb.BeginRequest, context: Context) -> pb.BeginResponse:
        """Begin, or look."""
        state = await self._workers.run(
            lambda: self._engine.backfills.begin_backfill(
                request.stream, request.name, request.plan, request.parts
            )
        )
        return pb.BeginResponse(state=state.to_json())

    async def Write(self, request: pb.WriteRequest, context: Context) -> pb.WriteResponse:
        """Some bytes of a file."""
        await self._workers.run(
            lambda: self._engine.backfills.write_backfill(
                request.stream,
                request.name,
                request.part,
                request.attempt,
                request.file,
                request.offset,
                request.data,
            )
        )
        return pb.WriteResponse()

    async def FinishPart(
        self, request: pb.FinishPartRequest, context: Context
    ) -> pb.FinishPartResponse:
        """Answered when the part is durable, and every byte of it was read."""
        sent = [
            SentFile(each.first_position, each.end_position, each.size_bytes, each.crc)
            for each in request.files
        ]
        await self._workers.run(
            lambda: self._engine.backfills.finish_backfill_part(
                request.stream,
                request.name,
                request.part,
                request.attempt,
                rows=request.rows,
                poison=request.poison,
                sent=sent,
                queries={
                    name: Summarised(each.text, each.from_us if each.HasField("from_us") else None)
                    for name, each in request.queries.items()
                },
                summaries=request.summaries,
            )
        )
        return pb.FinishPartResponse()

    async def Adopt(self, request: pb.AdoptRequest, context: Context) -> pb.AdoptResponse:
        """Answered when all is part of the stream."""
        adopted = await self._workers.run(
            lambda: self._engine.backfills.adopt_backfill(
                request.stream, request.name, rows=request.rows, overlap=request.overlap
            )
        )
        return pb.AdoptResponse(rows=adopted.rows, duplicate=adopted.duplicate)

    async def Abandon(self, request: pb.AbandonRequest, context: Context) -> pb.AbandonResponse:
        """Forget it."""
        await self._workers.run(
            lambda: self._engine.backfills.abandon_backfill(request.stream, request.name)
        )
        return pb.AbandonResponse()
