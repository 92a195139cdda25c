"""Path of one row query: its operators with what they take, and the bytes in their queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shedder.dataflow.scheduling.operator_scheduler import ReadyOperator
from shedder.dataflow.scheduling.progress_chart import OperatorRate

FADE = 0.8  # What earlier runs count in a rate, for each later one.
READ = "read"
FILTER = "filter"
ROWS = "rows"


@dataclass(slots=True)
class _OperatorWork:
    """Work of an operator; earlier runs fade."""

    ns: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0

    def add(self, ns: int, bytes_in: int, bytes_out: int) -> None:
        self.ns = FADE * self.ns + ns
        self.bytes_in = FADE * self.bytes_in + bytes_in
        self.bytes_out = FADE * self.bytes_out + bytes_out


class QueryPath:
    """Operators of a query, each before the queue of the next one.

    names: READ takes a batch from the apply queue, with the columns that the query reads; FILTER
    evaluates the filters of streams, if there are any; ROWS does the rest of a step.
    read_bytes, filtered_bytes: in the queues before FILTER and before ROWS. Without FILTER, what
    was read waits before ROWS.
    """

    def __init__(self, query: str, *, has_filters: bool) -> None:
        """query: its name."""
        self.query = query
        self.names = (READ, FILTER, ROWS) if has_filters else (READ, ROWS)
        self.read_bytes = 0
        self.filtered_bytes = 0
        self._read_since: float | None = None
        self._filtered_since: float | None = None
        self._work = {name: _OperatorWork() for name in self.names}

    @property
    def queue_bytes(self) -> int:
        """Bytes in both queues."""
        return self.read_bytes + self.filtered_bytes

    @property
    def since(self) -> float | None:
        """Time at which the oldest tuple of both queues came; None: nothing waits."""
        return self._read_since if self._filtered_since is None else self._filtered_since

    @property
    def rates(self) -> list[OperatorRate] | None:
        """Cost in ns for each byte, and selectivity in bytes; None: not all are measured."""
        works = [self._work[name] for name in self.names]
        if not all(each.bytes_in for each in works):
            return None
        return [OperatorRate(it.ns / it.bytes_in, it.bytes_out / it.bytes_in) for it in works]

    def ready(self) -> Iterator[ReadyOperator]:
        """Operators behind READ whose queues have tuples."""
        if self._filtered_since is not None:
            yield ReadyOperator(self.query, len(self.names) - 1, self._filtered_since)
        if self._read_since is not None:
            yield ReadyOperator(self.query, 1, self._read_since)

    def note_read(self, now: float, ns: int, bytes_in: int, bytes_out: int) -> None:
        """A batch was read. now: by the clock of `since`."""
        self._work[READ].add(ns, bytes_in, bytes_out)
        self.read_bytes += bytes_out
        if self._read_since is None:
            self._read_since = now

    def note_filtered(self, ns: int, filtered_bytes: int) -> None:
        """What was read has been filtered. filtered_bytes: before ROWS now."""
        made = max(filtered_bytes - self.filtered_bytes, 0)
        self._work[FILTER].add(ns, self.read_bytes, made)
        if self._filtered_since is None:
            self._filtered_since = self._read_since
        self.read_bytes, self.filtered_bytes = 0, filtered_bytes
        self._read_since = None

    def note_step(self, ns: int) -> None:
        """All that waited is in the rows."""
        self._work[ROWS].add(ns, self.queue_bytes, 0)
        self.note_empty()

    def note_empty(self) -> None:
        """A step that was not measured took all that waited."""
        self.read_bytes = self.filtered_bytes = 0
        self._read_since = self._filtered_since = None
