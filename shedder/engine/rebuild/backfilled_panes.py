"""Panes of a backfill in standing queries: all are merged, or none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from shedder.archive.catalog.backfill_table import BackfillPart
from shedder.engine.admission.summary_ingest import plans_of
from shedder.engine.engine_state import EngineState
from shedder.engine.panes.pane import Pane
from shedder.engine.panes.pane_codec import pane_from_bytes
from shedder.engine.remote_summaries.received_pane import PaneReader, ReceivedPane
from shedder.engine.remote_summaries.summary_builder import Plans, Summariser
from shedder.engine.remote_summaries.wire_format import Summaries
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.window_state.query_state import QueryState
from shedder.errors import PlansChanged
from shedder.streams.batches import BatchLimits
from shedder.streams.group_keys import OTHERS

Received = dict[str, list[tuple[int, ReceivedPane]]]
"""By query, its panes and their numbers."""

BuiltFrom = dict[str, tuple[int, int]]
"""By query, the latest event time from which a part was summarised, and the part."""

_ANY = BatchLimits(rows_max=1 << 31, bytes_max=1 << 31)  # Each part was held to the limits.


def backfill_plans(core: EngineState, name: str) -> Plans:
    """What executors must know; nothing is thinned there, whatever the load is here."""
    plans = plans_of(core, name)
    queries = [replace(each, levels=(0,) * len(each.levels)) for each in plans.queries]
    return replace(plans, queries=tuple(queries))


def received(core: EngineState, stream: Stream, parts: Sequence[BackfillPart]) -> Received:
    """The panes of all parts together, read in full. From any thread.

    Raises:
      PlansChanged: a query has come, or is another one, since a part was built.
      BadBatch: summaries are damaged.
    """
    plans = backfill_plans(core, stream.schema.name)
    query_states = {name: it.state for name, it in list(stream.queries.items()) if not it.failed}
    plans = replace(plans, queries=tuple(q for q in plans.queries if q.name in query_states))
    whole = Summariser(plans)
    for part in parts:
        for query in plans.queries:
            built = part.queries.get(query.name)
            if part.rows and (built is None or built.text != query.text):
                raise PlansChanged(
                    f"part {part.part} was built before query {query.name!r} was registered"
                )
        # One after the other: all of them together are as many megabytes as there are parts.
        made = Summaries.from_bytes(_summaries(core, part))
        known = tuple(pane for pane in made.panes if pane.query in query_states)
        whole.merge(replace(made, panes=known))
    found: Received = defaultdict(list)
    readers = {
        name: PaneReader(its.query, its.sizes.opened_plan, _ANY)
        for name, its in query_states.items()
    }
    for pane in whole.summaries().panes:
        found[pane.query].append((pane.pane, readers[pane.query].read(pane)))
    return dict(found)


def _summaries(core: EngineState, part: BackfillPart) -> bytes:
    catalog = core.store.catalog
    with catalog.turn():
        if catalog.backfills.part(part.stream_id, part.name, part.part) != part:
            raise PlansChanged(f"part {part.part} was built again while it was read")
        return catalog.backfills.summaries(part)


def latest_built_from(parts: Sequence[BackfillPart]) -> BuiltFrom:
    """Return which windows all parts together were built for. From any thread."""
    found: BuiltFrom = {}
    for part in parts:
        for name, built in part.queries.items():
            if built.from_us is not None:
                found[name] = max(
                    found.get(name, (built.from_us, part.part)), (built.from_us, part.part)
                )
    return found


def put_in(
    stream: Stream,
    found: Received,
    built_from: BuiltFrom,
    newest_us: int,
    arrival_us: int,
) -> Callable[[], None]:
    """Fold panes into those of the stream's queries. On the apply thread.

    A stream without any tuple gets its watermark from what is backfilled.

    Args:
      stream: of which they are. found: what `received` has read of the parts.
      built_from: of the same parts.
      newest_us: their largest event time. arrival_us: now.

    Returns:
      How to undo it.

    Raises:
      PlansChanged: windows need older tuples than were summarised. Nothing has changed.
    """
    undo: list[Callable[[], None]] = []
    before = stream.watermark.value_us

    def back() -> None:
        stream.watermark.restore(before)
        for each in undo:
            each()

    for standing_query in stream.queries.values():
        if standing_query.state.feed is not None:
            standing_query.state.stop_sharing()  # What it takes of its provider would lack these.
    if before is None:
        stream.watermark.observe(newest_us, arrival_us)
    try:
        for standing_query in stream.queries.values():
            _check_reach(standing_query.state, built_from, stream.watermark_us)
        for name, panes in found.items():
            standing_query = stream.queries[name]
            undo.append(_moment(standing_query))
            _put_in(standing_query.state, panes, stream.watermark_us)
            if standing_query.emitted_to is None:
                standing_query.begin_at(standing_query.state.grid.window_end(stream.watermark_us))
    except BaseException:
        back()
        raise
    return back


def _check_reach(query_state: QueryState, built_from: BuiltFrom, watermark_us: int | None) -> None:
    if query_state.name not in built_from or query_state.grid.width_us is None:
        return
    first = query_state.grid.first_needed(watermark_us)
    from_us, part = built_from[query_state.name]
    if first is None or first * query_state.grid.width_us < from_us:
        raise PlansChanged(f"part {part} was built for later windows of query {query_state.name!r}")


def _moment(standing_query: StandingQuery) -> Callable[[], None]:
    back, emitted_to = standing_query.state.panes.snapshot(), standing_query.emitted_to

    def undo() -> None:
        back()
        standing_query.begin_at(emitted_to)

    return undo


def _put_in(
    query_state: QueryState, panes: Iterable[tuple[int, ReceivedPane]], watermark_us: int | None
) -> None:
    """Panes that a window still needs become new versions of those there are."""
    grid, keys = query_state.grid, query_state.keys
    first_needed, first_open = grid.first_needed(watermark_us), grid.first_open(watermark_us)
    closed: dict[int, Pane] = {}
    filling: dict[int, Pane] = {}
    for number, received in panes:
        if first_needed is not None and number < first_needed:
            continue
        more = received.among(keys)
        if keys is not None and OTHERS in more.groups_here[:1]:
            keys.note_partial(1)  # Any group may have tuples among the others of elsewhere.
        query_state.panes.fit_widths(more)
        if first_open is not None and number < first_open:
            more.settle(query_state.plan)
            cell = query_state.panes.closed.cell_of(number)
            held = closed.get(cell, query_state.panes.get(cell))
            whole = Pane(query_state.plan, 1 if keys is None else 0, of_any_size=True)
            closed[cell] = more if held is None else whole.merge(held).merge(more)
        else:
            filling[number] = _copy(query_state, number).merge(more)
    query_state.hold_texts(closed.values(), query_state.plan)
    query_state.panes.put(closed, closed=True)
    query_state.panes.put(filling, closed=False)
    query_state.close(watermark_us)
    query_state.hold_to_the_cap()


def _copy(query_state: QueryState, number: int) -> Pane:
    """An open pane like the one that stands, or a new one."""
    groups = 1 if query_state.keys is None else query_state.keys.size
    if number in query_state.panes:
        data = query_state.panes.to_bytes(number)
        copy = pane_from_bytes(data, query_state.sizes.opened_plan, query_state.keys)
    else:
        copy = Pane(query_state.sizes.opened_plan, groups)
        query_state.panes.widths.fit(copy)
    copy.grow(groups)
    return copy
