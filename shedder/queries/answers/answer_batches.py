"""Answers whose rows are taken batch by batch."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from types import TracebackType
from typing import Self

import pyarrow as pa

from shedder.errors import BadQuery
from shedder.queries.answers.answer import Answer


class AnswerBatches:
    """The rows of an answer, batch by batch and once, and then the answer without its rows.

    schema: of the batches.

    Leaving the `with` block, `close`, or dropping the object before the last batch ends the query.
    """

    def __init__(
        self,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        answer: Callable[[], Answer],
        close: Callable[[], object] = lambda: None,
    ) -> None:
        """Wrap batches.

        answer: returns the answer with no rows; called after the last batch.
        close: ends the query; called once. It must not refer to this object.
        """
        self.schema = schema
        self._batches = batches
        self._answer = answer
        self._known: Answer | None = None
        self._finalizer = weakref.finalize(self, close)
        self._finalizer.atexit = False

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """Return the batches of an answer that is whole already."""
        facts = replace(answer, table=answer.table.slice(0, 0))
        return cls(answer.table.schema, iter(answer.table.to_batches()), lambda: facts)

    @property
    def answer(self) -> Answer:
        """Everything but the rows, once the last batch was taken: notes, `cut`, times.

        Raises:
          BadQuery: some batches were not taken.
        """
        if self._known is None:
            raise BadQuery("the answer is known behind its last batch: take the batches first")
        return self._known

    def read_all(self) -> Answer:
        """Take all batches that are left; return the answer with their rows."""
        table = pa.Table.from_batches(list(self), self.schema)
        return replace(self.answer, table=table)

    def whole_within(self, bytes_max: int) -> Answer | None:
        """Return the answer with its rows if they take no more bytes; None: they are still here."""
        ahead: list[pa.RecordBatch] = []
        for batch in self:
            ahead.append(batch)
            bytes_max -= batch.nbytes
            if bytes_max < 0:
                self._batches = chain(ahead, self._batches)
                return None
        return replace(self.answer, table=pa.Table.from_batches(ahead, self.schema))

    def close(self) -> None:
        """End the query if it still runs; its rows are gone."""
        self._finalizer()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        if not self._finalizer.alive:
            raise StopIteration
        try:
            return next(self._batches)
        except StopIteration:
            self._known = self._answer()
            self.close()
            raise
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
