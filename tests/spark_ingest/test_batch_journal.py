"""All tries of a micro-batch go by what its first one noted, before anything of it was sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shedder.errors import FailedPrecondition
from shedder.streams.batches import BatchLimits
from spark_ingest.batch_journal import NOTE, Begun, Way, begin, noted

NEWEST_US = 10_000_000


def test_the_first_try_is_what_all_later_ones_go_by(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "a/checkpoint")
    assert noted(checkpoint) is None
    first = Begun(
        7,
        2,
        NEWEST_US,
        files_min=2,
        limits=BatchLimits(10, 1_000),
        way=Way.FORWARD,
        stream="s",
        producer="spark@id",
        rows="5:1:2",
    )
    assert begin(checkpoint, first) == first
    assert begin(f"file://{checkpoint}", replace(first, partitions=3, newest_us=1)) == first
    following = Begun(8, 3, NEWEST_US + 1)
    assert begin(checkpoint, following) == following == noted(checkpoint)
    assert [file.name for file in Path(checkpoint).iterdir()] == [NOTE]


def test_a_note_that_cannot_be_read_is_no_beginning(tmp_path: Path) -> None:
    for damaged in ("", "{", "[]", '{"batch": 1}', '{"way": "x"}', '{"limits": 1}'):
        (tmp_path / NOTE).write_text(damaged)
        with pytest.raises(FailedPrecondition, match=rf"{NOTE} does not say how"):
            begin(str(tmp_path), Begun(1, 1, NEWEST_US))


def test_other_partitions_are_refused_with_both_numbers_and_the_remedy() -> None:
    begun = Begun(3, 1, NEWEST_US)
    begun.check(1, "...")
    with pytest.raises(
        FailedPrecondition, match=r"micro-batch 3 .* in 1 partition\(s\) .* in 2 now.*; do this"
    ):
        begun.check(2, "do this")


def test_a_note_of_before_more_was_noted_holds_for_what_it_says(tmp_path: Path) -> None:
    text = '{"batch": 3, "partitions": 2, "newest_us": 10000000, "files_min": 4}'
    (tmp_path / NOTE).write_text(text)
    found = begin(str(tmp_path), Begun(3, 1, 0, limits=BatchLimits()))
    assert found == Begun(3, 2, NEWEST_US, files_min=4)
    found.check_limits(BatchLimits(1, 1))
    found.check_owner("s", "p")
    found.check_way(Way.FORWARD)
    found.check_rows("5:1:2")


def test_a_service_that_takes_less_than_a_batch_may_have_is_refused_with_what_to_set() -> None:
    begun = Begun(3, 1, NEWEST_US, limits=BatchLimits(1_000, 1 << 20))
    begun.check_limits(BatchLimits(1_000, 1 << 20))
    begun.check_limits(BatchLimits(2_000, 4 << 20))
    for now in (BatchLimits(999, 1 << 20), BatchLimits(1_000, (1 << 20) - 1)):
        with pytest.raises(
            FailedPrecondition, match=r"micro-batch 3 .*batch_rows_max=1000 .*_bytes_max=1048576 "
        ):
            begun.check_limits(now)


def test_another_name_or_stream_on_the_same_checkpoint_is_refused_and_named() -> None:
    begun = Begun(0, 1, NEWEST_US, stream="s", producer="spark@id")
    begun.check_owner("s", "spark@id")
    for stream, name in (("s", "other@id"), ("t", "spark@id")):
        with pytest.raises(
            FailedPrecondition,
            match=rf"for stream 's' as producer 'spark@id', .*{name}' for '{stream}",
        ):
            begun.check_owner(stream, name)


def test_what_was_begun_in_one_way_is_not_ended_in_another() -> None:
    for way, other in ((Way.FORWARD, Way.SUMMARISE), (Way.SUMMARISE, Way.FORWARD)):
        begun = Begun(2, 1, NEWEST_US, way=way)
        begun.check_way(way)
        with pytest.raises(FailedPrecondition, match=rf"begun by {way} and comes by {other} now"):
            begun.check_way(other)


def test_other_rows_under_a_used_name_are_refused() -> None:
    begun = Begun(0, 1, NEWEST_US, producer="nightly", rows="5000:1:2")
    begun.check_rows("5000:1:2")
    for other, count in (("5000:1:3", "5,000"), ("6000:1:2", "6,000")):
        with pytest.raises(
            FailedPrecondition, match=rf"'nightly' .* for 5,000 row.*these are {count}"
        ):
            begun.check_rows(other)
