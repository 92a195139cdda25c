"""Checkpoint scheduler: writes at once, or little by little while tuples are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from math import inf

import structlog

from shedder.archive.catalog.catalog import Catalog
from shedder.archive.files.data_directory import FORMAT_JOINED
from shedder.engine.checkpoints.changed_tables import ChangedTables
from shedder.engine.checkpoints.checkpoint_contents import Checkpoint
from shedder.engine.checkpoints.query_commit import QueryCommit
from shedder.engine.engine_state import EngineState
from shedder.engine.runtime.release_memory import give_back
from shedder.errors import Draining, InternalError, ShedderError

LOG_SHARE = 4  # Between two checkpoints the log grows by more than a checkpoint, times this.
ENCODE_NS = 5_000_000  # Of CPU that closed panes may take after each group, and one pane more.
HELD_BYTES_MAX = 64 << 20  # Of closed panes that are bytes until all are; more are not held,
HELD_SHARE = 32  # ... nor more than this part of the memory budget (of its default: as much).
WRITTEN_BYTES_PER_S = 32 << 20  # A checkpoint is assumed to take at least the time for samples.

_NEVER = -1  # No sequence: what is there has to be stored.
_log = structlog.get_logger("shedder.engine")


class Checkpoints:
    """Checkpoints of one core, on its apply thread.

    A due checkpoint is begun: state that may change is encoded at once, and closed panes a few at
    a time after each group. Then another thread writes all of it. Until then the log keeps what
    the previous checkpoint needs. A new query is written alone, beside the newest checkpoint, and
    not by this thread; so is a drop. A requested checkpoint is written before its caller goes on.
    Before any other change of the catalog's queries and panes, `settle` writes what was begun.
    """

    def __init__(self, core: EngineState) -> None:
        """Nothing is stored yet.

        providers: queries whose panes others take by what is stored: without them it is not whole.
        left: queries that were dropped since the newest checkpoint, by name, with their streams.
        """
        self.providers: set[str] = set()
        self._providers_of_newest: set[str] = set()
        self.left: dict[str, int] = {}
        self._core = core
        self._worker = core.machine.pool("shedder-checkpoint")
        self._at_s = core.machine.monotonic_s() + core.settings.checkpoint_seconds
        self._sequence = 0  # Of the newest one, or of that which has begun.
        self._size_bytes = 0
        self._log_bytes = 0  # Applied since the newest one began.
        self._held_bytes_max = min(HELD_BYTES_MAX, core.settings.memory_bytes // HELD_SHARE)
        self._began_s = self._core.machine.monotonic_s()  # When writing began,
        self._took_s = 0.0  # ... and how long it took.
        self._left_before: set[str] = set()  # The queries that the one which has begun lacks.
        self._begun: Checkpoint | QueryCommit | None = None
        self._writing: Future[None] | None = None

    def restore(self, *, providers: Iterable[str], left: Mapping[str, int]) -> None:
        """Go on from the newest checkpoint.

        Args:
          providers: queries whose panes others take by what is stored.
          left: queries that were dropped since, by name, with their streams.
        """
        self.providers.update(providers)
        self.left.update(left)

    def facts(self) -> dict[str, object]:
        """Return the rows of the control table about checkpoints. On the apply thread.

        size_bytes, took_s: of the newest one since the start. waiting_panes: closed panes that are
        not bytes yet; "": no checkpoint has begun.
        """
        return {
            "size_bytes": self._size_bytes,
            "took_s": f"{self._took_s:.3f}",
            "waiting_panes": "" if self._begun is None else self._begun.waiting_panes,
        }

    def now(self, also: Callable[[], None] | None = None) -> None:
        """Store closed panes, open panes, samples and producers, as of the applied sequence.

        Args:
          also: other changes of the catalog, in the same transaction.

        Raises:
          DiskFull, StorageFailed: nothing was stored, and the log keeps what is needed.
        """
        self.settle()
        if also is None and self._sequence == self._core.applied_sequence:
            return
        began_s = self._core.machine.monotonic_s()
        catalog, begun = self._core.store.catalog, None
        try:
            with catalog.transaction():
                if also is not None:
                    also()
                begun = self._of_now()
                begun.store(catalog)
        except BaseException:
            if begun is not None:
                begun.failed()
            raise
        self._took_s = self._core.machine.monotonic_s() - began_s
        self._sequence, self._size_bytes = begun.sequence, begun.stored()
        self._core.rows.note_stored(begun.rows)
        self.providers = self._providers_of_newest
        self.left.clear()

    def join(self, joining: QueryCommit) -> None:
        """Nothing else is written before this query is; then `end_joining`."""
        assert self._begun is None, "settle comes before"
        self._begun, self._writing = joining, joining.writing

    def leave(self, name: str, stream_id: int, forget: Callable[[], None]) -> None:
        """Drop a query durably; on the thread that wants it.

        Args:
          name: of the query. stream_id: of its stream.
          forget: takes it out of memory, on the apply thread.

        Raises:
          DiskFull, StorageFailed: it stands.
        """
        self._core.store.allow(FORMAT_JOINED)
        self._core.store.catalog.leave_checkpoint(name)

        def left() -> None:
            self.left[name] = stream_id
            forget()

        self._core.executor.call(left).result()

    def make_way_for(self, name: str) -> None:
        """Forget that a query was dropped, so that another one may have its name."""
        if name not in self.left:
            return
        if name in self.providers:
            self._sequence = _NEVER
            self.now()
        else:
            self._core.store.catalog.drop_query(name)
            del self.left[name]

    def forget_stream(self, stream_id: int) -> None:
        """Forget the queries that were dropped from a stream, which is going to be dropped."""
        self.settle()
        for name in [name for name, stream in self.left.items() if stream == stream_id]:
            self._core.store.catalog.drop_query(name)
            del self.left[name]

    def end_begun(self) -> None:
        """Write what has begun, so that `settle` takes no time; on a thread that wants that.

        Its calls run before the records that wait to be applied. Behind a backlog each would take
        as long as the backlog, and the next checkpoint would have begun by then.

        Raises:
          Draining.
        """
        executor = self._core.executor
        while (begun := self._begun) is not None:
            end_by = partial(self._end_by_caller, begun)
            (writing, is_mine) = executor.call(end_by, urgent=True).result()
            if writing is None:
                continue
            try:
                if is_mine:
                    _store(begun, self._core.store.catalog, writing)
                wait([writing])
            finally:
                executor.call(partial(self._finish, writing), urgent=True).result()

    def _end_by_caller(self, begun: Checkpoint | QueryCommit) -> tuple[Future[None] | None, bool]:
        """Return the pending write, and whether the caller does it; None: not all is encoded."""
        if self._begun is not begun:
            return None, False
        if self._writing is not None and not self._writing.cancel():
            return self._writing, False
        end_ns = self._core.machine.cpu_ns() + ENCODE_NS
        if not begun.encode_while(lambda: self._core.machine.cpu_ns() < end_ns):
            return None, False
        self._began_s, self._writing = self._core.machine.monotonic_s(), Future()
        self._writing.set_running_or_notify_cancel()
        return self._writing, True

    def end_joining(self, joining: QueryCommit) -> None:
        """Write a new query, on the thread that wants it, unless this one had to, meanwhile.

        Raises:
          DiskFull, StorageFailed: it does not stand.
        """
        core = self._core

        def settle() -> None:
            if self._begun is joining:
                self.settle()

        try:
            while not core.executor.call(lambda: joining.encode_some(core), urgent=True).result():
                pass
            if joining.writing.set_running_or_notify_cancel():
                _store(joining, core.store.catalog, joining.writing)
        finally:
            core.executor.call(settle, urgent=True).result()
        if joining.error is not None:
            raise joining.error

    def audited(self) -> None:
        """Certifications have changed, without any record of the log: a checkpoint stores them."""
        self._sequence = _NEVER

    def tidy(self, ends_s: float = inf) -> None:
        """Checkpoint, remove data past retention, trim the log. Failures are tried again later.

        ends_s: a checkpoint that would take longer, of the machine's monotonic clock, is left out:
          the next start replays more of the log.
        """
        held = sum(stream.sample.size_bytes for stream in self._core.streams.values())
        needs_s = max(self._took_s, held / WRITTEN_BYTES_PER_S)
        if self._core.machine.monotonic_s() + needs_s > ends_s:
            _log.info("checkpoint_left_out", needs_s=round(needs_s, 3))
            return
        try:
            self.now()
        except ShedderError as error:
            _log.error("checkpoint_failed", error=str(error))
        else:
            self._retire()

    def go_on(self, now_s: float, log_bytes: int = 0) -> float:
        """Begin one that is due, or go on with it, for a moment.

        Args:
          now_s: of the machine. log_bytes: of the log, applied since the last time.

        Returns:
          When there is something to do next, if nothing is applied before.
        """
        self._log_bytes += log_bytes
        if self._begun is None:
            log_bytes_max = max(
                self._core.settings.checkpoint_log_bytes, LOG_SHARE * self._size_bytes
            )
            if now_s < self._at_s and self._log_bytes < log_bytes_max:
                return self._at_s
            if self._core.rows.has_long_step and self._log_bytes < 2 * log_bytes_max:
                return inf  # The end of the step wakes this thread.
            self._begin(now_s)
        elif self._writing is None:
            machine = self._core.machine
            end_ns = machine.cpu_ns() + ENCODE_NS
            if self._begun.encode_while(lambda: machine.cpu_ns() < end_ns):
                self._write(self._begun)
        if self._begun is None:
            return self._at_s
        return now_s if self._writing is None else inf  # The writing thread wakes this one.

    def settle(self) -> None:
        """Write what has begun, now, if anything has."""
        begun, writing = self._begun, self._writing
        if begun is None:
            return
        if writing is None or writing.cancel():
            written: Future[None] = Future()
            self._began_s, self._writing = self._core.machine.monotonic_s(), written
            _store(begun, self._core.store.catalog, written)
        assert self._writing is not None
        self._finish(self._writing)

    def close(self) -> None:
        """Wait for running writes. The apply thread has ended; another thread calls this."""
        self._worker.shutdown()

    def _of_now(self) -> Checkpoint:
        core = self._core
        queries = [each for stream in core.streams.values() for each in stream.queries.values()]
        self._providers_of_newest = {each.state.name for each in queries if each.state.consumers}
        self.providers |= self._providers_of_newest  # It may fail.
        return Checkpoint.of(
            core.streams,
            {name: intake.producers.state() for name, intake in core.intakes.items()},
            core.applied_sequence,
            ChangedTables.of(core.store.tables, core.tables, core.table_histories.places),
            synopsis_bytes=core.synopsis_bytes_set,
            row_query_bytes=core.row_query_bytes_set,
            tenants=core.tenants,
            rows=core.rows.states(self._retained_from_us()),
        )

    def _retained_from_us(self) -> dict[int, int]:
        """Return the event time before which retention may remove tuples, by stream with RETAIN."""
        streams = [it for it in self._core.streams.values() if it.schema.retain_us is not None]
        marks = ((it.id, it.watermark_us, it.schema.retain_us) for it in streams)
        return {id_: us - retain for id_, us, retain in marks if us is not None and retain}

    def _begin(self, now_s: float) -> None:
        self._at_s = now_s + self._core.settings.checkpoint_seconds
        self._log_bytes = 0
        if self._sequence == self._core.applied_sequence:
            self._retire()
            return
        begun = self._begun = self._of_now()
        self._sequence = begun.sequence
        self._left_before = set(self.left)
        if begun.waiting_bytes > self._held_bytes_max:
            self.settle()

    def _write(self, begun: Checkpoint | QueryCommit) -> None:
        self._began_s = self._core.machine.monotonic_s()
        self._writing = self._worker.submit(self._store_and_release, begun)
        self._writing.add_done_callback(self._written)

    def _store_and_release(self, begun: Checkpoint | QueryCommit) -> None:
        """Write it, on the worker's thread; give back the memory that this took."""
        begun.store(self._core.store.catalog)
        if self._size_bytes > self._held_bytes_max:
            give_back()

    def _written(self, writing: Future[None]) -> None:
        with suppress(Draining, InternalError):  # Closed or halted meanwhile.
            self._core.executor.post(lambda: self._finish(writing))

    def _finish(self, writing: Future[None]) -> None:
        """It is written, or could not be; waits for it."""
        if self._begun is None or self._writing is not writing:  # It was settled.
            return
        begun, self._begun, self._writing = self._begun, None, None
        if isinstance(begun, QueryCommit):
            begun.end()
            self._sequence = _NEVER  # The next one is of all queries.
            return
        try:
            writing.result()
        except ShedderError as error:
            begun.failed()
            self._sequence = _NEVER
            _log.error("checkpoint_failed", error=str(error))
        else:
            self._size_bytes = begun.stored()
            self._core.rows.note_stored(begun.rows)
            self._took_s = self._core.machine.monotonic_s() - self._began_s
            self.providers = self._providers_of_newest
            for name in self._left_before:
                self.left.pop(name, None)
            self._retire()

    def _retire(self) -> None:
        core = self._core
        try:
            for stream_id, from_us in self._retained_from_us().items():
                held_us = core.rows.needs_all_from_us(stream_id, from_us)
                core.store.retention.apply(stream_id, held_us)
            core.store.trim_log()
        except ShedderError as error:
            _log.error("log_not_trimmed", error=str(error))


def _store(begun: Checkpoint | QueryCommit, catalog: Catalog, written: Future[None]) -> None:
    """Write it, and tell."""
    try:
        begun.store(catalog)
    except BaseException as error:
        written.set_exception(error)
        if not isinstance(error, ShedderError):
            raise
    else:
        written.set_result(None)
