"""Validation of received summaries, after admission and before they reach the panes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from shedder.engine.remote_summaries.received_pane import PaneReader, ReceivedPane
from shedder.engine.remote_summaries.synopsis_decoding import Seen
from shedder.engine.remote_summaries.wire_format import PaneSummary, Summaries
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisPlan
from shedder.engine.window_state.query_state import QueryState
from shedder.errors import BadBatch, PlansChanged
from shedder.streams.batches import BatchLimits
from shedder.streams.group_keys import OTHERS

ROWS_MAX = 1 << 40  # Tuples of summaries: counts of many such still fit int64 and are doubles.
_ANY = BatchLimits(rows_max=1 << 31, bytes_max=1 << 31)  # The log's own bytes were checked before.


@dataclass(frozen=True, slots=True, eq=False)
class ValidatedSummaries:
    """Summaries, and their panes as read when they were checked: plan and pane by place."""

    summaries: Summaries
    received: Mapping[int, tuple[SynopsisPlan, ReceivedPane]] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """The tuples that they were built of."""
        return self.summaries.rows


def checked(
    summaries: Summaries, query_states: Mapping[str, QueryState], limits: BatchLimits
) -> ValidatedSummaries:
    """Read everything that a stranger's summaries hold.

    Args:
      summaries: of one stream. state: all of its queries by name. limits: on groups.

    Raises:
      PlansChanged: they are not of all of these queries, and of no others.
      BadBatch: they are damaged, or contradict themselves.
    """
    if summaries.rows > ROWS_MAX:
        raise BadBatch(f"summaries of {summaries.rows:,} tuples; at most {ROWS_MAX:,} at a time")
    _check_queries(summaries, set(query_states))
    received = {}
    plans = {name: query.sizes.opened_plan for name, query in query_states.items()}
    seen: Seen = {}
    readers = {
        name: PaneReader(query.query, plans[name], limits, seen)
        for name, query in query_states.items()
    }
    for place, summary in enumerate(summaries.panes):
        received[place] = plans[summary.query], readers[summary.query].read(summary)
    return ValidatedSummaries(summaries, received)


def take_in(query_state: QueryState, made: ValidatedSummaries, watermark_us: int | None) -> None:
    """Fold the panes of one query into its own; what cannot be folded in counts as too late.

    Args:
      state: the query. made: of its stream. watermark_us: as it was before.
    """
    first_open = query_state.grid.first_open(watermark_us)
    reader, is_known = PaneReader(query_state.query, query_state.sizes.opened_plan, _ANY), False
    for place, summary in enumerate(made.summaries.panes):
        if summary.query != query_state.name:
            continue
        is_known = True
        is_late = first_open is not None and summary.pane < first_open
        received = None if is_late else _received(query_state, made, place, reader)
        if received is None:
            query_state.note_late(summary.tuples)
            query_state.late_panes.add(
                summary.pane, summary.matching, needed_from=query_state.panes.dropped_before
            )
        else:
            fold_in(query_state, summary, received)
    query_state.hold_to_the_cap()
    rows, ends = made.summaries.rows, [made.summaries.oldest_us, made.summaries.newest_us]
    if rows and not is_known:  # Registered while they were on the way.
        query_state.note_late(rows)
        first, last = query_state.grid.panes_of(np.array(ends)).tolist()
        query_state.late_panes.add_anywhere(
            first, last, rows, needed_from=query_state.panes.dropped_before
        )


def _received(
    query_state: QueryState, made: ValidatedSummaries, place: int, reader: PaneReader
) -> ReceivedPane | None:
    """The pane as it was checked, or read again: after a stop, and where the plan has changed."""
    plan, received = made.received.get(place, (None, None))
    if plan is query_state.sizes.opened_plan:
        return received
    try:
        return reader.read(made.summaries.panes[place])
    except BadBatch:
        return None


def fold_in(query_state: QueryState, summary: PaneSummary, received: ReceivedPane) -> None:
    """Merge a pane that was read of a summary into the query's own, and count its tuples.

    Afterwards, not pane by pane, the query is to be held to its cap.
    """
    query_state.note_timely(summary.tuples, summary.matching, summary.thinned)
    keys = query_state.keys
    more = received.among(keys)
    query_state.panes.fit_widths(more)
    groups = 1 if keys is None else keys.size
    held = query_state.panes.open_pane(summary.pane, groups)
    held.grow(groups)
    held.merge(more)
    if keys is not None and OTHERS in more.groups_here[:1]:
        keys.note_partial(1)  # Any group may have tuples among the others of elsewhere.


def _check_queries(summaries: Summaries, known: set[str]) -> None:
    tuples: dict[str, int] = dict.fromkeys(known, 0)
    seen = set()
    for pane in summaries.panes:
        if pane.query not in known:
            raise PlansChanged(
                f"no query {pane.query[:100]!r} stands any more; get the plans again"
            )
        if (pane.query, pane.pane) in seen:
            raise BadBatch(f"pane {pane.pane} of query {pane.query[:100]!r} is there twice")
        seen.add((pane.query, pane.pane))
        tuples[pane.query] += pane.tuples
    for query, count in tuples.items():
        if count == 0 and summaries.rows:
            raise PlansChanged(f"nothing is there for query {query!r}; get the plans again")
        if count != summaries.rows:
            raise BadBatch(
                f"the panes of query {query!r} have {count:,} tuples, all {summaries.rows:,}"
            )
