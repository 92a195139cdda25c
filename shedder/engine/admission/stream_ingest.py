"""Ingest by name of the stream: admission and append."""

from __future__ import annotations

from concurrent.futures import Future

from shedder.archive.files.data_directory import FORMAT_DROPS, FORMAT_PUSHES
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.overload_policy import Policy
from shedder.engine.admission.admission_control import Admission
from shedder.engine.admission.producer_progress import ProducersProgress
from shedder.engine.engine_state import EngineState
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batches import BatchLimits
from shedder.streams.dropped_counts import Dropped
from shedder.streams.push_parts import WHOLE, Part


class Ingest:
    """Takes encoded batches of all streams. Safe from any thread.

    producers: the progress of the producers of all streams.
    """

    def __init__(self, core: EngineState, admission: Admission) -> None:
        self.producers = ProducersProgress(core)
        self._core = core
        self._admission = admission

    @property
    def limits(self) -> BatchLimits:
        """Return the limits of one batch."""
        return self._core.limits

    def schema(self, stream: str) -> StreamSchema:
        """A stream's definition."""
        return self._core.stream(stream).schema

    def append(
        self,
        stream: str,
        payload: bytes | memoryview,
        *,
        producer: str,
        epoch: int,
        sequence: int | None,
        rows: int | None = None,
        will_retry: bool = False,
        summarised: bool = False,
        left_out: Dropped | None = None,
        preadmitted: bool = False,
        part: Part = WHOLE,
    ) -> Future[Receipt]:
        """Append one encoded batch; the future's receipt says that it is durable.

        Args:
          stream: its name. payload, producer, epoch, sequence, part: as of `Intake.append`.
          rows: that it declares, and must have; they count as refused if it is refused undecoded.
            None: it does not say, and does not count.
          will_retry: the caller tries again, so a refusal is not final.
          summarised: summaries of it came before; it is for the archive.
          left_out: what its producer has left out of it, by chance, and will not send.
          preadmitted: with just these rows and bytes, by `Admission.let_in`.

        Raises:
          what `Intake.append` and `Admission.admit` raise.
        """
        core, size_bytes = self._core, memoryview(payload).nbytes
        declared, final = rows or 0, rows is not None and not will_retry
        admission = self._admission
        if not preadmitted:
            admission.check_size(stream, declared, size_bytes)
        with admission.counted(stream, declared, size_bytes, final=final):
            if preadmitted:
                intake = admission.intake(stream)
            else:
                intake = admission.admit(stream, declared, size_bytes, will_retry=will_retry)
            with admission.giving_back(stream, declared, size_bytes):
                if left_out is not None:
                    core.allow(FORMAT_DROPS)
                if producer:
                    core.allow(FORMAT_PUSHES)
                return intake.append(
                    payload,
                    producer=producer,
                    epoch=epoch,
                    sequence=sequence,
                    rows=rows,
                    summarised=summarised,
                    left_out=left_out,
                    part=part,
                )

    def blocks(self, stream: str) -> bool:
        """Return whether appends wait for room without a limit (ON OVERLOAD BLOCK)."""
        known = self._core.streams.get(stream)
        return known is not None and known.schema.on_overload.policy is Policy.BLOCK
