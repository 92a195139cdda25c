"""Repair: thinned panes and panes with deleted rows, rebuilt from the archive when idle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import structlog

from shedder.archive.backfill.staged_runs import POSITION_MIN
from shedder.archive.metadata.deleted_positions import Deletion
from shedder.archive.store.scan import Live
from shedder.archive.tasks.progress import Progress
from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.engine_state import EngineState
from shedder.engine.panes.pane import Pane
from shedder.engine.panes.pane_codec import pane_from_bytes, pane_to_bytes
from shedder.engine.rebuild.archive_replay import History, catch_up
from shedder.engine.runtime.background_pace import Pace
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.window_state.query_state import QueryState
from shedder.errors import Cancelled, CorruptData, Draining, ShedderError
from shedder.streams.frame import Frame
from shedder.streams.positions import Positions

ROWS_AT_ONCE = 1 << 21  # Of the panes that are rebuilt, and replaced, together.

_log = structlog.get_logger("shedder.repair")


class _Busy(Exception):
    """Load has returned; what was not replaced yet is built again later."""


@dataclass(frozen=True, slots=True, eq=False)
class _Unit:
    """Panes of one query that are rebuilt together; of a window that does not slide, pane 0.

    behind: those of the panes that may count deleted rows. reflected: DELETEs of the stream before
    the unit is read. backfilled: rows of the stream that were backfilled before that.
    """

    stream: Stream
    standing_query: StandingQuery
    panes: tuple[int, ...]
    behind: frozenset[int]
    reflected: int
    backfilled: int

    @property
    def state(self) -> QueryState:
        return self.standing_query.state


class Repair:
    """One worker of low priority. Safe from any thread.

    A thinned pane is replaced only by one of the same tuples: none came too late for it, and both
    must have had as many rows to read. A pane that may count deleted rows is replaced by one of
    all rows that the archive has of it, late ones included. The archive must have had all of
    them: the stream has taken no summaries, has lost no bytes of the log, and retains the pane.
    Other panes stay as they are. So do those of queries of which the operator has forced a
    synopsis to read less, or whose old panes are collapsed.
    """

    def __init__(
        self,
        core: EngineState,
        checkpoints: Checkpoints,
        may_go: Callable[[], bool],
        share: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """Do nothing until it is woken.

        Args:
          core, checkpoints: of the engine.
          may_go: whether there is nothing else to do; asked often.
          share: of a core that it may take; asked as often.
        """
        self._pace = Pace(core.machine, share)
        self._core = core
        self._tasks = core.tasks
        self._checkpoints = checkpoints
        self._may_go = may_go
        self._lock = threading.Lock()
        self._waits = False
        self._hopeless: set[tuple[str, int, int, bool, bool]] = set()  # See `_key`.
        self._worker = core.machine.pool("shedder-repair")
        self.repaired_panes = 0

    def facts(self) -> dict[str, object]:
        """Return the rows of the control table about repair.

        given_up: queries with panes that repair gave up: the archive has other rows than they have.
        """
        given_up = sorted({name for name, *_ in self._hopeless.copy()})
        return {"repaired_panes": self.repaired_panes, "given_up": "; ".join(given_up)}

    def wake(self) -> None:
        """See whether there is something to repair, and do it; returns at once."""
        with self._lock:
            if self._waits or not self._any_due():
                return
            self._waits = True
        try:
            self._worker.submit(self._work).add_done_callback(self._done)
        except RuntimeError:  # closed
            with self._lock:
                self._waits = False

    def close(self) -> None:
        """Return when the worker has ended."""
        self._worker.shutdown(cancel_futures=True)

    def _any_due(self) -> bool:
        for stream in list(self._core.streams.values()):
            for standing_query in list(stream.queries.values()):
                thinned = (n for n, it in list(standing_query.state.panes.items()) if it.segments)
                for number in (*thinned, *self._behind(stream, standing_query)):
                    if _key(stream, standing_query, number) not in self._hopeless:
                        return True
        return False

    def _done(self, future: Future[None]) -> None:
        with self._lock:
            self._waits = False
        if not future.cancelled() and (error := future.exception()) is not None:
            _log.error("repair_failed", exc_info=error)

    def _work(self) -> None:
        try:
            units = self._core.executor.call(self._due).result()
            if units:
                progress = Progress("repair", "panes", sum(len(unit.panes) for unit in units))
                with self._tasks.running(progress):
                    self._each(units, progress)
        except (_Busy, Cancelled, Draining) as error:
            _log.info("repair_stopped", reason=str(error) or "load")
        except ShedderError as error:
            _log.error("repair_failed", error=str(error))

    def _each(self, units: list[_Unit], progress: Progress) -> None:
        try:
            for unit in units:
                self._mend(unit, progress)
                progress.advance(len(unit.panes))
        finally:
            self._core.executor.call(lambda: self._checkpoints.now(lambda: None)).result()

    # --- what there is to do; on the apply thread ----------------------------------------------

    def _due(self) -> list[_Unit]:
        self._forget()
        return [
            unit
            for stream in self._core.streams.values()
            for standing_query in stream.queries.values()
            if not standing_query.failed
            for unit in self._units(stream, standing_query)
        ]

    def _forget(self) -> None:
        """Panes that are no more, and queries, are not hopeless any longer."""
        panes = {
            (standing_query.state.name, standing_query.from_position): standing_query.state.panes
            for stream in self._core.streams.values()
            for standing_query in stream.queries.values()
        }
        self._hopeless = {key for key in self._hopeless if key[2] in panes.get(key[:2], ())}

    def _units(self, stream: Stream, standing_query: StandingQuery) -> Iterator[_Unit]:
        query_state = standing_query.state
        if any(query_state.levels) or query_state.grid.coarsening.grains != (1,):
            return  # Still thinned, or forced to be; or there are cells of several panes.
        deletions = stream.deletions()
        standing_query.deleted.look(deletions, query_state, stream.position)
        behind = self._behind(stream, standing_query)
        backfilled = self._core.store.backfills.rows(stream.id)
        open_panes = set(query_state.panes.open_numbers()) if query_state.grid.slides else set()
        untaken = query_state.first_untaken
        chosen: list[int] = []

        def unit() -> _Unit:
            some = behind.intersection(chosen)
            return _Unit(stream, standing_query, tuple(chosen), some, len(deletions), backfilled)

        rows = 0
        for number, pane in sorted(query_state.panes.items()):
            if number in open_panes or not (pane.segments or number in behind):
                continue
            key = _key(stream, standing_query, number)
            if number in standing_query.deleted.behind:
                if number not in behind:
                    if untaken is None or number < untaken:
                        self._hopeless.add(key)
                    continue
            elif (
                number in query_state.late_panes.by_pane
            ):  # The archive has rows that the pane lacks.
                self._hopeless.add(key)
            if key in self._hopeless:
                continue
            chosen.append(number)
            rows += rows_there(pane)
            if rows >= ROWS_AT_ONCE:
                yield unit()
                chosen, rows = [], 0
        if chosen:
            yield unit()

    def _behind(self, stream: Stream, standing_query: StandingQuery) -> frozenset[int]:
        """Return panes that may count deleted rows and can be rebuilt now. From any thread."""
        found, query_state = list(standing_query.deleted.behind), standing_query.state
        if not found or any(query_state.levels) or not self._has_all(stream):
            return frozenset()
        panes, untaken = set(query_state.panes.keys()), query_state.first_untaken  # Copied at once.
        if query_state.grid.slides:
            panes.difference_update(query_state.panes.open_numbers())
        return frozenset(
            number
            for number in panes.intersection(found)
            if (untaken is None or number < untaken or not _late_for(query_state, number))
            and self._retains(stream, query_state, number)
        )

    def _has_all(self, stream: Stream) -> bool:
        """Return whether the archive has all tuples of a stream, deleted ones included."""
        lost = stream.lost or self._core.store.holes(stream.id)
        return not (stream.takes_summaries or lost)

    def _retains(self, stream: Stream, query_state: QueryState, number: int) -> bool:
        from_us = self._core.store.retention.retained_from_us(stream.id)
        width_us = query_state.grid.width_us
        start_us = query_state.grid.span.start_us if width_us is None else number * width_us
        return from_us is None or (start_us is not None and start_us >= from_us)

    # --- one unit ------------------------------------------------------------------------------

    def _mend(self, unit: _Unit, progress: Progress) -> None:
        query_state = unit.state
        again = QueryState(
            query_state.name,
            query_state.query,
            query_state.plan,
            part_bytes_max=query_state.sizes.part_bytes_max,
        )
        past = self._past(unit, again, progress)
        try:
            if query_state.grid.slides and not unit.behind:
                past.read_on()
            else:
                catch_up([past], lambda: unit.stream.position)
        except CorruptData as error:
            _log.warning("repair_without_archive", query=query_state.name, problem=str(error))
            self._give_up(unit)
            return
        self._core.executor.call(lambda: self._replace(unit, again, past)).result()

    def _past(self, unit: _Unit, again: QueryState, progress: Progress) -> History:
        """The tuples of the panes, told to a query that has read nothing yet."""
        store, stream, grid = self._core.store, unit.stream, again.grid
        self._pace.begin()
        start_us, end_us = grid.span.start_us, grid.span.end_us
        if grid.width_us is not None:
            start_us = unit.panes[0] * grid.width_us
            end_us = (unit.panes[-1] + 1) * grid.width_us
        columns = sorted({stream.schema.time_column, *again.query.columns})

        def take(first: int, batch: object, live: Live) -> bool:
            frame = Frame(batch, stream.schema.time_column, positions=Positions(seed, first))  # type: ignore[arg-type]
            frame = frame if live is None else frame.rows_where(live)
            begin = 0
            while begin < len(frame):
                if not self._may_go():
                    raise _Busy
                progress.advance()
                end = min(begin + self._pace.rows, len(frame))
                some = _within(frame.between(begin, end), again, unit)
                again.apply(some, watermark_us=None, limit_us=None)
                self._pace.rest(progress.advance)
                begin = end
            return True

        seed = stream.schema.seed
        return History(
            lambda position: store.scan_live(
                stream.id, start_us, end_us, columns, from_position=position
            ),
            take,
            POSITION_MIN,
        )

    def _replace(self, unit: _Unit, again: QueryState, past: History) -> None:
        """On the apply thread: put the new panes in the places of the thin ones, all at once."""
        query_state, grid = unit.state, again.grid
        known = unit.stream.queries.get(query_state.name)
        if (
            known is not unit.standing_query
            or query_state.plan != again.plan
            or any(query_state.levels)
        ):
            return  # Dropped, resized or thinned meanwhile.
        deletions, deleted = unit.stream.deletions(), unit.standing_query.deleted
        deleted.look(deletions, query_state, unit.stream.position)
        behind = unit.behind & self._behind(unit.stream, unit.standing_query)
        if unit.backfilled != self._core.store.backfills.rows(unit.stream.id):
            behind = frozenset()  # New tuples are not read, or only in part.
        if not grid.slides or behind:
            past.read_on()
        for number in unit.panes:
            thin, whole = query_state.panes.get(number), again.panes.get(number)
            if thin is None:  # No window needs it any more.
                continue
            if number in deleted.behind:
                if number not in behind:  # Rows were deleted or came during the reading.
                    continue
                if whole is None:  # All of its rows are deleted.
                    whole = again.panes.open_pane(number, again.panes.groups)
                if not _may_replace(unit, number, thin, whole, deletions):
                    self._hopeless.add(_key(unit.stream, unit.standing_query, number))
                    continue
            elif whole is None or rows_there(thin) != rows_there(whole):
                self._hopeless.add(_key(unit.stream, unit.standing_query, number))
                continue
            if grid.slides:
                whole.settle(again.plan)
                query_state.hold_texts([whole], again.plan)
            plan = query_state.plan if grid.slides else query_state.sizes.opened_plan
            data = pane_to_bytes(whole, again.keys)
            query_state.panes.replace(number, pane_from_bytes(data, plan, query_state.keys))
            if number in behind:
                query_state.late_panes.forget(number)
                deleted.rebuild(number, unit.reflected, deletions, grid)
            self.repaired_panes += 1
        query_state.hold_to_the_cap()
        unit.standing_query.guard(lambda: unit.standing_query.refresh(unit.stream.facts()))

    def _give_up(self, unit: _Unit) -> None:
        self._hopeless |= {_key(unit.stream, unit.standing_query, number) for number in unit.panes}


def _key(
    stream: Stream, standing_query: StandingQuery, number: int
) -> tuple[str, int, int, bool, bool]:
    """Return the key of a pane; a query that is registered again has other keys.

    The key changes when all tuples have followed their summaries, because the archive may then
    have the rows that it lacked. The key also changes when rows of a thinned pane are deleted.
    """
    known = standing_query.state.name, standing_query.from_position, number
    return *known, stream.expected_rows.rows > 0, number in standing_query.deleted.behind


def rows_there(pane: Pane) -> int:
    """Return the number of rows that came for a pane, read or not."""
    thinned = (it.population for (part, _), it in pane.segments.items() if part == 0)
    return int(pane.parts[0].count().value.sum()) + sum(thinned)


def _may_replace(
    unit: _Unit, number: int, old: Pane, new: Pane, deletions: Sequence[Deletion]
) -> bool:
    """Return whether a rebuilt pane has a number of rows that deletions and late rows explain."""
    before, late = rows_there(old), _late_for(unit.state, number)
    since = unit.standing_query.deleted.behind.get(number, unit.reflected)
    deleted = sum(each.rows for each in deletions[since:])
    return before - deleted <= rows_there(new) <= before + late


def _late_for(query_state: QueryState, number: int) -> int:
    """Return the number of tuples that may have come too late for a pane."""
    return query_state.late_panes.count_in(range(number, number + 1))


def _within(frame: Frame, again: QueryState, unit: _Unit) -> Frame:
    """The rows of the unit's panes: a run may hold others."""
    width_us = again.grid.width_us
    if width_us is None:
        return frame
    frame = frame.in_time_order()
    times = frame.times_us
    first = int(times.searchsorted(unit.panes[0] * width_us))
    last = int(times.searchsorted((unit.panes[-1] + 1) * width_us))
    return frame.between(first, last)
