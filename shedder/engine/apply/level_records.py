"""Level records: levels as the log has them, forced by an operator or set by load."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future

from shedder.archive.files.data_directory import FORMAT_LEVELS, FORMAT_LOAD
from shedder.archive.log.records import Level, LevelFrom, RecordType
from shedder.engine.engine_state import EngineState
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import BadSetting


def apply_level(core: EngineState, header: Level | LevelFrom) -> None:
    """From the next batch on, a query's synopses read at these levels."""
    known = core.query_of(header.stream, header.query)
    if known is not None and not known[1].failed:
        stream, standing_query = known
        forced = header.forced if isinstance(header, Level) else None
        standing_query.state.set_levels(header.levels, forced)
        stream.share_panes()


def change_levels(
    core: EngineState,
    stream: Stream,
    query: str,
    levels: tuple[int, ...],
    forced: Iterable[int] = (),
) -> None:
    """Log the levels of a query's synopses; returns when they are durable and in force."""
    submit_levels(core, stream, query, levels, forced).result()
    core.executor.call(lambda: None).result()


def submit_levels(
    core: EngineState,
    stream: Stream,
    query: str,
    levels: tuple[int, ...],
    forced: Iterable[int] = (),
) -> Future[int]:
    """Log the levels of a query's synopses; in force behind what is in the log before them.

    forced: the synopses whose level load does not change from then on.
    """
    header = Level(stream.id, query, levels, core.clock_us(), frozenset(forced))
    if not header.fits:
        raise BadSetting(f"the name of query {query[:40]!r}... is too long for a log record")
    core.store.allow(FORMAT_LOAD if header.forced else FORMAT_LEVELS)
    return core.log_queue.submit(RecordType.LEVEL, [header.to_bytes()], header)
