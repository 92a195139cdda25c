"""Words of groups: rows that come and leave, and the old and the new result of each group.

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
from shedder.dataflow.sums.exact_sums import MASK
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

NOWHERE = Place(1 << 32)  # Column of a word that no aggregate needs.
ZERO, ONE, TWO = Place(0), Place(1), Place(2)
_LINE = Place(8)  # Words of a cache line.
AHEAD = Place(32)  # Events, or groups, between bringing a group near and reading it.
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
    columns: the column of `ResultRows.results` for the number of rows, and then for the count and
      the two words of each read; NOWHERE: no aggregate needs it.
    """

    terms: Places
    reads: Places
    is_scalar: bool
    width: int
    partner_width: int
    right_at: int
    columns: Places


class GroupState(NamedTuple):
    """Words of all groups, of all keys of a join, and trees with a free node for each new value.

    keys: what a row of each group gets as its key; empty: rows get the number of the group.
    """

    words: Int64s
    keys: Int64s
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
    """Output, with room for two rows of each group that an instant touches.

    times: event times, before the instants. keys: as `GroupState`.
    results: int64 [columns, rows], as `Layout.columns`.
    nulls: [reads, rows]; 1: the term has no values, or a sum that is beyond 64 bits.
    """

    times: Int64s
    instants: Int64s
    keys: Int64s
    weight: Int64s
    results: NDArray[np.int64]
    nulls: NDArray[np.uint8]

    @classmethod
    def for_groups(cls, touched: int, columns: int, reads: int) -> ResultRows:
        """Room for the rows of so many groups that an instant touches."""
        room = 2 * touched
        times, instants, keys, weight = (np.empty(room, np.int64) for _ in range(4))
        results, nulls = np.empty((columns, room), np.int64), np.empty((reads, room), np.uint8)
        return cls(times, instants, keys, weight, results, nulls)

    def first(self, rows: int) -> ResultRows:
        """The first rows; as a copy where they are few, so that no reader holds the whole room."""
        some: list[Any] = [each[..., :rows] for each in self]
        if 2 * rows < len(self.instants):
            some = [each.copy() for each in some]
        return ResultRows(*some)


class GroupWork(NamedTuple):
    """What the inlined kernels of aggregates need: arrays are `borrowed`, and places are unsigned.

    has_others: some reads are not COUNT or WHOLE.
    rows: the output. scratch: [3, SCRATCH], for reads. Others: as of the tuples above.
    """

    terms: Places
    reads: Places
    columns: Places
    is_scalar: bool
    has_others: bool
    width: np.uint64
    partner_width: np.uint64
    right_at: np.uint64
    words: Int64s
    keys: Int64s
    partners: Int64s
    nodes: Nodes
    free: Int64s
    groups: Places
    olds: NDArray[np.int64]
    rows: ResultRows
    scratch: NDArray[np.int64]


@njit(nogil=True, cache=True, inline="always")
def _has_other_reads(reads: Places) -> bool:
    has_others = False
    for read in range(reads.shape[0]):
        has_others |= reads[read, READ] > _READ_WHOLE
    return has_others


@njit(nogil=True, cache=True, inline="always")
def _borrowed_rows(out: ResultRows) -> ResultRows:
    return ResultRows(
        borrowed(out.times),
        borrowed(out.instants),
        borrowed(out.keys),
        borrowed(out.weight),
        borrowed(out.results),
        borrowed(out.nulls),
    )


@njit(nogil=True, cache=True, inline="always")
def borrowed_work(
    layout: Layout,
    state: GroupState,
    touched: TouchedGroups,
    out: ResultRows,
    scratch: NDArray[np.int64],
) -> GroupWork:
    """Return the arrays of a call of a kernel, which its caller holds."""
    return GroupWork(
        borrowed(layout.terms),
        borrowed(layout.reads),
        borrowed(layout.columns),
        layout.is_scalar,
        _has_other_reads(layout.reads),
        Place(layout.width),
        Place(layout.partner_width),
        Place(layout.right_at),
        borrowed(state.words),
        borrowed(state.keys),
        borrowed(state.partners),
        borrowed(state.nodes),
        borrowed(state.free),
        borrowed(touched.groups),
        borrowed(touched.olds),
        _borrowed_rows(out),
        borrowed(scratch),
    )


@njit(nogil=True, cache=True, inline="always")
def bring_near(words: Int64s, row: np.uint64, width: np.uint64) -> None:
    """Fetch a row of words. A row of a cache line or less is in one line."""
    prefetch(words, signed(row * width))
    if width > _LINE:
        prefetch(words, signed(row * width + width - ONE))


@njit(nogil=True, cache=True, inline="always")
def _add_whole(words: Int64s, at: np.uint64, value: int, times: int) -> None:
    low = words[at] + (value & MASK) * times
    words[at] = low & MASK
    words[at + ONE] += (value >> 32) * times + (low >> 32)


@njit(nogil=True, cache=True, inline="always")
def add_row(
    work: GroupWork, base: np.uint64, values: NDArray[np.int64], row: np.uint64, times: int
) -> None:
    """Add a row of the one input to the terms of its group."""
    words, terms = work.words, work.terms
    for term in range(terms.shape[0]):
        if values[row, 0] & signed(terms[term, NULLS]) == 0:
            kept, at = terms[term, KEPT], base + terms[term, AT]
            words[at] += times
            if kept == _WHOLE:
                _add_whole(words, at + ONE, values[row, terms[term, FIRST]], times)
            elif kept != _COUNT:
                first, second = values[row, terms[term, FIRST]], values[row, terms[term, SECOND]]
                add_others(
                    words, signed(at), kept, first, second, times, term, work.nodes, work.free
                )


@njit(nogil=True, cache=True, inline="always")
def add_pairs(
    work: GroupWork,
    base: np.uint64,
    partner: np.uint64,
    side: int,
    values: NDArray[np.int64],
    row: np.uint64,
    times: int,
    copies: int,
) -> None:
    """Add the pairs of a row to the terms of its group, and the row to those of its key."""
    words, partners, terms = work.words, work.partners, work.terms
    nodes, free = work.nodes, work.free
    for term in range(terms.shape[0]):
        kept, at = terms[term, KEPT], base + terms[term, AT]
        place = partner + terms[term, PARTNER_AT]
        if terms[term, SIDE] != side:
            words[at] += partners[place] * copies
            if kept == _WHOLE:
                low = words[at + ONE] + partners[place + ONE] * copies
                words[at + ONE] = low & MASK
                words[at + TWO] += partners[place + TWO] * copies + (low >> 32)
            elif kept != _COUNT:
                add_other_words(words, signed(at), partners, signed(place), kept, copies)
        elif values[row, 0] & signed(terms[term, NULLS]) == 0:
            words[at] += times
            partners[place] += copies
            if kept == _COUNT:
                continue
            first, second = values[row, terms[term, FIRST]], values[row, terms[term, SECOND]]
            if kept == _WHOLE:
                _add_whole(words, at + ONE, first, times)
                _add_whole(partners, place + ONE, first, copies)
                continue
            if times != 0:
                add_others(words, signed(at), kept, first, second, times, term, nodes, free)
            add_others(partners, signed(place), kept, first, second, copies, term, nodes, free)


@njit(nogil=True, cache=True, inline="always")
def _read_again(work: GroupWork, base: np.uint64) -> None:
    """Set the words of reads that are not COUNT or WHOLE."""
    words, terms, reads = work.words, work.terms, work.reads
    for read in range(reads.shape[0]):
        if reads[read, READ] > _READ_WHOLE:
            at = base + reads[read, CACHED]
            words[at], words[at + ONE] = read_others(
                words, signed(base), terms, reads, read, work.nodes, work.scratch
            )


@njit(nogil=True, cache=True, inline="always")
def touch_group(work: GroupWork, base: np.uint64, group: np.uint64, which: Row) -> None:
    """Note a group as touched, with its result; of some reads, what was read last."""
    words, olds, reads = work.words, work.olds, work.reads
    work.groups[which], olds[which, 0] = group, words[base] >> 1
    words[base] += 1
    for read in range(reads.shape[0]):
        at, to = base + work.terms[reads[read, OF], AT], 1 + RESULT_WORDS * read
        olds[which, to] = words[at]
        first, second = _words_read(words, base, at, reads, read)
        olds[which, to + 1], olds[which, to + 2] = first, second


@njit(nogil=True, cache=True, inline="always")
def whole_sum(low: int, high: int) -> tuple[int, int]:
    """The low and the high word of a sum in its two digits."""
    first = (high << 32) + low
    return first, (high - (first >> 32)) >> 32


@njit(nogil=True, cache=True, inline="always")
def _words_read(
    words: Int64s, base: np.uint64, at: np.uint64, reads: Places, read: int
) -> tuple[int, int]:
    """Two words of a read. at: place of its term."""
    first = second = 0
    if reads[read, READ] == _READ_WHOLE:
        first, second = whole_sum(words[at + ONE], words[at + TWO])
    elif reads[read, READ] > _READ_WHOLE:
        cached = base + reads[read, CACHED]
        first, second = words[cached], words[cached + ONE]
    return first, second


@njit(nogil=True, cache=True, inline="always")
def write_heads(rows: ResultRows, made: np.uint64, new: np.uint64, key: int, instant: int) -> None:
    """Write what the old and the new row of a group have beside results."""
    rows.times[made], rows.instants[made], rows.keys[made] = instant - 1, instant, key
    rows.times[new], rows.instants[new], rows.keys[new] = instant - 1, instant, key
    rows.weight[made], rows.weight[new] = -1, 1


@njit(nogil=True, cache=True, inline="always")
def write_both(
    results: NDArray[np.int64],
    column: np.uint64,
    made: np.uint64,
    new: np.uint64,
    before: int,
    now: int,
) -> None:
    """Write a word of the old and of the new row, if an aggregate needs it."""
    if column != NOWHERE:
        results[column, made] = before
        results[column, new] = now


@njit(nogil=True, cache=True, inline="always")
def _write_change(
    work: GroupWork, base: np.uint64, key: int, which: Row, instant: int, made: np.uint64
) -> np.uint64:
    """Write the old and the new row of a group, if they differ; return how many rows there are.

    A row of an empty group is overwritten by the next one: which rows there are cannot be
    predicted, so branches on it are slow.
    """
    words, olds, reads, columns = work.words, work.olds, work.reads, work.columns
    results, nulls, is_scalar = work.rows.results, work.rows.nulls, work.is_scalar
    was, now = olds[which, 0], words[base] >> 1
    new, differ = made + Place(is_scalar | (was > 0)), was != now
    write_heads(work.rows, made, new, key, instant)
    write_both(results, columns[0], made, new, was, now)
    for read in range(reads.shape[0]):
        at, to = base + work.terms[reads[read, OF], AT], 1 + RESULT_WORDS * read
        count, is_whole = words[at], reads[read, READ] == _READ_WHOLE
        first, second = _words_read(words, base, at, reads, read)
        before, old_first, old_second = olds[which, to], olds[which, to + 1], olds[which, to + 2]
        nulls[read, made] = (before == 0) | (is_whole & (old_second != 0))
        nulls[read, new] = (count == 0) | (is_whole & (second != 0))
        write_both(results, columns[to], made, new, before, count)
        write_both(results, columns[to + 1], made, new, old_first, first)
        write_both(results, columns[to + 2], made, new, old_second, second)
        differ |= (count != before) | (first != old_first) | (second != old_second)
    return new + Place(is_scalar | (now > 0)) if differ else made


@njit(nogil=True, cache=True, inline="always")
def write_changes(work: GroupWork, some: np.uint64, instant: int, made: np.uint64) -> np.uint64:
    """Write the changes of the groups that an instant has touched."""
    words, keys, groups = work.words, work.keys, work.groups
    for which in range(ZERO, some):
        soon = groups[min(which + TWO * AHEAD, some - ONE)]
        bring_near(words, soon, work.width)
        prefetch(keys, signed(soon))
        group = groups[which]
        base = group * work.width
        words[base] -= 1
        if work.has_others:
            _read_again(work, base)
        key = keys[group] if keys.size > 0 else signed(group)
        made = _write_change(work, base, key, which, instant, made)
    return made
