"""Parts of a backfill: done once if several processes do them, and listed without their data."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.archive.catalog.backfill_table import BackfillPart
from shedder.archive.files.file_system import OsFiles, OsReadFile, ReadFile
from shedder.engine.engine import Engine
from shedder.engine.rebuild.backfill_bounds import first_overlap
from shedder.engine.rebuild.backfilled_panes import received
from shedder.engine.runtime.environment import Environment
from shedder.errors import BadSetting, FailedPrecondition, PlansChanged
from spark_ingest.parts import send_part
from tests.engine.backfilled import LAYOUTS, PAST, answers_of, created, now_us, rows, truth

SECOND = 1_000_000
READINGS = 3  # Reads of a part's file: checksum, footer, rows.
QUERY = {"ever": "SELECT COUNT(*) AS n, SUM(k) AS s FROM {}"}


@pytest.fixture
def slow() -> Delayed:
    return Delayed()


@pytest.fixture
def db(tmp_path: Path, slow: Delayed) -> Iterator[Engine]:
    with created(tmp_path / "data", LAYOUTS[1], QUERY, Environment(now_us, slow)) as engine:
        yield engine


def waiting(db: Engine) -> list[str]:
    folder = db.core.store.directory / "backfills/1"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_one_that_was_abandoned_has_not_begun_and_begins_anew_with_another_plan(
    db: Engine,
) -> None:
    first = db.backfills.begin_backfill("s", "old", "a plan", 2)
    send_part(db.backfills, first, "old", 0, PAST[0], watermark_us=50 * SECOND)
    db.backfills.abandon_backfill("s", "old")
    db.backfills.abandon_backfill("s", "old")  # As when an answer was lost.
    assert waiting(db) == []
    with pytest.raises(FailedPrecondition, match="'old' has not begun"):
        db.backfills.begin_backfill("s", "old")
    with pytest.raises(FailedPrecondition, match="'old' has not begun"):
        send_part(db.backfills, first, "old", 1, PAST[1], watermark_us=50 * SECOND)
    with pytest.raises(FailedPrecondition, match="'old' has not begun"):
        db.backfills.adopt_backfill("s", "old", rows=0)
    with pytest.raises(BadSetting, match="say how the source"):
        db.backfills.begin_backfill("s", "old", "", 1)
    again = db.backfills.begin_backfill("s", "old", "another plan", 1)
    assert (again.plan, again.done) == ("another plan", {})
    assert again.first_position < first.first_position
    send_part(db.backfills, again, "old", 0, PAST[1], watermark_us=50 * SECOND)
    assert db.backfills.adopt_backfill("s", "old", rows=3_000).rows == 3_000
    assert db.query("ever_s").answer().rows()[0]["n"] == 3_000


def test_to_see_how_far_it_is_needs_no_memory_for_what_the_parts_hold(db: Engine) -> None:
    state = db.backfills.begin_backfill("s", "old", "a plan", 50)
    held = bytes(1_000_000)
    for number in range(40):
        part = BackfillPart(state.stream_id, "old", number, 1, 0, (), {})
        db.core.store.catalog.backfills.put_part(part, held)
    tracemalloc.start()
    try:
        assert len(db.backfills.begin_backfill("s", "old").done) == 40
        send_part(db.backfills, state, "old", 40, PAST[0].slice(0, 10), watermark_us=50 * SECOND)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 10 * len(held)


class Delayed(OsFiles):
    """Real files; the delayed thread stops after it has read a part.

    read: the thread has read the part and recorded nothing. may_go_on: lets the thread continue.
    """

    def __init__(self) -> None:
        self.read, self.may_go_on = threading.Event(), threading.Event()
        self._mine: int | None = None
        self._readings = 0

    def open(self, path: Path) -> ReadFile:
        assert not (self.is_delayed(path) and self.read.is_set()), "it had not read all of it"
        return DelayedFile(path, self)

    def is_delayed(self, path: Path) -> bool:
        return threading.get_ident() == self._mine and path.name.startswith("backfill-")

    def has_read(self, path: Path) -> None:
        """Stop the delayed thread after its last read of a part's file."""
        self._readings += self.is_delayed(path)
        if self.is_delayed(path) and self._readings == READINGS:
            self.read.set()
            self.may_go_on.wait()

    def run(self, work: Callable[[], object]) -> threading.Thread:
        """Run the work on a delayed thread; return when the thread has read the part."""

        def run() -> None:
            self._mine = threading.get_ident()
            work()

        thread = threading.Thread(target=run)
        thread.start()
        self.read.wait()
        return thread


class DelayedFile(OsReadFile):
    def __init__(self, path: Path, files: Delayed) -> None:
        super().__init__(path)
        self._path, self._files = path, files

    def close(self) -> None:
        super().close()
        self._files.has_read(self._path)


@pytest.mark.slow
def test_of_two_who_do_a_part_the_catalog_knows_the_file_of_the_first(
    db: Engine, slow: Delayed
) -> None:
    state = db.backfills.begin_backfill("s", "old", "a plan", 2)
    others = rows(4_000, 99, 0, 30)  # As many rows of other bytes.
    late = slow.run(
        lambda: send_part(db.backfills, state, "old", 0, others, watermark_us=50 * SECOND)
    )
    send_part(db.backfills, state, "old", 0, PAST[0], watermark_us=50 * SECOND)
    slow.may_go_on.set()
    late.join()
    [part] = db.core.store.catalog.backfills.parts(state.stream_id, "old")
    [run] = part.runs
    path = db.core.store.directory / "backfills" / run.file
    assert google_crc32c.value(path.read_bytes()) == run.crc
    assert waiting(db) == [path.name]
    assert list((db.core.store.directory / "tmp").glob("backfill-*")) == []
    send_part(db.backfills, state, "old", 1, PAST[1], watermark_us=50 * SECOND)
    db.backfills.adopt_backfill("s", "old", rows=7_000)
    assert answers_of(db) == truth(*PAST)


@pytest.mark.parametrize("ended", ["adopted", "abandoned"])
def test_who_finishes_a_part_after_the_end_is_refused_and_leaves_nothing(
    db: Engine, slow: Delayed, ended: str
) -> None:
    state = db.backfills.begin_backfill("s", "old", "a plan", 2)
    refused: list[str] = []

    def do_again() -> None:
        with pytest.raises(FailedPrecondition) as error:
            send_part(db.backfills, state, "old", 1, PAST[0], watermark_us=50 * SECOND)
        refused.append(str(error.value))

    late = slow.run(do_again)
    send_part(db.backfills, state, "old", 0, PAST[0], watermark_us=50 * SECOND)
    if ended == "adopted":
        db.backfills.adopt_backfill("s", "old", rows=4_000)
    else:
        db.backfills.abandon_backfill("s", "old")
    slow.may_go_on.set()
    late.join()
    assert ("is part of the stream already" if ended == "adopted" else "has not begun") in refused[
        0
    ]
    assert db.core.store.catalog.backfills.parts(state.stream_id, "old") == []
    assert waiting(db) == []
    assert list((db.core.store.directory / "tmp").glob("backfill-*")) == []


def test_what_is_built_again_while_it_is_read_is_not_mixed(db: Engine) -> None:
    """A late task sends panes for the queries that it knew, and others are taken to be there."""
    state = db.backfills.begin_backfill("s", "old", "a plan", 1)
    db.register("later", "SELECT SUM(k) AS s FROM s")
    knowing = db.backfills.begin_backfill("s", "old")
    send_part(db.backfills, knowing, "old", 0, PAST[0], watermark_us=50 * SECOND)
    of, parts = db.core.stream("s"), db.core.store.catalog.backfills.parts(state.stream_id, "old")
    send_part(db.backfills, state, "old", 0, PAST[0], watermark_us=50 * SECOND, runs=False)
    with pytest.raises(PlansChanged, match="part 0 was built again while it was read"):
        received(db.core, of, parts)


stretches = st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 9)), max_size=8)


@pytest.mark.slow
@given(past=stretches, there=stretches)
def test_stretches_of_time_meet_where_comparing_all_of_them_says_so(
    past: list[tuple[int, int]], there: list[tuple[int, int]]
) -> None:
    ours, theirs = (
        np.array([(low, low + more) for low, more in given], np.int64).reshape(-1, 2).T
        for given in (past, there)
    )
    meets = (theirs[0] <= ours[1][:, None]) & (ours[0][:, None] <= theirs[1])
    found = first_overlap(*ours, *theirs)
    if found is None:
        assert not meets.any()
    else:
        assert meets[found]
        assert found[0] == np.argmax(meets.any(axis=1))
