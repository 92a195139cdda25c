"""Kernels of grouped aggregates with retraction: each changed group gives its old and new row.

They merge runs of births and of expiries by instant. At the first touch of a group at an instant
its result is saved, and behind the last event of the instant the group's rows are written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from shedder.dataflow.changes import NEVER_US, Int64s
from shedder.dataflow.pending_events import DueEvents
from shedder.dataflow.sums.exact_moments import SCRATCH
from shedder.dataflow.sums.exact_sums import TIMES_MAX
from shedder.dataflow.sums.one_sum_kernels import is_one_sum, take_sums, write_sums
from shedder.dataflow.sums.ordered_events import OrderedEvents
from shedder.dataflow.sums.sum_kernels import (
    AHEAD,
    ONE,
    ZERO,
    GroupState,
    GroupWork,
    Layout,
    Place,
    ResultRows,
    TouchedGroups,
    add_pairs,
    add_row,
    borrowed_work,
    bring_near,
    touch_group,
    write_changes,
)
from shedder.dataflow.sums.term_kernels import signed
from synopses.kernels.borrowed import borrowed
from synopses.kernels.prefetch import prefetch


@njit(nogil=True, cache=True, inline="always")
def _instant(run: OrderedEvents, head: np.uint64, later_us: int) -> int:
    """The instant of an event; NEVER_US: the run has no more events."""
    return run.instants[head] + later_us if head < Place(run.ids.size) else NEVER_US


@njit(nogil=True, cache=True, inline="always")
def _take_rows(
    run: OrderedEvents,
    head: np.uint64,
    instant: int,
    later_us: int,
    work: GroupWork,
    some: np.uint64,
    most: int,
) -> tuple[np.uint64, np.uint64, int]:
    """Apply the rows of an instant; return where the run goes on, touched groups and most copies.

    later_us: 0 for births. 1 for expiries, which are by the instant before, with the weights of
      the births.
    """
    words, keys, width, is_scalar = work.words, work.keys, work.width, work.is_scalar
    instants, ids, weight, values = run.instants, run.ids, run.weight, run.values
    end = Place(ids.size)
    while head < end and instants[head] + later_us == instant:
        group = ZERO if is_scalar else ids[head]
        base = group * width
        if not is_scalar:
            soon = ids[min(head + AHEAD, end - ONE)]
            bring_near(words, soon, width)
            prefetch(keys, signed(soon))
        if words[base] & 1 == 0:
            touch_group(work, base, group, some)
            some += ONE
        times = -weight[head] if later_us else weight[head]
        most = max(most, abs(times))
        words[base] += 2 * times
        add_row(work, base, values, head, times)
        head += ONE
    return head, some, most


@njit(nogil=True, cache=True, inline="always")
def _take_sides(
    run: OrderedEvents,
    head: np.uint64,
    instant: int,
    later_us: int,
    side: int,
    work: GroupWork,
    some: np.uint64,
    most: int,
) -> tuple[np.uint64, np.uint64, int]:
    """Apply the rows of a side of a join at an instant; as `_take_rows`."""
    words, partners, is_scalar = work.words, work.partners, work.is_scalar
    width, partner_width, right_at = work.width, work.partner_width, work.right_at
    instants, ids, weight, values = run.instants, run.ids, run.weight, run.values
    end = Place(ids.size)
    while head < end and instants[head] + later_us == instant:
        soon = ids[min(head + AHEAD, end - ONE)]
        group = ZERO if is_scalar else ids[head]
        base, partner = group * width, ids[head] * partner_width
        if not is_scalar:
            bring_near(words, soon, width)
        bring_near(partners, soon, partner_width)
        if words[base] & 1 == 0:
            touch_group(work, base, group, some)
            some += ONE
        copies = -weight[head] if later_us else weight[head]
        times = copies * partners[partner if side == 1 else partner + right_at]
        partners[partner + right_at if side == 1 else partner] += copies
        most = max(most, abs(times), abs(copies))
        words[base] += 2 * times
        add_pairs(work, base, partner, side, values, head, times, copies)
        head += ONE
    return head, some, most


_INT64S, _UINT64S = types.int64[::1], types.uint64[::1]
_TABLE, _PLACES = types.int64[:, ::1], types.uint64[:, ::1]
_TYPES: Any = types
_NAMED = _TYPES.NamedTuple
_RUN = _NAMED((_INT64S, _UINT64S, _INT64S, _TABLE), OrderedEvents)


_ARGUMENTS = (
    types.boolean[::1],
    _UINT64S,
    _INT64S,
    _NAMED((_PLACES, _PLACES, types.boolean, *(types.int64,) * 3, _UINT64S), Layout),
    _NAMED((_INT64S, _INT64S, _INT64S, _TABLE, _INT64S), GroupState),
    _NAMED((_UINT64S, _TABLE), TouchedGroups),
    _NAMED((*(_INT64S,) * 4, _TABLE, types.uint8[:, ::1]), ResultRows),
)
_OF_ROWS = types.int64(_TYPES.UniTuple(_RUN, 2), *_ARGUMENTS)
_OF_PAIRS = types.int64(_TYPES.UniTuple(_RUN, 4), *_ARGUMENTS)


def aggregate_events(
    due: DueEvents, layout: Layout, state: GroupState, touched: TouchedGroups, out: ResultRows
) -> int:
    """Apply events by instant; returns how many rows were emitted.

    Returns:
      -1: an event has more than TIMES_MAX copies.
    """
    kernel = _aggregate_pairs if layout.partner_width else _aggregate_rows
    if is_one_sum(layout) and not layout.partner_width:
        kernel = _aggregate_sums
    progress = np.array([0, 0, -NEVER_US, 0])
    for runs, more, heads in due.rounds():
        given = tuple(map(OrderedEvents.of, runs))
        kernel(given, more, heads.view(np.uint64), progress, layout, state, touched, out)
    made, _, _, most = progress.tolist()
    return -1 if most > TIMES_MAX else int(made)


@njit(nogil=True, cache=True, inline="always")
def _borrowed_run(run: OrderedEvents) -> OrderedEvents:
    return OrderedEvents(
        borrowed(run.instants), borrowed(run.ids), borrowed(run.weight), borrowed(run.values)
    )


@njit(_OF_ROWS, nogil=True, cache=True)
def _aggregate_rows(
    runs: tuple[OrderedEvents, ...],
    more: NDArray[np.bool_],
    heads: NDArray[np.uint64],
    progress: Int64s,
    layout: Layout,
    state: GroupState,
    touched: TouchedGroups,
    out: ResultRows,
) -> int:
    """Apply the rows of one input, until a run ends that has another run behind it.

    Args:
      runs, more, heads: as `EventRuns`.
      progress: rows that were emitted, groups that are touched, their instant, and most copies of
        an event; set for the next call.
      touched, out: room for all events.
    """
    ends, births = _borrowed_run(runs[0]), _borrowed_run(runs[1])
    scratch = np.empty((3, SCRATCH), np.int64)
    work = borrowed_work(layout, state, touched, out, scratch)
    made, some, instant, most = Place(progress[0]), Place(progress[1]), progress[2], progress[3]
    at, by = heads[0], heads[1]
    ended = False
    while not ended:
        ends_at, births_at = _instant(ends, at, 1), _instant(births, by, 0)
        if min(ends_at, births_at) != instant:
            made = write_changes(work, some, instant, made)
            some, instant = ZERO, min(ends_at, births_at)
            ended = instant == NEVER_US
        if ends_at == instant and not ended:
            at, some, most = _take_rows(ends, at, instant, 1, work, some, most)
            ended = more[0] and at == Place(ends.ids.size)
        if births_at == instant and not ended:
            by, some, most = _take_rows(births, by, instant, 0, work, some, most)
            ended = more[1] and by == Place(births.ids.size)
    heads[0], heads[1] = at, by
    progress[0], progress[1], progress[2], progress[3] = signed(made), signed(some), instant, most
    return 0


@njit(_OF_ROWS, nogil=True, cache=True)
def _aggregate_sums(
    runs: tuple[OrderedEvents, ...],
    more: NDArray[np.bool_],
    heads: NDArray[np.uint64],
    progress: Int64s,
    layout: Layout,
    state: GroupState,
    touched: TouchedGroups,
    out: ResultRows,
) -> int:
    """Apply the rows of one input to groups with one sum each; as `_aggregate_rows`."""
    ends, births = _borrowed_run(runs[0]), _borrowed_run(runs[1])
    scratch = np.empty((3, SCRATCH), np.int64)
    work = borrowed_work(layout, state, touched, out, scratch)
    made, some, instant, most = Place(progress[0]), Place(progress[1]), progress[2], progress[3]
    at, by = heads[0], heads[1]
    ended = False
    while not ended:
        ends_at, births_at = _instant(ends, at, 1), _instant(births, by, 0)
        if min(ends_at, births_at) != instant:
            made = write_sums(work, some, instant, made)
            some, instant = ZERO, min(ends_at, births_at)
            ended = instant == NEVER_US
        if ends_at == instant and not ended:
            at, some, most = take_sums(ends, at, instant, 1, work, some, most)
            ended = more[0] and at == Place(ends.ids.size)
        if births_at == instant and not ended:
            by, some, most = take_sums(births, by, instant, 0, work, some, most)
            ended = more[1] and by == Place(births.ids.size)
    heads[0], heads[1] = at, by
    progress[0], progress[1], progress[2], progress[3] = signed(made), signed(some), instant, most
    return 0


@njit(_OF_PAIRS, nogil=True, cache=True)
def _aggregate_pairs(
    runs: tuple[OrderedEvents, ...],
    more: NDArray[np.bool_],
    heads: NDArray[np.uint64],
    progress: Int64s,
    layout: Layout,
    state: GroupState,
    touched: TouchedGroups,
    out: ResultRows,
) -> int:
    """Apply the rows of two inputs, of which the pairs are aggregated; as `_aggregate_rows`."""
    ends, births = _borrowed_run(runs[0]), _borrowed_run(runs[1])
    other_ends, other_births = _borrowed_run(runs[2]), _borrowed_run(runs[3])
    scratch = np.empty((3, SCRATCH), np.int64)
    work = borrowed_work(layout, state, touched, out, scratch)
    made, some, instant, most = Place(progress[0]), Place(progress[1]), progress[2], progress[3]
    at, by, of, to = heads[0], heads[1], heads[2], heads[3]
    ended = False
    while not ended:
        ends_at, births_at = _instant(ends, at, 1), _instant(births, by, 0)
        other_ends_at, other_births_at = _instant(other_ends, of, 1), _instant(other_births, to, 0)
        first = min(ends_at, births_at, other_ends_at, other_births_at)
        if first != instant:
            made = write_changes(work, some, instant, made)
            some, instant = ZERO, first
            ended = instant == NEVER_US
        if ends_at == instant and not ended:
            at, some, most = _take_sides(ends, at, instant, 1, 0, work, some, most)
            ended = more[0] and at == Place(ends.ids.size)
        if births_at == instant and not ended:
            by, some, most = _take_sides(births, by, instant, 0, 0, work, some, most)
            ended = more[1] and by == Place(births.ids.size)
        if other_ends_at == instant and not ended:
            of, some, most = _take_sides(other_ends, of, instant, 1, 1, work, some, most)
            ended = more[2] and of == Place(other_ends.ids.size)
        if other_births_at == instant and not ended:
            to, some, most = _take_sides(other_births, to, instant, 0, 1, work, some, most)
            ended = more[3] and to == Place(other_births.ids.size)
    heads[0], heads[1], heads[2], heads[3] = at, by, of, to
    progress[0], progress[1], progress[2], progress[3] = signed(made), signed(some), instant, most
    return 0
