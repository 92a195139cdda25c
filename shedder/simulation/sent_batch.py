"""Sent batches, and counts of their outcomes as clients saw them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

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
