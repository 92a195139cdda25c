"""Operations that send summaries instead of rows, and the rows later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from shedder.client.failures import Patience
from shedder.client.identifiers import OwnNames
from shedder.client.outbox import check_whole, epoch_after
from shedder.client.source_summaries import summaries_of
from shedder.client.steps import Steps, call, retried, retried_call
from shedder.client.stream_operations import StreamOperations
from shedder.cql.text.sampling_fractions import level_of
from shedder.engine.ingest.expected_rows import rows_name
from shedder.engine.remote_summaries.wire_format import AT_LEAST_BYTES
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


class SummaryOperations:
    """The operations that send summaries of rows, as steps. Safe from any thread."""

    def __init__(self, streams: StreamOperations, names: OwnNames, *, patience_s: float) -> None:
        """names: for summaries without a producer. patience_s: see `connect`."""
        self._streams: Final = streams
        self._names: Final = names
        self._patience_s: Final = patience_s

    def plans(self, stream: str) -> Steps[str]:
        """Return the description from which a client builds the stream's summaries."""
        request = synopses_pb2.GetPlansRequest(stream=stream)
        described: synopses_pb2.GetPlansResponse = yield from retried_call(
            lambda stubs: stubs.synopses.GetPlans, request, self._patience_s
        )
        return described.plans

    def merge(
        self,
        stream: str,
        summaries: bytes,
        *,
        producer: str | None,
        epoch: int,
        sequence: int | None,
        tuples_follow: bool,
        after: Mapping[str, tuple[int, int]],
    ) -> Steps[Receipt]:
        """Merge summaries into the stream's standing queries: see `Client.merge`."""
        with self._names.name(producer) as name:
            part_bytes = AT_LEAST_BYTES
            if sequence is None or len(summaries) > AT_LEAST_BYTES:
                described = yield from self._streams.describe(stream, name)
                part_bytes = described.batch_bytes_max
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
            return (yield from self._merge(request, summaries, part_bytes))

    def _merge(
        self, request: synopses_pb2.MergeRequest, summaries: bytes, part_bytes: int
    ) -> Steps[Receipt]:
        """Send summaries in one message, or in several where one would be too large."""
        if len(summaries) <= max(part_bytes, AT_LEAST_BYTES):
            request.summaries = summaries
            merged = yield from retried_call(
                lambda stubs: stubs.synopses.Merge, request, self._patience_s
            )
            return receipt_from_wire(merged.receipt)

        def sent() -> Steps[Any]:
            parts = merge_in_parts(request, summaries, part_bytes)
            return call(lambda stubs: stubs.synopses.MergeInParts, parts)

        merged = yield from retried(sent, Patience(self._patience_s))
        return receipt_from_wire(merged.receipt)

    def summarise(
        self,
        stream: str,
        data: Any,
        *,
        producer: str | None,
        epoch: int,
        sequence: int | None,
        tuples_follow: bool,
        thinning: str,
    ) -> Steps[Receipt]:
        """Send summaries of rows instead of the rows: see `Client.summarise`."""
        from shedder.engine.remote_summaries.summary_builder import Plans

        level = level_of(thinning)
        plans = Plans.from_json((yield from self.plans(stream)))
        batches = list(conform(data, plans.schema, limits=plans.limits))

        def sent(plans: Plans) -> Steps[Receipt]:
            return self.merge(
                stream,
                summaries_of(plans.thinned(level), batches),
                producer=producer,
                epoch=epoch,
                sequence=sequence,
                tuples_follow=tuples_follow,
                after={},
            )

        try:
            return (yield from sent(plans))
        except PlansChanged:  # Nothing was stored.
            return (yield from sent(Plans.from_json((yield from self.plans(stream)))))

    def follow(
        self, stream: str, data: Any, *, producer: str, epoch: int, sequence: int | None
    ) -> Steps[Receipt]:
        """Append rows whose summaries came before: see `Client.follow`."""
        name = rows_name(producer)
        described = yield from self._streams.describe(stream, name)
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
            stored = yield from self._streams.append(
                stream, name, epoch, number, batch, summarised=True, part=place
            )
            receipt = receipt.and_rest(stored) if part.first_row else stored
        return receipt
