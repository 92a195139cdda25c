"""Cost of a join with a negation, in rows that operators take and give, for both orders.

Values are uniform, and the values of one window are among those of the other with more of them.
L ANTI R is L - (L join distinct R). So a value of R that comes or goes sends the rows of L with
this value through the operators above. The distinct rows of R cost the same in both orders.
Source: Golab 2006, section 3.5.3 (pull-up of negation, and that both orders need a cost).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_STEPS = 60  # Of the bisection in `distinct_values`.


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Rows of a window. rate_per_s: that come. rows: in the window."""

    rate_per_s: float
    rows: float


@dataclass(frozen=True, slots=True)
class NegatedJoin:
    """A join of `kept` and `other`, without the rows of `kept` that match a row of `negated`.

    values: different values, at least 1, of the attribute of the join. negated_values: of that of
      the negation in `negated`. kept_values: of the same in `kept`.
    """

    kept: WindowRows
    other: WindowRows
    negated: WindowRows
    values: float
    kept_values: float
    negated_values: float

    @property
    def below(self) -> float:
        """Rows per second if the negation stands below the join."""
        cost, made, live = self._negation(self.kept)
        pairs = made * self.other.rows / self.values
        pairs += self.other.rate_per_s * live / self.values
        return cost + made + self.other.rate_per_s + pairs

    @property
    def above(self) -> float:
        """Rows per second if the negation stands above the join."""
        kept, other = self.kept, self.other
        pairs = kept.rate_per_s * other.rows + other.rate_per_s * kept.rows
        joined = WindowRows(pairs / self.values, kept.rows * other.rows / self.values)
        cost, _, _ = self._negation(joined)
        return kept.rate_per_s + other.rate_per_s + joined.rate_per_s + cost

    def _negation(self, rows: WindowRows) -> tuple[float, float, float]:
        """Return rows per second of a negation and of its output, and the rows of its result."""
        widest = max(self.kept_values, self.negated_values)
        is_absent = math.exp(-self.negated.rows / self.negated_values)
        present = self.negated_values * (1 - is_absent) / widest
        changes = 2 * self.negated.rate_per_s * is_absent  # Values that come or go.
        moved = changes * rows.rows / widest
        matched = rows.rate_per_s * present + moved
        made = rows.rate_per_s * (1 - present) + moved
        joins = rows.rate_per_s + changes + matched
        difference = rows.rate_per_s + matched + made
        return joins + 2 * matched + difference, made, rows.rows * (1 - present)


def distinct_values(seen: int, sampled: int) -> float:
    """Return how many uniform values have `seen` different ones in a sample, at least 1.

    sampled: rows of the sample. A sample without two equal rows gives its square.
    """
    if seen >= sampled:
        return float(max(1, sampled * sampled))
    low, high = float(max(1, seen)), float(max(2, sampled * sampled))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if -middle * math.expm1(-sampled / middle) < seen:
            low = middle
        else:
            high = middle
    return high
