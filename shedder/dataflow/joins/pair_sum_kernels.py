"""Kernel of counts and sums over the pairs of an equi-join, without the pairs.

A key with n rows on the left and m on the right has n * m pairs. The sum of a left argument over
these pairs is m times its sum over the left rows. So a row changes the results of its key by one
product per aggregate, whatever the number of its partners.
Source: Yan, Larson 1995, Eager aggregation and lazy aggregation; Nikolic, Olteanu 2018, F-IVM.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.dataflow.changes import Int64s
from shedder.dataflow.sums.exact_sums import DIGITS, WORDS, add_double, carry
from shedder.dataflow.sums.sum_kernels import read_result
from synopses.kernels.prefetch import prefetch

_AHEAD = 16  # Events between bringing a key near and reading it.


@njit(nogil=True, cache=True, inline="always")
def _words(kind: int) -> int:
    return 1 if kind == 0 else 3 if kind == 1 else 1 + WORDS


@njit(nogil=True, cache=True)
def _normalise(states: NDArray[np.int64], row: int, first: int, kind: int) -> None:
    """Bring the low words of a sum below 2^32, so that it can be multiplied by a count.

    first: its word of the count.
    """
    if kind == 1:
        states[row, first + 1] += states[row, first + 2] >> 32
        states[row, first + 2] &= 0xFFFFFFFF
    elif kind == 2:
        carry(states[row, first + 1 : first + 1 + WORDS])


@njit(nogil=True, cache=True)
def _normalise_side(side: NDArray[np.int64], key: int, kinds: Int64s) -> None:
    at = 1
    for kind in kinds:
        _normalise(side, key, at, kind)
        at += _words(kind)


@njit(nogil=True, cache=True)
def _add_side(
    states: NDArray[np.int64],
    group: int,
    first: int,
    side: NDArray[np.int64],
    key: int,
    kinds: Int64s,
    times: int,
) -> int:
    """Add a side's arguments, so many times, to a group; returns the group's next word.

    High words wrap beyond 96 bits of a sum of whole numbers. A sum within 64 bits stays exact.
    """
    at, to = 1, first
    for kind in kinds:
        words = _words(kind)
        for word in range(words):
            states[group, to + word] += side[key, at + word] * times
        _normalise(states, group, to, kind)
        at += words
        to += words
    return to


@njit(nogil=True, cache=True)
def _add_pairs(
    states: NDArray[np.int64],
    group: int,
    lefts: NDArray[np.int64],
    rights: NDArray[np.int64],
    key: int,
    left_kinds: Int64s,
    right_kinds: Int64s,
    sign: int,
) -> None:
    """Add the pairs of a key to its group, or with sign -1 take them away."""
    left, right = sign * lefts[key, 0], sign * rights[key, 0]
    states[group, 0] += left * rights[key, 0]
    if left == 0 and right == 0:
        return
    at = _add_side(states, group, 1, lefts, key, left_kinds, right)
    _add_side(states, group, at, rights, key, right_kinds, left)


@njit(nogil=True, cache=True)
def _add_row(
    side: NDArray[np.int64],
    key: int,
    values: NDArray[np.int64],
    row: int,
    kinds: Int64s,
    times: int,
) -> None:
    side[key, 0] += times
    at = 1
    for place in range(kinds.size):
        kind = kinds[place]
        if values[row, 1] >> place & 1 == 0:
            side[key, at] += times
            value = values[row, 2 + place]
            if kind == 1:
                side[key, at + 1] += (value >> 32) * times
                side[key, at + 2] += (value & 0xFFFFFFFF) * times
            elif kind == 2:
                add_double(side[key, at + 1 :], value, times)
        at += _words(kind)


@njit(nogil=True, cache=True)
def sum_pairs(
    instants: Int64s,
    ids: Int64s,
    weight: Int64s,
    values: NDArray[np.int64],
    left_kinds: Int64s,
    right_kinds: Int64s,
    kinds: Int64s,
    is_scalar: bool,
    lefts: NDArray[np.int64],
    rights: NDArray[np.int64],
    states: NDArray[np.int64],
    results: NDArray[np.int64],
    is_touched: NDArray[np.bool_],
    out_instants: Int64s,
    out_ids: Int64s,
    out_weight: Int64s,
    out_results: NDArray[np.int64],
) -> int:
    """Apply events by instant; returns how many rows were emitted, at most two an event.

    Args:
      instants: ascending. ids, weight: key and copies.
      values: [events, 2 + arguments]: 0 for a left row and 1 for a right one, then as in
        `sum_groups` the arguments of that side.
      left_kinds, right_kinds: of the arguments of the sides. kinds: of all, left before right.
      is_scalar: all keys are group 0, which has a row even if it is empty; else each key is one.
      lefts, rights: [keys, words], the states of a key's rows on either side.
      states, results: [groups, words].
      is_touched: [keys], all false, and so left behind.
    """
    made = 0
    row = 0
    touched = np.empty(ids.size, np.int64)
    digits = np.empty(DIGITS, np.int64)
    total = np.empty(1, np.float64)
    old = np.empty(results.shape[1], np.int64)
    last = ids.size - 1
    while row < ids.size:
        instant = instants[row]
        some = 0
        while row < ids.size and instants[row] == instant:
            soon = ids[min(row + _AHEAD, last)]
            prefetch(lefts, soon)
            prefetch(rights, soon)
            key = ids[row]
            if not is_touched[key]:
                is_touched[key] = True
                touched[some] = key
                some += 1
                group = 0 if is_scalar else key
                _add_pairs(states, group, lefts, rights, key, left_kinds, right_kinds, -1)
            if values[row, 0] == 0:
                _add_row(lefts, key, values, row, left_kinds, weight[row])
            else:
                _add_row(rights, key, values, row, right_kinds, weight[row])
            row += 1
        for which in range(some):
            key = touched[which]
            is_touched[key] = False
            _normalise_side(lefts, key, left_kinds)
            _normalise_side(rights, key, right_kinds)
            place = 0 if is_scalar else key
            _add_pairs(states, place, lefts, rights, key, left_kinds, right_kinds, 1)
            if is_scalar and which + 1 < some:
                continue
            old[:] = results[place]
            if not read_result(states[place], kinds, digits, total, results[place]):
                continue
            if old[0] > 0 or is_scalar:
                out_instants[made], out_ids[made], out_weight[made] = instant, place, -1
                out_results[made] = old
                made += 1
            if results[place, 0] > 0 or is_scalar:
                out_instants[made], out_ids[made], out_weight[made] = instant, place, 1
                out_results[made] = results[place]
                made += 1
    return made
