"""Operations of a backfill, repeated when a connection is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from shedder.client.steps import Steps, retried_call
from shedder.v1 import backfill_pb2 as pb

if TYPE_CHECKING:
    from shedder.archive.catalog.backfill_table import Summarised
    from shedder.archive.runs.external_run import SentFile
    from shedder.engine.rebuild.backfill import Adopted, BackfillState


class BackfillOperations:
    """The operations that bring in a past, as steps; see engine.rebuild.backfill for errors."""

    def __init__(self, *, patience_s: float) -> None:
        self._patience_s: Final = patience_s

    def begin_backfill(self, stream: str, name: str, plan: str, parts: int) -> Steps[BackfillState]:
        """Begin a backfill, or (without parts) return its state."""
        from shedder.engine.rebuild.backfill import BackfillState  # Heavy; most clients never ask.

        request = pb.BeginRequest(stream=stream, name=name, plan=plan, parts=parts)
        begun = yield from self._retried(lambda stubs: stubs.backfill.Begin, request)
        return BackfillState.from_json(begun.state)

    def write_backfill(
        self, stream: str, name: str, part: int, attempt: str, file: int, offset: int, data: bytes
    ) -> Steps[None]:
        """Append bytes to a file of a part; bytes that are there already stay as they are."""
        request = pb.WriteRequest(
            stream=stream,
            name=name,
            part=part,
            attempt=attempt,
            file=file,
            offset=offset,
            data=data,
        )
        yield from self._retried(lambda stubs: stubs.backfill.Write, request)

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
    ) -> Steps[None]:
        """Let the service read all bytes of a part, and note that the part is done."""
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
        yield from self._retried(lambda stubs: stubs.backfill.FinishPart, request)

    def adopt_backfill(self, stream: str, name: str, *, rows: int, overlap: bool) -> Steps[Adopted]:
        """Make all parts of a backfill part of the stream, once."""
        from shedder.engine.rebuild.backfill import Adopted  # Heavy; most clients never ask.

        request = pb.AdoptRequest(stream=stream, name=name, rows=rows, overlap=overlap)
        adopted = yield from self._retried(lambda stubs: stubs.backfill.Adopt, request)
        return Adopted(adopted.rows, adopted.duplicate)

    def abandon_backfill(self, stream: str, name: str) -> Steps[None]:
        """Forget a backfill that was not adopted."""
        request = pb.AbandonRequest(stream=stream, name=name)
        yield from self._retried(lambda stubs: stubs.backfill.Abandon, request)

    def _retried(self, method: Any, request: Any) -> Steps[Any]:
        return (yield from retried_call(method, request, self._patience_s))
