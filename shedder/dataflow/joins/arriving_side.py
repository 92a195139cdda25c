"""Side of a join whose rows come after their partners: they are looked up when they come.

FOREIGN KEY … WITHIN k TUPLES says that the partner of a row has an event time not after that of
the row, or is among the next k tuples of the other side. With k = 0 no row is held. With k > 0 the
rows without a partner wait (waiting_rows.py). Pairs are chosen by event time, not by step, so rows
do not depend on how tuples were cut into batches.
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

    missing: rows without a partner when they came, or when their wait ended; each lacks at most
      one pair.
    ambiguous: rows with several partners when they came: the referenced columns are no key.
    """

    missing: int = 0
    ambiguous: int = 0


class ArrivingSide:
    """Counts partners of rows as they come.

    place: 0: the left side; 1: the right one. text: says which rows are not held, and why.
    within: how many rows of the other side a row without a partner waits for; 0: it does not wait.
    unmatched: so far.
    """

    def __init__(self, place: int, text: str, within: int = 0) -> None:
        self.place = place
        self.text = text
        self.within = within
        self.unmatched = Unmatched()
        self._from_us: int | None = None
        self._partners = np.zeros(0, np.int64)  # Of each row of the step.

    def count_from(self, from_us: int | None, unmatched: Unmatched) -> None:
        """Go on from counts as of an instant, to which later instants add; None: all do."""
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

    def end(self, changes: ChangeBatch) -> NDArray[np.bool_]:
        """End the choice of pairs of the step's rows; return which rows have no partner."""
        partners, self._partners = self._partners, np.zeros(0, np.int64)
        known_us = changes.ts_us + 1
        self._count(0, self._counted(known_us[partners > 1]))
        without: NDArray[np.bool_] = partners == 0
        if not self.within:
            self.count_missing(known_us[without])
        return without

    def count_missing(self, known_us: Int64s) -> None:
        """Count rows without a partner. known_us: from which instants on that is known."""
        self._count(self._counted(known_us), 0)

    def _counted(self, known_us: Int64s) -> int:
        if self._from_us is None:
            return len(known_us)
        return int(np.count_nonzero(known_us > self._from_us))

    def _count(self, missing: int, ambiguous: int) -> None:
        before = self.unmatched
        self.unmatched = Unmatched(before.missing + missing, before.ambiguous + ambiguous)
