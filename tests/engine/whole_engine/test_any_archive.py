"""Whatever is done to a stream's past, and in any order, answers hold what is left of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shedder.archive.operations.verify import check
from tests.engine.archive_walk import ArchiveWalk
from tests.scale import scaled
from tests.seeds import seed

WALKS = scaled(1, 40)  # A per-change run takes different walks each time.


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(WALKS))
def test_answers_hold_what_is_left_whatever_is_done_to_the_archive(tmp_path: Path, number: int):
    walk = ArchiveWalk(tmp_path, seed("any archive", number))
    said = []
    try:
        for _ in range(40):
            said.append(walk.step())
            for _ in range(3):
                walk.ask()
    except BaseException as error:
        error.add_note(" ".join(said))
        raise
    finally:
        walk.close()
    report = check(walk.directory)
    assert (report.damages, report.notes) == ([], [])
