"""A producer in this process: the words of the one that `shedder.connect` gives."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol, Self

from shedder.engine.admission.batch_push import Appendable, Pipeline, fitting
from shedder.errors import StaleEpoch
from shedder.queries.answers.database_api import Receipt


class Engine(Appendable, Protocol):
    """What a producer appends to."""

    def last_sequence(self, stream: str, producer: str) -> tuple[int, int] | None:
        """(epoch, sequence) of a producer's last durable batch."""


class Producer:
    """Appends to one stream under a name, idempotently. For one thread.

    Numbers begin at 0 with each epoch and have no gaps. After a crash, `next_sequence` says which
    batch comes next: everything before it is stored.
    """

    def __init__(self, engine: Engine, stream: str, name: str, *, epoch: int | None) -> None:
        self._engine = engine
        self.stream = stream
        self.name = name
        self.schema = engine.schema(stream)
        self.epoch, self.next_sequence = _go_on(name, epoch, engine.last_sequence(stream, name))
        self._pipeline = Pipeline(engine, stream, producer=name, epoch=self.epoch)

    def push(self, data: Any, *, sequence: int | None = None) -> int:
        """Hand over rows; returns when all are on their way, not when they are durable.

        Args:
          data: as in `push` of the database; more than 65,536 rows, or than the limits of a
            batch allow, become several batches.
          sequence: of the first batch; None goes on from the last one. A number that is stored
            already is not stored again.

        Returns:
          The number that the next batch gets.

        Raises:
          SchemaMismatch, BadTimestamp: these rows were not sent; those before them were.
          ShedderError: an earlier batch was refused.
        """
        for number, batch in enumerate(fitting(self._engine, data, self.schema)):
            given = self.next_sequence if sequence is None else sequence + number
            self._pipeline.send(batch, given, is_fresh=sequence is None)
            self.next_sequence = given + 1
        return self.next_sequence

    def flush(self) -> Receipt:
        """Wait until everything is durable; the last batch's receipt (rows 0: there was none)."""
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


def _go_on(name: str, epoch: int | None, last: tuple[int, int] | None) -> tuple[int, int]:
    """The epoch to go on in (None: the newest), and its next sequence number."""
    if last is None:
        return epoch or 0, 0
    if epoch is None or epoch == last[0]:
        return last[0], last[1] + 1
    if epoch < last[0]:
        raise StaleEpoch(name, last[0], epoch)
    return epoch, 0
