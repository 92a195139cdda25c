"""INSERT: rows from a query or from constants, pushed into a stream like any other rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from shedder.archive.backfill.staged_runs import POSITION_MIN
from shedder.archive.tasks.progress import Progress
from shedder.cql.binding.insert_checks import (
    RowsQuery,
    bare_nulls,
    bind_rows,
    filled,
    insert_columns,
    values_batch,
    wants_rows,
)
from shedder.cql.expressions.evaluate import evaluate, true_rows
from shedder.cql.expressions.expression import Column, Expression
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import Insert, Select
from shedder.engine.admission.batch_push import Pipeline, push
from shedder.engine.engine_state import EngineState
from shedder.engine.ingest.producer_sequences import check_named_producer
from shedder.engine.one_time_queries.executor import check_retained
from shedder.engine.one_time_queries.inserted_rows import await_inserted
from shedder.engine.runtime.background_tasks import Watch
from shedder.engine.services import Services
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import ProducerForgotten, Unimplemented
from shedder.queries.answers.answer import Answer
from shedder.streams.batch_conversion import conform, conform_batch
from shedder.streams.frame import Frame
from shedder.streams.windows import Span, span_of

CHUNK_ROWS = 1 << 14
"""Positions of the source per batch: a payload of 16 MiB has room for a kibibyte a row."""


def insert(
    services: Services, statement: Insert, timeout_s: float | None, watch: Watch | None
) -> Answer:
    """Push what the statement says; the answer comes when all of it is durable.

    With a producer's name a repeated statement stores nothing twice. A row query then is over
    what the source held when the name was first used: a repetition goes on where it stopped.

    Raises:
      what binding, `push` and reading the archive raise. Cancelled, DeadlineExceeded: what was
      pushed by then is durable; repeated with its producer, the statement goes on from there.
    """
    schema = services.ingest.schema(statement.stream)
    services.core.check_no_view(schema.name)
    if statement.producer is not None:
        check_named_producer(statement.producer, None)
    select = statement.select
    if select is None:
        return _push(services, statement, values_batch(statement, schema))
    if select.outputs and not wants_rows(select):
        answer = services.one_time.ask(select, timeout_s)
        table = answer.table.select(list(answer.outputs))
        names = insert_columns(schema, statement.columns, table.num_columns)
        if not table.num_rows:
            return _status(statement, 0)
        untyped = bare_nulls(select.outputs, names)
        columns = {
            name: column.combine_chunks()
            for name, column in zip(names, table.columns, strict=True)
            if name not in untyped
        }
        return _push(services, statement, filled(columns, table.num_rows, schema))
    await_inserted(services.core, (select.stream,))
    progress = Progress(f"insert into {statement.stream}", "rows")
    with services.tasks.running(progress, timeout_s=timeout_s, watch=watch):
        return _Copying.begin(services, statement, select, schema, progress).run()


def _push(services: Services, statement: Insert, batch: pa.RecordBatch) -> Answer:
    if statement.producer is None:
        push(services.ingest, statement.stream, batch, producer="", epoch=0, sequence=None)
        return _status(statement, batch.num_rows)
    name, rows = f"insert/values/{statement.producer}", batch.num_rows
    stored = services.ingest.producers.last_sequence(statement.stream, name)
    is_answer = statement.select is not None
    if is_answer and stored is not None and stored[1] >= 0:  # The stored rows may differ.
        return _status(statement, 0, already=rows)
    before = services.ingest.producers.open_rows(statement.stream, name)
    receipt = push(services.ingest, statement.stream, batch, producer=name, epoch=0, sequence=0)
    already = rows if receipt.duplicate else before
    return _status(statement, rows - already, already=already)


def _status(statement: Insert, rows: int, *, already: int = 0) -> Answer:
    again = f"; {already:,} were there already" if already else ""
    return Answer.status(f"{rows:,} rows inserted into {statement.stream}{again}")


@dataclass(frozen=True, slots=True, eq=False)
class _Copying:
    """Rows on their way from one stream to another (or to the same one).

    end: the position of the source where the statement ends. Batch number k holds what the
    statement keeps of positions [k * CHUNK_ROWS, (k + 1) * CHUNK_ROWS), be it nothing: so the
    numbers mean the same whenever it is repeated, whatever retention has taken meanwhile.
    """

    services: Services
    statement: Insert
    query: RowsQuery
    names: tuple[str, ...]
    source: Stream
    target: StreamSchema
    span: Span
    end: int
    producer: str
    epoch: int
    progress: Progress

    @classmethod
    def begin(
        cls,
        services: Services,
        statement: Insert,
        select: Select,
        schema: StreamSchema,
        progress: Progress,
    ) -> _Copying:
        """Bind it, and find where it ends.

        Raises:
          UnknownStream, UnknownColumn, TypeMismatch, BadQuery, BeforeRetention.
        """
        core = services.core
        source = core.stream(select.stream)
        query = bind_rows(select, source.schema)
        names = insert_columns(schema, statement.columns, len(query.outputs))
        span = span_of(query.window, None)
        check_retained(core, source, span)
        end = core.executor.call(lambda: source.position).result()
        producer, epoch = "", 0
        progress.expect(end + core.store.backfills.rows(source.id))
        if statement.producer is not None:
            _check_not_backfilled(core, source, span)
            producer, epoch, end = _begun(services, statement, source, end)
            progress.expect(end)
        return cls(
            services, statement, query, names, source, schema, span, end, producer, epoch, progress
        )

    def run(self) -> Answer:
        """Push what is not there yet."""
        pipeline = Pipeline(
            self.services.ingest, self.statement.stream, producer=self.producer, epoch=self.epoch
        )
        send = self._send_numbered if self.producer else self._send
        try:
            rows = send(pipeline)
        finally:
            pipeline.settle()
        pipeline.drain()
        return _status(self.statement, rows)

    def _send(self, pipeline: Pipeline) -> int:
        """Whatever the source has, what was backfilled first; how many rows."""
        sent = 0
        for batch in self._gathered():
            for part in conform(batch, self.target, limits=self.services.ingest.limits):
                pipeline.send(part, None)
                sent += part.num_rows
        return sent

    def _gathered(self) -> Iterator[pa.RecordBatch]:
        kept: list[pa.RecordBatch] = []
        held = 0
        for _, rows in self._parts(POSITION_MIN):
            kept.append(self._kept(rows))
            held += kept[-1].num_rows
            self.progress.advance(rows.num_rows)
            if held >= CHUNK_ROWS or not held:
                yield self._joined(kept)
                kept, held = [], 0
        yield self._joined(kept)

    def _send_numbered(self, pipeline: Pipeline) -> int:
        """The chunks that are not there yet; how many rows."""
        stored = self.services.ingest.producers.last_sequence(self.statement.stream, self.producer)
        chunk = 0 if stored is None else stored[1] + 1
        self.progress.reach(min(self.end, chunk * CHUNK_ROWS))
        sent = 0
        for number, batch in self._batches(chunk):
            pipeline.send(batch, number)
            sent += batch.num_rows
            self.progress.advance(min(self.end, (number + 1) * CHUNK_ROWS) - self.progress.done)
        return sent

    def _batches(self, chunk: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """A batch for each chunk of the source from this one on."""
        kept: list[pa.RecordBatch] = []
        for first, rows in self._parts(chunk * CHUNK_ROWS):
            while first // CHUNK_ROWS > chunk:
                yield chunk, self._joined(kept)
                kept, chunk = [], chunk + 1
            kept.append(self._kept(rows))
        while chunk * CHUNK_ROWS < self.end:
            yield chunk, self._joined(kept)
            kept, chunk = [], chunk + 1

    def _parts(self, position: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Rows of the source from a position on, none of them of two chunks."""
        source = self.source
        columns = sorted({source.schema.time_column, *self.query.columns})
        scan = self.services.core.store.scan_live(
            source.id,
            self.span.start_us,
            self.span.end_us,
            columns,
            from_position=position,
            on_progress=self.progress.advance,
        )
        for first, batch, live in scan:
            at, end = first, min(first + batch.num_rows, self.end)
            while at < end:
                edge = min((at // CHUNK_ROWS + 1) * CHUNK_ROWS, end)
                rows = batch.slice(at - first, edge - at)
                yield (
                    at,
                    rows
                    if live is None
                    else rows.filter(pa.array(live[at - first :][: edge - at])),
                )
                at = edge

    def _kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """What the statement makes of rows of the source."""
        keep = self.span.holds(Frame(rows, self.source.schema.time_column).times_us)
        if self.query.where is not None:
            keep &= true_rows(evaluate(self.query.where, rows))
        rows = rows.filter(pa.array(keep))
        untyped = bare_nulls(self.query.outputs, self.names)
        columns = {
            name: _value(output.expression, rows)
            for name, output in zip(self.names, self.query.outputs, strict=True)
            if name not in untyped
        }
        return conform_batch(filled(columns, rows.num_rows, self.target), self.target)

    def _joined(self, kept: list[pa.RecordBatch]) -> pa.RecordBatch:
        """The rows of one chunk as one batch."""
        if any(batch.num_rows for batch in kept):
            return pa.Table.from_batches(kept).combine_chunks().to_batches()[0]
        return conform_batch(filled({}, 0, self.target), self.target)


def _check_not_backfilled(core: EngineState, source: Stream, span: Span) -> None:
    """Check that all tuples of a window came in batches, which are numbered by position.

    Raises:
      Unimplemented: some were backfilled.
    """
    runs = core.store.runs(source.id)
    rows = sum(r.rows for r in runs if r.is_backfilled and r.overlaps(span.start_us, span.end_us))
    if rows:
        raise Unimplemented(
            f"{rows:,} of the tuples of {source.schema.name!r} were backfilled, and have no number "
            "by which PRODUCER could tell which of them were stored; leave it out, or begin the "
            "window later"
        )


def _begun(services: Services, statement: Insert, source: Stream, end: int) -> tuple[str, int, int]:
    """The producer's full name and epoch, and where the source ended when it was first used.

    The epoch is that end, so it outlives the eviction of the producer. Earlier versions had the end
    in the name.
    """
    assert statement.producer is not None
    name = f"insert/{source.id}/from/{statement.producer}"
    last = services.ingest.producers.last_sequence(statement.stream, name)
    if last is not None:
        return name, last[0], last[0]
    pattern = re.compile(f"insert/{source.id}/([0-9]+)/{re.escape(statement.producer)}")
    known = services.core.intakes[statement.stream].producers.state().active
    found = next(filter(None, map(pattern.fullmatch, known)), None)
    if found is not None:
        return found[0], 0, int(found[1])
    if services.ingest.producers.epoch_min(statement.stream, name):
        raise ProducerForgotten.from_message(
            f"producers of stream {statement.stream!r} have been forgotten, and "
            f"{statement.producer!r} may be one: its rows could be stored twice. If it has stored "
            "no rows, give PRODUCER another name. If it has, insert the missing rows without it"
        )
    return name, end, end


def _value(expression: Expression, rows: pa.RecordBatch) -> pa.Array[Any]:
    """A column as it is, NaN and all; everything else as expressions are."""
    if isinstance(expression, Column):
        return rows.column(expression.name)
    return evaluate(expression, rows)
