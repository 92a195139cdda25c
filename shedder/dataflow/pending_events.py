"""Pending events: births and expiries of keys, released by instant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shedder.dataflow.changes import NEVER_US, ChangeBatch, Int64s

_RUN_EVENTS_MIN = 1 << 16  # Runs that follow each other are put together up to this size.


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Changes of multiplicities, ordered by instant.

    instant_us: when. ids: of the keys. weight: copies that come; negative: that go.
    values: what else the operator needs of a copy, int64 [events, any number].
    """

    instant_us: Int64s
    ids: Int64s
    weight: Int64s
    values: Int64s

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def size_bytes(self) -> int:
        """Bytes of the events."""
        return 3 * self.ids.nbytes + self.values.nbytes

    @classmethod
    def concat(cls, parts: list[Events]) -> Events:
        """All events, part after part."""
        if len(parts) == 1:
            return parts[0]
        instants = np.concatenate([part.instant_us for part in parts])
        ids = np.concatenate([part.ids for part in parts])
        weight = np.concatenate([part.weight for part in parts])
        return cls(instants, ids, weight, np.concatenate([part.values for part in parts]))

    def sorted(self) -> Events:
        """The events by instant; those of one instant stay in their order."""
        if bool((self.instant_us[1:] >= self.instant_us[:-1]).all()):
            return self
        return self.take(np.argsort(self.instant_us, kind="stable"))

    def take(self, rows: NDArray[np.integer[Any]] | slice) -> Events:
        """The events at these rows."""
        return Events(self.instant_us[rows], self.ids[rows], self.weight[rows], self.values[rows])

    def follows(self, run: Events) -> bool:
        """Return whether all events are at or after the last one of a run; both have events."""
        return bool(self.instant_us[0] >= run.instant_us[-1])


@dataclass(frozen=True, slots=True, eq=False)
class DueEvents:
    """Events in sorted runs, one behind the other; a kernel merges them.

    starts: of the runs, and the end of the last. sides: number of the input of each run.
    """

    events: Events
    starts: Int64s
    sides: Int64s

    @classmethod
    def of(cls, inputs: Sequence[PendingEvents], as_of_us: int) -> DueEvents:
        """Remove and return the events of all inputs up to an instant."""
        parts, starts, sides = [], [0], []
        for side, pending in enumerate(inputs):
            for run, follows in pending.due(as_of_us):
                if follows:
                    starts[-1] += len(run)
                else:
                    starts.append(starts[-1] + len(run))
                    sides.append(side)
                parts.append(run)
        events = Events.concat(parts) if parts else inputs[0].none
        return cls(events, np.array(starts, np.int64), np.array(sides, np.int64))

    def __len__(self) -> int:
        return len(self.events)


class PendingEvents:
    """Events of the future, in few sorted runs.

    size_bytes: of the events that wait. event_bytes: of one of them.

    Events of one instant are released in the order of insertion, expiries before births. So the
    order does not depend on how rows were cut into batches.
    """

    def __init__(self, values: int = 0) -> None:
        """No events. values: numbers that go with each event."""
        none = np.empty(0, np.int64)
        self.none = Events(none, none, none, np.empty((0, values), np.int64))
        self._births: list[Events] = []
        self._expiries: list[Events] = []
        self.event_bytes = 8 * (3 + values)
        self.size_bytes = 0

    def push(self, changes: ChangeBatch, ids: Int64s, values: Int64s | None = None) -> None:
        """Note the birth and the expiry of each change.

        Args:
          changes: any number. ids: of their keys, [changes].
          values: [changes, values]; None: there are none.
        """
        if values is None:
            values = np.empty((len(changes), 0), np.int64)
        births = Events(changes.born_us, ids, changes.weight, values)
        _insert(self._births, births.sorted())
        ends = Events(changes.expires_us, ids, -changes.weight, values)
        leave = changes.expires_us != NEVER_US
        if not leave.all():
            ends = ends.take(np.flatnonzero(leave))
        _insert(self._expiries, replace(ends, instant_us=ends.instant_us + 1).sorted())
        self.size_bytes += births.size_bytes + ends.size_bytes

    def due(self, as_of_us: int) -> list[tuple[Events, bool]]:
        """Remove and return sorted runs, and which of them follow the run before them."""
        due: list[tuple[Events, bool]] = []
        for runs in (self._expiries, self._births):
            fresh, runs[:] = _split(runs, as_of_us)
            self.size_bytes -= sum(run.size_bytes for run in fresh)
            for at, run in enumerate(fresh):
                due.append((run, at > 0 and run.follows(fresh[at - 1])))
        return due

    def used(self, size: int) -> NDArray[np.bool_]:
        """Return which ids below `size` have events."""
        used = np.zeros(size, np.bool_)
        for run in (*self._births, *self._expiries):
            used[run.ids] = True
        return used

    def renumber(self, new_ids: Int64s) -> None:
        """Replace each id by new_ids[id]."""
        for runs in (self._births, self._expiries):
            runs[:] = [replace(run, ids=new_ids[run.ids]) for run in runs]

    def values_of(self, columns: list[int]) -> Int64s:
        """All numbers in columns of the values, in one row."""
        runs = (*self._births, *self._expiries)
        return np.concatenate([self.none.ids, *(run.values[:, columns].ravel() for run in runs)])


def _insert(runs: list[Events], run: Events) -> None:
    """Add a run. It is merged with smaller ones, so runs that overlap are few."""
    if not len(run):
        return
    runs.append(run)
    while len(runs) > 1:
        follows = runs[-1].follows(runs[-2])
        if follows and len(runs[-2]) >= _RUN_EVENTS_MIN:
            return
        if 2 * len(runs[-1]) < len(runs[-2]):
            return
        merged = Events.concat(runs[-2:])
        runs[-2:] = [merged if follows else merged.sorted()]


def _split(runs: list[Events], as_of_us: int) -> tuple[list[Events], list[Events]]:
    due: list[Events] = []
    later: list[Events] = []
    for run in runs:
        if run.instant_us[0] > as_of_us:
            later.append(run)
            continue
        cut = int(np.searchsorted(run.instant_us, as_of_us, side="right"))
        due.append(run.take(slice(0, cut)))
        if cut < len(run):
            later.append(run.take(slice(cut, len(run))))
    return due, later
