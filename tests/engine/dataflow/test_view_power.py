"""Power fails between a checkpoint and the record with the rows of a view."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from shedder.archive.operations.verify import check
from tests.archive.power import PowerFiles
from tests.engine.checkpointed import checkpoint, opened
from tests.engine.dataflow.worlds import CREATE, START_US, batch, ids_of

DISK_THREAD = "shedder-disk"


class GatedLog(PowerFiles):
    """Files whose disk thread stops before the write that comes after a number of writes."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.stopped, self.go_on = threading.Event(), threading.Event()
        self._left = -1

    def stop_after(self, writes: int) -> None:
        self.stopped.clear()
        self.go_on.clear()
        self._left = writes

    def step(self, kind: str) -> OSError | None:
        if kind == "write" and threading.current_thread().name == DISK_THREAD and self._left >= 0:
            self._left -= 1
            if self._left < 0:
                self.stopped.set()
                assert self.go_on.wait(60)
        return super().step(kind)


def rows(first: int) -> list[tuple[int, int, int]]:
    return [(at, at, at % 6) for at in range(first, first + 60)]


@pytest.mark.slow
@pytest.mark.parametrize("more", [False, True])
def test_a_checkpoint_keeps_the_place_of_rows_that_no_record_has(tmp_path, more):
    root = tmp_path / "data"
    root.mkdir()
    files = GatedLog(root)
    with opened(root, files) as db:
        db.execute(CREATE)
        db.execute("CREATE VIEW v AS SELECT id FROM s WHERE kind > 2")
        db.execute("CREATE VIEW twice AS SELECT id FROM v WHERE id % 2 = 0")
        db.push("s", batch(rows(0)))
        assert (len(ids_of(db, "v")), len(ids_of(db, "twice"))) == (
            18,
            6,
        )  # Nothing is on its way now.
        files.stop_after(1)
        db.push("s", batch(rows(60)))
        assert files.stopped.wait(60)
        checkpoint(db)
        files.crash_into(tmp_path / "photo", seed=1)
        files.go_on.set()
    with opened(tmp_path / "photo") as db:
        if more:
            db.push("s", batch(rows(120)))
        db.heartbeat("s", START_US + 1_000)
        wanted = [at for at in range(180 if more else 120) if at % 6 > 2]
        assert ids_of(db, "v") == wanted
        assert ids_of(db, "twice") == [at for at in wanted if at % 2 == 0]
    assert check(tmp_path / "photo").ok
