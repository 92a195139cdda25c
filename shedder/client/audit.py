"""Audits from elsewhere, over the wire: the engine's words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from shedder.client.calls import Calls
from shedder.v1 import audit_pb2 as pb
from shedder.wire.answers import answer_from_wire

if TYPE_CHECKING:
    from shedder.engine.audit.external_audit import LentAnswer, Reported


class AuditCalls(Calls):
    """The part of the client that audits answers; see engine.lent for what is raised."""

    def lend_answers(
        self, stream: str, *, answers: int, without_archive: bool = False
    ) -> list[LentAnswer]:
        """Newest answers of a stream's standing queries, to be computed again, exactly."""
        from shedder.engine.audit.external_audit import LentAnswer  # Heavy; most clients never ask.

        request = pb.LendRequest(stream=stream, answers=answers, without_archive=without_archive)
        lent = self._patiently(self._connection.audit.Lend, request).answers
        return [
            LentAnswer(
                each.id,
                each.query,
                answer_from_wire(each.published),
                answer_from_wire(each.strict),
            )
            for each in lent
        ]

    def report_audit(self, id: str, found: Reported) -> str:  # noqa: A002  (as on the wire)
        """Say what came of a lent answer; why its query is not certified now, or "".

        Raises:
          FailedPrecondition: as the engine; also when it was said before, but the answer was lost.
        """
        request = pb.ReportRequest(id=id, **asdict(found))
        lost: str = self._patiently(self._connection.audit.Report, request).lost
        return lost
