"""Sent batches, and counts of their outcomes as clients saw them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.streams.batches import encode
from shedder.streams.dropped_counts import Dropped


@dataclass(slots=True, eq=False)
class Parcel:
    """A batch on its way.

    batch, payload: its rows, and their bytes. left_out: rows that were left out, once it has been
    thinned; sent: the bytes of the others. sequence: its number, once the server has taken it;
    -1 before. summarised: it went as a summary, and its rows are to follow.
    """

    batch: pa.RecordBatch
    payload: bytes
    rows: int
    born_us: int
    sequence: int = -1
    summarised: bool = False
    left_out: Dropped | None = None
    sent: bytes | None = None

    def accept(self, sequence: int) -> None:
        """Note the number under which the server has taken the batch."""
        self.sequence = sequence

    def choose_form(self, *, summarised: bool) -> None:
        """Choose whether the batch goes as a summary or as rows."""
        self.summarised = summarised

    def thin(self, kept: NDArray[np.bool_]) -> None:
        """Leave out all rows but these. kept: shape [rows]."""
        self.left_out = Dropped.of(self.batch.filter(pa.array(~kept)), "ts")
        self.sent = encode(self.batch.filter(pa.array(kept)))


@dataclass(slots=True)
class ClientTally:
    """What became of tuples, as clients saw it.

    ack_us: of each batch, from its birth. followed: rows that came after their summaries.
    """

    offered: int = 0
    acknowledged: int = 0
    given_up: int = 0
    refusals: int = 0
    repeated: int = 0
    followed: int = 0
    ack_us: list[int] = field(default_factory=list)

    def note_offered(self, rows: int) -> None:
        """Count the rows of a new batch."""
        self.offered += rows

    def note_refused(self) -> None:
        """Count one refused call."""
        self.refusals += 1

    def note_given_up(self, rows: int) -> None:
        """Count the rows of a batch that its client never sends again."""
        self.given_up += rows

    def note_acknowledged(self, rows: int, age_us: int) -> None:
        """Count the rows of an acknowledged batch of this age."""
        self.acknowledged += rows
        self.ack_us.append(age_us)

    def note_repeated(self, rows: int) -> None:
        """Count the rows of an acknowledged batch that was sent once more."""
        self.repeated += rows

    def note_followed(self, rows: int) -> None:
        """Count rows that came after their summary."""
        self.followed += rows

    @classmethod
    def of(cls, tallies: Iterable[ClientTally]) -> ClientTally:
        """All together."""
        whole = cls()
        for each in tallies:
            whole.offered += each.offered
            whole.acknowledged += each.acknowledged
            whole.given_up += each.given_up
            whole.refusals += each.refusals
            whole.repeated += each.repeated
            whole.followed += each.followed
            whole.ack_us += each.ack_us
        return whole
