"""Pane versions: other versions of a query's panes, put in place and taken back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from shedder.engine.panes.pane import Pane
from shedder.engine.window_state.closed_panes import ClosedPanes
from shedder.engine.window_state.pane_store_writer import PaneStoreWriter


class Versions(ABC):
    """The part of a standing query whose panes are replaced, not read into."""

    panes: dict[int, Pane]
    closed: ClosedPanes
    closed_to: int | None
    _open: set[int]
    store_writer: PaneStoreWriter
    _roomy: tuple[object, ...] | None

    @abstractmethod
    def fit_widths(self, held: Pane) -> None:
        """A pane that is not among these yet: all get the widest buckets that any has."""

    @abstractmethod
    def _none_closed(self, bounds: Sequence[int] | None = None) -> ClosedPanes: ...

    def replace(self, number: int, pane: Pane) -> None:
        """Put another version of a pane, of the same tuples, in its place."""
        self.fit_widths(pane)
        old, self.panes[number] = self.panes[number], pane
        if number not in self._open:
            self.closed.replace(number, old, pane)
            self.store_writer.note_changed([number])

    def put(self, panes: Mapping[int, Pane], *, closed: bool) -> None:
        """Put versions of more tuples in the places of panes, or where there are none yet.

        Those that stood there are not changed. Closed ones have numbers of cells (`cell_of`).
        """
        for number, pane in panes.items():
            self.fit_widths(pane)
            self.panes[number] = pane
        if closed:
            self.store_writer.note_changed(panes)
            again = self._none_closed(self.closed.bounds)
            for number in sorted({*self.closed.numbers, *panes}):
                again.add(number, self.panes[number])
            self.closed, self._roomy = again, None
        else:
            self._open.update(panes)

    def moment(self) -> Callable[[], None]:
        """How to go back to the panes that stand now, of which none must have been changed."""
        panes, closed, closed_to = dict(self.panes), self.closed, self.closed_to
        open_panes, restore_stored = set(self._open), self.store_writer.snapshot()

        def back() -> None:
            self.panes, self.closed, self.closed_to, self._roomy = panes, closed, closed_to, None
            self._open = open_panes
            restore_stored()

        return back
