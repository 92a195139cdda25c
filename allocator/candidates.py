"""The options that can be anybody's best near some prices: at most a tenth of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from allocator.demands import Floats, Integers, Options

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
        width = highest[0] - lowest[0], highest[1] - lowest[1]
        found = []
        for rows in blocks(objective):
            size, cost = options.size_float[rows], options.cost_ns[rows]
            size_paid, cost_paid = size * middle[0], cost * middle[1]
            payment = objective[rows] + size_paid
            payment += cost_paid
            best = np.arange(len(size)), payment.argmin(1)
            payment -= payment[best][:, None]
            for column, half in ((size, width[0] / 2), (cost, width[1] / 2)):
                away = column - column[best][:, None]
                payment -= np.abs(away, out=away) * half
            found.append(np.flatnonzero(payment <= 0) + rows.start * objective.shape[1])
        row, option = np.divmod(np.concatenate(found), objective.shape[1])
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

    def best(self, per_byte: float, per_ns: float) -> tuple[Integers, Floats]:
        """Which of them are best at prices, [r] of [m], and what is then paid, [r]."""
        payment = self.size_bytes * per_byte
        payment += self.objective
        if per_ns:
            payment += self.cost_ns * per_ns
        return self.first_least(payment)

    def first_least(self, value: Floats) -> tuple[Integers, Floats]:
        """Of a value of each, [m]: where each synopsis has its least, [r], and that, [r]."""
        least = np.minimum.reduceat(value, self.start)
        hit = np.flatnonzero(value == least[self.place])
        if len(hit) == len(least):
            return hit, least
        row = self.place[hit]
        return hit[np.r_[True, row[1:] != row[:-1]]], least


def blocks(matrix: Floats) -> Iterator[slice]:
    """Stretches of rows that fit into a processor's cache with a few arrays of their size."""
    rows = max(1, _BLOCK // max(1, matrix.shape[1]))
    return (slice(start, start + rows) for start in range(0, len(matrix), rows))
