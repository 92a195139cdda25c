"""Side of a join whose rows come after their partners: they are looked up and never held.

FOREIGN KEY … WITHIN 0 TUPLES says that the partner of a row has an event time not after that of
the row. So a later row of the other side finds no partner here. Pairs are chosen by event time,
not by step, so rows do not depend on how tuples were cut into batches.
Source: Babu, Srivastava, Widom 2004, Exploiting k-constraints to reduce memory overhead in
continuous queries over data streams, ACM TODS 29(3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shedder.dataflow.changes import ChangeBatch, Int64s


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Rows that show a foreign key to be broken.

    missing: rows without a partner when they came; each lacks at most one pair.
    ambiguous: rows with several partners: the referenced columns are no key.
    """

    missing: int = 0
    ambiguous: int = 0


class ArrivingSide:
    """Counts partners of rows as they come, and holds no row.

    place: 0: the left side; 1: the right one. text: says which rows are not held, and why.
    unmatched: so far.
    """

    def __init__(self, place: int, text: str) -> None:
        self.place = place
        self.text = text
        self.unmatched = Unmatched()
        self._from_us: int | None = None
        self._partners = np.zeros(0, np.int64)  # Of each row of the step.

    def count_from(self, from_us: int | None, unmatched: Unmatched) -> None:
        """Go on from counts, with the rows whose event time is not before; None: with all."""
        self._from_us = from_us
        self.unmatched = unmatched

    def begin(self, changes: ChangeBatch) -> None:
        """Begin a step with these rows, whose keys can match."""
        self._partners = np.zeros(len(changes), np.int64)

    def chosen(self, changes: ChangeBatch, rows: Int64s, pair_ts_us: Int64s) -> NDArray[np.bool_]:
        """Return which pairs have a partner that is not later than the row, and count them.

        Args:
          changes: of `begin`.
          rows: shape [pairs], places in `changes`.
          pair_ts_us: shape [pairs], the later event time of each pair.
        """
        kept: NDArray[np.bool_] = pair_ts_us == changes.ts_us[rows]
        self._partners += np.bincount(rows[kept], minlength=len(self._partners))
        return kept

    def end(self, changes: ChangeBatch) -> None:
        """End the step: all pairs of its rows were chosen."""
        partners = self._partners
        if self._from_us is not None:
            partners = partners[changes.ts_us >= self._from_us]
        self.unmatched = Unmatched(
            self.unmatched.missing + int(np.count_nonzero(partners == 0)),
            self.unmatched.ambiguous + int(np.count_nonzero(partners > 1)),
        )
        self._partners = np.zeros(0, np.int64)
