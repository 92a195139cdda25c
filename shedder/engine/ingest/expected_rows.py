"""Rows announced by summaries but not received yet, per producer."""

from __future__ import annotations

from collections.abc import Mapping

from shedder.archive.log.records import FOLLOW, SUMMARISED, Batch, Built
from shedder.engine.ingest.producer_sequences import ROWS_SUFFIX
from shedder.errors import BadBatch

PRODUCERS_MAX = 65_536  # Of one stream, with rows that follow; others must send tuples.
_UNKNOWN_PRODUCER = ""  # Rows announced before producers were recorded; any producer may send them.


def rows_name(producer: str) -> str:
    """The name under which the rows of a producer's summaries follow, with numbers of its own."""
    return producer + ROWS_SUFFIX


class ExpectedRows:
    """Rows whose producers have sent summaries of them and said that they will follow.

    A producer's rows may come in any cut, as long as there are no more of them than expected. Every
    owner of one sees the same summaries and rows in the order of the log. For one thread.

    rows: expected of all.
    """

    def __init__(self, by_producer: Mapping[str, int] | None = None) -> None:
        self._by_producer = dict(by_producer or {})
        self.rows = sum(self._by_producer.values())

    @classmethod
    def from_json(cls, by_producer: Mapping[str, int] | None, rows: int) -> ExpectedRows:
        """As a checkpoint has it; None: it is of before producers were told apart."""
        return cls({_UNKNOWN_PRODUCER: rows} if by_producer is None and rows else by_producer)

    def to_json(self) -> dict[str, int]:
        """Rows by producer, for a checkpoint."""
        return dict(self._by_producer)

    def copy(self) -> ExpectedRows:
        """The same, to be changed apart."""
        return ExpectedRows(self._by_producer)

    def of(self, producer: str) -> int:
        """Return rows that are expected of a producer."""
        return self._by_producer.get(producer, 0)

    def check_promise(self, producer: str) -> None:
        """Check that a producer may announce rows that will follow.

        Raises:
          BadBatch: the producer has no name, or too many others have announced rows.
        """
        if not producer:
            raise BadBatch("summaries whose tuples follow need a producer with a name")
        if len(self._by_producer) >= PRODUCERS_MAX and producer not in self._by_producer:
            raise BadBatch(
                f"tuples of {PRODUCERS_MAX:,} producers are waited for already; send the tuples, "
                "not summaries of them"
            )

    def check(self, name: str, rows: int) -> None:
        """Check that as many rows are expected of a producer as follow.

        Raises:
          BadBatch: fewer are expected.
        """
        if not name:
            raise BadBatch("tuples that follow their summaries need a producer with a name")
        whose = name.removesuffix(ROWS_SUFFIX)
        if whose == name:
            raise BadBatch(
                f"the tuples of a producer's summaries follow under its name and {ROWS_SUFFIX!r}, "
                f"as 'web-2{ROWS_SUFFIX}'; this is {name!r}"
            )
        expected = self._by_producer.get(whose, 0) + self._by_producer.get(_UNKNOWN_PRODUCER, 0)
        if rows > expected:
            raise BadBatch(
                f"no summaries have come from producer {whose!r} whose {rows:,} tuples were to "
                f"follow: {expected:,} are expected"
            )

    def note(self, header: Batch | Built) -> None:
        """Count a record: rows that follow summaries, or summaries whose rows will follow."""
        if isinstance(header, Batch):
            if header.flags & SUMMARISED:
                self.settle(header.producer, header.rows)
        elif header.flags & FOLLOW:
            self.promise(header.producer, header.rows)

    def promise(self, producer: str, rows: int) -> None:
        """Summaries of so many rows have come."""
        if rows:
            self._by_producer[producer] = self._by_producer.get(producer, 0) + rows
            self.rows += rows

    def settle(self, name: str, rows: int) -> int:
        """So many rows have come under a name; how many of them were expected.

        All of them, if they were checked; logs of earlier versions have rows under any name.
        """
        left = rows
        for whose in (name.removesuffix(ROWS_SUFFIX), _UNKNOWN_PRODUCER, *self._by_producer):
            here = min(left, self._by_producer.get(whose, 0))
            if here:
                left -= here
                self._by_producer[whose] -= here
                if not self._by_producer[whose]:
                    del self._by_producer[whose]
            if not left:
                break
        self.rows -= rows - left
        return rows - left
