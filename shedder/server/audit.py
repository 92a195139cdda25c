"""The service Audit."""

from __future__ import annotations

from typing import Any

import grpc

from shedder.engine.audit.external_audit import AuditReport
from shedder.engine.engine import Engine
from shedder.server.call_context import Workers
from shedder.v1 import audit_pb2 as pb
from shedder.v1.audit_pb2_grpc import AuditServicer
from shedder.wire.answers import answer_to_wire

Context = grpc.aio.ServicerContext[Any, Any]


class AuditService(AuditServicer):
    """Lends answers and takes verdicts; a worker's thread waits for the engine."""

    def __init__(self, engine: Engine, *, workers: Workers) -> None:
        self._engine = engine
        self._workers = workers

    async def Lend(self, request: pb.LendRequest, context: Context) -> pb.LendResponse:
        """Answers to compute again."""
        tickets = await self._workers.run(
            lambda: self._engine.audit.tickets.lend(
                request.stream,
                answers=request.answers,
                without_archive=request.without_archive,
            )
        )
        return pb.LendResponse(
            answers=[
                pb.LentAnswer(
                    id=each.id,
                    query=each.query,
                    published=answer_to_wire(each.published),
                    strict=answer_to_wire(each.strict),
                )
                for each in tickets
            ]
        )

    async def Report(self, request: pb.ReportRequest, context: Context) -> pb.ReportResponse:
        """What came of one."""
        found = AuditReport(
            values=request.values,
            missed=request.missed,
            fresh=request.fresh,
            fresh_missed=request.fresh_missed,
            refuted=request.refuted,
            placed=request.placed if request.HasField("placed") else None,
        )
        now = await self._workers.run(lambda: self._engine.audit.tickets.report(request.id, found))
        return pb.ReportResponse(certified=not now.lost, lost=now.lost)
