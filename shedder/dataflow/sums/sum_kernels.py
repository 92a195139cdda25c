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
from numba import njit
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
_AHEAD = Place(32)  # Events, or groups, between bringing a group near and reading it.
_COUNT, _WHOLE = int(TermKind.COUNT), int(TermKind.WHOLE)
_READ_WHOLE = int(ReadKind.WHOLE)  # Reads above it have their words in a group.


class Layout(NamedTuple):
    """Places of words.

    terms, reads: [.., columns], as in `term_kernels`.
    is_scalar: all keys are group 0, which has a row even if it is empty; else each key is a group.
    width: words of a group; the last is 0 between instants.
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


@njit(nogil=True, cache=True)
def aggregate_events(
    events: OrderedEvents, layout: Layout, state: GroupState, rows: ResultRows
) -> int:
    """Apply events by instant; returns how many rows were emitted.

    Returns:
      -1: an event has more than TIMES_MAX copies.
    """
    instants, ids, weight = borrowed(events.instants), borrowed(events.ids), borrowed(events.weight)
    order, sides, values = borrowed(events.order), borrowed(events.sides), borrowed(events.values)
    terms, reads = borrowed(layout.terms), borrowed(layout.reads)
    words, partners = borrowed(state.words), borrowed(state.partners)
    nodes, free = borrowed(state.nodes), borrowed(state.free)
    touched, results = borrowed(rows.ids), borrowed(rows.results)
    out_instants, out_weight = borrowed(rows.instants), borrowed(rows.weight)
    is_scalar, is_join = layout.is_scalar, layout.partner_width > 0
    width, partner_width = Place(layout.width), Place(layout.partner_width)
    scratch = np.empty((3, SCRATCH), np.int64)
    made, at, end = _ZERO, _ZERO, Place(ids.size)
    while at < end:
        instant = instants[order[at]]
        first = behind = made  # Groups of this instant have two rows each, from `first` on.
        while at < end and instants[order[at]] == instant:
            soon = ids[order[min(at + _AHEAD, end - _ONE)]]
            row, key = order[at], ids[order[at]]
            group = _ZERO if is_scalar else key
            base, partner = group * width, key * partner_width
            if not is_scalar:
                _bring_near(words, soon, width)
            if words[base + width - _ONE] == 0:
                words[base + width - _ONE] = 1
                _write_result(words, base, terms, reads, results, behind)
                touched[behind] = group
                behind += _TWO
            copies = times = weight[row]
            if is_join:
                _bring_near(partners, soon, partner_width)
                left_at, right_at = partner, partner + Place(layout.right_at)
                times *= partners[left_at if sides[at] == 1 else right_at]
                partners[right_at if sides[at] == 1 else left_at] += copies
            if abs(times) > TIMES_MAX or abs(copies) > TIMES_MAX:
                return -1
            words[base] += times
            if is_join:
                _add_pairs(
                    words,
                    base,
                    partners,
                    partner,
                    terms,
                    sides[at],
                    values,
                    row,
                    times,
                    copies,
                    nodes,
                    free,
                )
            else:
                _add_row(words, base, terms, values, row, times, nodes, free)
            at += _ONE
        for old in range(first, behind, _TWO):
            _bring_near(words, touched[min(old + _TWO * _AHEAD, behind - _TWO)], width)
            group, new = touched[old], old + _ONE
            words[group * width + width - _ONE] = 0
            _read_again(words, group * width, terms, reads, nodes, scratch)
            _write_result(words, group * width, terms, reads, results, new)
            if not _differ(results, old, new):
                continue
            # Without branches: which of the two rows there are is not predictable.
            was, there = is_scalar | (results[0, old] > 0), is_scalar | (results[0, new] > 0)
            out_instants[made], touched[made], out_weight[made] = instant, group, -1
            _move(results, old, made)
            made += Place(was)
            out_instants[made], touched[made], out_weight[made] = instant, group, 1
            _move(results, new, made)
            made += Place(there)
    return signed(made)


@njit(nogil=True, cache=True, inline="always")
def _bring_near(words: Int64s, row: np.uint64, width: np.uint64) -> None:
    prefetch(words, signed(row * width))
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
def _write_result(
    words: Int64s,
    base: np.uint64,
    terms: Places,
    reads: Places,
    results: NDArray[np.int64],
    row: Row,
) -> None:
    """Write the result of a group; of other reads than COUNT and WHOLE, what was read last."""
    results[0, row] = words[base]
    for read in range(reads.shape[0]):
        at, to = base + terms[reads[read, OF], AT], 1 + RESULT_WORDS * read
        results[to, row] = words[at]
        first = second = 0
        if reads[read, READ] == _READ_WHOLE:
            first, second = words[at + _TWO], words[at + _ONE]
        elif reads[read, READ] > _READ_WHOLE:
            at = base + reads[read, CACHED]
            first, second = words[at], words[at + _ONE]
        results[to + 1, row], results[to + 2, row] = first, second


@njit(nogil=True, cache=True, inline="always")
def _differ(results: NDArray[np.int64], row: Row, other: Row) -> bool:
    differ = False
    for word in range(results.shape[0]):
        differ |= results[word, row] != results[word, other]
    return differ


@njit(nogil=True, cache=True, inline="always")
def _move(results: NDArray[np.int64], row: Row, to: Row) -> None:
    if row != to:
        for word in range(results.shape[0]):
            results[word, to] = results[word, row]
