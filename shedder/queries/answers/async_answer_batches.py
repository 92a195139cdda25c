"""Answers whose rows are taken batch by batch on an event loop."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

import pyarrow as pa

from shedder.errors import BadQuery
from shedder.queries.answers.answer import Answer


class AsyncAnswerBatches(AsyncIterator[pa.RecordBatch]):
    """As `AnswerBatches`, with `async for` and `async with`."""

    def __init__(
        self,
        schema: pa.Schema,
        batches: AsyncIterator[pa.RecordBatch],
        answer: Callable[[], Answer],
        close: Callable[[], object],
    ) -> None:
        """Wrap batches. Args: as `AnswerBatches`."""
        self.schema = schema
        self._batches = batches
        self._answer = answer
        self._known: Answer | None = None
        self._end = weakref.finalize(self, close)
        self._end.atexit = False

    @property
    def answer(self) -> Answer:
        """Everything but the rows, once the last batch was taken: as `AnswerBatches.answer`."""
        if self._known is None:
            raise BadQuery("the answer is known behind its last batch: take the batches first")
        return self._known

    async def aclose(self) -> None:
        """End the query if it still runs; its rows are gone."""
        self._end()

    async def __anext__(self) -> pa.RecordBatch:
        if not self._end.alive:
            raise StopAsyncIteration
        try:
            return await anext(self._batches)
        except StopAsyncIteration:
            self._known = self._answer()
            self._end()
            raise
        except BaseException:
            self._end()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
