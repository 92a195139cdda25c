"""Negative tuples: a window sends a row with weight -1 at the instant at which a row expires.

The operators above need no lifetimes, and take a negative row as they do for any STRICT input.
Source: Golab 2006, section 2.3.3 (negative tuple approach); Arasu, Babu, Widom 2006.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shedder.dataflow.changes import NEVER_US, ChangeBatch, Int64s


class NegativeTuples:
    """Operator over a time window; it holds the rows of the window.

    Rows expire in the order in which they come, so the window is a queue of batches.
    """

    def __init__(self) -> None:
        self._coming: list[ChangeBatch] = []
        self._held: list[ChangeBatch] = []

    @property
    def size_bytes(self) -> int:
        """Bytes of the rows in the window, and of those that are not born."""
        return sum(each.size_bytes for each in (*self._coming, *self._held))

    def apply(self, as_of_us: int, changes: ChangeBatch) -> ChangeBatch:
        """Return the rows that are born up to an instant, and those that leave up to it, negated.

        At one instant, rows leave before others come, as they do by their expiries. A row that
        leaves keeps its event time, so a union has the rows of both sides in the order of arrival.
        """
        if len(changes):
            self._coming.append(changes)
        came = _taken(self._coming, lambda each: _count_until(each.born_us, as_of_us))
        self._held += came
        left = _taken(self._held, lambda each: _count_until(each.expires_us, as_of_us - 1))
        parts = [*map(_leaving, left), *map(_entering, came)]
        if not parts:
            return ChangeBatch.empty(changes.columns.schema)
        both = ChangeBatch.concat(parts)
        return both.take(np.argsort(both.born_us, kind="stable"))


def _taken(queue: list[ChangeBatch], count: Callable[[ChangeBatch], int]) -> list[ChangeBatch]:
    """Remove rows from the front of a queue. count: of the rows of a batch to be removed."""
    taken: list[ChangeBatch] = []
    while queue:
        first = queue[0]
        rows = count(first)
        if rows:
            taken.append(_part(first, 0, rows))
        if rows < len(first):
            queue[0] = _part(first, rows, len(first))
            break
        queue.pop(0)
    return taken


def _count_until(instants_us: Int64s, as_of_us: int) -> int:
    return int(np.searchsorted(instants_us, as_of_us, side="right"))


def _part(changes: ChangeBatch, first: int, end: int) -> ChangeBatch:
    """Return changes [first, end) without a copy."""
    rows = slice(first, end)
    return ChangeBatch(
        changes.columns.slice(first, end - first),
        changes.ts_us[rows],
        changes.born_us[rows],
        changes.expires_us[rows],
        changes.weight[rows],
    )


def _entering(born: ChangeBatch) -> ChangeBatch:
    """Return rows without an end."""
    return born.with_lifetimes(born.born_us, np.full(len(born), NEVER_US))


def _leaving(expired: ChangeBatch) -> ChangeBatch:
    """Return rows with weight -1, born at the instant after the expiry of each."""
    return expired.with_lifetimes(expired.expires_us + 1, np.full(len(expired), NEVER_US)).negated()
