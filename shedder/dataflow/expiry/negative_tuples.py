"""Negative tuples: a window sends a row with weight -1 at the instant at which a row expires.

The operators above need no lifetimes, and take a negative row as they do for any STRICT input.
Source: Golab 2006, section 2.3.3 (negative tuple approach); Arasu, Babu, Widom 2006.
"""

from __future__ import annotations

import numpy as np

from shedder.dataflow.changes import NEVER_US, ChangeBatch


class NegativeTuples:
    """Operator over a time window; it holds the rows of the window.

    Rows expire in the order in which they come, so the window is a queue of batches.
    """

    def __init__(self) -> None:
        self._held: list[ChangeBatch] = []

    @property
    def size_bytes(self) -> int:
        """Bytes of the rows in the window."""
        return sum(each.size_bytes for each in self._held)

    def apply(self, as_of_us: int, changes: ChangeBatch) -> ChangeBatch:
        """The new rows without an end, and those that expired before an instant, negated.

        At one event time, rows leave before others come, as they do by their expiries.
        """
        if len(changes):
            self._held.append(changes)
        left = self._expired(as_of_us)
        never = np.full(len(changes), NEVER_US)
        entering = changes.with_lifetimes(changes.born_us, never)
        if not left:
            return entering
        both = ChangeBatch.concat([*map(_leaving, left), entering])
        return both.take(np.argsort(both.ts_us, kind="stable"))

    def _expired(self, as_of_us: int) -> list[ChangeBatch]:
        """Remove the rows whose expiry is before an instant."""
        gone: list[ChangeBatch] = []
        while self._held:
            first = self._held[0]
            count = int(np.searchsorted(first.expires_us, as_of_us))
            if count:
                gone.append(_part(first, 0, count))
            if count < len(first):
                self._held[0] = _part(first, count, len(first))
                break
            self._held.pop(0)
        return gone


def _part(changes: ChangeBatch, first: int, end: int) -> ChangeBatch:
    """Changes [first, end) without a copy."""
    rows = slice(first, end)
    return ChangeBatch(
        changes.columns.slice(first, end - first),
        changes.ts_us[rows],
        changes.born_us[rows],
        changes.expires_us[rows],
        changes.weight[rows],
    )


def _leaving(expired: ChangeBatch) -> ChangeBatch:
    """Rows with weight -1, born at the instant after the expiry of each."""
    tuples = ChangeBatch.of_tuples(expired.columns, expired.expires_us)
    return ChangeBatch(
        tuples.columns, tuples.ts_us, tuples.born_us, tuples.expires_us, -expired.weight
    )
