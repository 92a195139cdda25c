"""Registration: bind, negotiate, read the history, and stand from then on."""

from __future__ import annotations

import math

from shedder.archive.entries import QueryEntry
from shedder.cql.bind import bind
from shedder.cql.expression import AggregateFunction, Column
from shedder.cql.query import BoundQuery
from shedder.cql.statement import Contract, Select
from shedder.engine.core import Core
from shedder.engine.grant import Granted, group_bytes, negotiate, reserve
from shedder.engine.plan import plan, sizes_to_json
from shedder.engine.published import Published
from shedder.engine.standing import Standing
from shedder.engine.stored_text import read_stored
from shedder.engine.stream import Stream
from shedder.errors import PrecisionUnavailable, Unimplemented
from shedder.streams.frame import Frame
from shedder.streams.sample import StreamSample
from shedder.streams.windows import PaneGrid

SYNOPSIS_SHARE = 4  # A quarter of the memory budget is for the synopses of standing queries.
EXACT_ROWS_PER_S = 10_000_000  # What the exact worker surely reads (measured: 20 to 100 million).


class Registrar:
    """Makes queries standing."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def register(self, name: str, stream: Stream, select: Select) -> Published:
        """Answer for the history first, then go on with what comes.

        Raises:
          BadQuery, UnknownColumn, TypeMismatch: it cannot be bound.
          PrecisionUnavailable: contract FAIL or EXACT, and it cannot be promised.
          BudgetExceeded: no memory for its synopses.
        """
        query = bind(select, stream.schema)
        if query.reduction is not None:
            raise Unimplemented("REDUCE BY in a standing query comes with the archive's layouts")
        read_stored(query.text)  # What a restart could not read is refused now.
        free = self.free_bytes()
        granted = negotiate(query, free)
        parts = plan(query, granted.sizes).parts
        granted = reserve(query, granted, parts, free, self._core.settings.group_bytes_max)
        if query.contract is Contract.EXACT:
            self._check_exact(stream, query)
        return self._core.actor.call(lambda: self._begin(name, stream, query, granted)).result()

    def free_bytes(self) -> int:
        """What is left of the synopsis budget."""
        budget = self._core.settings.memory_bytes // SYNOPSIS_SHARE
        taken = sum(
            int(published.granted.get("bytes", "0"))
            for stream in list(self._core.streams.values())
            for published in list(stream.queries.values())
        )
        return max(0, budget - taken)

    def _begin(self, name: str, stream: Stream, query: BoundQuery, granted: Granted) -> Published:
        """On the apply thread: history up to the applied position, then live."""
        core = self._core
        standing = Standing(
            name,
            query,
            plan(query, granted.sizes),
            part_bytes_max=group_bytes(granted.facts, core.settings.group_bytes_max),
        )
        published = Published(
            standing,
            from_position=stream.position,
            granted=granted.facts,
            go_exact=core.go_exact,
        )
        self._read_history(stream, published)
        published.refresh(stream)
        entry = QueryEntry(
            name,
            query.text,
            parameters=sizes_to_json(query, granted.sizes, granted.facts),
            stream_id=stream.id,
            from_position=stream.position,
            created_us=core.clock_us(),
        )
        sample = stream.sample
        self._sharpen_sample(stream, query)
        stream.queries[name] = published
        try:
            core.checkpoint(also=lambda: core.store.catalog.add_query(entry))
        except BaseException:  # It stands in memory and in the catalog, or in neither.
            del stream.queries[name]
            stream.sample = sample
            raise
        return published

    def _read_history(self, stream: Stream, published: Published) -> None:
        """Read what the windows need of the archive; the panes meet the stream at its position."""
        standing = published.standing
        grid = standing.grid
        start_us = grid.span.start_us
        first = grid.first_needed(stream.watermark_us)
        if first is not None:
            assert grid.width_us is not None
            start_us = first * grid.width_us
        limit_us = stream.watermark.limit_us(self._core.clock_us())
        columns = sorted({stream.schema.time_column, *standing.query.columns})
        for _, batch in self._core.store.scan(stream.id, start_us, grid.span.end_us, columns):
            frame = Frame(batch, stream.schema.time_column)
            if start_us is not None and grid.slides:
                frame = frame.in_time_order()
                frame = frame.between(int((frame.times_us < start_us).sum()), len(frame))
            if len(frame):
                standing.apply(frame, watermark_us=None, limit_us=limit_us)
        standing.read = standing.late = 0  # The ledger counts from here on.
        standing.close(stream.watermark_us)
        published.emitted_to = grid.window_end(stream.watermark_us)

    def _sharpen_sample(self, stream: Stream, query: BoundQuery) -> None:
        """Sample by weight what is summed and by hash what is counted distinct, from now on.

        Ad-hoc questions about these columns then have narrow intervals behind any filter. The new
        samples must know all tuples, so they are drawn again from the archive.
        """
        summed, counted = _sampled_columns(query)
        old = stream.sample
        weighted = sorted({*old.weighted, *summed})
        hashed = sorted({*old.hashed, *counted})
        if (weighted, hashed) == (sorted(old.weighted), sorted(old.hashed)):
            return
        sample = StreamSample(
            stream.schema,
            rows=self._core.settings.sample_rows,
            first=old.first,
            weighted=weighted,
            hashed=hashed,
        )
        for first, batch in self._core.store.scan(stream.id):
            if first != sample.position:
                return  # Retention or damage has taken tuples that the old sample knows.
            sample.update(first, batch)
        if sample.position == old.position:
            stream.sample = sample

    def _check_exact(self, stream: Stream, query: BoundQuery) -> None:
        """ELSE EXACT is granted when a slide leaves time to read the window."""
        grid = PaneGrid.of(query.window)
        slide_s = math.inf if grid.slide_us is None else grid.slide_us / 1e6
        seconds = stream.position / EXACT_ROWS_PER_S
        if not grid.slides or seconds > slide_s:
            raise PrecisionUnavailable(
                f"ELSE EXACT would read up to {stream.position:,} tuples, about {seconds:.2f} s, "
                f"every {slide_s:g} s; a longer SLIDE, or ELSE WIDEN, OMIT or FAIL can be granted"
            )


def _sampled_columns(query: BoundQuery) -> tuple[set[str], set[str]]:
    """The columns that a query sums, and those whose values it counts."""
    summed, counted = set(), set()
    for aggregate in query.aggregates:
        if not isinstance(aggregate.argument, Column):
            continue
        match aggregate.function:
            case AggregateFunction.SUM | AggregateFunction.AVG:
                summed.add(aggregate.argument.name)
            case AggregateFunction.COUNT_DISTINCT:
                counted.add(aggregate.argument.name)
    return summed, counted
