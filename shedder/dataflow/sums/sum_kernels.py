"""Kernel of grouped counts and sums with retraction: each changed group gives its old and new row.

State of a group: int64 [STATE words]: its rows, and for each argument how many values it has and
their sum. A sum of whole numbers has two words, high * 2^32 + low; one of doubles is exact, too.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.dataflow.changes import Int64s
from shedder.dataflow.sums.exact_sums import DIGITS, WORDS, add_double, carry, rounded_sum
from synopses.kernels.prefetch import prefetch

_AHEAD = 16  # Events between bringing a group near and reading it.

RESULT_WORDS = 3  # Of an argument in a result: count, and high and low, or the bits of a double.


class Summed(IntEnum):
    """What is kept of an argument's values."""

    COUNT = 0
    WHOLE = 1
    DOUBLE = 2


def words_of(kind: Summed) -> int:
    """Words of an argument in the state of a group."""
    return 1 + (0, 2, WORDS)[kind]


@njit(nogil=True, cache=True)
def read_result(
    state: Int64s,
    kinds: Int64s,
    digits: Int64s,
    total: NDArray[np.float64],
    result: Int64s,
) -> bool:
    """Write the result of a group; return whether it has changed."""
    changed = bool(result[0] != state[0])
    result[0] = state[0]
    at, to = 1, 1
    for kind in kinds:
        first, second = 0, 0
        if kind == 1:
            first = state[at + 1] + (state[at + 2] >> 32)
            second = state[at + 2] & 0xFFFFFFFF
            state[at + 1], state[at + 2] = first, second
        elif kind == 2:
            words = state[at + 1 : at + 1 + WORDS]
            carry(words)
            total[0] = rounded_sum(words, digits)
            first = total.view(np.int64)[0]
        changed = changed or result[to] != state[at]
        changed = changed or result[to + 1] != first or result[to + 2] != second
        result[to], result[to + 1], result[to + 2] = state[at], first, second
        at += 1 if kind == 0 else 3 if kind == 1 else 1 + WORDS
        to += RESULT_WORDS
    return changed


@njit(nogil=True, cache=True)
def sum_groups(
    instants: Int64s,
    ids: Int64s,
    weight: Int64s,
    values: NDArray[np.int64],
    kinds: Int64s,
    is_scalar: bool,
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
      instants: ascending. ids, weight: group and copies.
      values: [events, 1 + arguments]: bit i of the first is set where argument i is NULL; then
        the arguments, doubles by their bits.
      kinds: of the arguments, as in `Summed`.
      is_scalar: there is one group, which has a row even if it is empty.
      states, results: [groups, words].
      is_touched: [groups], all false, and so left behind.
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
            prefetch(states, ids[min(row + _AHEAD, last)])
            prefetch(results, ids[min(row + _AHEAD, last)])
            group = ids[row]
            if not is_touched[group]:
                is_touched[group] = True
                touched[some] = group
                some += 1
            state = states[group]
            times = weight[row]
            state[0] += times
            at = 1
            for place in range(kinds.size):
                kind = kinds[place]
                if values[row, 0] >> place & 1 == 0:
                    state[at] += times
                    value = values[row, 1 + place]
                    if kind == 1:
                        state[at + 1] += (value >> 32) * times
                        state[at + 2] += (value & 0xFFFFFFFF) * times
                    elif kind == 2:
                        add_double(state[at + 1 :], value, times)
                at += 1 if kind == 0 else 3 if kind == 1 else 1 + WORDS
            row += 1
        for which in range(some):
            group = touched[which]
            is_touched[group] = False
            result = results[group]
            old[:] = result
            if not read_result(states[group], kinds, digits, total, result):
                continue
            if old[0] > 0 or is_scalar:
                out_instants[made], out_ids[made], out_weight[made] = instant, group, -1
                out_results[made] = old
                made += 1
            if result[0] > 0 or is_scalar:
                out_instants[made], out_ids[made], out_weight[made] = instant, group, 1
                out_results[made] = result
                made += 1
    return made
