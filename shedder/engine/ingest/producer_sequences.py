"""What each producer has sent: the memory that makes its retries harmless."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from shedder.errors import SequenceGap, SequenceReused, StaleEpoch


class Arrival(Enum):
    """What a batch is, by its producer's numbers."""

    NEXT = auto()
    DUPLICATE = auto()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a producer is: its last batch, and where that batch went.

    position: one past the batch's last tuple. rows: tuples of the batch as it was sent; None: some
    were dropped at the door, or left out by who sent it, and nobody has noted how many.
    """

    epoch: int
    sequence: int
    position: int
    rows: int | None


PRODUCERS_MAX = 65_536  # Of one stream; beyond it, the one that has been silent longest goes.


def remember(known: dict[str, Progress], producer: str, progress: Progress) -> None:
    """Note where a producer is; `known` stays in order of last activity, and bounded."""
    known.pop(producer, None)
    known[producer] = progress
    if len(known) > PRODUCERS_MAX:
        del known[next(iter(known))]


def judge(
    producer: str, progress: Progress | None, *, epoch: int, sequence: int | None
) -> tuple[Arrival, int]:
    """Tell whether a batch is the next one or a replay; sequence None goes on from the last.

    Numbers begin at 0 with every epoch.

    Returns:
      The verdict and the batch's sequence number.

    Raises:
      StaleEpoch: a newer incarnation has written.
      SequenceGap: a number is missing.
    """
    if progress is None or epoch > progress.epoch:
        expected = 0
    elif epoch < progress.epoch:
        raise StaleEpoch(producer, progress.epoch, epoch)
    else:
        expected = progress.sequence + 1
    number = expected if sequence is None else sequence
    if number > expected or number < 0:
        raise SequenceGap(producer, expected, number)
    return (Arrival.NEXT if number == expected else Arrival.DUPLICATE), number


def check_replay(producer: str, progress: Progress, *, sequence: int, rows: int) -> None:
    """Refuse to acknowledge rows that are not those which have this number.

    Of older batches than the last one nothing is known.

    Raises:
      SequenceReused: as many rows cannot be those.
    """
    if sequence == progress.sequence and progress.rows not in (None, rows):
        raise SequenceReused(producer, sequence, progress.rows, rows)
