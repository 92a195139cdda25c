"""Loops that do the least there is to do: what the kernels of summaries are measured against.

They know neither extremes nor infinities nor NaN, refuse nothing, never grow, and have no panes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from benchmarks.workloads.summaries import GROUPS, SummaryCase
from synopses.hll.register_kernels import register_of
from synopses.kernels.group_ordering import by_group
from synopses.kernels.hashing import murmur_int64
from synopses.kernels.prefetch import prefetch

_SHIFT = 45  # Of a double's bits: 7 of the mantissa, as log buckets have them.
_CELLS = 1 << 12  # 32 octaves; those of the data are chosen, others fall on them.
_SLOTS = 1 << 12  # Registers of a group.
_BLOCK = 128
_NO_RIVAL = "", 1.0


@dataclass(frozen=True, slots=True)
class Floor:
    """A bare loop, and the case of the page about updating that does the same and more."""

    case: SummaryCase
    beside: str


@njit(nogil=True)
def _in_registers(totals: Any, values: Any) -> None:
    """Ten rounds of xorshift a value: nothing is stored, and little read."""
    total = np.uint64(0)
    for row in range(values.size):
        word = np.uint64(row)
        for _ in range(10):
            word ^= word << np.uint64(13)
            word ^= word >> np.uint64(7)
            word ^= word << np.uint64(17)
        total += word
    totals[0] += total


@njit(nogil=True)
def _count_and_sum(sums: Any, counts: Any, ids: Any, values: Any) -> None:
    for row in range(values.size):
        group = np.uint32(ids[row])
        sums[group] += values[row]
        counts[group] += 1


@njit(nogil=True)
def _compensated(sums: Any, rests: Any, counts: Any, ids: Any, values: Any) -> None:
    """Sums as unevaluated pairs (Knuth, TAOCP 2, 4.2.2, Thm B), as moments have them."""
    for row in range(values.size):
        group, x = np.uint32(ids[row]), values[row]
        before = sums[group]
        total = before + x
        part = total - before
        sums[group] = total
        rests[group] += (before - (total - part)) + (x - part)
        counts[group] += 1


@njit(nogil=True)
def _buckets(counters: Any, ids: Any, bits: Any) -> None:
    for row in range(bits.size):
        counters[np.uint32(ids[row]), (bits[row] >> np.uint64(_SHIFT)) & np.uint64(_CELLS - 1)] += 1


@njit(nogil=True)
def _buckets_of_runs(counters: Any, bounds: Any, bits: Any) -> None:
    for group in range(bounds.size - 1):
        for row in range(bounds[group], bounds[group + 1]):
            counters[group, (bits[row] >> np.uint64(_SHIFT)) & np.uint64(_CELLS - 1)] += 1


@njit(nogil=True)
def _registers(registers: Any, ids: Any, h1: Any, h2: Any) -> None:
    """Which line of a table is wanted is known some rows before it is looked at."""
    places, values = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint8)
    lines = registers.reshape(-1, 64)
    for first in range(0, ids.size, _BLOCK):
        of, slots = ids[first : first + _BLOCK], h1[first : first + _BLOCK]
        zeros = h2[first : first + _BLOCK]
        for row in range(of.size):
            group, slot = np.uint64(np.uint32(of[row])), slots[row] & np.uint64(_SLOTS - 1)
            places[row] = group * np.uint64(_SLOTS) + slot
            values[row] = register_of(zeros[row])
            prefetch(lines, int(places[row] >> np.uint64(6)))
        for row in range(of.size):
            registers[places[row]] = max(registers[places[row]], values[row])


def floors(given: dict[str, Any]) -> list[Floor]:
    """The bare loops over these columns (summaries.py)."""
    values, ids, bits = given["value"], given["g"], given["value"].view(np.uint64)
    h1, h2 = murmur_int64(given["fresh"])
    sums = "count, sum, min, max by group"

    def dealt(counters: Any, rows: slice) -> None:
        bounds, mine = by_group(ids[rows], bits[rows], GROUPS)
        _buckets_of_runs(counters, bounds, mine)

    def words() -> Any:
        return np.zeros(1, np.uint64)

    def counters() -> Any:
        return np.zeros((GROUPS, _CELLS), np.uint16)

    def case(name: str, make: Any, feed: Any) -> SummaryCase:
        return SummaryCase(f"bare: {name}", make, feed, _NO_RIVAL)

    return [
        Floor(
            case("in registers, without memory", words, lambda s, r: _in_registers(s, values[r])),
            "",
        ),
        Floor(
            case("numpy's sum of a column", lambda: None, lambda _, r: values[r].sum()),
            "count, sum, min, max",
        ),
        Floor(
            case(
                "count and sum by group",
                lambda: (np.zeros(GROUPS), np.zeros(GROUPS, np.int64)),
                lambda s, r: _count_and_sum(s[0], s[1], ids[r], values[r]),
            ),
            sums,
        ),
        Floor(
            case(
                "count and compensated sum by group",
                lambda: (np.zeros(GROUPS), np.zeros(GROUPS), np.zeros(GROUPS, np.int64)),
                lambda s, r: _compensated(s[0], s[1], s[2], ids[r], values[r]),
            ),
            sums,
        ),
        Floor(
            case(
                "a table of registers by group",
                lambda: np.zeros(GROUPS * _SLOTS, np.uint8),
                lambda s, r: _registers(s, ids[r], h1[r], h2[r]),
            ),
            "distinct by group, hashed",
        ),
        Floor(
            case(
                "a table of buckets by group",
                counters,
                lambda s, r: _buckets(s, ids[r], bits[r]),
            ),
            "log buckets by group",
        ),
        Floor(
            case(
                "a table of buckets by group, dealt out by group before",
                counters,
                dealt,
            ),
            "log buckets by group",
        ),
    ]
