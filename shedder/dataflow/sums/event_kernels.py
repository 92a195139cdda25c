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
from shedder.dataflow.sums.ordered_events import OrderedEvents
from shedder.dataflow.sums.sum_kernels import (
    AHEAD,
    ONE,
    ZERO,
    GroupState,
    Layout,
    Place,
    Places,
    ResultRows,
    TouchedGroups,
    add_pairs,
    add_row,
    borrowed_rows,
    bring_near,
    has_other_reads,
    touch_group,
    write_changes,
)
from shedder.dataflow.sums.term_kernels import signed
from shedder.dataflow.sums.value_trees import Nodes
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
    words: Int64s,
    width: np.uint64,
    keys: Int64s,
    layout: tuple[Places, Places, bool, bool],
    nodes: Nodes,
    free: Int64s,
    groups: NDArray[np.uint64],
    olds: NDArray[np.int64],
    some: np.uint64,
    most: int,
) -> tuple[np.uint64, np.uint64, int]:
    """Apply the rows of an instant; return where the run goes on, touched groups and most copies.

    later_us: 0 for births. 1 for expiries, which are by the instant before, with the weights of
      the births.
    """
    terms, reads, is_scalar, _ = layout
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
            touch_group(words, base, group, terms, reads, groups, olds, some)
            some += ONE
        times = -weight[head] if later_us else weight[head]
        most = max(most, abs(times))
        words[base] += 2 * times
        add_row(words, base, terms, values, head, times, nodes, free)
        head += ONE
    return head, some, most


@njit(nogil=True, cache=True, inline="always")
def _take_sides(
    run: OrderedEvents,
    head: np.uint64,
    instant: int,
    later_us: int,
    side: int,
    words: Int64s,
    width: np.uint64,
    partners: Int64s,
    partner_width: np.uint64,
    right_at: np.uint64,
    layout: tuple[Places, Places, bool, bool],
    nodes: Nodes,
    free: Int64s,
    groups: NDArray[np.uint64],
    olds: NDArray[np.int64],
    some: np.uint64,
    most: int,
) -> tuple[np.uint64, np.uint64, int]:
    """Apply the rows of a side of a join at an instant; as `_take_rows`."""
    terms, reads, is_scalar, _ = layout
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
            touch_group(words, base, group, terms, reads, groups, olds, some)
            some += ONE
        copies = -weight[head] if later_us else weight[head]
        times = copies * partners[partner if side == 1 else partner + right_at]
        partners[partner + right_at if side == 1 else partner] += copies
        most = max(most, abs(times), abs(copies))
        words[base] += 2 * times
        add_pairs(
            words, base, partners, partner, terms, side, values, head, times, copies, nodes, free
        )
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
    terms, reads = borrowed(layout.terms), borrowed(layout.reads)
    columns = borrowed(layout.columns)
    words, keys = borrowed(state.words), borrowed(state.keys)
    nodes, free = borrowed(state.nodes), borrowed(state.free)
    groups, olds = borrowed(touched.groups), borrowed(touched.olds)
    rows, width = borrowed_rows(out), Place(layout.width)
    kinds = (terms, reads, layout.is_scalar, has_other_reads(reads))
    scratch = np.empty((3, SCRATCH), np.int64)
    made, some, instant, most = Place(progress[0]), Place(progress[1]), progress[2], progress[3]
    at, by = heads[0], heads[1]
    ended = False
    while not ended:
        ends_at, births_at = _instant(ends, at, 1), _instant(births, by, 0)
        if min(ends_at, births_at) != instant:
            made = write_changes(
                words, width, keys, columns, kinds, nodes, scratch, groups, olds, some, instant,
                rows, made,
            )  # fmt: skip
            some, instant = ZERO, min(ends_at, births_at)
            ended = instant == NEVER_US
        if ends_at == instant and not ended:
            at, some, most = _take_rows(
                ends, at, instant, 1, words, width, keys, kinds, nodes, free, groups, olds, some,
                most,
            )  # fmt: skip
            ended = more[0] and at == Place(ends.ids.size)
        if births_at == instant and not ended:
            by, some, most = _take_rows(
                births, by, instant, 0, words, width, keys, kinds, nodes, free, groups, olds, some,
                most,
            )  # fmt: skip
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
    terms, reads = borrowed(layout.terms), borrowed(layout.reads)
    words, keys, partners = borrowed(state.words), borrowed(state.keys), borrowed(state.partners)
    nodes, free = borrowed(state.nodes), borrowed(state.free)
    groups, olds = borrowed(touched.groups), borrowed(touched.olds)
    columns, rows = borrowed(layout.columns), borrowed_rows(out)
    right_at = Place(layout.right_at)
    width, partner_width = Place(layout.width), Place(layout.partner_width)
    kinds = (terms, reads, layout.is_scalar, has_other_reads(reads))
    scratch = np.empty((3, SCRATCH), np.int64)
    made, some, instant, most = Place(progress[0]), Place(progress[1]), progress[2], progress[3]
    at, by, of, to = heads[0], heads[1], heads[2], heads[3]
    ended = False
    while not ended:
        first = min(_instant(ends, at, 1), _instant(births, by, 0))
        first = min(first, _instant(other_ends, of, 1), _instant(other_births, to, 0))
        if first != instant:
            made = write_changes(
                words, width, keys, columns, kinds, nodes, scratch, groups, olds, some, instant,
                rows, made,
            )  # fmt: skip
            some, instant = ZERO, first
            ended = instant == NEVER_US
        if _instant(ends, at, 1) == instant and not ended:
            at, some, most = _take_sides(
                ends, at, instant, 1, 0, words, width, partners, partner_width, right_at, kinds,
                nodes, free, groups, olds, some, most,
            )  # fmt: skip
            ended = more[0] and at == Place(ends.ids.size)
        if _instant(births, by, 0) == instant and not ended:
            by, some, most = _take_sides(
                births, by, instant, 0, 0, words, width, partners, partner_width, right_at, kinds,
                nodes, free, groups, olds, some, most,
            )  # fmt: skip
            ended = more[1] and by == Place(births.ids.size)
        if _instant(other_ends, of, 1) == instant and not ended:
            of, some, most = _take_sides(
                other_ends, of, instant, 1, 1, words, width, partners, partner_width, right_at,
                kinds, nodes, free, groups, olds, some, most,
            )  # fmt: skip
            ended = more[2] and of == Place(other_ends.ids.size)
        if _instant(other_births, to, 0) == instant and not ended:
            to, some, most = _take_sides(
                other_births, to, instant, 0, 1, words, width, partners, partner_width, right_at,
                kinds, nodes, free, groups, olds, some, most,
            )  # fmt: skip
            ended = more[3] and to == Place(other_births.ids.size)
    heads[0], heads[1], heads[2], heads[3] = at, by, of, to
    progress[0], progress[1], progress[2], progress[3] = signed(made), signed(some), instant, most
    return 0
