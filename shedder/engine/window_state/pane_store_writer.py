"""Pane store writer: hands the closed panes of one query to the catalog."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from shedder.archive.catalog.catalog import Catalog
from shedder.engine.panes.pane import Pane
from shedder.engine.panes.pane_codec import pane_to_bytes
from shedder.streams.group_keys import GroupKeys


@dataclass(slots=True, eq=False)
class PanesToStore:
    """What a checkpoint does to the pane store for one query, as of the moment when it began.

    Closed panes do not change, and those that others take the places of meanwhile are held here. So
    they may be made bytes after the moment, one by one: each by the thread that applies, because
    buckets are widened in place, and before groups get other ids.

    numbers: the panes that are stored. gone: panes that have become parts of cells. before_us: no
    window needs panes that begin before; None: all are needed. width_us: of a pane.
    """

    query: str
    keys: GroupKeys | None
    width_us: int
    waiting: deque[tuple[int, Pane]]
    gone: list[int]
    before_us: int | None
    numbers: list[int] = field(init=False)
    _encoded: list[tuple[int, bytes]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.numbers = [number for number, _ in self.waiting]

    def encode_one(self) -> None:
        """Make bytes of the next one."""
        number, pane = self.waiting.popleft()
        self._encoded.append((number * self.width_us, pane_to_bytes(pane, self.keys)))

    def encode_all(self) -> None:
        """Make bytes of all: groups are about to get other ids."""
        while self.waiting:
            self.encode_one()

    def put(self, catalog: Catalog) -> None:
        """Each pane once; those that no window needs any more go. In a transaction.

        What waits still is made bytes here, one after the other, and not held.
        """
        for start_us, data in self._encoded:
            catalog.put_pane(self.query, start_us, data)
        for number, pane in self.waiting:
            data = pane_to_bytes(pane, self.keys)
            catalog.put_pane(self.query, number * self.width_us, data)
        catalog.drop_panes_at(self.query, [number * self.width_us for number in self.gone])
        if self.before_us is not None:
            catalog.drop_panes(self.query, before_us=self.before_us)

    def forget(self) -> None:
        """It is done, or has failed: hold no panes any more."""
        self.waiting.clear()
        self._encoded.clear()


class PaneStoreWriter:
    """Record of the closed panes of a query that the pane store has.

    Constructor arguments:

    query: name of the query.
    keys: its groups; None without GROUP BY.
    width_us: width of a pane; None: windows do not slide, so no panes are stored.
    """

    def __init__(self, query: str, keys: GroupKeys | None, width_us: int | None) -> None:
        self._query = query
        self._keys = keys
        self._width_us = width_us
        self._stored: set[int] = set()
        self._folded: set[int] = set()  # Perhaps in the pane store, and no panes any more.
        self._newest: PanesToStore | None = None  # Of the newest checkpoint.

    def note_stored(self, number: int) -> None:
        """Record that the pane store has a pane."""
        self._stored.add(number)

    def note_changed(self, numbers: Iterable[int]) -> None:
        """Record panes that were replaced or dropped; the store does not have these versions."""
        self._stored.difference_update(numbers)

    def note_folded(self, numbers: Iterable[int]) -> None:
        """Record panes that were folded into cells, and the numbers of the cells."""
        self._folded.update(self._stored.intersection(numbers))
        self._stored.difference_update(numbers)

    def begin(
        self, panes: Mapping[int, Pane], closed: Iterable[int], dropped_before: int | None
    ) -> PanesToStore | None:
        """Return what a checkpoint of this moment does to the pane store.

        It counts as done from now on; later changes belong to the next checkpoint. If the
        checkpoint fails, call `note_failed`. None: there are no panes to store.

        Args:
          panes: panes of the query by number.
          closed: numbers of the closed ones, ascending.
          dropped_before: no window needs panes before this one; None: all are needed.
        """
        width = self._width_us
        if width is None:
            return None
        waiting = deque((n, panes[n]) for n in closed if n not in self._stored)
        # A cell under the number of a stored pane replaces it in the store.
        gone = sorted(self._folded - panes.keys())
        before_us = None if dropped_before is None else dropped_before * width
        made = PanesToStore(self._query, self._keys, width, waiting, gone, before_us)
        self._stored.update(made.numbers)
        self._folded.clear()
        self._newest = made
        return made

    def note_failed(self, panes: PanesToStore) -> None:
        """Record that a checkpoint failed and did nothing to the pane store."""
        self._stored.difference_update(panes.numbers)
        self._folded.update(panes.gone)

    def encode_newest(self) -> None:
        """Encode what waits of the newest checkpoint: groups are about to get other ids."""
        if self._newest is not None:
            self._newest.encode_all()

    def snapshot(self) -> Callable[[], None]:
        """Return a function that restores the present record."""
        sets = set(self._stored), set(self._folded)

        def restore() -> None:
            self._stored, self._folded = sets

        return restore
