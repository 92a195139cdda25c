"""Update patterns: when rows may leave the relation on an edge of the graph.

Source: Golab 2006, Sliding Window Query Processing over Data Streams, chapter 3. The rules are
those of section 3.5.1, with count windows as STRICT. A union is WEAKEST only for equal lifetimes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class UpdatePattern(IntEnum):
    """Order in which rows leave; a larger value allows more."""

    MONOTONIC = 0  # rows never leave
    WEAKEST = 1  # rows leave in the order in which they came
    WEAK = 2  # each row's expiry is known at its birth
    STRICT = 3  # rows may leave at any instant, by negative weights


@dataclass(frozen=True, slots=True)
class EdgeLabel:
    """Update pattern of an edge.

    lifetime_us: (range, slide) of all rows; only with WEAKEST.
    """

    pattern: UpdatePattern
    lifetime_us: tuple[int, int] | None = None

    @property
    def is_strict(self) -> bool:
        """Return whether negative weights may come."""
        return self.pattern is UpdatePattern.STRICT

    @property
    def leaves_in_order(self) -> bool:
        """Return whether rows leave in the order in which they came, or never."""
        return self.pattern <= UpdatePattern.WEAKEST


MONOTONIC = EdgeLabel(UpdatePattern.MONOTONIC)
WEAK = EdgeLabel(UpdatePattern.WEAK)
STRICT = EdgeLabel(UpdatePattern.STRICT)


def of_range(range_us: int, slide_us: int) -> EdgeLabel:
    """The label of a RANGE window over a stream."""
    return EdgeLabel(UpdatePattern.WEAKEST, (range_us, slide_us))


def of_union(left: EdgeLabel, right: EdgeLabel) -> EdgeLabel:
    """The label of a bag union: the inputs' own if equal, else the weaker promise of both."""
    if left == right:
        return left
    return EdgeLabel(max(left.pattern, right.pattern, UpdatePattern.WEAK))


def of_join(left: EdgeLabel, right: EdgeLabel) -> EdgeLabel:
    """The label of an inner join: a pair expires with its earlier part."""
    worst = max(left.pattern, right.pattern)
    if worst in (UpdatePattern.MONOTONIC, UpdatePattern.STRICT):
        return EdgeLabel(worst)
    return WEAK
