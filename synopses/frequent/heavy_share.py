"""Values above a share of all: without false positives or without false negatives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from synopses.model.errors import BadParameter
from synopses.model.estimate import Bound
from synopses.model.ranks import least_of


class Promise(Enum):
    """What a list of frequent values must not do where counts are not known exactly.

    Its values are the words of the language; DataSketches calls it the error type.
    """

    NO_FALSE_NEGATIVES = "NO FALSE NEGATIVES"  # Each value that is frequent is listed.
    NO_FALSE_POSITIVES = "NO FALSE POSITIVES"  # Each value that is listed is frequent.


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """The values of a list.

    rows: int64, where they are among the values that were given.
    sure: bool, of each row: it is frequent for certain.
    bound: uint8 [groups]. EXACT: these are the frequent values, with their counts. NONE: one that
      is frequent may be missing, although none must.
    """

    rows: NDArray[np.int64]
    sure: NDArray[np.bool_]
    bound: NDArray[np.uint8]


def check_share(share: float) -> None:
    """See that it is one.

    Raises:
      BadParameter: not in (0, 1].
    """
    if not 0 < share <= 1:
        raise BadParameter("share", share, "> 0 and <= 1")


def least_count(share: float, totals: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the least count of a value with that share of the total: ceil(share * total).

    The share is the decimal number that was written: 0.07 of 100 are 7. Where there is nothing, 1.

    Args:
      share: in (0, 1]. totals: int64 [groups], >= 0.
    """
    return np.maximum(least_of(share, totals), 1)


def choose(
    groups: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    *,
    outside: NDArray[np.int64],
    totals: tuple[NDArray[np.int64], NDArray[np.int64]],
    share: float,
    promise: Promise,
) -> Chosen:
    """The values that occur in `share` of their group's tuples, or more, as far as is known.

    With low <= count <= high for every value that is known, count <= outside for any other, and
    the total between its ends, all at once: a value whose high end is below the share of the
    smallest total is not frequent, one whose low end reaches that of the largest is. So these two
    make the two lists, and no frequent value is missing where `outside` is below the threshold,
    too. Source: Metwally et al. 2005, "Efficient computation of frequent and top-k elements in
    data streams", ICDT 2005, 4.1.

    Args:
      groups, low, high: [n], of each value that is known.
      outside: [groups], how often one that is not known occurs at most.
      totals: smallest and largest number of tuples; [groups] each.
      share: in (0, 1].
      promise: which list.
    """
    least, most = (least_count(share, ends) for ends in totals)
    possible, sure = high >= least[groups], low >= most[groups]
    complete = outside < least  # No other value is frequent.
    chosen = possible if promise is Promise.NO_FALSE_NEGATIVES else sure
    vague = np.zeros(outside.size, np.bool_)  # Its list may be another, or of other counts.
    vague[groups[(possible & ~sure) | (chosen & (low < high))]] = True
    bound = np.where(complete & ~vague, Bound.EXACT, Bound.INTERVAL)
    if promise is Promise.NO_FALSE_NEGATIVES:
        bound = np.where(complete, bound, Bound.NONE)
    rows = np.flatnonzero(chosen)
    return Chosen(rows, sure[rows], bound.astype(np.uint8))


def reason_of(bound: NDArray[np.uint8], share: float) -> str:
    """Return why bounds are NONE where they are, else ""."""
    if not (bound == Bound.NONE).any():
        return ""
    return (
        f"a value of {100 * share:g} % or more may be missing: what is not counted may be that "
        "often; NO FALSE POSITIVES lists those that are for certain"
    )
