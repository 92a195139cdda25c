"""State of one standing query: frames in, panes kept, evidence for a window out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Column, walk
from shedder.cql.statements.bound_query import BoundQuery
from shedder.engine.panes.late_tuples import LatePanes
from shedder.engine.panes.pane import Pane
from shedder.engine.panes.pane_slices import first_at, slices, slices_of
from shedder.engine.panes.sparse_groups import SPAN_MIN
from shedder.engine.panes.synopsis_input import PartInput
from shedder.engine.runtime.cpu_timer import CpuTimer
from shedder.engine.synopsis_plans.synopsis_plan import BY_HASH, SynopsisPlan
from shedder.engine.synopsis_plans.thinning_levels import levels_read
from shedder.engine.window_state.group_memory_cap import BucketWidths
from shedder.engine.window_state.live_panes import LivePanes
from shedder.engine.window_state.memory_accounting import PaneMemory
from shedder.engine.window_state.pane_feed import PaneFeed
from shedder.engine.window_state.pane_resizer import PaneResizer
from shedder.engine.window_state.pane_sizes import PaneSizes
from shedder.engine.window_state.pane_store_writer import PaneStoreWriter, PanesToStore
from shedder.engine.window_state.selectivity import Selectivity
from shedder.engine.window_state.take_all_stratum import STRETCH_ROWS, TAKES_ALL, TakeAllStratum
from shedder.engine.window_state.window_predicate import with_time_range
from shedder.errors import InternalError
from shedder.streams.frame import Frame, Thinned
from shedder.streams.group_keys import GroupKeys
from shedder.streams.windows import PaneGrid, Span


class QueryState:
    """The panes of one standing query, and the counts of what went where.

    Used by one thread. Ledger, of each synopsis: tuples applied since registration = what it read
    + what was thinned for it + late.

    levels: level of each part of the plan; at level j it reads the share 2^-j of the tuples. Rows
      are counted at the smallest level.
    forced: parts whose level the operator has set; load does not change them.
    cpu_timer: CPU of each part.
    thinned: tuples that each part skipped.
    timely: tuples that reached a pane, thinned or not. Tuples that failed the WHERE count, and so
      do tuples of panes that no answer needs once their batch has been read.
    late: tuples whose pane had been closed, or whose event time was too far in the future.
    reads: equal for queries that keep the same synopses of the same tuples, whatever their windows
      and sizes.
    first_window_end_us: end of a window that the watermark passes after the next frame; no earlier
      window is asked for. None: any may be. A batch may span any number of panes. Panes before
      this window are not made, and old panes in it are made as cells.
    sizes: present sizes of the synopses. keys: groups; None without GROUP BY.
    panes: open and closed panes. memory: bytes of them. resizer: gives them other sizes.
    store_writer: closed panes that the pane store has.
    provider: query that reads tuples for this one. feed: its panes on their way. None: this query
      reads all of its tuples.
    consumers: queries for which this one reads.
    failed: part of the tuples could not be read.
    passing: selectivity of the WHERE over the tuples that the query read itself.
    take_all: ends beyond which thinned sums, averages and variances read rows in full.
    """

    def __init__(
        self,
        name: str,
        query: BoundQuery,
        plan: SynopsisPlan,
        *,
        part_bytes_max: int,
        own_span_min: int = SPAN_MIN,
        cpu_timer: CpuTimer | None = None,
        stretch_rows: int = STRETCH_ROWS,
    ) -> None:
        self.name = name
        self.query = query
        self.reads = _reads_hash(query, plan)
        self.grid = PaneGrid.of(query.window)
        self.sizes = PaneSizes(query, plan, part_bytes_max)
        self.keys = GroupKeys(query.groups, self.sizes.groups_max) if query.groups else None
        self.store_writer = PaneStoreWriter(name, self.keys, self.grid.width_us)
        self.panes = LivePanes(
            self.grid,
            self.keys,
            self.sizes,
            BucketWidths.of(query, plan),
            self.store_writer,
            own_span_min=own_span_min,
        )
        self.memory = PaneMemory(self.panes, self.sizes)
        self.resizer = PaneResizer(self.panes, self.sizes)
        self.levels = (0,) * len(plan.parts)
        self.forced: frozenset[int] = frozenset()
        self.cpu_timer = CpuTimer(len(plan.parts)) if cpu_timer is None else cpu_timer
        self.thinned = [0] * len(plan.parts)
        self.passing = Selectivity()
        self.take_all = TakeAllStratum(stretch_rows)
        self.timely = 0
        self.late = 0
        self.late_panes = LatePanes()
        self.first_window_end_us: int | None = None
        self.provider: QueryState | None = None
        self.feed: PaneFeed | None = None
        self.consumers: list[QueryState] = []
        self.failed = False
        self._where = with_time_range(query)
        self._first_open: int | None = None  # While a frame is read.
        self._gathered = _number_columns(query, plan)
        self._take_none = [False] * len(plan.parts)
        self._take_all = [not at or it.kind in TAKES_ALL for at, it in enumerate(plan.parts)]

    @property
    def plan(self) -> SynopsisPlan:
        """Synopses of closed panes, at their present sizes."""
        return self.sizes.plan

    @property
    def passing_share(self) -> float:
        """The share of tuples that pass its WHERE, as of late."""
        return (self if self.provider is None else self.provider).passing.share

    # --- tuples in -----------------------------------------------------------------------------

    def restore(
        self,
        *,
        timely: int,
        late: int,
        thinned: Sequence[int] | None,
        late_panes: LatePanes,
    ) -> None:
        """Go on from the counts of a checkpoint. thinned: None: it has none."""
        self.timely, self.late, self.late_panes = timely, late, late_panes
        self.thinned = self.thinned if thinned is None else list(thinned)

    def fail(self) -> None:
        """What was read is not whole."""
        self.failed = True

    def ask_from(self, end_us: int | None) -> None:
        """No window that ends before this one is asked for; None: any may be."""
        self.first_window_end_us = end_us

    def note_late(self, tuples: int) -> None:
        """Count tuples that came too late for their pane."""
        self.late += tuples

    def note_timely(self, tuples: int, matching: int, thinned: Sequence[int]) -> None:
        """Count tuples that reached a pane. matching: that passed WHERE. thinned: of each part."""
        self.timely += tuples
        self.passing.count(tuples, matching)
        for part, count in enumerate(thinned):
            self.thinned[part] += count

    def begin(self, cpu_timer: CpuTimer) -> None:
        """Begin the ledger and the measurement of CPU here: the query's past has been read."""
        self.timely = self.late = 0
        self.cpu_timer = cpu_timer

    def apply(
        self,
        frame: Frame,
        *,
        watermark_us: int | None,
        limit_us: int | None,
    ) -> None:
        """Read a frame into the panes.

        Args:
          frame: tuples of the query's stream.
          watermark_us: as it was before this frame; tuples of panes before it are late.
          limit_us: event times from here on are not believed; None: all are.
        """
        self._first_open = self.grid.first_open(watermark_us)
        self.cpu_timer.start()
        tuples = len(frame)
        frame = frame.in_time_order() if self.grid.slides else frame
        first, last = self._timely(frame, limit_us)
        self.late += tuples - (last - first)
        self.timely += last - first
        if last - first < tuples:
            self._count_late(frame.between(0, first))
            self._count_late(frame.between(last, tuples))
        from_us = self._needed_from_us()
        if from_us is not None:
            first = min(max(first, first_at(frame.times_us, from_us)), last)
        if self.feed is not None:
            last = self.feed.own_rows_end(frame.times_us, first, last, watermark_us)
        view = frame.between(first, last).where(self._where)
        if self._where is not None:
            self.passing.count(last - first, len(view))
        self.cpu_timer.lap(0, tuples)
        if len(view) and any(self.levels):
            self._read_thinned(view)
        elif len(view):
            self._read(view)
        self.cpu_timer.stop(tuples)

    def _timely(self, frame: Frame, limit_us: int | None) -> tuple[int, int]:
        """The rows, of a frame in time order, whose pane is open and whose time is believed."""
        if not self.grid.slides:
            return 0, len(frame)
        assert self.grid.width_us is not None
        times = frame.times_us
        first = 0
        if self._first_open is not None:
            first = first_at(times, self._first_open * self.grid.width_us)
        last = len(times)
        if limit_us is not None:
            last = first_at(times, limit_us + 1)
        return first, max(first, last)

    def _needed_from_us(self) -> int | None:
        """Return the event time before which no window needs the next frame; None: all do."""
        starts = []
        for each in (self, *self.consumers):
            if each.first_window_end_us is None or not each.grid.slides:
                return None
            starts.append(each.grid.window_start(each.first_window_end_us))
        return min(starts)

    def _count_late(self, frame: Frame) -> None:
        """Count late tuples that pass the WHERE, by pane; the caller counts all of them."""
        matching = frame.where(self._where)
        self.late_panes.count(
            self.grid.panes_of(matching.times_us), needed_from=self.panes.dropped_before
        )

    def pass_by(self, frame: Frame) -> None:
        """Read nothing of a frame: all of it counts as too late, and answers allow for it."""
        self.late += len(frame)
        self._count_late(frame)

    def _read(self, view: Frame) -> None:
        ids = None if self.keys is None else self.keys.assign(view)
        groups = self.panes.groups
        self.cpu_timer.lap(0, len(view))
        inputs = []
        for at, part in enumerate(self.plan.parts):
            inputs.append(PartInput(part, view, ids))
            self.cpu_timer.lap(at, 0)
        for pane, first, last in self._slices(view):
            held = self.panes.open_pane(pane, groups)
            held.grow(groups)
            self.cpu_timer.lap(0, 0)
            held.update(inputs, first, last, self.cpu_timer)
        self.hold_to_the_cap()

    def _read_thinned(self, view: Frame) -> None:
        """Each part reads what its level keeps; the basics are taken of everything.

        Moments and cross moments read the take-all stratum in full. So does the count of rows, as
        it names groups.
        """
        # The smallest level comes first, so that the rows that are counted name the first groups.
        levels = levels_read(self.plan, self.levels, grouped=self.keys is not None)
        for column in self._gathered:  # From arrays, which is faster than from Arrow columns.
            view.present(column)
        extreme = self.take_all.rows(view, self.plan, levels)
        keys = list(zip(levels, self._take_all if len(extreme) else self._take_none, strict=True))
        kept = {
            (level, takes_all): self._kept(view.thinned(level, extreme if takes_all else None))
            for level, takes_all in sorted(set(keys))
        }
        self.cpu_timer.lap(0, len(view))
        parts = []
        for at, (part, level, key) in enumerate(zip(self.plan.parts, levels, keys, strict=True)):
            thinned, ids = kept[key]
            if level and part.kind in BY_HASH and part.argument is not None:
                thinned, ids = self._kept(view.thinned_by(part.argument, level))
            given = PartInput(part, thinned.frame, ids, level=level)
            parts.append((part, level, thinned, given))
            self.cpu_timer.lap(at, 0)
        groups = self.panes.groups
        for pane, first, last in self._slices(view):
            held = self.panes.open_pane(pane, 0)
            fed = [it for it in self.consumers if it.feed is not None and it.feed.has(pane)]
            for at, (part, level, thinned, given) in enumerate(parts):
                rows = thinned.between(first, last)
                skipped = (last - first) - (rows[1] - rows[0])
                axes = self.take_all.axes_of(at)
                read = held.update_at(at, level, given, rows, groups, axes)
                if level:
                    taken = 0
                    if thinned.taken is not None:
                        rows = thinned.taken_between(first, last)
                        skipped -= rows[1] - rows[0]
                        taken = held.update_at(at, 0, given, rows, groups)
                    known = self.take_all.known(at, part, view, (first, last), taken)
                    diagonals = self.take_all.known_diagonals(at, part, view, (first, last))
                    held.segment(at, level).notice(known, read, diagonals)
                for each in (self, *fed):
                    each.thinned[at] += skipped
                self.cpu_timer.lap(at, last - first, level)
        self.hold_to_the_cap()

    def _kept(self, thinned: Thinned) -> tuple[Thinned, NDArray[np.int32] | None]:
        return thinned, None if self.keys is None else self.keys.assign(thinned.frame)

    def set_levels(self, levels: Sequence[int], forced: Iterable[int] | None = None) -> None:
        """From the next frame on; load leaves the forced parts alone (None: as before)."""
        if len(levels) == len(self.levels):  # Else the record is of another query of this name.
            self.levels = (min(levels), *levels[1:])
            if forced is not None:
                self.forced = frozenset(forced)

    def _slices(self, view: Frame) -> Iterable[tuple[int, int, int]]:
        """(pane, first row, last row) for each stretch of rows that are counted in one pane."""
        if self.first_window_end_us is None or self.grid.coarsening.longest == 1:
            return slices_of(view, self.grid)
        return slices(view, self._cells_of)

    def _cells_of(self, times_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """The pane or cell that each event time is counted in. shape [tuples] -> [tuples]."""
        assert self.first_window_end_us is not None
        return self.grid.cells_of(times_us, self.first_window_end_us, self._first_open)

    # --- panes out -----------------------------------------------------------------------------

    def close(self, watermark_us: int | None) -> None:
        """Mark the panes that this watermark has passed; they do not change any more."""
        if self.failed:
            raise InternalError(f"query {self.name!r} took panes of a query that failed")
        for each in [it for it in self.consumers if it.failed or it.has_more_room(self)]:
            each.stop_sharing()
        first_open = self.grid.first_open(watermark_us)
        if first_open is None or first_open == self.panes.closed_to:
            return
        if self.provider is not None:
            self._take(self.provider, first_open, watermark_us)
        ended = self.panes.end_before(first_open)
        self.hold_texts(ended.values(), self.plan)
        for number, pane in ended.items():
            self.panes.close(number, pane)
            self.resizer.shrink_closed(number)  # Many groups at once would be waited for.

    def _take(self, provider: QueryState, until: int, watermark_us: int | None) -> None:
        """Make the panes before this one of those that the provider closes."""
        if provider.failed:
            raise InternalError(f"query {provider.name!r}, whose panes it takes, has failed")
        provider.close(watermark_us)
        if self.feed is not None:  # Closing may end the sharing, and move all of the rest here.
            self.feed.take(until)
        self.hold_to_the_cap()

    def fold(self, end_us: int) -> None:
        """From now on no window that ends before is asked for: old panes become coarser.

        Args:
          end_us: the end of a window whose panes have been closed.
        """
        for number in self.panes.fold(end_us):  # The same cells, however many panes had shrunk.
            self.resizer.shrink_closed(number)

    def drop_before(self, pane: int) -> None:
        """Forget panes that no window needs any more, and groups that only they had."""
        untaken = self.first_untaken
        pane = pane if untaken is None else min(pane, untaken)
        self.panes.drop_before(pane)
        self.late_panes.drop_before(pane)

    # --- shared panes --------------------------------------------------------------------------

    def has_more_room(self, provider: QueryState) -> bool:
        """Return whether groups that find no room in a provider would find it here."""
        if self.keys is None or provider.keys is None:
            return False
        return provider.keys.frozen and not self.keys.frozen

    def take_from(self, provider: QueryState, since: tuple[int, int] | None = None) -> None:
        """Take the panes of a query that can provide them. since: as in `PaneFeed`."""
        self.provider, self.feed = provider, PaneFeed(provider.panes, self.panes, since)
        provider.consumers.append(self)

    def stop_sharing(self) -> None:
        """Read all tuples again; at the moments that `share_panes` names."""
        provider, feed = self.provider, self.feed
        assert provider is not None
        assert feed is not None
        self._leave(provider)
        self.take_all.restore(provider.take_all.to_json())  # Its panes go on as the provider's.
        if provider.failed:
            self.fail()
        if not self.failed:
            feed.take_all()

    def detach(self) -> None:
        """End all sharing: the query is going to be dropped."""
        for each in list(self.consumers):
            each.stop_sharing()
        if self.provider is not None:
            self._leave(self.provider)

    def _leave(self, provider: QueryState) -> None:
        provider.consumers.remove(self)
        self.provider = self.feed = None

    @property
    def first_untaken(self) -> int | None:
        """The first pane that some consumer has not taken yet; None: there is no consumer."""
        feeds = (each.feed for each in self.consumers)
        return min((feed.first_untaken for feed in feeds if feed is not None), default=None)

    # --- bytes ---------------------------------------------------------------------------------

    def hold_to_the_cap(self) -> None:
        """Make room once the panes of any aggregate weigh, or will weigh, more than they may."""
        self.memory.hold_to_the_cap([each.memory for each in self.consumers])

    def hold_texts(self, panes: Iterable[Pane], plan: SynopsisPlan) -> None:
        """Hold the texts of these panes, of a plan, to their shares of the cap on texts."""
        self.memory.hold_texts(panes, plan, [each.memory for each in self.consumers])

    @property
    def size_bytes(self) -> int:
        """Bytes of the panes, their merges and the groups. From any thread."""
        return self.memory.size_bytes + self.resizer.size_bytes + self.take_all.size_bytes

    def to_store(self) -> PanesToStore | None:
        """Return what a checkpoint of this moment does to the pane store; None: nothing."""
        panes = self.panes
        return self.store_writer.begin(panes, panes.closed.numbers, panes.dropped_before)

    # --- windows -------------------------------------------------------------------------------

    def late_in(self, span: Span) -> int:
        """Return how many tuples came too late for a window's panes."""
        return self.late_panes.count_in(self.panes_in(span))

    def late_span(self, span: Span) -> tuple[int, int] | None:
        """The event times, half open, that tuples too late for a window's panes lie in."""
        panes = self.late_panes.panes_in(self.panes_in(span))
        if panes is None or self.grid.width_us is None:  # A window that does not slide: anywhere.
            return None
        return panes[0] * self.grid.width_us, (panes[1] + 1) * self.grid.width_us

    def panes_in(self, span: Span) -> range:
        """Return the panes of a window; none before the first window has closed."""
        none_yet = self.grid.slides and span.end_us is None
        return range(0) if none_yet else self.grid.panes_in(span)


def _reads_hash(query: BoundQuery, plan: SynopsisPlan) -> int:
    """Of what a query keeps of which tuples: queries that read the same have the same."""
    parts = tuple((part.kind, part.variance, part.argument, part.second) for part in plan.parts)
    return hash((query.schema.name, query.where, query.groups, parts))


def _number_columns(query: BoundQuery, plan: SynopsisPlan) -> list[Column]:
    """The numeric columns that groups are made of or that are arguments, each once."""
    nodes = [node for group in query.groups for node in walk(group)]
    nodes += [part.argument for part in plan.parts if part.argument is not None]
    columns = [node for node in dict.fromkeys(nodes) if isinstance(node, Column)]
    return [column for column in columns if column.type is not None and column.type.is_number]
