"""Summaries instead of rows, over the wire; tried again when a connection is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shedder.client.calls import Calls
from shedder.client.failures import Patience, patiently
from shedder.client.outbox import check_whole, epoch_after
from shedder.client.source_summaries import summaries_of
from shedder.cql.text.sampling_fractions import level_of
from shedder.engine.ingest.expected_rows import rows_name
from shedder.engine.remote_summaries.wire_format import AT_LEAST_BYTES, NOBODY
from shedder.errors import PlansChanged
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import BatchLimits
from shedder.streams.push_parts import WHOLE, parts_of
from shedder.v1 import ingest_pb2, synopses_pb2
from shedder.wire.ingest import receipt_from_wire, schema_from_wire
from shedder.wire.summaries import merge_in_parts

if TYPE_CHECKING:
    from shedder.engine.remote_summaries.summary_builder import Plans


class SummaryCalls(Calls):
    """The part of the client that sends what rows come to, and the rows of it later."""

    def plans(self, stream: str) -> str:
        """What somebody elsewhere must know to build the stream's summaries."""
        request = synopses_pb2.GetPlansRequest(stream=stream)
        plans: str = self._patiently(self._connection.synopses.GetPlans, request).plans
        return plans

    def merge(
        self,
        stream: str,
        summaries: bytes,
        *,
        producer: str | None = None,
        epoch: int = 0,
        sequence: int | None = None,
        tuples_follow: bool = False,
        after: Mapping[str, tuple[int, int]] = NOBODY,
    ) -> Receipt:
        """Merge summaries into the stream's standing queries; returns when answers know them.

        Lost connections are tried again. What is too large for one message goes in several, and
        counts when all of them have come.

        Args:
          stream: the stream's name. summaries: as engine.summarise.Summariser builds them.
          producer, epoch, sequence: as for `push`, which shares the numbers.
          tuples_follow: `follow` will bring the tuples for the archive.
          after: epoch and last number of other producers, by name, that this follows.

        Raises:
          PlansChanged, BadBatch, BatchTooLarge, BadTimestamp: nothing of them is kept.
          FailedPrecondition: the same; the service lacks some of `after`.
          Overloaded, Unreachable: also after having tried again for a while.
        """
        with self._names.name(producer) as name:
            in_parts = False
            if sequence is None or len(summaries) > AT_LEAST_BYTES:
                described = self._describe(stream, name)
                in_parts = len(summaries) > max(described.batch_bytes_max, AT_LEAST_BYTES)
                if sequence is None:
                    _, sequence = epoch_after(described, name, epoch)
            request = synopses_pb2.MergeRequest(
                stream=stream,
                producer=ingest_pb2.Producer(name=name, epoch=epoch),
                sequence=sequence,
                tuples_follow=tuples_follow,
                after=[
                    synopses_pb2.Reached(
                        producer=ingest_pb2.Producer(name=other, epoch=reached), sequence=last
                    )
                    for other, (reached, last) in after.items()
                ],
            )
            if not in_parts:
                request.summaries = summaries
                merged = self._patiently(self._connection.synopses.Merge, request)
                return receipt_from_wire(merged.receipt)

            def sent() -> Any:
                parts = merge_in_parts(request, summaries, described.batch_bytes_max)
                return self._connection.call(self._connection.synopses.MergeInParts, parts)

            merged = patiently(sent, Patience(self._patience_s))
            return receipt_from_wire(merged.receipt)

    def summarise(
        self,
        stream: str,
        data: Any,
        *,
        producer: str | None = None,
        epoch: int = 0,
        sequence: int | None = None,
        tuples_follow: bool = False,
        thinning: str = "1",
    ) -> Receipt:
        """Send what rows come to instead of the rows: standing queries know all of them at once.

        The work is done here, and the server only merges. One-time queries and the archive know
        the rows once they have followed; without `tuples_follow` they never do. What was thinned
        here is read in full once they have, when the server repairs its panes.

        Args:
          stream, producer, epoch, sequence: as for `push`; all rows are one number.
          data: as for `push`. tuples_follow: `follow` will bring these rows.
          thinning: the share of the rows that is read, "1/8", where the server does not read less
            itself; how many there were travels along.

        Raises:
          BadSetting: there is no such share.
          SchemaMismatch, BadTimestamp, BatchTooLarge: nothing of them is kept.
          PlansChanged: queries came and went all the while.
          Overloaded, Unreachable: also after having tried again for a while.
        """
        from shedder.engine.remote_summaries.summary_builder import Plans

        level = level_of(thinning)
        plans = Plans.from_json(self.plans(stream))
        batches = list(conform(data, plans.schema, limits=plans.limits))

        def send(plans: Plans) -> Receipt:
            return self.merge(
                stream,
                summaries_of(plans.thinned(level), batches),
                producer=producer,
                epoch=epoch,
                sequence=sequence,
                tuples_follow=tuples_follow,
            )

        try:
            return send(plans)
        except PlansChanged:  # Nothing was stored.
            return send(Plans.from_json(self.plans(stream)))

    def follow(
        self, stream: str, data: Any, *, producer: str, epoch: int = 0, sequence: int | None = None
    ) -> Receipt:
        """Append rows whose summaries came before, for the archive; no query reads them again.

        Args:
          stream, data: as for `push`. producer: of the summaries; its rows follow under a name
            made of it, with numbers of their own. epoch, sequence: as for `push`, of that name.

        Raises:
          BadBatch: no summaries of this producer's have come of so many rows that were to follow.
          SchemaMismatch, BadTimestamp, Overloaded, Unreachable: as for `push`.
        """
        name = rows_name(producer)
        described = self._describe(stream, name)
        is_next = sequence is None
        if sequence is None:
            check_whole(described, name, epoch)
            _, sequence = epoch_after(described, name, epoch)
        limits = BatchLimits(described.batch_rows_max, described.batch_bytes_max)
        receipt, schema = Receipt(stream, 0, 0), schema_from_wire(described)
        parts = parts_of(data, schema, limits, ends_at_error=is_next)
        for each, (part, batch) in enumerate(parts):
            number, place = sequence, part
            if not described.takes_parts:  # An older server: each batch has its own number.
                number, place = sequence + each, WHOLE
            stored = self._append(stream, name, epoch, number, batch, summarised=True, part=place)
            receipt = receipt.and_rest(stored) if part.first_row else stored
        return receipt
