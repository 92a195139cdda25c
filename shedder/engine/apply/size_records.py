"""Size records: sizes of synopses, in force in the order of the log, applied in slices."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from shedder.archive.files.data_directory import FORMAT_SIZES
from shedder.archive.log.records import RecordType, Sizes
from shedder.engine.engine_state import EngineState
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import BadSetting, Draining, InternalError

SLICE_SECONDS = 0.001  # Panes shrink for so long at a time; then what came in between is read.


def submit_sizes(
    core: EngineState, stream: Stream, query: str, sizes: tuple[int, ...], group_bytes: int
) -> Future[int]:
    """Log the sizes of a query's synopses; in force behind what is in the log before them."""
    header = Sizes(stream.id, query, sizes, group_bytes, core.clock_us())
    if not header.fits:
        raise BadSetting(f"the name of query {query[:40]!r}... is too long for a log record")
    core.store.allow(FORMAT_SIZES)
    return core.log_queue.submit(RecordType.SIZES, [header.to_bytes()], header)


def shrinks(core: EngineState) -> bool:
    """Return whether panes are left that are to shrink. On the apply thread."""
    return any(
        standing_query.state.resizer.shrinks and not standing_query.failed
        for stream in core.streams.values()
        for standing_query in stream.queries.values()
    )


class PaneShrinker:
    """Resizes the panes of all queries, a moment at a time. On the apply thread."""

    def __init__(self, core: EngineState) -> None:
        self._core = core
        self._is_posted = False

    def apply_sizes(self, headers: Iterable[Sizes]) -> None:
        """From now on, new panes of queries have these sizes; larger ones shrink, bit by bit.

        Pane sharing is decided once, after all sizes are set. A decision after each size would
        separate queries that share panes again a moment later.
        """
        changed: dict[str, Stream] = {}
        for header in headers:
            known = self._core.query_of(header.stream, header.query)
            if known is not None and not known[1].failed:
                stream, standing_query = known
                query_state = standing_query.state
                standing_query.guard(
                    partial(query_state.resizer.set_sizes, header.sizes, header.group_bytes)
                )
                changed[stream.schema.name] = stream
        for stream in changed.values():
            stream.share_panes()
        if changed:
            self.shrink_soon()

    def shrink_soon(self) -> None:
        """Have panes shrink that are to, when what has been posted by now is done."""
        if not shrinks(self._core):
            return
        if not self._core.executor.is_alive():  # Recovery runs on this thread alone.
            self._shrink()
        elif not self._is_posted:
            with suppress(Draining, InternalError):  # Closed meanwhile.
                self._core.executor.post(self._shrink)
                self._is_posted = True

    def _shrink(self) -> None:
        """Shrink panes for a moment; what has been posted meanwhile comes first, then the rest."""
        core = self._core
        self._is_posted = False
        end_s = core.machine.monotonic_s() + SLICE_SECONDS
        for stream in core.streams.values():
            for standing_query in stream.queries.values():
                while standing_query.state.resizer.shrinks and not standing_query.failed:
                    standing_query.guard(standing_query.state.resizer.shrink_some)
                    if core.machine.monotonic_s() >= end_s and core.executor.is_alive():
                        self.shrink_soon()
                        return
