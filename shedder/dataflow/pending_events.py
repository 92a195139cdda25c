"""Pending events: births and expiries of keys, released by instant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shedder.dataflow.changes import NEVER_US, ChangeBatch, Int64s


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
        """All events in one order; at one instant in the order of the parts."""
        if len(parts) == 1:
            return parts[0]
        instants = np.concatenate([part.instant_us for part in parts])
        ids = np.concatenate([part.ids for part in parts])
        weight = np.concatenate([part.weight for part in parts])
        return cls(instants, ids, weight, np.concatenate([part.values for part in parts])).sorted()

    def sorted(self) -> Events:
        """The events by instant; those of one instant stay in their order."""
        if bool((self.instant_us[1:] >= self.instant_us[:-1]).all()):
            return self
        return self.take(np.argsort(self.instant_us, kind="stable"))

    def take(self, rows: NDArray[np.integer[Any]] | slice) -> Events:
        """The events at these rows."""
        return Events(self.instant_us[rows], self.ids[rows], self.weight[rows], self.values[rows])


class PendingEvents:
    """Events of the future, in sorted runs; runs are merged by powers of two, so they are few.

    Events of one instant are released in the order of insertion, expiries before births. So the
    order does not depend on how rows were cut into batches.
    """

    def __init__(self, values: int = 0) -> None:
        """No events. values: numbers that go with each event."""
        none = np.empty(0, np.int64)
        self._none = Events(none, none, none, np.empty((0, values), np.int64))
        self._births: list[Events] = []
        self._expiries: list[Events] = []

    @property
    def size_bytes(self) -> int:
        """Bytes of the events that wait."""
        return sum(run.size_bytes for run in (*self._births, *self._expiries))

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

    def due(self, as_of_us: int) -> Events:
        """Remove and return the events up to an instant, by instant."""
        expiries, self._expiries = _split(self._expiries, as_of_us)
        births, self._births = _split(self._births, as_of_us)
        parts = expiries + births
        return Events.concat(parts) if parts else self._none

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


def _insert(runs: list[Events], run: Events) -> None:
    if not len(run):
        return
    runs.append(run)
    while len(runs) > 1 and 2 * len(runs[-1]) >= len(runs[-2]):
        runs[-2:] = [Events.concat(runs[-2:])]


def _split(runs: list[Events], as_of_us: int) -> tuple[list[Events], list[Events]]:
    due: list[Events] = []
    later: list[Events] = []
    for run in runs:
        cut = int(np.searchsorted(run.instant_us, as_of_us, side="right"))
        if cut:
            due.append(run.take(slice(0, cut)))
        if cut < len(run):
            later.append(run.take(slice(cut, len(run))))
    return due, later
