"""Registrar: binds, negotiates and starts a new standing query, with its history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

from shedder.archive.files.data_directory import FORMAT_JOINED, FORMAT_LEVELS
from shedder.archive.metadata.catalog_entries import QueryEntry
from shedder.cql.binding.bind import bind
from shedder.cql.expressions.expression import AggregateFunction, Column
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.canonical_text import text_of_select
from shedder.cql.statements.statement import Contract, Select
from shedder.engine.allocation.negotiation import Grant, group_bytes
from shedder.engine.allocation.rebalancer import Rebalancer
from shedder.engine.checkpoints.checkpoint_contents import query_parts
from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.checkpoints.query_commit import QueryCommit
from shedder.engine.engine_state import EngineState
from shedder.engine.one_time_queries.executor import check_retained
from shedder.engine.rebuild.archive_replay import History, catch_up
from shedder.engine.registration.query_rewrite import rewritten, without_limits
from shedder.engine.registration.registration_wait import RegistrationWait
from shedder.engine.registration.rewrite_report import described, savings
from shedder.engine.standing_queries.pane_deletions import PaneDeletions
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.synopsis_plans.stored_query_text import read_stored
from shedder.engine.synopsis_plans.synopsis_plan import plan, sizes_to_json
from shedder.engine.window_state.query_state import QueryState
from shedder.errors import BadQuery, BudgetExceeded, PrecisionUnavailable
from shedder.streams.live_sample import StreamSample
from shedder.streams.windows import PaneGrid, Span

STRATA_MAX = 4  # Sets of columns by which a stream is sampled; each takes sample_rows rows.
EXACT_ROWS_PER_S = 10_000_000  # What the exact worker surely reads (measured: 20 to 100 million).


class Registrar:
    """Makes queries standing."""

    def __init__(
        self,
        core: EngineState,
        sharing: Rebalancer,
        checkpoints: Checkpoints,
        answer_exactly: Callable[[StandingQuery, Span], None],
    ) -> None:
        """answer_exactly: answers a window of a query with contract EXACT, later."""
        self._core = core
        self._sharing = sharing
        self._checkpoints = checkpoints
        self._answer_exactly = answer_exactly

    def register(
        self, name: str, stream: Stream, select: Select, waits: RegistrationWait
    ) -> StandingQuery:
        """Answer for the history first, then go on with what comes.

        Raises:
          BadQuery, UnknownColumn, TypeMismatch: it cannot be bound.
          PrecisionUnavailable: contract FAIL or EXACT, and it cannot be promised.
          BudgetExceeded: no memory for its synopses.
          BeforeRetention: its window begins at an instant before what is kept.
          DeadlineExceeded: the records before it were not applied in time.
        """
        if self._core.pressure.pressed:
            raise BudgetExceeded(
                "the process is near its limit of memory; a new query can stand when some is free: "
                "drop another one, or raise the limit"
            )
        query, granted, levels = self._admitted(stream, select)
        read_stored(query.text)  # What a restart could not read is refused now.
        if query.contract is Contract.EXACT:
            self._check_exact(stream, query)
        self._sharing.make_room(granted)
        query_state = QueryState(
            name,
            query,
            plan(query, granted.sizes),
            part_bytes_max=group_bytes(granted.facts, self._core.settings.group_bytes_max),
        )
        limited = [part for part, level in enumerate(levels) if level]
        query_state.set_levels(levels, forced=limited)  # Its own limits are not for load to lift.
        if any(levels):
            self._core.store.allow(FORMAT_LEVELS)
        deleted = PaneDeletions(len(self._core.store.deletions.entries(stream.id)))
        past = [History.of_panes(self._core, stream, query_state)]
        sharper = self._sharper_sample(stream, query)
        if sharper is not None:
            past.append(History.of_sample(self._core, stream, sharper))
        catch_up(past, lambda: stream.position)
        self._core.store.allow(FORMAT_JOINED)
        self._checkpoints.end_begun()
        standing_query, joining = waits.run(
            lambda: self._begin(stream, query_state, granted, past, sharper, deleted)
        )
        self._checkpoints.end_joining(joining)
        return standing_query

    def preview(self, stream: Stream, select: Select) -> dict[str, str]:
        """What `register` would grant now, and how it would rewrite the query; nothing is done.

        Raises:
          As `register`.
        """
        query, granted, _ = self._admitted(stream, select)
        return {"text": query.text, **granted.facts}

    def _admitted(
        self, stream: Stream, select: Select
    ) -> tuple[BoundQuery, Grant, tuple[int, ...]]:
        """The query as it will stand, with its sizes and levels."""
        query = bind(select, stream.schema)
        if query.reduction is not None:
            raise BadQuery(
                "REDUCE BY is for questions that are asked once: a standing query reads the tuples "
                "as they come, all of them or THINNING 1/2, say"
            )
        check_retained(self._core, stream, PaneGrid.of(query.window).span)
        if query.costing is None:
            granted = self._sharing.negotiated(query)
            return query, granted, (query.thinning,) * len(plan(query, granted.sizes).parts)
        cap = self._core.settings.group_bytes_max
        it = rewritten(query, free_bytes=self._core.synopsis_bytes, group_bytes_max=cap)
        granted = self._sharing.negotiated(it.query, it.levels, it.given)
        facts = {**granted.facts, "ns_per_tuple": f"{it.ns_per_tuple:.1f}"}
        changes = described(query, it)
        if changes:
            before = without_limits(query, group_bytes_max=cap)
            taken = replace(it, size_bytes=granted.size_bytes)
            facts |= changes | {"rewrite_saves": savings(before, taken)}
        text = text_of_select(replace(select, window=it.query.window))
        return replace(it.query, text=text), replace(granted, facts=facts), it.levels

    def _begin(
        self,
        stream: Stream,
        query_state: QueryState,
        granted: Grant,
        past: list[History],
        sharper: StreamSample | None,
        deleted: PaneDeletions,
    ) -> tuple[StandingQuery, QueryCommit]:
        """On the apply thread: read the little that is left of the past, then live.

        It reads from now on what comes, and does not stand before it is durable.
        """
        core = self._core
        check_retained(core, stream, query_state.grid.span)  # It may have gone meanwhile.
        self._checkpoints.settle()
        self._checkpoints.make_way_for(query_state.name)
        standing_query = StandingQuery(
            query_state,
            from_position=stream.position,
            granted=granted.facts,
            answer_exactly=self._answer_exactly,
            limits=granted.limits,
            grant_key=granted.grant_key,
            deleted=deleted,
        )
        for history in past:
            history.read_on()
        query_state.begin(
            core.machine.cpu_timer(
                query_state.name, query_state.plan, grouped=query_state.keys is not None
            )
        )
        self._note_lost(stream, standing_query)
        standing_query.begin(stream.facts())
        sample, position = stream.sample, stream.position
        if sharper is not None and sharper.position != sample.position:
            sharper = None

        def leave() -> None:
            query_state.detach()
            del stream.queries[query_state.name]
            # A sample that lacks what came meanwhile does not return; the sharper one serves.
            if stream.sample is sharper and stream.position == position:
                stream.replace_sample(sample)

        parts, panes = query_parts(standing_query), query_state.to_store()
        entry = self._entry(stream, query_state, granted)
        joining = QueryCommit(entry, parts, panes, core.applied_sequence, sharper, leave)
        self._checkpoints.join(joining)
        if sharper is not None:
            stream.replace_sample(sharper)
        stream.queries[query_state.name] = standing_query
        stream.share_panes(query_state)
        return standing_query, joining

    def _note_lost(self, stream: Stream, standing_query: StandingQuery) -> None:
        """Note in a query which tuples of the past are lost or were retired."""
        core, lost = self._core, standing_query.lost
        for hole in stream.lost.without(core.store.holes(stream.id)):
            lost.add(hole, stream.watermark.limit_us(core.clock_us()))
        lost.note_retired(core.store.retention.retained_from_us(stream.id))

    def _entry(self, stream: Stream, query_state: QueryState, granted: Grant) -> QueryEntry:
        """Return what the catalog keeps of a query that begins at the present position."""
        limits = None if granted.limits is None else asdict(granted.limits)
        query = query_state.query
        return QueryEntry(
            query_state.name,
            query.text,
            parameters=sizes_to_json(query, granted.sizes, granted.facts, limits),
            stream_id=stream.id,
            from_position=stream.position,
            created_us=self._core.clock_us(),
        )

    def _sharper_sample(self, stream: Stream, query: BoundQuery) -> StreamSample | None:
        """An empty sample by weight of what is summed, by hash of what is counted, by group.

        Ad-hoc questions about these columns then have narrow intervals behind any filter. The new
        samples must know all tuples, so they are drawn again from the archive. None: the present
        one serves.
        """
        summed, counted = _sampled_columns(query)
        old = stream.sample
        strata = _more_strata(old.strata, query)
        weighted = sorted({*old.weighted, *summed})
        hashed = sorted({*old.hashed, *counted})
        known = sorted(old.weighted), sorted(old.hashed), old.strata
        if (weighted, hashed, strata) == known:
            return None
        return StreamSample(
            stream.schema,
            rows=self._core.settings.sample_rows,
            first=old.first,
            weighted=weighted,
            hashed=hashed,
            strata=strata,
            basics=old.basics if old.first else None,
            size_bytes_max=old.size_bytes_max,
        )

    def _check_exact(self, stream: Stream, query: BoundQuery) -> None:
        """ELSE EXACT is granted when a slide leaves time to read the window."""
        grid = PaneGrid.of(query.window)
        if grid.slide_us is None or not grid.slides:
            raise PrecisionUnavailable(
                "ELSE EXACT of a standing query reads its window at every slide, and this window "
                "has none; RANGE with SLIDE has, or ELSE WIDEN, OMIT or FAIL can be granted"
            )
        rows = stream.position + self._core.store.backfills.rows(stream.id)
        seconds = rows / EXACT_ROWS_PER_S
        slide_s = grid.slide_us / 1e6
        if seconds > slide_s:
            raise PrecisionUnavailable(
                f"ELSE EXACT would read up to {rows:,} tuples, about {seconds:.2f} s, "
                f"every {slide_s:g} s; a longer SLIDE, or ELSE WIDEN, OMIT or FAIL can be granted"
            )


# What these are of decides how many rows the groups of a stratified sample get.
_SPREAD = frozenset(
    {
        AggregateFunction.SUM,
        AggregateFunction.AVG,
        AggregateFunction.VAR,
        AggregateFunction.STDDEV,
        AggregateFunction.QUANTILE,
    }
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


def _more_strata(
    known: dict[tuple[str, ...], tuple[str, ...]], query: BoundQuery
) -> dict[tuple[str, ...], tuple[str, ...]]:
    """The columns by which the stream is sampled, with those that the query groups by."""
    if not query.groups or not all(isinstance(group, Column) for group in query.groups):
        return known
    columns = tuple(sorted({group.name for group in query.groups if isinstance(group, Column)}))
    if columns not in known and len(known) == STRATA_MAX:
        return known
    numeric = {column.name for column in query.schema.columns if column.type.is_number}
    arguments = {
        aggregate.argument.name
        for aggregate in query.aggregates
        if isinstance(aggregate.argument, Column) and aggregate.function in _SPREAD
    }
    measures = {*known.get(columns, ()), *(arguments & numeric)}
    return {**known, columns: tuple(sorted(measures))}
