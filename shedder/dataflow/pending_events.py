"""Pending events: births and expiries of keys, released by instant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shedder.dataflow.changes import NEVER_US, ChangeBatch, Int64s


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """ChangeBatch of multiplicities, ordered by instant.

    instant_us: when. ids: of the keys. weight: copies that come; negative: that go.
    """

    instant_us: Int64s
    ids: Int64s
    weight: Int64s

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def concat(cls, parts: list[Events]) -> Events:
        """All events in one order; at one instant in the order of the parts."""
        if len(parts) == 1:
            return parts[0]
        instants = np.concatenate([part.instant_us for part in parts])
        ids = np.concatenate([part.ids for part in parts])
        return cls.sorted(instants, ids, np.concatenate([part.weight for part in parts]))

    @classmethod
    def sorted(cls, instant_us: Int64s, ids: Int64s, weight: Int64s) -> Events:
        """Events in any order, put in order."""
        if bool((instant_us[1:] >= instant_us[:-1]).all()):
            return cls(instant_us, ids, weight)
        order = np.argsort(instant_us, kind="stable")
        return cls(instant_us[order], ids[order], weight[order])

    def stretch(self, first: int, last: int) -> Events:
        """Events first to last (exclusive)."""
        cut = slice(first, last)
        return Events(self.instant_us[cut], self.ids[cut], self.weight[cut])


NO_EVENTS = Events(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


class PendingEvents:
    """Events of the future, in sorted runs; runs that overlap are merged by powers of two.

    Events of one instant are released in the order of insertion, expiries before births. So the
    order does not depend on how rows were cut into batches.
    """

    def __init__(self) -> None:
        self._births: list[Events] = []
        self._expiries: list[Events] = []

    @property
    def size_bytes(self) -> int:
        """Bytes of the events that wait."""
        return 24 * sum(len(run) for run in (*self._births, *self._expiries))

    def push(self, changes: ChangeBatch, ids: Int64s) -> None:
        """Note the birth and the expiry of each change. ids: of the keys, [changes]."""
        _insert(self._births, Events.sorted(changes.born_us, ids, changes.weight))
        leave = changes.expires_us != NEVER_US
        if leave.all():
            ends = (changes.expires_us + 1, ids, -changes.weight)
        else:
            ends = (changes.expires_us[leave] + 1, ids[leave], -changes.weight[leave])
        _insert(self._expiries, Events.sorted(*ends))

    def due(self, as_of_us: int) -> Events:
        """Remove and return the events up to an instant, by instant."""
        expiries, self._expiries = _split(self._expiries, as_of_us)
        births, self._births = _split(self._births, as_of_us)
        parts = expiries + births
        return Events.concat(parts) if parts else NO_EVENTS

    def used(self, size: int) -> NDArray[np.bool_]:
        """Return which ids below `size` have events."""
        used = np.zeros(size, np.bool_)
        for run in (*self._births, *self._expiries):
            used[run.ids] = True
        return used

    def renumber(self, new_ids: Int64s) -> None:
        """Replace each id by new_ids[id]."""
        for runs in (self._births, self._expiries):
            runs[:] = [Events(run.instant_us, new_ids[run.ids], run.weight) for run in runs]


def _insert(runs: list[Events], run: Events) -> None:
    if not len(run):
        return
    runs.append(run)
    while len(runs) > 1 and runs[-1].instant_us[0] < runs[-2].instant_us[-1]:
        if 2 * len(runs[-1]) < len(runs[-2]):
            return
        runs[-2:] = [Events.concat(runs[-2:])]


def _split(runs: list[Events], as_of_us: int) -> tuple[list[Events], list[Events]]:
    due: list[Events] = []
    later: list[Events] = []
    for run in runs:
        cut = int(np.searchsorted(run.instant_us, as_of_us, side="right"))
        if cut:
            due.append(run.stretch(0, cut))
        if cut < len(run):
            later.append(run.stretch(cut, len(run)))
    return due, later
