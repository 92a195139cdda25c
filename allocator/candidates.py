"""Candidates: the options that can be a synopsis' best near some prices; at most a tenth of all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from allocator.demands import Floats, Integers, Options
from allocator.kernels import best_of_stretches, best_somewhere

_BLOCK = 1 << 14  # float64s

Pair = tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Options of some synopses, one after the other, [m], by synopsis.

    row, option: int64 [m]; what it is an option of, ascending, and which.
    objective, size_bytes, cost_ns: float64 [m].
    rows, start: int64 [r]; each synopsis that has any, and where its first one is.
    place: int64 [m]; which of these synopses each belongs to.
    """

    row: Integers
    option: Integers
    objective: Floats
    size_bytes: Floats
    cost_ns: Floats
    rows: Integers
    start: Integers
    place: Integers

    @classmethod
    def of(cls, objective: Floats, options: Options, row: Integers, option: Integers) -> Candidates:
        """Some options, [m], `row` ascending."""
        at = row * objective.shape[1] + option
        columns = objective.ravel()[at], options.size_float.ravel()[at], options.cost_ns.ravel()[at]
        return cls._by_row(row, option, *columns)

    @classmethod
    def _by_row(
        cls, row: Integers, option: Integers, objective: Floats, size_bytes: Floats, cost_ns: Floats
    ) -> Candidates:
        is_first = np.r_[True, row[1:] != row[:-1]][: len(row)]
        start = np.flatnonzero(is_first)
        place = np.cumsum(is_first) - 1
        return cls(row, option, objective, size_bytes, cost_ns, row[start], start, place)

    @classmethod
    def all_of(cls, objective: Floats, options: Options, rows: Integers) -> Candidates:
        """All that some synopses, ascending, have."""
        at, option = np.divmod(np.flatnonzero(np.isfinite(objective[rows])), objective.shape[1])
        return cls.of(objective, options, rows[at], option)

    @classmethod
    def near(cls, objective: Floats, options: Options, lowest: Pair, highest: Pair) -> Candidates:
        """Those that are best at some prices between these.

        What an option pays more than another one is linear in the prices, so its least value is
        at a corner; where that is above 0 for the one that is best in the middle, it never is best.

        Args:
          objective, options: [n, k]. lowest, highest: of a byte and of a nanosecond.
        """
        middle = (lowest[0] + highest[0]) / 2, (lowest[1] + highest[1]) / 2
        half = (highest[0] - lowest[0]) / 2, (highest[1] - lowest[1]) / 2
        found = best_somewhere(objective, options.size_float, options.cost_ns, middle, half)
        row, option = np.divmod(np.flatnonzero(found), objective.shape[1])
        return cls.of(objective, options, row, option)

    def only(self, some: Integers) -> Candidates:
        """Some of them, ascending."""
        return Candidates._by_row(
            self.row[some],
            self.option[some],
            self.objective[some],
            self.size_bytes[some],
            self.cost_ns[some],
        )

    def without(self, place: int) -> Candidates:
        """Those of all synopses but the one of this place."""
        begin = int(self.start[place])
        end = int(self.start[place + 1]) if place + 1 < len(self.start) else len(self.row)
        start = np.concatenate([self.start[:place], self.start[place + 1 :] - (end - begin)])
        return Candidates(
            np.concatenate([self.row[:begin], self.row[end:]]),
            np.concatenate([self.option[:begin], self.option[end:]]),
            np.concatenate([self.objective[:begin], self.objective[end:]]),
            np.concatenate([self.size_bytes[:begin], self.size_bytes[end:]]),
            np.concatenate([self.cost_ns[:begin], self.cost_ns[end:]]),
            np.concatenate([self.rows[:place], self.rows[place + 1 :]]),
            start,
            np.concatenate([self.place[:begin], self.place[end:] - 1]),
        )

    def best(self, per_byte: float, per_ns: float) -> tuple[Integers, Floats]:
        """Return which of them are best at prices, [r] of [m], and what is then paid, [r]."""
        columns = self.objective, self.size_bytes, self.cost_ns
        at, paid = best_of_stretches(*columns, self.start, per_byte, per_ns)
        return at, paid


def blocks(matrix: Floats) -> Iterator[slice]:
    """Stretches of rows that fit into a processor's cache with a few arrays of their size."""
    rows = max(1, _BLOCK // max(1, matrix.shape[1]))
    return (slice(start, start + rows) for start in range(0, len(matrix), rows))
