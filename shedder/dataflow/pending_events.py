"""Pending events: births and expiries of keys, released by instant."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from shedder.dataflow.changes import NEVER_US, ChangeBatch, Int64s
from synopses.kernels.borrowed import borrowed

_RUN_EVENTS_MIN = 1 << 16  # Runs that follow each other are put together up to this size.
_FOR_KERNELS: Any = ("C", "W")  # Requirements of their arrays.

EventArrays = tuple[Int64s, Int64s, Int64s, Int64s]  # Instants, ids, weights and values.


@njit(nogil=True, cache=True, inline="always")
def _instant(instants: Int64s, head: int, later_us: int) -> int:
    """Return the instant of an event; NEVER_US: the run has no more events."""
    return instants[head] + later_us if head < instants.size else NEVER_US


@njit(nogil=True, cache=True, inline="always")
def _copy_instant(
    run: EventArrays,
    head: int,
    instant: int,
    later_us: int,
    side: int,
    out: EventArrays,
    sides: NDArray[np.int8],
    made: int,
) -> tuple[int, int]:
    """Copy the events of an instant; return where the run and the output go on."""
    instants, ids, weight, values = run
    sign = 1 - 2 * later_us
    while head < instants.size and instants[head] + later_us == instant:
        out[0][made], out[1][made], out[2][made] = instant, ids[head], sign * weight[head]
        for column in range(values.shape[1]):
            out[3][made, column] = values[head, column]
        sides[made] = side
        head += 1
        made += 1
    return head, made


@njit(nogil=True, cache=True, inline="always")
def _borrowed_events(run: EventArrays) -> EventArrays:
    return borrowed(run[0]), borrowed(run[1]), borrowed(run[2]), borrowed(run[3])


_TYPES: Any = types
_EVENTS = _TYPES.Tuple((types.int64[::1], types.int64[::1], types.int64[::1], types.int64[:, ::1]))


@njit(
    types.int64(
        types.int64[::1],
        types.boolean[::1],
        types.int64,
        _TYPES.UniTuple(_EVENTS, 4),
        _EVENTS,
        types.int8[::1],
    ),
    nogil=True,
    cache=True,
)
def _merge_runs(
    heads: Int64s,
    more: NDArray[np.bool_],
    made: int,
    runs: tuple[EventArrays, ...],
    out: EventArrays,
    sides: NDArray[np.int8],
) -> int:
    """Merge runs by instant, until all have ended, or one that has another run behind it.

    Args:
      heads: int64 [4], where to go on in each run. more: which runs have another one behind them.
      made: how many events are in the output.
      runs: expiries and births of one input, and those of the other one.
      out, sides: output.

    Returns:
      how many events are in the output.
    """
    first, second = _borrowed_events(runs[0]), _borrowed_events(runs[1])
    third, fourth = _borrowed_events(runs[2]), _borrowed_events(runs[3])
    out, sides = _borrowed_events(out), borrowed(sides)
    at, by, of, to = heads[0], heads[1], heads[2], heads[3]
    ended = False
    while not ended:
        instants = (
            _instant(first[0], at, 1),
            _instant(second[0], by, 0),
            _instant(third[0], of, 1),
            _instant(fourth[0], to, 0),
        )
        instant = min(instants)
        ended = instant == NEVER_US
        if instants[0] == instant and not ended:
            at, made = _copy_instant(first, at, instant, 1, 0, out, sides, made)
            ended = more[0] and at == first[0].size
        if instants[1] == instant and not ended:
            by, made = _copy_instant(second, by, instant, 0, 0, out, sides, made)
            ended = more[1] and by == second[0].size
        if instants[2] == instant and not ended:
            of, made = _copy_instant(third, of, instant, 1, 1, out, sides, made)
            ended = more[2] and of == third[0].size
        if instants[3] == instant and not ended:
            to, made = _copy_instant(fourth, to, instant, 0, 1, out, sides, made)
            ended = more[3] and to == fourth[0].size
    heads[0], heads[1], heads[2], heads[3] = at, by, of, to
    return made


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Changes of multiplicities, ordered by instant.

    instant_us: when. ids: of the keys. weight: copies that come; negative: that go.
    values: what else the operator needs of a copy, int64 [events, any number].
    All arrays are contiguous.
    """

    instant_us: Int64s
    ids: Int64s
    weight: Int64s
    values: Int64s

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def arrays(self) -> EventArrays:
        """Instants, ids, weights and values."""
        return self.instant_us, self.ids, self.weight, self.values

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


class EventRuns(NamedTuple):
    """Runs that are merged now, and how far: those of one input, or of two.

    runs: expiries and births of each input. Expiries are by the instant before, and have the
      weights of the births.
    more: bool [runs], which of them have another run behind them.
    heads: int64 [runs], where to go on in each run; set by the merge.
    """

    runs: tuple[Events, ...]
    more: NDArray[np.bool_]
    heads: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class DueEvents:
    """Events up to an instant: runs of expiries and runs of births of each input.

    Each run follows the one before it. Merged, the events are in the order of instants. Those of
    one instant are in the order of inputs, the expiries of an input before its births, and then in
    the order of insertion.
    """

    lanes: tuple[list[Events], ...]
    none: Events

    @classmethod
    def of(cls, inputs: Sequence[PendingEvents], as_of_us: int) -> DueEvents:
        """Remove and return the events of one or two inputs up to an instant."""
        lanes = [lane for pending in inputs for lane in pending.due(as_of_us)]
        return cls(tuple(lanes), inputs[0].none)

    def __len__(self) -> int:
        return sum(map(len, chain.from_iterable(self.lanes)))

    @property
    def instants_max(self) -> int:
        """At least as many as the instants at which events are."""
        filled = [lane for lane in self.lanes if lane]
        first = min((int(lane[0].instant_us[0]) for lane in filled), default=0)
        last = max((int(lane[-1].instant_us[-1]) for lane in filled), default=0)
        return last - first + 2  # An expiry is an instant later than it says.

    def rounds(self) -> Iterator[EventRuns]:
        """The runs to merge, once more whenever one has ended that has another one behind it."""
        waiting = [deque(lane) for lane in self.lanes]
        runs = [lane.popleft() if lane else self.none for lane in waiting]
        heads = np.zeros(len(runs), np.int64)
        while True:
            more = np.array([len(lane) > 0 for lane in waiting])
            yield EventRuns(tuple(runs), more, heads)
            if not more.any():
                return
            for at, lane in enumerate(waiting):
                if lane and heads[at] == len(runs[at]):
                    runs[at], heads[at] = lane.popleft(), 0

    def merged(self) -> tuple[Events, NDArray[np.int8]]:
        """All events in order, and the number of the input of each."""
        size = len(self)
        sides = np.zeros(size, np.int8)
        births = self.lanes[1]
        if len(births) == 1 and size == len(births[0]):
            return births[0], sides
        instants, ids, weight = (np.empty(size, np.int64) for _ in range(3))
        made = Events(instants, ids, weight, np.empty((size, self.none.values.shape[1]), np.int64))
        done = 0
        padding = (self.none.arrays,) * (4 - len(self.lanes))
        for runs, more, heads in self.rounds():
            all_more, all_heads = np.zeros(4, np.bool_), np.zeros(4, np.int64)
            all_more[: len(more)], all_heads[: len(heads)] = more, heads
            arrays = (*(run.arrays for run in runs), *padding)
            done = _merge_runs(all_heads, all_more, done, arrays, made.arrays, sides)
            heads[:] = all_heads[: len(heads)]
        return made, sides


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
        self._expiries: list[Events] = []  # By the last instant of a copy; weights as of births.
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
        self.push_births(Events(changes.born_us, ids, changes.weight, values))
        ends = Events(changes.expires_us, ids, changes.weight, values).sorted()
        leave = int(np.searchsorted(ends.instant_us, NEVER_US))
        if leave < len(ends):
            ends = ends.take(slice(0, leave))
        _insert(self._expiries, ends)
        self.size_bytes += ends.size_bytes

    def push_births(self, births: Events) -> None:
        """Note births without expiries, in any order."""
        births = births.sorted()
        _insert(self._births, births)
        self.size_bytes += births.size_bytes

    def due(self, as_of_us: int) -> tuple[list[Events], list[Events]]:
        """Remove and return runs of expiries and runs of births up to an instant.

        Each run follows the one before it. Expiries are by the instant before, and have the weights
        of the births.
        """
        due = []
        for runs, last_us in ((self._expiries, as_of_us - 1), (self._births, as_of_us)):
            fresh, runs[:] = _split(runs, last_us)
            self.size_bytes -= sum(run.size_bytes for run in fresh)
            if not all(run.follows(before) for before, run in pairwise(fresh)):
                fresh = [Events.concat(fresh).sorted()]
            due.append(fresh)
        return due[0], due[1]

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
    runs.append(Events(*(np.require(each, requirements=_FOR_KERNELS) for each in run.arrays)))
    while len(runs) > 1:
        follows = runs[-1].follows(runs[-2])
        if follows and max(len(runs[-2]), len(runs[-1])) >= _RUN_EVENTS_MIN:
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
