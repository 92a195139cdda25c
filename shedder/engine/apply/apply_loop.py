"""The apply loop: durable records into panes and answers, and what is due between them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from math import inf

from shedder.engine.apply.apply_queue import DurableQueue
from shedder.engine.apply.idle_streams import IdleStreams
from shedder.engine.apply.load_levels import LoadLevels
from shedder.engine.apply.record_handler import RecordHandler
from shedder.engine.apply.window_answers import WindowAnswers
from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.engine_state import EngineState
from shedder.engine.maintenance.run_cutter import RunCutter


class ApplyLoop:
    """Applies what the log has made durable, on the apply thread.

    Other threads: callers (intake), disk (group commit), background (writing runs), indexes.
    """

    def __init__(
        self,
        core: EngineState,
        handler: RecordHandler,
        windows: WindowAnswers,
        load_levels: LoadLevels,
        cutter: RunCutter,
        checkpoints: Checkpoints,
        share_out: Callable[[], None],
    ) -> None:
        """share_out: divides the memory of synopses among queries, soon and on another thread."""
        self._core = core
        self._windows = windows
        self._cutter = cutter
        self._checkpoints = checkpoints
        self._share_out = share_out
        self._idle_streams = IdleStreams(core)
        self._queue = queue = DurableQueue(core, handler, load_levels, self._after_group)
        machine = core.machine
        self._commit = machine.group_commit(core.log_queue, core.store.log, queue.came, queue.lost)
        self._thread = machine.apply_thread(core.executor, self._idle)
        self._share_at = core.machine.monotonic_s() + core.settings.allocation_seconds

    def start(self) -> None:
        """Begin to write records and to apply them."""
        self._commit.start()
        self._thread.start()

    def close(self, within_s: float = inf) -> None:
        """Drain the log and the queue, and checkpoint.

        within_s: batches that are not applied by then are left in the log, and the next start
          applies them. A last checkpoint that would take longer is left out. What has begun ends:
          a batch, a transaction, a run.
        """
        core = self._core
        ends_s = core.machine.monotonic_s() + within_s
        self._queue.leave_after(ends_s)
        with ExitStack() as stack:  # The last callback is called first.
            stack.callback(self._cutter.close, cancel=within_s < inf)
            stack.callback(self._checkpoints.close)
            stack.callback(core.rows.close)
            stack.callback(self._thread.close)
            self._commit.close()
            if core.executor.is_alive():
                core.executor.call(partial(self._checkpoints.tidy, ends_s)).result()

    def _after_group(self, size_bytes: int) -> None:
        """So much of the log has been applied; do what is due between."""
        self._core.rows.send()
        self._cutter.cut_what_is_due()
        now = self._core.machine.monotonic_s()
        if now >= self._windows.refresh_at:
            self._windows.refresh(now)
        self._checkpoints.go_on(now, size_bytes)
        self._idle_streams.go_on(now)
        self._share_if_due(now)

    def _idle(self) -> float | None:
        """Caught up: refresh what is stale, checkpoint when it is time."""
        machine, windows = self._core.machine, self._windows
        self._core.rows.send()
        more = windows.go_on()
        now, sheds = machine.monotonic_s(), self._core.coalesces
        if not sheds or now >= windows.refresh_at:
            more |= windows.refresh(now, idle=True)
        self._cutter.cut_what_is_due()
        checkpoint_at = self._checkpoints.go_on(machine.monotonic_s())
        self._share_if_due(machine.monotonic_s())
        refresh_at = windows.refresh_at if sheds else checkpoint_at
        idle_at = self._idle_streams.go_on(machine.monotonic_s())
        next_at = 0.0 if more else min(checkpoint_at, refresh_at, self._share_at, idle_at)
        return max(0.0, next_at - machine.monotonic_s())

    def _share_if_due(self, now: float) -> None:
        core = self._core
        if now >= self._share_at:
            self._share_at = now + core.settings.allocation_seconds
            core.share_samples()
            if any(stream.queries for stream in core.streams.values()):
                self._share_out()
