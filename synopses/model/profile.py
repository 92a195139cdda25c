"""Profile of one kind of summary: sizes, precision curve, behaviour under thinning."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from synopses.model.errors import BadParameter
from synopses.model.parameters import as_confidence


class Share(Enum):
    """What an error is a share of."""

    VALUE = "of the value"
    TUPLES = "of the group's tuples"
    TAIL = "of the tuples beyond the value"


class Thinning(Enum):
    """Which tuples may be skipped before a summary under overload."""

    ROWS = "rows"  # Any random part of the rows: what was read stands for the rest.
    HASH = "hash"  # A random part of the column's values, with all rows of each.
    NEVER = "never"  # Skipping would spoil it for good.


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU that a summary takes, in ns, of one group and where tuples are of a thousand groups.

    Measured by benchmarks/thinning.py on one core of the machine of docs/benchmarks.md, at sizes
    that negotiation gives by default: take the ratios for true, not the digits (what is kept of
    groups has the ratio to reading all that the table there has today). What finding the
    groups of tuples costs is in the counts of rows.

    read, read_grouped: per tuple, when none is skipped.
    kept, kept_grouped: per tuple that is read, when others are skipped: gathering it, and what an
      interval needs beside the summary itself.
    always: per arriving tuple then, read or not: nulls and the range, hashes of all values.
    """

    read: float
    read_grouped: float
    kept: float
    kept_grouped: float
    always: float

    def ns_per_tuple(self, level: int, *, grouped: bool) -> float:
        """CPU per arriving tuple when the share 2^-level of them is read."""
        if level == 0:
            return self.read_grouped if grouped else self.read
        kept = self.kept_grouped if grouped else self.kept
        return self.always + kept * 2.0**-level


CHOOSING_NS = 0.6
"""Per arriving tuple and level in use: which rows it keeps, whatever synopses read them."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of a column, or guessed, before it is summarised.

    tuples: in one group. decades: powers of ten that its absolute values span.
    """

    tuples: int = 1_000_000
    decades: float = 5.0


TYPICAL = Statistics()


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of summary as an allocator, a planner and a reader of documentation see it.

    Where a summary has a size, it has two names: the parameter (`sizes`, `error_of`, `bytes_of`,
    `for_error`, the summary's `resize`), and bytes (`size_within`, `error_at`, `resize_to`).

    question: what it answers, in the words of the language.
    size: the parameter that sets its memory ("lg_k"), "" where there is none.
    sizes: the values that this parameter can have, ascending; (0,) where there is none.
    default: the size if no precision is asked for.
    linear: whether `subtract` takes a part out again.
    thinning: which tuples may be skipped. thinned: what the interval is then.
    share: what an error is a share of.
    error_of: (size, statistics, confidence) -> the largest distance from value to truth, as a
      share, that is exceeded with probability 1 - confidence at most; 0 where answers are exact.
    bytes_of: (size, statistics) -> bytes that one group holds when it is full.
    grows: whether `resize` makes a summary larger, too; others forget for good.
    cost: CPU per tuple; None for what no pane keeps.
    """

    question: str
    size: str
    sizes: Sequence[int]
    default: int
    linear: bool
    thinning: Thinning
    thinned: str
    share: Share
    error_of: Callable[[int, Statistics, float], float]
    bytes_of: Callable[[int, Statistics], int]
    grows: bool = False
    cost: Cost | None = None

    def cost_ns_per_tuple(self, level: int, *, grouped: bool = False) -> float:
        """CPU per arriving tuple when the share 2^-level of them is read; 0 reads all.

        What choosing the rows costs comes on top, once per level in use (`CHOOSING_NS`). A level
        need not be cheaper than none: what is known of all tuples costs as much as a plain sum.

        Args:
          level: >= 0. grouped: tuples are of about a thousand groups.

        Raises:
          BadParameter: the level is negative, or not 0 for a summary that is never thinned; or
                no pane keeps such a summary, so that its cost was never measured.
        """
        if level < 0 or (level and self.thinning is Thinning.NEVER):
            raise BadParameter("level", level, ">= 0, and 0 for what is never thinned")
        if self.cost is None:
            raise BadParameter("summary", self.question, "one that panes keep")
        return self.cost.ns_per_tuple(level, grouped=grouped)

    def size_within(self, size_bytes: int, statistics: Statistics = TYPICAL) -> int:
        """The largest size of which a group takes no more than these bytes.

        Raises:
          BadParameter: the smallest takes more.
        """
        at = bisect_right(self.sizes, size_bytes, key=lambda size: self.bytes_of(size, statistics))
        if not at:
            least = self.bytes_of(self.sizes[0], statistics)
            raise BadParameter("size_bytes", size_bytes, f">= {least}")
        return self.sizes[at - 1]

    def error_at(
        self, size_bytes: int, statistics: Statistics = TYPICAL, *, confidence: float
    ) -> float:
        """The precision curve: the error of the largest summary within these bytes.

        Raises:
          BadParameter: the smallest takes more bytes, or the confidence is not in (0, 1).
        """
        size = self.size_within(size_bytes, statistics)
        return self.error_of(size, statistics, as_confidence(confidence))

    def for_error(
        self, error: float, *, confidence: float, statistics: Statistics = TYPICAL
    ) -> int:
        """The smallest size whose error at this confidence is at most `error`.

        Raises:
          BadParameter: not even the largest one's is, or the confidence is not in (0, 1).
        """
        confidence = as_confidence(confidence)
        if math.isnan(error):
            raise BadParameter("error", error, "a number >= 0")
        at = bisect_left(
            self.sizes, -error, key=lambda size: -self.error_of(size, statistics, confidence)
        )
        if at == len(self.sizes):
            least = self.error_of(self.sizes[-1], statistics, confidence)
            raise BadParameter("error", error, f">= {least:.4g} {self.share.value}")
        return self.sizes[at]


def exactly(_size: int, _statistics: Statistics, _confidence: float) -> float:
    """The error of a summary whose answers are exact."""
    return 0.0
