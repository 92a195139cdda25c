"""Backfill over the wire: the engine's words, tried again when a connection is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shedder.client.calls import Calls
from shedder.v1 import backfill_pb2 as pb

if TYPE_CHECKING:
    from shedder.archive.catalog.backfill_table import Summarised
    from shedder.archive.runs.external_run import SentFile
    from shedder.engine.rebuild.backfill import Adopted, BackfillState


class BackfillCalls(Calls):
    """The part of the client that brings in a past; see engine.backfill for what is raised."""

    def begin_backfill(
        self, stream: str, name: str, plan: str = "", parts: int = 0
    ) -> BackfillState:
        """Begin a backfill, or (without parts) see how far it is."""
        from shedder.engine.rebuild.backfill import BackfillState  # Heavy; most clients never ask.

        request = pb.BeginRequest(stream=stream, name=name, plan=plan, parts=parts)
        begun = self._patiently(self._connection.backfill.Begin, request)
        return BackfillState.from_json(begun.state)

    def write_backfill(
        self, stream: str, name: str, part: int, attempt: str, file: int, offset: int, data: bytes
    ) -> None:
        """Append bytes to a file of a part; those that are there already are left as they are."""
        request = pb.WriteRequest(
            stream=stream,
            name=name,
            part=part,
            attempt=attempt,
            file=file,
            offset=offset,
            data=data,
        )
        self._patiently(self._connection.backfill.Write, request)

    def finish_backfill_part(
        self,
        stream: str,
        name: str,
        part: int,
        attempt: str,
        *,
        rows: int,
        poison: int,
        sent: Sequence[SentFile],
        queries: Mapping[str, Summarised],
        summaries: bytes,
    ) -> None:
        """Let the service read all that was written of a part, and note that it is done."""
        request = pb.FinishPartRequest(
            stream=stream,
            name=name,
            part=part,
            attempt=attempt,
            rows=rows,
            poison=poison,
            queries={
                name: pb.Summarised(text=each.text, from_us=each.from_us)
                for name, each in queries.items()
            },
            summaries=summaries,
            files=[
                pb.FinishPartRequest.RunFile(
                    first_position=each.first_position,
                    end_position=each.end_position,
                    size_bytes=each.size_bytes,
                    crc=each.crc,
                )
                for each in sent
            ],
        )
        self._patiently(self._connection.backfill.FinishPart, request)

    def adopt_backfill(
        self, stream: str, name: str, *, rows: int, overlap: bool = False
    ) -> Adopted:
        """Make all parts of a backfill part of the stream, once."""
        from shedder.engine.rebuild.backfill import Adopted  # Heavy; most clients never ask.

        request = pb.AdoptRequest(stream=stream, name=name, rows=rows, overlap=overlap)
        adopted = self._patiently(self._connection.backfill.Adopt, request)
        return Adopted(adopted.rows, adopted.duplicate)

    def abandon_backfill(self, stream: str, name: str) -> None:
        """Forget what is done of a backfill that was not adopted."""
        request = pb.AbandonRequest(stream=stream, name=name)
        self._patiently(self._connection.backfill.Abandon, request)
