"""Places of the changes of a query's tables among the tuples of its streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Reached:
    """What a query had read of a stream when a table changed.

    position: tuples before it were read. newest_us: largest event time of those that were in
      time; None: there were none.
    """

    position: int
    newest_us: int | None


@dataclass(slots=True)
class TablePlaces:
    """Changes of the tables of one query, in the order of the log, as far as tuples need them.

    Place n is behind the n-th change. A tuple has the place of the last change before it. Changes
    between which no tuple came have one place. So a tuple's place follows from its position in its
    stream, which is the same for all queries.

    first: the place before all changes that are known.

    One thread asks for places while no other changes them.
    """

    first: int = 0
    _changes: list[Mapping[str, Reached]] = field(default_factory=list)
    _positions: dict[str, Int64s] = field(default_factory=dict)

    def next(self, reached: Mapping[str, Reached]) -> int:
        """Return the place of a change. reached: by alias of a stream."""
        if not self._changes or self._changes[-1] != reached:
            self._changes.append(dict(reached))
            self._positions.clear()
        return self.newest

    def of(self, alias: str, positions: Int64s) -> Int64s:
        """The places of tuples of a stream. positions: of the tuples."""
        if not self._changes:
            return np.full(len(positions), self.first)
        known = self._positions.get(alias)
        if known is None:
            known = np.array([each[alias].position for each in self._changes], np.int64)
            self._positions[alias] = known
        return self.first + np.searchsorted(known, positions, side="right")

    @property
    def newest(self) -> int:
        """The place behind all changes."""
        return self.first + len(self._changes)

    def forget(self, needs_from_us: Mapping[str, int | None], needs_from: int | None) -> int:
        """Forget the changes that came behind no needed tuple; return the first place.

        needs_from_us: event time from which tuples are needed, by alias; None: all are.
        needs_from: least place of needed tuples of the other streams; None: there are none.
        """
        kept = list(self._changes)
        while kept and (needs_from is None or self.first < needs_from):
            if not all(_is_before(kept[0][it], us) for it, us in needs_from_us.items()):
                break
            del kept[0]
            self.first += 1
        self._changes = kept
        self._positions.clear()
        return self.first

    def note_newest(self, newest_us: Mapping[str, int | None]) -> None:
        """Note event times that no tuple before these changes passes, as `Reached.newest_us`."""
        self._changes = [
            {alias: replace(it, newest_us=newest_us[alias]) for alias, it in each.items()}
            for each in self._changes
        ]

    def begin_with(self, reached: Sequence[Mapping[str, Reached]]) -> None:
        """Know these changes, in order, and no others; the first place is 0."""
        self.first, self._changes = 0, list(reached)
        self._positions.clear()

    def to_json(self) -> list[Any]:
        """The changes as lists; the first place becomes 0."""
        return [
            {alias: [it.position, it.newest_us] for alias, it in each.items()}
            for each in self._changes
        ]

    def restore(self, stored: Sequence[Any]) -> None:
        """Begin with what `to_json` wrote."""
        self.begin_with(list(_changes_of(stored)))


def _changes_of(stored: Sequence[Any]) -> Iterator[Mapping[str, Reached]]:
    for each in stored:
        yield {alias: Reached(*it) for alias, it in each.items()}


def _is_before(reached: Reached, needs_from_us: int | None) -> bool:
    """Return whether no needed tuple came before a change."""
    newest_us = reached.newest_us
    return newest_us is None or (needs_from_us is not None and newest_us < needs_from_us)
