"""Producer in this process, with the interface of a producer that `shedder.connect` gives."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from shedder.engine.admission.batch_push import Pipeline
from shedder.engine.admission.stream_ingest import Ingest
from shedder.errors import ProducerForgotten, StaleEpoch
from shedder.queries.answers.database_api import Receipt
from shedder.streams.push_parts import parts_of


class LocalProducer:
    """Appends to one stream under a name, idempotently. For one thread.

    Numbers begin at 0 with each epoch and have no gaps; each push takes one. After a crash,
    `next_sequence` says which push comes next: everything before it is stored. If some batches of
    that push are stored, pushing it again stores the others.
    """

    def __init__(self, ingest: Ingest, stream: str, name: str, *, epoch: int | None) -> None:
        self._ingest = ingest
        self.stream = stream
        self.name = name
        self.schema = ingest.schema(stream)
        producers = ingest.producers
        last, epoch_min = producers.last_sequence(stream, name), producers.epoch_min(stream, name)
        self.epoch, self.next_sequence = _go_on(name, epoch, last, epoch_min)
        is_resumed = last is not None and last[0] == self.epoch
        is_begun = is_resumed and producers.open_rows(stream, name) > 0
        self._begun = self.next_sequence if is_begun else None
        self._pipeline = Pipeline(ingest, stream, producer=name, epoch=self.epoch)

    def push(self, data: Any, *, sequence: int | None = None) -> int:
        """Hand over rows; returns when all are on their way, not when they are durable.

        Args:
          data: as in `push` of the database; more than 65,536 rows, or than the limits of a
            batch allow, become several batches of one number.
          sequence: of this push; None goes on from the last one. A number that is stored already
            is not stored again.

        Returns:
          The number that the next push gets.

        Raises:
          SchemaMismatch, BadTimestamp: these rows were not sent; those before them were. Under the
            same `sequence`, the rest can be pushed.
          ShedderError: an earlier batch was refused.
        """
        given = self.next_sequence if sequence is None else sequence
        is_fresh, limits = sequence is None and given != self._begun, self._ingest.limits
        for part, batch in parts_of(data, self.schema, limits, ends_at_error=sequence is None):
            self._pipeline.send(batch, given, part, is_fresh=is_fresh)
            self.next_sequence = given + part.is_last
        return self.next_sequence

    def flush(self) -> Receipt:
        """Wait until everything is durable; the last push's receipt (rows 0: there was none)."""
        return self._pipeline.drain()

    def close(self) -> None:
        """Flush and end."""
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()


def _go_on(
    name: str, epoch: int | None, last: tuple[int, int] | None, epoch_min: int
) -> tuple[int, int]:
    """The epoch to go on in (None: the newest), and its next sequence number."""
    if last is None:
        if epoch is None and epoch_min:
            raise ProducerForgotten(name, 0, epoch_min)
        return epoch or 0, 0
    if epoch is None or epoch == last[0]:
        return last[0], last[1] + 1
    if epoch < last[0]:
        raise StaleEpoch(name, last[0], epoch)
    return epoch, 0
