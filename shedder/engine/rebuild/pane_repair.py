"""Repair: panes that were thinned are built again from the archive, when nothing else is to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import structlog

from shedder.archive.backfill.staged_runs import POSITION_MIN
from shedder.archive.store.scan import Live
from shedder.archive.tasks.progress import Progress
from shedder.engine.engine_state import Core
from shedder.engine.panes.pane import Pane
from shedder.engine.panes.pane_codec import pane_from_bytes, pane_to_bytes
from shedder.engine.rebuild.archive_replay import History, catch_up
from shedder.engine.runtime.background_pace import Pace
from shedder.engine.runtime.background_tasks import Tasks
from shedder.engine.standing_queries.standing_query import Published
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.window_state.query_state import Standing
from shedder.errors import Cancelled, CorruptData, Draining, ShedderError
from shedder.streams.frame import Frame
from shedder.streams.positions import Positions

ROWS_AT_ONCE = 1 << 21  # Of the panes that are rebuilt, and replaced, together.

_log = structlog.get_logger("shedder.repair")


class _Busy(Exception):
    """Load has returned; what was not replaced yet is built again later."""


@dataclass(frozen=True, slots=True, eq=False)
class _Unit:
    """Panes of one query that are rebuilt together; of a window that does not slide, pane 0."""

    stream: Stream
    published: Published
    panes: tuple[int, ...]

    @property
    def standing(self) -> Standing:
        return self.published.standing


class Repair:
    """One worker that lets everybody pass. Safe from any thread.

    A pane is replaced only by one of the same tuples: none came too late for it, and both must have
    had as many rows to read. So panes to which late tuples, summaries built elsewhere or rows that
    have been deleted since belong, or whose past is no longer in the archive, stay as they are.
    Queries of which the operator has forced a synopsis to read less do, too, and those whose old
    panes are collapsed.
    """

    def __init__(
        self,
        core: Core,
        tasks: Tasks,
        may_go: Callable[[], bool],
        share: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """Do nothing until it is woken.

        Args:
          core, tasks: of the engine. may_go: whether there is nothing else to do; asked often.
          share: of a core that it may take; asked as often.
        """
        self._pace = Pace(core.machine, share)
        self._core = core
        self._tasks = tasks
        self._may_go = may_go
        self._lock = threading.Lock()
        self._waits = False
        self._hopeless: set[tuple[str, int, int, bool]] = set()  # See `_key`.
        self._worker = core.machine.pool("shedder-repair")
        self.repaired_panes = 0

    @property
    def hopeless(self) -> frozenset[str]:
        """Queries with panes that repair gave up: the archive has other rows than the panes."""
        return frozenset(name for name, *_ in self._hopeless)

    def wake(self) -> None:
        """See whether there is something to repair, and do it; returns at once."""
        with self._lock:
            if self._waits or not self._any_thinned():
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

    def _any_thinned(self) -> bool:
        return any(
            pane.segments and _key(stream, published, number) not in self._hopeless
            for stream in list(self._core.streams.values())
            for published in list(stream.queries.values())
            for number, pane in list(published.standing.panes.items())
        )

    def _done(self, future: Future[None]) -> None:
        with self._lock:
            self._waits = False
        if not future.cancelled() and (error := future.exception()) is not None:
            _log.error("repair_failed", exc_info=error)

    def _work(self) -> None:
        try:
            units = self._core.actor.call(self._due).result()
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
            self._core.actor.call(lambda: self._core.checkpoints.now(lambda: None)).result()

    # --- what there is to do; on the apply thread ----------------------------------------------

    def _due(self) -> list[_Unit]:
        self._forget()
        return [
            unit
            for stream in self._core.streams.values()
            for published in stream.queries.values()
            if not published.failed
            for unit in self._units(stream, published)
        ]

    def _forget(self) -> None:
        """Panes that are no more, and queries, are not hopeless any longer."""
        panes = {
            (published.standing.name, published.from_position): published.standing.panes
            for stream in self._core.streams.values()
            for published in stream.queries.values()
        }
        self._hopeless = {key for key in self._hopeless if key[2] in panes.get(key[:2], ())}

    def _units(self, stream: Stream, published: Published) -> Iterator[_Unit]:
        standing = published.standing
        if any(standing.levels) or standing.grid.coarsening.grains != (1,):
            return  # Still thinned, or forced to be; or there are cells of several panes.
        open_panes = set(standing.open_panes()) if standing.grid.slides else set()
        chosen: list[int] = []
        rows = 0
        for number, pane in sorted(standing.panes.items()):
            if not pane.segments or number in open_panes:
                continue
            key = _key(stream, published, number)
            if number in standing.late_panes.by_pane:  # The archive has rows that it has not.
                self._hopeless.add(key)
            if key in self._hopeless:
                continue
            chosen.append(number)
            rows += rows_there(pane)
            if rows >= ROWS_AT_ONCE:
                yield _Unit(stream, published, tuple(chosen))
                chosen, rows = [], 0
        if chosen:
            yield _Unit(stream, published, tuple(chosen))

    # --- one unit ------------------------------------------------------------------------------

    def _mend(self, unit: _Unit, progress: Progress) -> None:
        standing = unit.standing
        again = Standing(
            standing.name,
            standing.query,
            standing.plan,
            part_bytes_max=standing.part_bytes_max,
        )
        past = self._past(unit, again, progress)
        try:
            if standing.grid.slides:
                past.read_on()
            else:
                catch_up([past], lambda: unit.stream.position)
        except CorruptData as error:
            _log.warning("repair_without_archive", query=standing.name, problem=str(error))
            self._give_up(unit)
            return
        self._core.actor.call(lambda: self._replace(unit, again, past)).result()

    def _past(self, unit: _Unit, again: Standing, progress: Progress) -> History:
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

    def _replace(self, unit: _Unit, again: Standing, past: History) -> None:
        """On the apply thread: put the new panes in the places of the thin ones, all at once."""
        standing, grid = unit.standing, again.grid
        known = unit.stream.queries.get(standing.name)
        if known is not unit.published or standing.plan != again.plan or any(standing.levels):
            return  # Dropped, resized or thinned meanwhile.
        if not grid.slides:
            past.read_on()
        for number in unit.panes:
            thin, whole = standing.panes.get(number), again.panes.get(number)
            if thin is None:  # No window needs it any more.
                continue
            if whole is None or rows_there(thin) != rows_there(whole):
                self._hopeless.add(_key(unit.stream, unit.published, number))
                continue
            if grid.slides:
                whole.settle(again.plan)
            plan = standing.plan if grid.slides else standing.opened_plan
            data = pane_to_bytes(whole, again.keys)
            standing.replace(number, pane_from_bytes(data, plan, standing.keys))
            self.repaired_panes += 1
        standing.hold_to_the_cap()
        unit.published.guard(lambda: unit.published.refresh(unit.stream))

    def _give_up(self, unit: _Unit) -> None:
        self._hopeless |= {_key(unit.stream, unit.published, number) for number in unit.panes}


def _key(stream: Stream, published: Published, number: int) -> tuple[str, int, int, bool]:
    """A pane of a query, which is another one when it was registered again.

    When all tuples have followed their summaries, the archive may have what it lacked.
    """
    return published.standing.name, published.from_position, number, stream.owed.rows > 0


def rows_there(pane: Pane) -> int:
    """How many rows there were for a pane, read or not."""
    thinned = (it.population for (part, _), it in pane.segments.items() if part == 0)
    return int(pane.parts[0].count().value.sum()) + sum(thinned)


def _within(frame: Frame, again: Standing, unit: _Unit) -> Frame:
    """The rows of the unit's panes: a run may hold others."""
    width_us = again.grid.width_us
    if width_us is None:
        return frame
    frame = frame.in_time_order()
    times = frame.times_us
    first = int(times.searchsorted(unit.panes[0] * width_us))
    last = int(times.searchsorted((unit.panes[-1] + 1) * width_us))
    return frame.between(first, last)
