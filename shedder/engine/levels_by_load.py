"""Levels that load sets: in force at once, and in the log behind the batches that wait."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from shedder.archive.directory import FORMAT_LOAD
from shedder.archive.records import Kind, LevelFrom
from shedder.engine.stream import Stream
from shedder.engine.thinning import by_load
from shedder.errors import Draining, InternalError, ShedderError

if TYPE_CHECKING:
    from shedder.engine.core import Core

_log = structlog.get_logger("shedder.engine")


class LevelsByLoad:
    """What the controller wants, until the apply thread takes it.

    What sheds work does not wait for the work: the record of it stands in the log behind the
    batches that wait, and says from which of them on it was in force. Should the machine stop in
    the milliseconds before that record is durable, these are read at the former levels when the log
    is replayed; their panes are of another part of the same tuples then, and as honest.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._wanted: Mapping[str, Mapping[int, int]] | None = None

    def want(self, levels: Mapping[str, Mapping[int, int]]) -> None:
        """Have levels set before the next batch is applied. From any thread.

        Args:
          levels: by query and synopsis of its plan; forced ones stay as they are.
        """
        self._wanted = levels
        with suppress(Draining, InternalError):  # closed meanwhile
            self._core.actor.post(lambda: self.take(self._core.applied_sequence))

    def take(self, sequence: int) -> None:
        """On the apply thread, before the record of this sequence: what is wanted is in force."""
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        for stream in self._core.streams.values():
            changed = False
            for query, published in stream.queries.items():
                standing = published.standing
                reader = standing if standing.feed is None else standing.feed.feeder
                changes = wanted.get(reader.name, {})  # Who is fed goes with its feeder.
                levels = by_load(standing.levels, standing.forced, changes)
                if levels != standing.levels and self._logged(stream, query, levels, sequence):
                    standing.set_levels(levels)
                    changed = True
            if changed:
                stream.share_panes()

    def _logged(self, stream: Stream, query: str, levels: tuple[int, ...], sequence: int) -> bool:
        """Log levels that are in force from a record on; False where that cannot be."""
        core = self._core
        header = LevelFrom(stream.id, query, levels, core.clock_us(), sequence)
        if not header.fits:
            return False
        try:
            core.store.allow(FORMAT_LOAD)
            core.commit.submit(Kind.LEVEL_FROM, [header.to_bytes()], header, urgent=True)
        except ShedderError as error:
            _log.warning("levels_not_changed", query=query, error=str(error))
            return False
        return True
