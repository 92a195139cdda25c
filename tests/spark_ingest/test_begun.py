"""All tries of a micro-batch go by what its first one noted, before anything of it was sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shedder.errors import FailedPrecondition
from spark_ingest.begun import NOTE, Begun, begin, noted

NEWEST_US = 10_000_000


def test_the_first_try_is_what_all_later_ones_go_by(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "a/checkpoint")
    assert noted(checkpoint) is None
    first = Begun(7, 2, NEWEST_US, files_min=2)
    assert begin(checkpoint, first) == first
    assert begin(f"file://{checkpoint}", replace(first, partitions=3, newest_us=1)) == first
    following = Begun(8, 3, NEWEST_US + 1)
    assert begin(checkpoint, following) == following == noted(checkpoint)
    assert [file.name for file in Path(checkpoint).iterdir()] == [NOTE]


def test_a_note_that_cannot_be_read_is_no_beginning(tmp_path: Path) -> None:
    for damaged in ("", "{", "[]", '{"batch": 1}'):
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
