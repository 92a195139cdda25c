"""The protocol of r-UDFs: statistics of blocks in, the wanted reduction out.

Source: Chandrasekaran & Franklin 2004, Remembrance of Streams Past (VLDB), section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from shedder.archive.metadata.catalog_entries import RunBasics
from shedder.cql.statements.bound_query import StreamSchema


@dataclass(frozen=True, slots=True)
class ScanStatistics:
    """How far a scan has come.

    rows: tuples of all runs that may hold some of the stretch. rows_read: of them, so far.
    look: how often the answer was looked at. error: its widest interval in units of what the
    target allows: 1 or less meets it; inf before the first look, and while a value has none.
    confidence: as the query asks for it.
    """

    rows: int
    rows_read: int = 0
    look: int = 0
    error: float = float("inf")
    confidence: float = 0.95


@dataclass(frozen=True, slots=True)
class BlockStatistics:
    """What is known of the blocks of a run before they are read; they are exchangeable.

    rows: tuples in all of them. blocks: how many there are; 1 cannot be read in part.
    start_us, end_us: smallest and largest event time. newest_us: that of the whole scan.
    columns: nulls, smallest and largest value, by column name.
    scan: how far it has come.
    """

    rows: int
    blocks: int
    start_us: int
    end_us: int
    newest_us: int
    columns: Mapping[str, RunBasics]
    scan: ScanStatistics


class Reduction(Protocol):
    """An r-UDF with its arguments; one is made for each scan and used by one thread at a time.

    reads_on: ask again when the answer has been looked at, and read on where it wants less
      reduction than it was given. Each look costs confidence (synopses.intervals.sequential_looks),
      so only a reduction that means to stop early should say so. Others are asked about each run
      before anything is read, and again when the scan comes to it, some runs at a time.
    """

    @property
    def reads_on(self) -> bool:
        """Return whether it is asked again after each look."""

    def wanted(self, block: BlockStatistics) -> float:
        """The share of these blocks' tuples that may stay unread, in [0, 1)."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a reduction may see of the database that it works in.

    schema: of the stream that is read. load: the live load, 0 idle to 1 overloaded, as of now.
    """

    schema: StreamSchema
    load: Callable[[], float]


Maker = Callable[..., Reduction]
"""What an entry point of the group `shedder.reductions` names: called with the surroundings and
the arguments of REDUCE BY (numbers as float, texts as str); raises ValueError on wrong ones."""
