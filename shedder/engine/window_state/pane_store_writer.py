"""Pane store writer: hands the closed panes of one query to the catalog."""

from __future__ import annotations

from abc import ABC
from collections import deque
from dataclasses import dataclass, field

from shedder.archive.catalog.catalog import Catalog
from shedder.engine.panes.pane import Pane
from shedder.engine.panes.pane_codec import pane_to_bytes
from shedder.engine.window_state.closed_panes import ClosedPanes
from shedder.streams.group_keys import GroupKeys
from shedder.streams.windows import PaneGrid


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


class Storing(ABC):
    """The part of a standing query that knows which of its panes the pane store has."""

    name: str
    keys: GroupKeys | None
    grid: PaneGrid
    panes: dict[int, Pane]
    closed: ClosedPanes
    dropped_before: int | None
    _stored: set[int]
    _folded: set[int]
    _to_store: PanesToStore | None

    def unstored(self) -> list[int]:
        """The closed panes that the pane store does not have yet."""
        return [p for p in self.closed.numbers if p not in self._stored]

    def folded(self) -> list[int]:
        """Panes that may be in the pane store and have become parts of longer cells.

        A cell under the number of a stored pane is stored in its place; or it is gone, too.
        """
        return sorted(self._folded - self.panes.keys())

    def to_store(self) -> PanesToStore | None:
        """What a checkpoint of this moment does to the pane store, believed done from now on.

        What changes meanwhile is the next one's. If it fails, that is told by `not_stored`. None:
        there are no panes to store.
        """
        width = self.grid.width_us
        if width is None:
            return None
        waiting = deque((number, self.panes[number]) for number in self.unstored())
        before = None if self.dropped_before is None else self.dropped_before * width
        made = PanesToStore(self.name, self.keys, width, waiting, self.folded(), before)
        self._stored.update(made.numbers)
        self._folded.clear()
        self._to_store = made
        return made

    def not_stored(self, panes: PanesToStore) -> None:
        """The checkpoint has failed: nothing has been done to the pane store."""
        self._stored.difference_update(panes.numbers)
        self._folded.update(panes.gone)
