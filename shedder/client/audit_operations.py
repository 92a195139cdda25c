"""Operations of an external audit: lend answers, report what was found."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from shedder.client.steps import Steps, retried_call
from shedder.v1 import audit_pb2 as pb
from shedder.wire.answers import answer_from_wire

if TYPE_CHECKING:
    from shedder.engine.audit.external_audit import AuditReport, AuditTicket


class AuditOperations:
    """The operations that audit answers, as steps; see engine.audit.external_audit for errors."""

    def __init__(self, *, patience_s: float) -> None:
        self._patience_s: Final = patience_s

    def lend_answers(
        self, stream: str, answers: int, *, without_archive: bool
    ) -> Steps[list[AuditTicket]]:
        """Return the newest answers of a stream's standing queries, to be computed exactly."""
        from shedder.engine.audit.external_audit import (
            AuditTicket,  # Heavy; most clients never ask.
        )

        request = pb.LendRequest(stream=stream, answers=answers, without_archive=without_archive)
        response = yield from retried_call(
            lambda stubs: stubs.audit.Lend, request, self._patience_s
        )
        return [
            AuditTicket(
                each.id,
                each.query,
                answer_from_wire(each.published),
                answer_from_wire(each.strict),
            )
            for each in response.answers
        ]

    def report_audit(self, id: str, found: AuditReport) -> Steps[str]:  # noqa: A002  (as on the wire)
        """Report the verdict on a lent answer: see `Client.report_audit`."""
        request = pb.ReportRequest(id=id, **asdict(found))
        reported: pb.ReportResponse = yield from retried_call(
            lambda stubs: stubs.audit.Report, request, self._patience_s
        )
        return reported.lost
