"""Held places: how far back in the changes of tables the tuples of ROWS windows were made."""

from __future__ import annotations

from shedder.engine.dataflow.row_output import Frontier

NOTED_MAX = 64  # Places that checkpoints noted; with fewer, more versions are kept.


class HeldPlaces:
    """The least place of the tuples that windows hold, at the frontiers of checkpoints."""

    def __init__(self) -> None:
        self._noted: list[tuple[Frontier, int]] = []

    def note(self, frontier: Frontier, place: int) -> None:
        """Note the least place at a frontier; it never falls."""
        self._noted.append((frontier, place))
        if len(self._noted) > NOTED_MAX:
            del self._noted[1:-1:2]

    def least_from(self, begin: Frontier) -> int:
        """Return the place of the newest note before a frontier; older ones are forgotten."""
        before = [at for at, (then, _) in enumerate(self._noted) if then.is_before(begin)]
        if not before:
            return 0
        del self._noted[: before[-1]]
        return self._noted[0][1]
