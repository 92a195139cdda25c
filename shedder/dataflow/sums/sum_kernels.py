"""Kernel of grouped aggregates with retraction: each changed group gives its old and new row.

A group has words for its rows and for each term: how many values the term has, and their sum or
the root of their tree. The rows are those of one input, or the pairs of an equi-join, which are
not made: a key with n rows on the left and m on the right has n * m pairs, and the sum of a left
term over them is m times its sum over the left rows. So a row costs one product per term, whatever
the number of its partners.
Source: Yan, Larson 1995, Eager aggregation and lazy aggregation; Nikolic, Olteanu 2018, F-IVM.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from shedder.dataflow.changes import Int64s
from shedder.dataflow.sums.exact_moments import SCRATCH
from shedder.dataflow.sums.exact_sums import MASK, TIMES_MAX
from shedder.dataflow.sums.ordered_events import OrderedEvents
from shedder.dataflow.sums.term_kernels import (
    AT,
    CACHED,
    FIRST,
    KEPT,
    NULLS,
    OF,
    PARTNER_AT,
    READ,
    RESULT_WORDS,
    SECOND,
    SIDE,
    ReadKind,
    TermKind,
    add_other_words,
    add_others,
    read_others,
    signed,
)
from shedder.dataflow.sums.value_trees import Nodes
from synopses.kernels.borrowed import borrowed
from synopses.kernels.prefetch import prefetch

# A call costs 20 ns: it passes arrays by all their fields. So what each event needs is inlined.
# Places are uint64: an index that may be negative takes two instructions more.
Place = np.uint64
Places = NDArray[np.uint64]
Row = int | np.uint64

_ZERO, _ONE, _TWO = Place(0), Place(1), Place(2)
_LINE = Place(8)  # Words of a cache line.
_AHEAD = Place(32)  # Events, or groups, between bringing a group near and reading it.
_COUNT, _WHOLE = int(TermKind.COUNT), int(TermKind.WHOLE)
_READ_WHOLE = int(ReadKind.WHOLE)  # Reads above it have their words in a group.


class Layout(NamedTuple):
    """Places of words.

    terms, reads: [.., columns], as in `term_kernels`.
    is_scalar: all keys are group 0, which has a row even if it is empty; else each key is a group.
    width: words of a group. The first is twice the number of rows, and 1 more within an instant
      that touches the group.
    partner_width: words of a key of a join; 0: the rows are those of one input.
    right_at: place of the right side's count in a partner.
    """

    terms: Places
    reads: Places
    is_scalar: bool
    width: int
    partner_width: int
    right_at: int


class GroupState(NamedTuple):
    """Words of all groups, of all keys of a join, and trees with a free node for each new value."""

    words: Int64s
    partners: Int64s
    nodes: Nodes
    free: Int64s


class TouchedGroups(NamedTuple):
    """Room for the groups of one instant, and for their results before it.

    groups: [events]. olds: [events, result words].
    """

    groups: NDArray[np.uint64]
    olds: NDArray[np.int64]

    @classmethod
    def for_events(cls, events: int, result_words: int) -> TouchedGroups:
        """Room for so many events."""
        return cls(np.empty(events, np.uint64), np.empty((events, result_words), np.int64))


class ResultRows(NamedTuple):
    """Output, with room for two rows of each event. results: [result words, rows]."""

    instants: Int64s
    ids: NDArray[np.uint64]
    weight: Int64s
    results: NDArray[np.int64]

    @classmethod
    def for_events(cls, events: int, result_words: int) -> ResultRows:
        """Room for the rows of so many events."""
        instants, weight = np.empty(2 * events, np.int64), np.empty(2 * events, np.int64)
        results = np.empty((result_words, 2 * events), np.int64)
        return cls(instants, np.empty(2 * events, np.uint64), weight, results)

    def first(self, rows: int) -> ResultRows:
        """The first rows; as a copy where they are few, so that no reader holds the whole room."""
        some: list[Any] = [each[..., :rows] for each in self]
        if 2 * rows < len(self.instants):
            some = [each.copy() for each in some]
        return ResultRows(*some)


@njit(nogil=True, cache=True, inline="always")
def _has_others(reads: Places) -> bool:
    """Return whether there are reads that are not COUNT or WHOLE."""
    has_others = False
    for read in range(reads.shape[0]):
        has_others |= reads[read, READ] > _READ_WHOLE
    return has_others


@njit(nogil=True, cache=True, inline="always")
def _rows_of(out: ResultRows) -> ResultRows:
    return ResultRows(
        borrowed(out.instants), borrowed(out.ids), borrowed(out.weight), borrowed(out.results)
    )


@njit(nogil=True, cache=True, inline="always")
def _bring_near(words: Int64s, row: np.uint64, width: np.uint64) -> None:
    prefetch(words, signed(row * width))
    if width > _LINE:
        prefetch(words, signed(row * width + width - _ONE))


@njit(nogil=True, cache=True, inline="always")
def _add_whole(words: Int64s, at: np.uint64, value: int, times: int) -> None:
    low = words[at] + (value & MASK) * times
    words[at] = low & MASK
    words[at + _ONE] += (value >> 32) * times + (low >> 32)


@njit(nogil=True, cache=True, inline="always")
def _add_row(
    words: Int64s,
    base: np.uint64,
    terms: Places,
    values: NDArray[np.int64],
    row: np.uint64,
    times: int,
    nodes: Nodes,
    free: Int64s,
) -> None:
    """Add a row of the one input to the terms of its group."""
    for term in range(terms.shape[0]):
        if values[row, 0] & signed(terms[term, NULLS]) == 0:
            kept, at = terms[term, KEPT], base + terms[term, AT]
            words[at] += times
            if kept == _WHOLE:
                _add_whole(words, at + _ONE, values[row, terms[term, FIRST]], times)
            elif kept != _COUNT:
                first, second = values[row, terms[term, FIRST]], values[row, terms[term, SECOND]]
                add_others(words, signed(at), kept, first, second, times, term, nodes, free)


@njit(nogil=True, cache=True, inline="always")
def _add_pairs(
    words: Int64s,
    base: np.uint64,
    partners: Int64s,
    partner: np.uint64,
    terms: Places,
    side: int,
    values: NDArray[np.int64],
    row: np.uint64,
    times: int,
    copies: int,
    nodes: Nodes,
    free: Int64s,
) -> None:
    """Add the pairs of a row to the terms of its group, and the row to those of its key."""
    for term in range(terms.shape[0]):
        kept, at = terms[term, KEPT], base + terms[term, AT]
        place = partner + terms[term, PARTNER_AT]
        if terms[term, SIDE] != side:
            words[at] += partners[place] * copies
            if kept == _WHOLE:
                low = words[at + _ONE] + partners[place + _ONE] * copies
                words[at + _ONE] = low & MASK
                words[at + _TWO] += partners[place + _TWO] * copies + (low >> 32)
            elif kept != _COUNT:
                add_other_words(words, signed(at), partners, signed(place), kept, copies)
        elif values[row, 0] & signed(terms[term, NULLS]) == 0:
            words[at] += times
            partners[place] += copies
            if kept == _COUNT:
                continue
            first, second = values[row, terms[term, FIRST]], values[row, terms[term, SECOND]]
            if kept == _WHOLE:
                _add_whole(words, at + _ONE, first, times)
                _add_whole(partners, place + _ONE, first, copies)
                continue
            if times != 0:
                add_others(words, signed(at), kept, first, second, times, term, nodes, free)
            add_others(partners, signed(place), kept, first, second, copies, term, nodes, free)


@njit(nogil=True, cache=True, inline="always")
def _read_again(
    words: Int64s,
    base: np.uint64,
    terms: Places,
    reads: Places,
    nodes: Nodes,
    scratch: NDArray[np.int64],
) -> None:
    """Set the words of reads that are not COUNT or WHOLE."""
    for read in range(reads.shape[0]):
        if reads[read, READ] > _READ_WHOLE:
            at = base + reads[read, CACHED]
            words[at], words[at + _ONE] = read_others(
                words, signed(base), terms, reads, read, nodes, scratch
            )


@njit(nogil=True, cache=True, inline="always")
def _touch(
    words: Int64s,
    base: np.uint64,
    group: np.uint64,
    terms: Places,
    reads: Places,
    groups: NDArray[np.uint64],
    olds: NDArray[np.int64],
    which: Row,
) -> None:
    """Note a group as touched, with its result; of some reads, what was read last."""
    groups[which], olds[which, 0] = group, words[base] >> 1
    words[base] += 1
    for read in range(reads.shape[0]):
        at, to = base + terms[reads[read, OF], AT], 1 + RESULT_WORDS * read
        olds[which, to] = words[at]
        first, second = _words_read(words, base, at, reads, read)
        olds[which, to + 1], olds[which, to + 2] = first, second


@njit(nogil=True, cache=True, inline="always")
def _words_read(
    words: Int64s, base: np.uint64, at: np.uint64, reads: Places, read: int
) -> tuple[int, int]:
    """Two words of a read. at: place of its term."""
    first = second = 0
    if reads[read, READ] == _READ_WHOLE:
        high = words[at + _TWO]
        first = (high << 32) + words[at + _ONE]
        second = (high - (first >> 32)) >> 32
    elif reads[read, READ] > _READ_WHOLE:
        cached = base + reads[read, CACHED]
        first, second = words[cached], words[cached + _ONE]
    return first, second


@njit(nogil=True, cache=True, inline="always")
def _write_change(
    words: Int64s,
    base: np.uint64,
    terms: Places,
    reads: Places,
    groups: NDArray[np.uint64],
    olds: NDArray[np.int64],
    which: Row,
    instant: int,
    is_scalar: bool,
    rows: ResultRows,
    made: np.uint64,
) -> np.uint64:
    """Write the old and the new row of a group, if they differ; return how many rows there are.

    A row of an empty group is overwritten by the next one: which rows there are cannot be
    predicted, so branches on it are slow.
    """
    results, group = rows.results, groups[which]
    was, now = olds[which, 0], words[base] >> 1
    new, differ = made + Place(is_scalar | (was > 0)), was != now
    rows.instants[made], rows.ids[made], rows.weight[made] = instant, group, -1
    rows.instants[new], rows.ids[new], rows.weight[new] = instant, group, 1
    results[0, made] = was
    results[0, new] = now
    for read in range(reads.shape[0]):
        at, to = base + terms[reads[read, OF], AT], 1 + RESULT_WORDS * read
        count = words[at]
        first, second = _words_read(words, base, at, reads, read)
        for place in range(RESULT_WORDS):
            results[to + place, made] = olds[which, to + place]
        results[to, new], results[to + 1, new], results[to + 2, new] = count, first, second
        differ |= (count != olds[which, to]) | (first != olds[which, to + 1])
        differ |= second != olds[which, to + 2]
    return new + Place(is_scalar | (now > 0)) if differ else made


_INT64S, _UINT64S = types.int64[::1], types.uint64[::1]
_TABLE, _PLACES = types.int64[:, ::1], types.uint64[:, ::1]
_NAMED: Any = types.NamedTuple
_SIGNATURE = types.int64(
    _NAMED((_INT64S, _UINT64S, _INT64S, _TABLE, _UINT64S, _INT64S), OrderedEvents),
    _NAMED((_PLACES, _PLACES, types.boolean, types.int64, types.int64, types.int64), Layout),
    _NAMED((_INT64S, _INT64S, _TABLE, _INT64S), GroupState),
    _NAMED((_UINT64S, _TABLE), TouchedGroups),
    _NAMED((_INT64S, _UINT64S, _INT64S, _TABLE), ResultRows),
)


def aggregate_events(
    events: OrderedEvents,
    layout: Layout,
    state: GroupState,
    touched: TouchedGroups,
    out: ResultRows,
) -> int:
    """Apply events by instant; returns how many rows were emitted.

    Returns:
      -1: an event has more than TIMES_MAX copies.
    """
    kernel = _aggregate_pairs if layout.partner_width else _aggregate_rows
    return int(kernel(events, layout, state, touched, out))


@njit(_SIGNATURE, nogil=True, cache=True)
def _aggregate_rows(
    events: OrderedEvents,
    layout: Layout,
    state: GroupState,
    touched: TouchedGroups,
    out: ResultRows,
) -> int:
    """Apply the rows of one input."""
    instants, ids, weight = borrowed(events.instants), borrowed(events.ids), borrowed(events.weight)
    order, values = borrowed(events.order), borrowed(events.values)
    terms, reads = borrowed(layout.terms), borrowed(layout.reads)
    words, nodes, free = borrowed(state.words), borrowed(state.nodes), borrowed(state.free)
    groups, olds = borrowed(touched.groups), borrowed(touched.olds)
    rows = _rows_of(out)
    is_scalar, width = layout.is_scalar, Place(layout.width)
    has_others, scratch = _has_others(reads), np.empty((3, SCRATCH), np.int64)
    made, at, end = _ZERO, _ZERO, Place(ids.size)
    while at < end:
        instant, some = instants[order[at]], _ZERO
        while at < end and instants[order[at]] == instant:
            row = order[at]
            group = _ZERO if is_scalar else ids[row]
            base = group * width
            if not is_scalar:
                _bring_near(words, ids[order[min(at + _AHEAD, end - _ONE)]], width)
            if words[base] & 1 == 0:
                _touch(words, base, group, terms, reads, groups, olds, some)
                some += _ONE
            times = weight[row]
            if abs(times) > TIMES_MAX:
                return -1
            words[base] += 2 * times
            _add_row(words, base, terms, values, row, times, nodes, free)
            at += _ONE
        for which in range(_ZERO, some):
            _bring_near(words, groups[min(which + _TWO * _AHEAD, some - _ONE)], width)
            base = groups[which] * width
            words[base] -= 1
            if has_others:
                _read_again(words, base, terms, reads, nodes, scratch)
            made = _write_change(
                words, base, terms, reads, groups, olds, which, instant, is_scalar, rows, made
            )
    return signed(made)


@njit(_SIGNATURE, nogil=True, cache=True)
def _aggregate_pairs(
    events: OrderedEvents,
    layout: Layout,
    state: GroupState,
    touched: TouchedGroups,
    out: ResultRows,
) -> int:
    """Apply the rows of two inputs, of which the pairs are aggregated."""
    instants, ids, weight = borrowed(events.instants), borrowed(events.ids), borrowed(events.weight)
    order, sides, values = borrowed(events.order), borrowed(events.sides), borrowed(events.values)
    terms, reads = borrowed(layout.terms), borrowed(layout.reads)
    words, partners = borrowed(state.words), borrowed(state.partners)
    nodes, free = borrowed(state.nodes), borrowed(state.free)
    groups, olds = borrowed(touched.groups), borrowed(touched.olds)
    rows = _rows_of(out)
    is_scalar, right_at = layout.is_scalar, Place(layout.right_at)
    width, partner_width = Place(layout.width), Place(layout.partner_width)
    has_others, scratch = _has_others(reads), np.empty((3, SCRATCH), np.int64)
    made, at, end = _ZERO, _ZERO, Place(ids.size)
    while at < end:
        instant, some = instants[order[at]], _ZERO
        while at < end and instants[order[at]] == instant:
            soon = ids[order[min(at + _AHEAD, end - _ONE)]]
            row, side = order[at], sides[at]
            group = _ZERO if is_scalar else ids[row]
            base, partner = group * width, ids[row] * partner_width
            if not is_scalar:
                _bring_near(words, soon, width)
            _bring_near(partners, soon, partner_width)
            if words[base] & 1 == 0:
                _touch(words, base, group, terms, reads, groups, olds, some)
                some += _ONE
            copies = weight[row]
            times = copies * partners[partner if side == 1 else partner + right_at]
            partners[partner + right_at if side == 1 else partner] += copies
            if abs(times) > TIMES_MAX or abs(copies) > TIMES_MAX:
                return -1
            words[base] += 2 * times
            _add_pairs(
                words, base, partners, partner, terms, side, values, row, times, copies, nodes, free
            )
            at += _ONE
        for which in range(_ZERO, some):
            _bring_near(words, groups[min(which + _TWO * _AHEAD, some - _ONE)], width)
            base = groups[which] * width
            words[base] -= 1
            if has_others:
                _read_again(words, base, terms, reads, nodes, scratch)
            made = _write_change(
                words, base, terms, reads, groups, olds, which, instant, is_scalar, rows, made
            )
    return signed(made)
