"""What a batch is, by its producer's numbers: worked out by hand, and for records of old logs."""

import pytest

from shedder.archive.log.records import DROPPED, Batch, PushEnd
from shedder.engine.ingest.producer_sequences import (
    CONTENTS_MAX,
    Arrival,
    Content,
    PushProgress,
    is_newer,
    judge,
    progress_after,
)
from shedder.errors import SequenceGap, StaleEpoch
from shedder.streams.push_parts import WHOLE, Part

WHOLE_4 = PushProgress(1, 4, 100, 10)
OPEN_4 = PushProgress(1, 4, 100, 10, is_whole=False)
NEXT, DUPLICATE, OVERLAP = Arrival.NEXT, Arrival.DUPLICATE, Arrival.OVERLAP


def record(sequence, push=None, *, epoch=1, rows=10, flags=0):
    return Batch(1, "p", epoch, sequence, 100, rows, 5, flags, push)


@pytest.mark.parametrize(
    ("known", "sequence", "part", "rows", "verdict"),
    [
        (None, 0, WHOLE, 10, (NEXT, 0)),
        (None, None, WHOLE, 10, (NEXT, 0)),
        (WHOLE_4, 5, WHOLE, 10, (NEXT, 5)),
        (WHOLE_4, None, Part(0, False), 10, (NEXT, 5)),
        (WHOLE_4, 4, WHOLE, 10, (DUPLICATE, 4)),
        (WHOLE_4, 3, Part(20, True), 10, (DUPLICATE, 3)),
        (OPEN_4, 4, Part(10, True), 7, (NEXT, 4)),
        (OPEN_4, 4, Part(10, True), 0, (NEXT, 4)),
        (OPEN_4, None, Part(10, False), 7, (NEXT, 4)),
        (OPEN_4, 4, Part(3, False), 7, (DUPLICATE, 4)),
        (OPEN_4, 4, Part(3, True), 5, (DUPLICATE, 4)),  # Shorter than what is stored: refused then.
        (OPEN_4, 4, Part(3, True), 7, (OVERLAP, 4)),  # All rows are stored, and not the end.
        (OPEN_4, 4, Part(0, True), 25, (OVERLAP, 4)),
        (OPEN_4, 3, WHOLE, 10, (DUPLICATE, 3)),
    ],
)
def test_a_batch_is_next_a_duplicate_or_in_part_stored(known, sequence, part, rows, verdict):
    assert judge("p", known, epoch=1, sequence=sequence, part=part, rows=rows) == verdict


@pytest.mark.parametrize(
    ("known", "sequence", "part"),
    [
        (None, 1, WHOLE),
        (None, -1, WHOLE),
        (None, 0, Part(5, True)),
        (WHOLE_4, 6, WHOLE),
        (WHOLE_4, 5, Part(1, True)),
        (OPEN_4, 5, WHOLE),
        (OPEN_4, 4, Part(11, True)),
    ],
)
def test_a_gap_is_refused(known, sequence, part):
    with pytest.raises(SequenceGap):
        judge("p", known, epoch=1, sequence=sequence, part=part, rows=10)


def test_a_new_epoch_begins_at_0_although_a_push_is_open_and_an_old_one_is_over():
    judged = judge("p", OPEN_4, epoch=2, sequence=None, part=WHOLE, rows=5)
    assert judged == (NEXT, 0)
    with pytest.raises(StaleEpoch):
        judge("p", OPEN_4, epoch=0, sequence=0, part=WHOLE, rows=5)


def test_progress_keeps_the_contents_of_the_newest_pushes():
    progress = None
    for number in range(CONTENTS_MAX + 3):
        for end, is_last in ((5, False), (9, True)):
            progress = progress_after(progress, record(number, PushEnd(end, number, is_last)))
    newest = (progress.epoch, progress.sequence, progress.rows, progress.is_whole)
    assert newest == (1, CONTENTS_MAX + 2, 9, True)
    assert [each.sequence for each in progress.contents] == [*range(3, CONTENTS_MAX + 3)]
    assert progress.content(5) == Content(5, 9, 5)
    assert progress.content(2) is None
    newer = progress_after(progress, record(0, PushEnd(4, None, True), epoch=2))
    assert newer.contents == (Content(0, 4, None),)


def test_records_of_earlier_versions_are_whole_pushes():
    progress = progress_after(None, record(4))
    assert progress == PushProgress(1, 4, 110, 10)
    assert progress.content(4) == Content(4, 10, None)
    assert progress_after(progress, record(5, flags=DROPPED)).rows is None


def test_a_replay_of_the_log_takes_only_what_is_new():
    open_here = progress_after(None, record(4, PushEnd(10, 7, False)))
    assert not is_newer(record(4, PushEnd(10, 7, False)), open_here)
    assert not is_newer(record(3, PushEnd(99, 7, True)), open_here)
    assert is_newer(record(4, PushEnd(10, 7, True)), open_here)
    assert is_newer(record(4, PushEnd(15, 7, False)), open_here)
    assert is_newer(record(0, PushEnd(1, 7, True), epoch=2), open_here)
    assert not is_newer(record(4, PushEnd(15, 7, True)), PushProgress(1, 4, 110, 15))
