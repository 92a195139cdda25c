"""Sequence numbers of producers: the stored parts of a push, and the next number."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from shedder.archive.log.records import DROPPED, Batch, Built
from shedder.errors import BadSetting, SequenceGap, SequenceReused, StaleEpoch
from shedder.streams.push_parts import Part

CONTENTS_MAX: Final = 8  # Pushes of a producer whose content a retry is compared with.
NAME_BYTES_MAX: Final = 200  # Of a producer's name, in UTF-8.
EPOCH_MAX: Final = (1 << 63) - 1  # In a message; a stream takes those above 2^62 in turn.
NUMBER_MAX: Final = 1 << 62  # Of epochs and rows of a push: sums of two still fit int64.
OWN_PREFIX: Final = "~"  # Begins a name that a client has drawn at random, for one process.
ROWS_SUFFIX: Final = "+rows"  # Ends the name under which rows follow their summaries.


class Arrival(Enum):
    """Relation of a batch to the numbers of its producer.

    NEXT: to be stored. DUPLICATE: stored before. OVERLAP: its first rows are stored, or all of its
    rows and not the end of the push.
    """

    NEXT = auto()
    DUPLICATE = auto()
    OVERLAP = auto()


class Content(NamedTuple):
    """The content of one push. fingerprint: None if some rows were left out at the source."""

    sequence: int
    rows: int
    fingerprint: int | None


@dataclass(frozen=True, slots=True)
class PushProgress:
    """The newest push of a producer, and the contents of a few pushes.

    position: one past the last stored tuple of the push.
    rows: rows of the push until now, as pushed; None: not recorded, by an earlier version.
    is_whole: the last part of the push is stored.
    contents: of the newest pushes, the oldest first; at most CONTENTS_MAX.
    """

    epoch: int
    sequence: int
    position: int
    rows: int | None
    is_whole: bool = True
    contents: tuple[Content, ...] = ()

    @property
    def last_whole(self) -> int:
        """The number of the last push that is stored as a whole; -1: none in this epoch."""
        return self.sequence if self.is_whole else self.sequence - 1

    @property
    def open_rows(self) -> int:
        """Stored rows of a push whose end is not stored."""
        return 0 if self.is_whole or self.rows is None else self.rows

    def content(self, sequence: int) -> Content | None:
        """The content of a push; None: it is not known any more."""
        for content in self.contents:
            if content.sequence == sequence:
                return content
        if sequence == self.sequence and self.rows is not None:
            return Content(sequence, self.rows, None)
        return None

    @property
    def fingerprint(self) -> int | None:
        """Of the newest push until now."""
        found = self.content(self.sequence)
        return None if found is None else found.fingerprint


def progress_after(before: PushProgress | None, header: Batch | Built) -> PushProgress:
    """A producer's progress once this record is stored."""
    push = header.push
    contents = () if before is None or before.epoch != header.epoch else before.contents
    if push is None:  # Written by a version without parts of pushes.
        is_rest = isinstance(header, Batch) and header.flags & DROPPED
        rows = None if is_rest else header.rows
        return PushProgress(
            header.epoch, header.sequence, header.end_position, rows, True, contents
        )
    kept = tuple(each for each in contents if each.sequence != header.sequence)
    content = Content(header.sequence, push.end_row, push.fingerprint)
    return PushProgress(
        header.epoch,
        header.sequence,
        header.end_position,
        push.end_row,
        push.is_last,
        (*kept, content)[-CONTENTS_MAX:],
    )


def is_newer(header: Batch | Built, known: PushProgress | None) -> bool:
    """Return whether a record is not part of a producer's progress yet."""
    if known is None or (header.epoch, header.sequence) > (known.epoch, known.sequence):
        return True
    if known.is_whole or header.push is None:
        return False
    if (header.epoch, header.sequence) < (known.epoch, known.sequence):
        return False
    return (header.push.end_row, header.push.is_last) > (known.open_rows, False)


def judge(
    producer: str,
    known: PushProgress | None,
    *,
    epoch: int,
    sequence: int | None,
    part: Part,
    rows: int,
) -> tuple[Arrival, int]:
    """Tell whether a batch is to be stored; sequence None goes on from the last push.

    Numbers begin at 0 with every epoch. A push is stored in order of its rows, and the next one
    begins when it is whole.

    Args:
      producer: its name. known: its progress; None: it has none.
      epoch, sequence, part: of the batch. rows: of the batch, as pushed.

    Returns:
      The verdict and the batch's sequence number.

    Raises:
      StaleEpoch: a newer incarnation has written.
      SequenceGap: a push, or rows of one, are missing.
    """
    expected, stored = 0, 0
    if known is not None and epoch < known.epoch:
        raise StaleEpoch(producer, known.epoch, epoch)
    if known is not None and epoch == known.epoch:
        expected = known.last_whole + 1
        stored = known.open_rows
    number = expected if sequence is None else sequence
    if number < 0 or number > expected:
        raise SequenceGap(producer, expected, number, rows=stored)
    if number < expected:
        return Arrival.DUPLICATE, number
    if part.first_row > stored:
        raise SequenceGap.in_push(producer, number, stored, part.first_row)
    is_begun = known is not None and epoch == known.epoch and not known.is_whole
    end_row = part.first_row + rows
    if part.first_row == stored:
        is_repeated_start = is_begun and rows == 0 and not part.is_last
        return (Arrival.DUPLICATE if is_repeated_start else Arrival.NEXT), number
    if end_row > stored or (part.is_last and end_row == stored):
        return Arrival.OVERLAP, number
    return Arrival.DUPLICATE, number


def check_replay(
    producer: str, known: PushProgress, *, sequence: int, end_row: int, part: Part
) -> int:
    """Check the rows of a replay up to end_row against what is stored under its number.

    Returns:
      Rows that are stored under the number, or -1 if that is not known any more.

    Raises:
      SequenceReused: the push has another number of rows.
    """
    content = known.content(sequence)
    if content is None:
        return -1
    if end_row > content.rows or (part.is_last and end_row < content.rows):
        raise SequenceReused(producer, sequence, content.rows, end_row)
    return content.rows


def check_producer(name: str, epoch: int) -> None:
    """Check the producer that a client declares, before anything else is done.

    Raises:
      BadSetting: a name or an epoch that no producer can have.
    """
    try:
        size_bytes = len(name.removesuffix(ROWS_SUFFIX).encode())
    except UnicodeEncodeError:
        raise BadSetting(f"the producer name {name[:40]!r} is no Unicode text") from None
    if size_bytes > NAME_BYTES_MAX:
        raise BadSetting(
            f"a producer name of {size_bytes:,} bytes, {name[:40]!r}...; at most {NAME_BYTES_MAX} "
            "bytes are taken"
        )
    if "\0" in name:
        raise BadSetting(f"the producer name {name!r} has a NUL character; leave it out")
    if not 0 <= epoch <= EPOCH_MAX:
        raise BadSetting(f"epoch {epoch} of producer {name!r}; it must be from 0 to 2^62")


def check_named_producer(name: str, epoch: int | None) -> None:
    """Check the name and the epoch of a producer that numbers its pushes.

    Raises:
      BadSetting: the name is empty, or as `check_producer`.
    """
    if not name:
        raise BadSetting("a producer cannot be named ''; a name has 1 to 200 bytes")
    check_producer(name, epoch or 0)


def check_part(part: Part) -> None:
    """Check the place in its push that a batch claims.

    Raises:
      BadSetting: no batch can be there.
    """
    if not 0 <= part.first_row <= NUMBER_MAX:
        raise BadSetting(f"first_row is {part.first_row}; it must be from 0 to 2^62")
    if not 0 <= part.skipped <= NUMBER_MAX - part.first_row:
        raise BadSetting(
            f"skipped is {part.skipped} rows after row {part.first_row}; it must be at least 0, "
            "and end at row 2^62 at most"
        )
