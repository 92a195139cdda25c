"""Panes that one query closes and another query takes.

Golab's sharing rules SS1 and CS2 (2006, ch. 8): panes of one width serve every window and every
wider pane that is made of them. A consumer has the panes that it would have made, tuple for tuple:
it reads by itself what is late for its provider's panes and not for its own, wider ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shedder.engine.panes.overflow_group import among_others
from shedder.engine.panes.pane import Pane
from shedder.engine.panes.pane_slices import first_at
from shedder.engine.window_state.live_panes import LivePanes
from shedder.streams.group_keys import OTHERS


class PaneFeed:
    """Moves panes of a provider, the query that reads tuples, to a consumer.

    from_pane: first pane of the consumer that the provider reads for it.
    next_pane: first pane of the consumer that was not taken yet.
    """

    def __init__(
        self, provider: LivePanes, consumer: LivePanes, since: tuple[int, int] | None = None
    ) -> None:
        """Begin to share.

        Args:
          provider: has panes of which those of the consumer are made.
          consumer: takes them.
          since: `from_pane` and `next_pane` before a restart; None: from the first pane on that
            was not begun yet.
        """
        assert provider.grid.width_us is not None
        assert consumer.grid.width_us is not None
        self._provider = provider
        self._consumer = consumer
        self._provider_us, self._consumer_us = provider.grid.width_us, consumer.grid.width_us
        self._ratio = self._consumer_us // self._provider_us  # Panes that make one.
        if since is None:
            first = self._first_unbegun()
            since = first, first
        self.from_pane, self.next_pane = since

    def _first_unbegun(self) -> int:
        begun = [*self._consumer, *(pane // self._ratio for pane in self._provider)]
        begun += [] if self._consumer.closed_to is None else [self._consumer.closed_to - 1]
        return max(begun, default=-(1 << 63) // self._consumer_us) + 1

    def own_rows_end(
        self, times_us: NDArray[np.int64], first: int, last: int, watermark_us: int | None
    ) -> int:
        """Return one past the last row that the consumer reads itself; it takes the rest as panes.

        Args:
          times_us: event times of a frame, ascending.
          first, last: the rows that are timely and needed.
          watermark_us: watermark before the frame.
        """
        from_us = self.from_pane * self._consumer_us
        first_open = self._provider.grid.first_open(watermark_us)
        if first_open is not None:
            from_us = max(from_us, first_open * self._provider_us)
        return min(max(first, first_at(times_us, from_us)), last)

    def has(self, pane: int) -> bool:
        """Return whether a pane of the provider is read for the consumer, too."""
        return pane >= self.from_pane * self._ratio

    @property
    def first_untaken(self) -> int:
        """The first pane of the provider that the consumer has not taken yet."""
        return self.next_pane * self._ratio

    def untaken_panes(self) -> set[int]:
        """Return the panes of the consumer that the provider has begun and that were not taken."""
        return {it // self._ratio for it in self._provider if it >= self.first_untaken}

    def take(self, until: int) -> None:
        """Make the consumer's panes before this one of those that the provider has closed."""
        consumer, closed, ratio = self._consumer, self._provider.closed, self._ratio
        numbers = closed.numbers_in(self.first_untaken, until * ratio)
        for number in dict.fromkeys(each // ratio for each in numbers):
            whole = closed.stretch(range(number * ratio, (number + 1) * ratio))
            grouped = consumer.group_keys is not None
            if number in consumer or grouped or whole.is_larger_than(consumer.sizes.plan):
                self._fold_in(number, whole)
            else:
                consumer.close(number, whole)  # One object for both: closed panes never change.
        self.next_pane = max(self.next_pane, until)

    def take_all(self) -> None:
        """Give the consumer what the provider has read for it, open panes included."""
        for number in sorted(n for n in self._provider if n >= self.first_untaken):
            self._fold_in(number // self._ratio, self._provider[number])

    def _fold_in(self, number: int, pane: Pane) -> None:
        """Merge a pane of the provider into an open one of the consumer."""
        translated = self._translated(pane)
        held = self._consumer.open_pane(number, 0)
        held.grow(self._consumer.groups)
        held.merge(translated)
        self._consumer.fit_widths(held)

    def _translated(self, pane: Pane) -> Pane:
        """Return the provider's pane with the consumer's ids of groups."""
        keys, theirs = self._consumer.group_keys, self._provider.group_keys
        if keys is None or theirs is None:
            return pane
        ids = pane.groups_here
        mine = np.zeros(len(ids), np.int64)
        named = ids != OTHERS
        mine[named] = keys.adopt(theirs.hashes(ids[named]), list(theirs.keys(ids[named])))
        if not named.all() and keys.partial_from is None:
            keys.note_partial(1)  # Any group may have tuples among the others.
        return among_others(pane.select(ids), mine, keys.size)
