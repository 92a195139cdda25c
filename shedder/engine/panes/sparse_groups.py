"""Sparse groups: the ids of a pane's own groups, where these are few of the query's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from synopses.kernels.grouped_arrays import grown, place_new

SPAN_MIN: Final = 1_024
"""With fewer groups, unused rows are a few KiB."""
_SPARSE = 4  # Of so many groups a pane has one: rows for all would cost more than they save.
_DENSE = 2  # Of so many it has one: rows for all cost less than telling which.


def are_few(groups: int, span: int, *, span_min: int = SPAN_MIN) -> bool:
    """Return whether a pane is to have rows for its own groups only, of all up to there."""
    return span >= span_min and _SPARSE * groups <= span


@dataclass(slots=True, eq=False)
class OwnGroups:
    """Which group each row of a pane is of.

    ids: int32 [rows]; ascending, unless tuples still come.
    places: int32 [groups], the row of each group, -1: none, while tuples come; None: they do not.
    """

    ids: NDArray[np.int32]
    places: NDArray[np.int32] | None = None

    @classmethod
    def none_yet(cls, groups: int) -> OwnGroups:
        """Tuples of so many groups may come."""
        return cls(np.zeros(0, np.int32), np.full(groups, -1, np.int32))

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return self.ids.nbytes + (0 if self.places is None else self.places.nbytes)

    @property
    def are_many(self) -> bool:
        """Return whether rows for all groups up to the last one cost less."""
        return _DENSE * len(self.ids) > int(self.ids.max(initial=-1)) + 1

    def reach(self, groups: int) -> None:
        """Tuples of groups up to this many may come."""
        assert self.places is not None
        self.places = grown(self.places, groups, -1)

    def admit(self, groups: NDArray[np.integer[Any]]) -> int:
        """Tuples of these groups come; returns how many rows there are now."""
        assert self.places is not None
        fresh = place_new(self.places, groups, len(self.ids))
        if len(fresh):
            self.ids = np.concatenate((self.ids, fresh))
        return len(self.ids)

    def rows_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of groups that all have one."""
        if self.places is not None:
            rows = self.places[ids].astype(np.int64)
        else:
            rows = np.searchsorted(self.ids, ids)
        assert np.array_equal(self.ids[rows], ids)
        return rows

    def has(self, group: int) -> bool:
        """Return whether this group has a row."""
        return bool((self.ids == group).any())

    def renumbered(self, rows: NDArray[np.int64], source: NDArray[np.int64]) -> OwnGroups:
        """Of these rows, in this order, where group source[i] becomes group i; source ascends."""
        ids = np.searchsorted(source, self.ids[rows]).astype(np.int32)
        if self.places is None:
            return OwnGroups(ids)
        made = OwnGroups.none_yet(len(source))
        made.admit(ids)
        return made
