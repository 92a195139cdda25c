"""Idle streams: a stream that holds up row queries, and has sent nothing for a while."""

from __future__ import annotations

from math import inf

import structlog

from shedder.archive.files.data_directory import FORMAT_IDLE
from shedder.engine.engine_state import EngineState
from shedder.engine.ingest.stream_intake import Intake
from shedder.errors import ShedderError

_LOOKS = 4  # In one time-out: a stream counts as idle at most a quarter of it too late.

_log = structlog.get_logger("shedder.engine")


class IdleStreams:
    """Logs that streams count as idle. On the apply thread.

    The record in the log decides, and not the clock: a replay makes the same rows.
    """

    def __init__(self, core: EngineState) -> None:
        self._core = core
        self._idle_s = core.settings.idle_seconds
        self._at_s = 0.0
        # By stream that holds up others: its records, and since when they are so many.
        self._held: dict[int, tuple[int, float]] = {}

    def go_on(self, now_s: float) -> float:
        """Look at streams, if it is time; return when to look again, if nothing is applied before.

        now_s: of the machine's monotonic clock.
        """
        if not self._idle_s:
            return inf
        if now_s >= self._at_s:
            self._at_s = now_s + self._idle_s / _LOOKS
            self._look(now_s)
        return self._at_s if self._held else inf

    def _look(self, now_s: float) -> None:
        before, self._held = self._held, {}
        for stream_id in self._core.rows.holding_up():
            name = self._core.stream_name(stream_id)
            if name is None:
                continue
            intake = self._core.intakes[name]
            records = intake.submitted  # Some may be on their way to the disk, or wait.
            known, since_s = before.get(stream_id, (None, now_s))
            if known != records:
                since_s = now_s
            elif now_s - since_s >= self._idle_s:
                since_s = now_s
                self._count_idle(intake, records)
            self._held[stream_id] = (records, since_s)

    def _count_idle(self, intake: Intake, records: int) -> None:
        name = intake.schema.name
        try:
            self._core.allow(FORMAT_IDLE)
            is_idle = intake.count_idle(records)
        except ShedderError as error:  # Tried again after another time-out.
            _log.error("idle_stream_not_logged", stream=name, error=str(error))
        else:
            if is_idle:
                _log.info("stream_idle", stream=name, seconds=self._idle_s)
