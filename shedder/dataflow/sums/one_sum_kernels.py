"""Words of groups with one sum of whole numbers, which most queries have.

The same words as of `sum_kernels`, with all places known: what the loops over terms and reads take
from tables is read again behind every store. Of a group there are twice its rows, and then the
count, the low and the high digit of its sum.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from shedder.dataflow.sums.exact_sums import MASK
from shedder.dataflow.sums.ordered_events import OrderedEvents
from shedder.dataflow.sums.sum_kernels import (
    AHEAD,
    ONE,
    TWO,
    ZERO,
    GroupWork,
    Layout,
    Place,
    whole_sum,
    write_both,
    write_heads,
)
from shedder.dataflow.sums.term_kernels import KEPT, READ, ReadKind, TermKind, signed
from synopses.kernels.prefetch import prefetch

_WIDTH = Place(4)
_HIGH = Place(3)


def is_one_sum(layout: Layout) -> bool:
    """Return whether groups have one term and one read, both of whole numbers."""
    if layout.is_scalar or layout.terms.shape[0] != 1 or layout.reads.shape[0] != 1:
        return False
    return bool(layout.terms[0, KEPT] == TermKind.WHOLE and layout.reads[0, READ] == ReadKind.WHOLE)


@njit(nogil=True, cache=True, inline="always")
def take_sums(
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
    words, keys, groups, olds = work.words, work.keys, work.groups, work.olds
    instants, ids, weight, values = run.instants, run.ids, run.weight, run.values
    end = Place(ids.size)
    while head < end and instants[head] + later_us == instant:
        soon = ids[min(head + AHEAD, end - ONE)]
        prefetch(words, signed(soon * _WIDTH))
        prefetch(keys, signed(soon))
        group = ids[head]
        base = group * _WIDTH
        rows, count = words[base], words[base + ONE]
        low, high = words[base + TWO], words[base + _HIGH]
        if rows & 1 == 0:
            groups[some], olds[some, ZERO], olds[some, ONE] = group, rows >> 1, count
            olds[some, TWO], olds[some, _HIGH] = whole_sum(low, high)
            rows += 1
            some += ONE
        times = -weight[head] if later_us else weight[head]
        most = max(most, abs(times))
        words[base] = rows + 2 * times
        if values[head, ZERO] & 1 == 0:
            value = values[head, ONE]
            low += (value & MASK) * times
            words[base + ONE], words[base + TWO] = count + times, low & MASK
            words[base + _HIGH] = high + (value >> 32) * times + (low >> 32)
        head += ONE
    return head, some, most


@njit(nogil=True, cache=True, inline="always")
def write_sums(work: GroupWork, some: np.uint64, instant: int, made: np.uint64) -> np.uint64:
    """Write the changes of the groups that an instant has touched; as `write_changes`."""
    words, keys, groups, olds = work.words, work.keys, work.groups, work.olds
    results, nulls, columns = work.rows.results, work.rows.nulls, work.columns
    of_rows, of_count, of_low, of_high = columns[0], columns[1], columns[2], columns[3]
    for which in range(ZERO, some):
        soon = groups[min(which + TWO * AHEAD, some - ONE)]
        prefetch(words, signed(soon * _WIDTH))
        prefetch(keys, signed(soon))
        group = groups[which]
        base = group * _WIDTH
        words[base] -= 1
        key = keys[group] if keys.size > 0 else signed(group)
        was, before = olds[which, ZERO], olds[which, ONE]
        old_first, old_second = olds[which, TWO], olds[which, _HIGH]
        now, count = words[base] >> 1, words[base + ONE]
        first, second = whole_sum(words[base + TWO], words[base + _HIGH])
        new = made + Place(was > 0)
        write_heads(work.rows, made, new, key, instant)
        nulls[ZERO, made] = (before == 0) | (old_second != 0)
        nulls[ZERO, new] = (count == 0) | (second != 0)
        write_both(results, of_rows, made, new, was, now)
        write_both(results, of_count, made, new, before, count)
        write_both(results, of_low, made, new, old_first, first)
        write_both(results, of_high, made, new, old_second, second)
        differ = (was != now) | (count != before) | (first != old_first) | (second != old_second)
        made = new + Place(now > 0) if differ else made
    return made
