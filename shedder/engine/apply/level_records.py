"""Levels of thinning that an operator sets: logged, in force behind the log before them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from shedder.archive.archive_store import Store
from shedder.archive.files.data_directory import FORMAT_LEVELS, FORMAT_LOAD
from shedder.archive.log.group_commit import GroupCommit
from shedder.archive.log.records import Kind, Level, LevelFrom
from shedder.engine.runtime.serial_executor import Actor
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import BadSetting


class LevelsInForce(ABC):
    """The part of the core that thins."""

    store: Store
    commit: GroupCommit
    actor: Actor
    streams: dict[str, Stream]
    clock_us: Callable[[], int]

    @abstractmethod
    def stream_name(self, stream_id: int) -> str | None:
        """None for a stream that was dropped while its records were on the way."""

    def apply_level(self, header: Level | LevelFrom) -> None:
        """From the next batch on, a query's synopses read at these levels."""
        name = self.stream_name(header.stream)
        published = None if name is None else self.streams[name].queries.get(header.query)
        if published is not None and not published.failed:  # Else it was dropped meanwhile.
            forced = header.forced if isinstance(header, Level) else None
            published.standing.set_levels(header.levels, forced)
            self.streams[published.standing.query.schema.name].share_panes()

    def change_levels(
        self, stream: Stream, query: str, levels: tuple[int, ...], forced: Iterable[int] = ()
    ) -> None:
        """Log the levels of a query's synopses; returns when they are durable and in force."""
        self.submit_levels(stream, query, levels, forced).result()
        self.actor.call(lambda: None).result()

    def submit_levels(
        self, stream: Stream, query: str, levels: tuple[int, ...], forced: Iterable[int] = ()
    ) -> Future[int]:
        """Log the levels of a query's synopses; in force behind what is in the log before them.

        forced: the synopses whose level load does not change from then on.
        """
        header = Level(stream.id, query, levels, self.clock_us(), frozenset(forced))
        if not header.fits:
            raise BadSetting(f"the name of query {query[:40]!r}... is too long for a log record")
        self.store.allow(FORMAT_LOAD if header.forced else FORMAT_LEVELS)
        return self.commit.submit(Kind.LEVEL, [header.to_bytes()], header)
