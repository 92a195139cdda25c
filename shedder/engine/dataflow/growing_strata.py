"""Growing strata: operators of more keys, which read tuples along until their windows are full."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shedder.engine.dataflow.flow import RowFlow
from shedder.engine.dataflow.row_output import BEGINNING_US
from shedder.engine.dataflow.thinning_levels import LEVEL_MAX

TRIES_MAX = 64  # Windows of event time between two tries to keep more keys, at most.


class GrowingStrata:
    """Strata of a query that are not shown yet, and when the next ones begin.

    A try begins one window of event time after the level has changed. After a try without room the
    next one begins after one more window, then two, four, and so on.

    flows: by stratum; empty: no strata read along.
    """

    def __init__(self, made: Callable[[], RowFlow], *, span_us: int | None, bytes_max: int) -> None:
        """No strata.

        Args:
          made: returns operators and sinks without tuples.
          span_us: event time before an instant whose tuples the state needs; None: any. Then no
            strata are ever whole, and none begin.
          bytes_max: that all of them may need when they are whole.
        """
        self.flows: Mapping[int, RowFlow] = {}
        self._made = made
        self._span_us = span_us
        self._bytes_max = bytes_max
        self._newest_us = BEGINNING_US  # Of the tuples that have come.
        self._due_us = BEGINNING_US  # Instant from which on strata may begin.
        self._whole_us = BEGINNING_US  # Instant from which on the flows lack no tuple.
        self._tries = 1  # Windows until the next try, if this one finds no room.

    def set_bytes_max(self, bytes_max: int) -> None:
        """Have another limit of all flows."""
        self._bytes_max = bytes_max

    @property
    def size_bytes(self) -> int:
        """Bytes of all flows."""
        return sum(each.size_bytes for each in self.flows.values())

    @property
    def has_room(self) -> bool:
        """Return whether the flows need no more bytes than they may."""
        return self.size_bytes <= self._bytes_max

    def note_tuples(self, newest_us: int) -> None:
        """Know the newest event time of tuples that come: flows that begin later lack these."""
        self._newest_us = max(self._newest_us, newest_us)

    def is_due(self, as_of_us: int) -> bool:
        """Return whether strata may begin at an instant."""
        return self._span_us is not None and not self.flows and as_of_us >= self._due_us

    def is_whole(self, as_of_us: int) -> bool:
        """Return whether there are flows, and they have all tuples that an instant needs."""
        return bool(self.flows) and as_of_us >= self._whole_us

    def begin(self, level: int) -> None:
        """Let the strata of a level read along from the next tuple on."""
        assert self._span_us is not None
        self.flows = {stratum: self._made() for stratum in range(level, LEVEL_MAX + 1)}
        self._whole_us = self._newest_us + self._span_us + 1

    def take(self, as_of_us: int) -> dict[int, RowFlow]:
        """Return the flows, which are shown behind an instant; more may begin at once."""
        taken, self.flows = dict(self.flows), {}
        self._due_us, self._tries = as_of_us, 1
        return taken

    def give_up(self, next_us: int) -> None:
        """Drop the flows for lack of room. next_us: instant of the next step.

        Without flows it does nothing: several strata may find no room in one step.
        """
        if not self.flows:
            return
        self.flows = {}
        self._due_us = next_us + self._tries * (self._span_us or 0)
        self._tries = min(2 * self._tries, TRIES_MAX)

    def restart(self, first_us: int) -> None:
        """Drop the flows: the query has another level from an instant on."""
        self.flows = {}
        self._due_us = first_us + (self._span_us or 0)
