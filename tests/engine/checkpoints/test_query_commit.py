"""Queries that come or go after a checkpoint: after a crash there or not, never half."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shedder.engine.engine import Engine
from shedder.errors import DiskFull
from tests.archive.power import PowerFiles
from tests.engine.catalogs import full_catalog
from tests.engine.checkpointed import checkpoint, opened
from tests.engine.query_worlds import CREATE, second
from tests.scale import scaled
from tests.seeds import seed

OPENED_EVERY = scaled(5, 1)  # One in so many directories that power failure may leave.

_KEEPS = "COUNT(*) AS n, SUM(k) AS total, COUNT(DISTINCT k) AS d"
TEXTS = {
    "long": f"SELECT {_KEEPS} FROM s [RANGE INTERVAL '6' SECOND SLIDE INTERVAL '1' SECOND]",
    "short": f"SELECT {_KEEPS} FROM s [RANGE INTERVAL '2' SECOND SLIDE INTERVAL '1' SECOND]",
    "ever": "SELECT COUNT(*) AS n, SUM(v) AS total FROM s",
    "groups": "SELECT k % 7 AS g, COUNT(*) AS n FROM s GROUP BY k % 7",
}


def check(db: Engine, names: set[str]) -> None:
    """These stand, and each answers as one does that reads all that is there from the archive."""
    assert set(db.core.stream("s").queries) == names
    for name in names:
        twin = db.register(f"{name} again", TEXTS[name])
        assert sorted(map(str, db.query(name).answer().rows())) == sorted(
            map(str, twin.answer().rows())
        ), name
        db.drop_query(f"{name} again")


class Photographed(PowerFiles):
    """At each call of the file system, a directory as it might be if power failed there."""

    def __init__(self, root: Path, beside: Path) -> None:
        super().__init__(root)
        self._beside = beside
        self._taking = threading.Lock()
        self.stand: list[set[str]] = []
        self.photos: list[tuple[Path, list[set[str]]]] = []

    def step(self, kind: str) -> OSError | None:
        if self.stand and self._taking.acquire(blocking=False):
            target = self._beside / f"photo {len(self.photos)}"
            self.crash_into(target, seed=len(self.photos))
            self.photos.append((target, [set(names) for names in self.stand]))
            self._taking.release()
        return super().step(kind)


@pytest.mark.slow
def test_power_may_fail_at_any_call_and_each_query_is_as_it_was(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    files = Photographed(root, tmp_path)
    script = [
        *("long", "push", "push", "checkpoint", "push", "short", "push", "ever", "groups", "push"),
        *("-ever", "push", "ever", "push", "checkpoint", "push", "-short", "push", "short", "push"),
        *("-long", "push", "-groups", "long", "push", "groups", "push"),
    ]
    with opened(root, files) as db:
        db.execute(CREATE)
        stand: set[str] = set()
        for number, word in enumerate(script):
            match word:
                case "push":
                    files.stand = [stand]
                    db.push("s", second(number))
                case "checkpoint":
                    checkpoint(db)
                case _ if word.startswith("-"):
                    files.stand = [stand, stand - {word[1:]}]
                    db.drop_query(word[1:])
                    stand.remove(word[1:])
                case _:
                    files.stand = [stand, stand | {word}]
                    db.register(word, TEXTS[word])
                    stand.add(word)
            files.stand = []
            files.crash_into(tmp_path / f"after {number}", seed=number)
            files.photos.append((tmp_path / f"after {number}", [set(stand)]))
        check(db, stand)
    assert len(files.photos) > 2 * len(script)
    for directory, either in files.photos[seed("photos") % OPENED_EVERY :: OPENED_EVERY]:
        with opened(directory) as again:
            names = set(again.core.stream("s").queries)
            assert names in either, directory
            check(again, names)
            again.push("s", second(90))
            check(again, names)


def while_it_is_written(db: Engine, work: Callable[[], None]) -> None:
    """Register `short`; its write waits while this is done."""
    catalog = db.core.store.catalog
    with ThreadPoolExecutor(1) as pool:
        with catalog.transaction():
            registered = pool.submit(db.register, "short", TEXTS["short"])
            while "short" not in db.core.stream("s").queries:
                db.core.executor.call(lambda: None).result()
            work()
        registered.result()


@pytest.mark.slow
def test_tuples_are_read_while_a_query_is_written(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    files = PowerFiles(root)
    with opened(root, files) as db:
        db.execute(CREATE)
        db.register("long", TEXTS["long"])
        db.push("s", second(0))
        checkpoint(db)
        db.push("s", second(1))

        def push() -> None:
            receipt = db.push("s", second(2))
            assert db.query("short").answer(after=receipt).rows()[0]["n"] > 0
            files.crash_into(tmp_path / "before", seed=1)

        while_it_is_written(db, push)
        both = {"long", "short"}
        check(db, both)
        files.crash_into(tmp_path / "after", seed=2)
        db.push("s", second(3))
        files.crash_into(tmp_path / "later", seed=3)
        checkpoint(db)
        assert not db.core.store.catalog.joined()
    for directory, names in (("before", {"long"}), ("after", both), ("later", both)):
        with opened(tmp_path / directory) as again:
            check(again, names)


def register_some(db: Engine) -> None:
    """There is room in SQLite's pages for a few."""
    for number in range(200):
        db.register(f"n {number}", TEXTS["groups"])


def test_a_query_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as db:
        db.execute(CREATE)
        db.register("long", TEXTS["long"])
        db.push("s", second(0))
        with full_catalog(db), pytest.raises(DiskFull):
            register_some(db)
        stand = set(db.core.stream("s").queries)
        assert stand == {entry.name for entry in db.core.store.catalog.queries()}
        assert all(one.state.feed is None for one in db.core.stream("s").queries.values())
        db.push("s", second(1))
        for name in stand - {"long"}:
            db.drop_query(name)
        check(db, {"long"})
    with opened(tmp_path / "data") as db:
        check(db, {"long"})


def test_a_query_is_no_checkpoint_and_the_log_goes_on_behind_it(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as db:
        db.execute(CREATE)
        db.register("long", TEXTS["long"])
        checkpoint(db)
        catalog = db.core.store.catalog
        sequence = catalog.checkpoint_sequence()
        db.push("s", second(0))
        db.core.executor.call(lambda: None).result()
        db.register("short", TEXTS["short"])
        assert catalog.checkpoint_sequence() == sequence
        assert catalog.joined() == {"short": db.core.applied_sequence}
        assert catalog.durable_sequence() == db.core.applied_sequence > sequence
        db.drop_query("short")
        assert catalog.left() == {"short"}
        checkpoint(db)
        assert catalog.joined() == {}
        assert catalog.left() == set()
        assert [entry.name for entry in catalog.queries()] == ["long"]


def test_a_query_that_fed_another_as_of_the_checkpoint_can_be_dropped(tmp_path: Path) -> None:
    """By then the other reads by itself; a replay begins where it did not."""
    root = tmp_path / "data"
    root.mkdir()
    files = PowerFiles(root)
    with opened(root, files) as db:
        db.execute(CREATE)
        for name in ("long", "short"):
            db.register(name, TEXTS[name])
        db.push("s", second(0))
        queries = db.core.stream("s").queries
        assert queries["short"].state.feed is not None
        checkpoint(db)
        db.push("s", second(1))
        db.thinning.set_thinning("long", 1)  # From now on it reads other tuples.
        receipt = db.push("s", second(2))
        answer = db.query("short").answer(after=receipt).rows()
        assert queries["short"].state.feed is None
        db.drop_query("long")
        files.crash_into(tmp_path / "copy", seed=1)
    with opened(tmp_path / "copy") as again:
        assert again.query("short").answer().rows() == answer
        check(again, {"short"})


@pytest.mark.parametrize("then", ["checkpoint", "again", "push", "restart"])
def test_a_query_that_feeds_others_goes_without_a_checkpoint(tmp_path: Path, then: str) -> None:
    root = tmp_path / "data"
    root.mkdir()
    files = PowerFiles(root)
    with opened(root, files) as db:
        db.execute(CREATE)
        for name in ("long", "short"):
            db.register(name, TEXTS[name])
        db.push("s", second(0))
        queries = db.core.stream("s").queries
        assert queries["short"].state.feed is not None
        checkpoint(db)
        db.push("s", second(1))
        db.core.executor.call(lambda: None).result()
        catalog = db.core.store.catalog
        sequence = catalog.checkpoint_sequence()
        db.drop_query("long")
        assert catalog.checkpoint_sequence() == sequence
        assert set(queries) == {"short"}
        stand = {"short"}
        match then:
            case "checkpoint":
                checkpoint(db)
                assert catalog.left() == set()
                assert [entry.name for entry in catalog.queries()] == ["short"]
            case "again":
                db.register("long", TEXTS["long"])
                stand.add("long")
            case "push":
                db.push("s", second(2))
        check(db, stand)
        files.crash_into(tmp_path / "copy", seed=1)
    with opened(tmp_path / "copy") as again:
        check(again, stand)
        if then == "restart":
            again.register("long", TEXTS["long"])
            check(again, {"long", "short"})


def test_a_checkpoint_that_was_begun_before_may_still_name_it(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    files = PowerFiles(root)
    with opened(root, files) as db:
        db.execute(CREATE)
        for name in ("long", "short"):
            db.register(name, TEXTS[name])
        db.push("s", second(0))
        checkpoints, executor = db.checkpoints, db.core.executor
        catalog = db.core.store.catalog
        executor.call(lambda: checkpoints.go_on(1e12)).result()  # A checkpoint is due.
        catalog.leave_checkpoint("long")  # As far as a drop is when the other is written.
        executor.call(checkpoints.settle).result()
        assert catalog.left() == {"long"}
        files.crash_into(tmp_path / "copy", seed=1)
    with opened(tmp_path / "copy") as again:
        check(again, {"short"})


def test_a_stream_takes_its_dropped_queries_along(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as db:
        db.execute(CREATE)
        for name in ("long", "short"):
            db.register(name, TEXTS[name])
        db.push("s", second(0))
        checkpoint(db)
        for name in ("long", "short"):
            db.drop_query(name)
        db.execute("DROP STREAM s")
        assert db.core.store.catalog.queries() == []
        assert db.checkpoints.left == {}
    with opened(tmp_path / "data") as db:
        assert db.core.streams == {}


def drop_all(db: Engine, names: list[str]) -> None:
    for name in names:
        db.drop_query(name)


@pytest.mark.slow
def test_a_query_stands_when_its_end_cannot_be_written(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as db:
        db.execute(CREATE)
        db.push("s", second(0))
        names = [f"n {number}" for number in range(100)]
        for name in names:
            db.register(name, TEXTS["ever"])
        with full_catalog(db), pytest.raises(DiskFull):
            drop_all(db, names)
        stand = set(db.core.stream("s").queries)
        assert len(stand) > 0
        catalog = db.core.store.catalog
        assert stand == {entry.name for entry in catalog.queries()} - catalog.left()
        db.push("s", second(1))
        (row,) = db.query(names[-1]).answer().rows()
        assert row["n"] == 2 * len(second(0)["k"])
