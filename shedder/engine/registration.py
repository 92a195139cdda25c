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
from shedder.engine.history import History, catch_up
from shedder.engine.plan import plan, sizes_to_json
from shedder.engine.published import Published
from shedder.engine.standing import Standing
from shedder.engine.stored_text import read_stored
from shedder.engine.stream import Stream
from shedder.errors import PrecisionUnavailable, Unimplemented
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
        standing = Standing(
            name,
            query,
            plan(query, granted.sizes),
            part_bytes_max=group_bytes(granted.facts, self._core.settings.group_bytes_max),
        )
        past = [History.of_panes(self._core, stream, standing)]
        sharper = self._sharper_sample(stream, query)
        if sharper is not None:
            past.append(History.of_sample(self._core, stream, sharper))
        catch_up(past, lambda: stream.position)
        return self._core.actor.call(
            lambda: self._begin(stream, standing, granted, past, sharper)
        ).result()

    def free_bytes(self) -> int:
        """What is left of the synopsis budget."""
        budget = self._core.settings.memory_bytes // SYNOPSIS_SHARE
        taken = sum(
            int(published.granted.get("bytes", "0"))
            for stream in list(self._core.streams.values())
            for published in list(stream.queries.values())
        )
        return max(0, budget - taken)

    def _begin(
        self,
        stream: Stream,
        standing: Standing,
        granted: Granted,
        past: list[History],
        sharper: StreamSample | None,
    ) -> Published:
        """On the apply thread: read the little that is left of the past, then live."""
        core = self._core
        query = standing.query
        published = Published(
            standing,
            from_position=stream.position,
            granted=granted.facts,
            go_exact=core.go_exact,
        )
        for history in past:
            history.read_on()
        standing.timely = standing.late = 0  # The ledger counts from here on.
        standing.close(stream.watermark_us)
        published.emitted_to = standing.grid.window_end(stream.watermark_us)
        published.refresh(stream)
        entry = QueryEntry(
            standing.name,
            query.text,
            parameters=sizes_to_json(query, granted.sizes, granted.facts),
            stream_id=stream.id,
            from_position=stream.position,
            created_us=core.clock_us(),
        )
        sample = stream.sample
        if sharper is not None and sharper.position == sample.position:
            stream.sample = sharper
        stream.queries[standing.name] = published
        try:
            core.checkpoint(also=lambda: core.store.catalog.add_query(entry))
        except BaseException:  # It stands in memory and in the catalog, or in neither.
            del stream.queries[standing.name]
            stream.sample = sample
            raise
        return published

    def _sharper_sample(self, stream: Stream, query: BoundQuery) -> StreamSample | None:
        """An empty sample by weight of what is summed, by hash of what is counted distinct.

        Ad-hoc questions about these columns then have narrow intervals behind any filter. The new
        samples must know all tuples, so they are drawn again from the archive. None: the present
        one serves.
        """
        summed, counted = _sampled_columns(query)
        old = stream.sample
        weighted = sorted({*old.weighted, *summed})
        hashed = sorted({*old.hashed, *counted})
        if (weighted, hashed) == (sorted(old.weighted), sorted(old.hashed)):
            return None
        return StreamSample(
            stream.schema,
            rows=self._core.settings.sample_rows,
            first=old.first,
            weighted=weighted,
            hashed=hashed,
        )

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
            case AggregateFunction.COUNT_DISTINCT | (
                AggregateFunction.DISTINCT_BOTH
                | AggregateFunction.DISTINCT_ONLY
                | AggregateFunction.JACCARD
            ):
                counted.add(aggregate.argument.name)
    return summed, counted
