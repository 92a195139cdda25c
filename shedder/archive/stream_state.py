"""A stream as the store holds it: its entry, its runs, its tail."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from shedder.archive.entries import Run, StreamEntry
from shedder.archive.tail import Tail


@dataclass(slots=True, eq=False)
class StreamState:
    """What the store knows of a stream. cutting: held while a run is written."""

    entry: StreamEntry
    runs: list[Run]
    tail: Tail = field(default_factory=Tail)
    cutting: threading.Lock = field(default_factory=threading.Lock)

    @property
    def covered(self) -> int:
        """All tuples below this position are in a run, or were removed by retention."""
        in_runs = self.runs[-1].end_position if self.runs else 0
        return max(in_runs, self.entry.retained_position)

    @property
    def end_position(self) -> int:
        """The position that the next tuple gets."""
        pieces = self.tail.pieces
        return max(self.covered, pieces[-1].end_position if pieces else 0)
