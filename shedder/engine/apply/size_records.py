"""Sizes of synopses: logged, in force behind the log before them, carried out in slices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from shedder.archive.archive_store import Store
from shedder.archive.files.data_directory import FORMAT_SIZES
from shedder.archive.log.group_commit import GroupCommit
from shedder.archive.log.records import Kind, Sizes
from shedder.engine.runtime.environment import Machine
from shedder.engine.runtime.serial_executor import Actor
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import BadSetting, Draining, InternalError

SLICE_SECONDS = 0.001  # Panes shrink for so long at a time; then what came in between is read.


class SizesInForce(ABC):
    """The part of the core that resizes."""

    store: Store
    commit: GroupCommit
    actor: Actor
    machine: Machine
    streams: dict[str, Stream]
    clock_us: Callable[[], int]
    _shrinks_soon = False

    @abstractmethod
    def stream_name(self, stream_id: int) -> str | None:
        """None for a stream that was dropped while its records were on the way."""

    def apply_sizes(self, headers: Iterable[Sizes]) -> None:
        """From now on, new panes of queries have these sizes; larger ones shrink, bit by bit.

        All of them, and then it is seen who shares panes with whom: were that done after each,
        those that go on together would part and meet again.
        """
        changed: set[str] = set()
        for header in headers:
            name = self.stream_name(header.stream)
            published = None if name is None else self.streams[name].queries.get(header.query)
            if name is not None and published is not None and not published.failed:
                standing = published.standing  # Else it was dropped meanwhile.
                published.guard(partial(standing.set_sizes, header.sizes, header.group_bytes))
                changed.add(name)
        for name in changed:
            self.streams[name].share_panes()
        if changed:
            self.shrink_soon()

    def submit_sizes(
        self, stream: Stream, query: str, sizes: tuple[int, ...], group_bytes: int
    ) -> Future[int]:
        """Log the sizes of a query's synopses; in force behind what is in the log before them."""
        header = Sizes(stream.id, query, sizes, group_bytes, self.clock_us())
        if not header.fits:
            raise BadSetting(f"the name of query {query[:40]!r}... is too long for a log record")
        self.store.allow(FORMAT_SIZES)
        return self.commit.submit(Kind.SIZES, [header.to_bytes()], header)

    def shrink_soon(self) -> None:
        """Have panes shrink that are to, when what has been posted by now is done."""
        if not self.shrinks():
            return
        if not self.actor.is_alive():  # Recovering: nobody waits.
            self._shrink()
        elif not self._shrinks_soon:
            with suppress(Draining, InternalError):  # Closed meanwhile.
                self.actor.post(self._shrink)
                self._shrinks_soon = True

    def _shrink(self) -> None:
        """Shrink panes for a moment; what has been posted meanwhile comes first, then the rest."""
        self._shrinks_soon = False
        end_s = self.machine.monotonic_s() + SLICE_SECONDS
        for stream in self.streams.values():
            for published in stream.queries.values():
                while published.standing.shrinks and not published.failed:
                    published.guard(published.standing.shrink_some)
                    if self.machine.monotonic_s() >= end_s and self.actor.is_alive():
                        self.shrink_soon()
                        return

    def shrinks(self) -> bool:
        """Whether panes are left that are to shrink. On the apply thread."""
        return any(
            published.standing.shrinks and not published.failed
            for stream in self.streams.values()
            for published in stream.queries.values()
        )
