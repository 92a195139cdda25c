"""Weights, activity, the budget, quotas: what was acknowledged survives, nothing is half there."""

from __future__ import annotations

import errno
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from shedder.archive.files.data_directory import FORMAT_ALTERED, format_of
from shedder.archive.log.records import RecordType
from shedder.archive.log.setting_changes import QueryAltered
from shedder.engine.apply import setting_records
from shedder.engine.engine import Engine
from shedder.errors import BudgetExceeded, DiskFull
from tests.archive.power import PowerFiles
from tests.engine.checkpointed import checkpoint, opened
from tests.engine.query_worlds import CREATE, SECOND, START, WINDOW, second

QUERY = f"SELECT COUNT(DISTINCT k) AS d FROM s {WINDOW} WITHIN 5 PERCENT"
TENANT = "default"
MIB = 1 << 20

Settings = dict[str, Any]

FIRST: Settings = {
    "a weight": 1.0,
    "a active": True,
    "b weight": 1.0,
    "b active": True,
    "budget": None,
    "row limit": None,
    "synopsis_bytes": None,
    "rows_per_s": None,
}


def with_queries(directory: Path, files: PowerFiles | None = None) -> Engine:
    db = opened(directory, files)
    db.execute(CREATE)
    for name in ("a", "b"):
        db.register(name, QUERY)
    db.push("s", second(0))
    return db


def alter(db: Engine, key: str, value: Any) -> None:
    match key.split():
        case [name, "weight"]:
            db.budgets.set_weight(name, value)
        case [name, "active"]:
            db.budgets.set_active(name, active=value)
        case ["row", "limit"]:
            db.budgets.set_row_query_bytes(value)
        case ["budget"]:
            db.budgets.set_synopsis_bytes(value)
        case _:
            db.quotas.set_quota(TENANT, key, "none" if value is None else str(value))


def settings_of(db: Engine) -> Settings:
    """All that can be altered, as it is in force."""
    found: Settings = {"budget": db.core.synopsis_bytes_set}
    found["row limit"] = db.core.row_query_bytes_set
    for name, standing_query in db.core.stream("s").queries.items():
        found |= {f"{name} weight": standing_query.weight, f"{name} active": standing_query.active}
    quota = db.core.tenants.quota(TENANT)
    return found | {"synopsis_bytes": quota.synopsis_bytes, "rows_per_s": quota.rows_per_s}


class Photographed(PowerFiles):
    """At each call of the file system, a directory as it might be if power failed there.

    may_be: what may be told by it then; empty: no photo is taken.
    """

    def __init__(self, root: Path, beside: Path) -> None:
        super().__init__(root)
        self._beside = beside
        self.may_be: list[Settings] = []
        self.photos: list[tuple[Path, list[Settings]]] = []

    def step(self, kind: str) -> OSError | None:
        if self.may_be:
            target = self._beside / f"photo {len(self.photos)}"
            self.crash_into(target, seed=len(self.photos))
            self.photos.append((target, self.may_be))
        return super().step(kind)


@pytest.mark.slow
def test_power_may_fail_at_any_call_and_what_was_acknowledged_is_there(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    files = Photographed(root, tmp_path)
    script: list[tuple[str, Any]] = [
        ("a weight", 7.0),
        ("checkpoint", None),
        ("a weight", 0.1),
        ("a active", False),
        ("b weight", 3),
        ("budget", 3 * MIB),
        ("row limit", 5 * MIB),
        ("synopsis_bytes", 2 * MIB),
        ("checkpoint", None),
        ("a active", True),
        ("budget", None),
        ("row limit", None),
        ("rows_per_s", 1e9),
        ("synopsis_bytes", None),
        ("b weight", 1.0),
    ]
    before = FIRST
    with with_queries(root, files) as db:
        for number, (key, value) in enumerate(script):
            if key == "checkpoint":
                checkpoint(db)
                continue
            after = before | {key: value}
            files.may_be = [before, after]
            alter(db, key, value)
            assert settings_of(db) == after
            files.may_be = [after]  # It was acknowledged; now the next records are written.
            db.heartbeat("s", START * SECOND + number)
            files.may_be, before = [], after
    assert len(files.photos) > 3 * len(script)
    survived = 0
    for directory, may_be in files.photos:
        with opened(directory) as again:
            assert settings_of(again) in may_be, directory
            survived += len(may_be) == 2 and settings_of(again) == may_be[1]
    assert survived > 0  # Some were durable before they were acknowledged.


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_full_disk_alters_nothing_whatever_checkpoints_come(tmp_path: Path, seed: int) -> None:
    """What was refused is not in force, and not there after a restart, however it was tried."""
    chance = random.Random(seed)
    root = tmp_path / "data"
    root.mkdir()
    files = PowerFiles(root)
    db = with_queries(root, files)
    expected, refused = FIRST, 0
    for number in range(40):
        key = chance.choice(list(FIRST))
        value = {
            "weight": chance.choice([0.5, 2, 1e9]),
            "active": chance.random() < 0.5,
            "budget": chance.choice([None, 2 * MIB, 3 * MIB]),
            "limit": chance.choice([None, 5 * MIB]),
            "synopsis_bytes": chance.choice([None, 2 * MIB]),
            "rows_per_s": chance.choice([None, 1e9]),
        }[key.split()[-1]]
        if chance.random() < 0.3:
            files.fail_next("write", errno.ENOSPC)
        try:
            alter(db, key, value)
            expected = expected | {key: value}
        except DiskFull:
            refused += 1
        files.fail_next("none")
        assert settings_of(db) == expected
        if chance.random() < 0.3:
            checkpoint(db)
        if chance.random() < 0.2:  # Killed: what was written is there.
            copy = tmp_path / f"copy {number}"
            files.crash_into(copy, seed=number)
            with opened(copy) as again:
                assert settings_of(again) == expected
    assert refused > 2
    db.close()


def test_a_budget_that_is_only_tried_is_in_no_checkpoint(tmp_path: Path) -> None:
    with with_queries(tmp_path / "data") as db:
        db.budgets.set_synopsis_bytes(3 * MIB)
        with db.core.trying_budget(2 * MIB), db.core.tenants.trying({TENANT: {"queries": 1}}):
            assert db.core.synopsis_bytes == 2 * MIB
            assert db.core.tenants.quota(TENANT).queries == 1
            checkpoint(db)
        assert db.core.synopsis_bytes == 3 * MIB
        assert db.core.tenants.quota(TENANT).queries is None
    with opened(tmp_path / "data") as db:
        assert db.core.synopsis_bytes == 3 * MIB
        assert db.core.tenants.quota(TENANT).queries is None


def test_what_does_not_fit_is_refused_and_leaves_no_record(tmp_path: Path) -> None:
    with with_queries(tmp_path / "data") as db:
        for key in ("budget", "synopsis_bytes"):
            with pytest.raises(BudgetExceeded):
                alter(db, key, 1024)
            assert settings_of(db) == FIRST
        log = db.core.store.log
        kinds = [record.kind for record in log.read(log.first_sequence)]
        assert RecordType.BATCH in kinds
        assert RecordType.ALTERED not in kinds
    with opened(tmp_path / "data") as db:
        assert settings_of(db) == FIRST


def test_an_alteration_waits_for_no_tuple_and_stores_no_checkpoint(tmp_path: Path) -> None:
    """It is durable and in force while the apply thread is at something else."""
    with with_queries(tmp_path / "data") as db:
        checkpoint(db)
        stream = db.core.stream("s")
        before = db.core.store.catalog.checkpoint_parts()
        busy, go_on = threading.Event(), threading.Event()

        def work() -> None:
            busy.set()
            go_on.wait()

        db.core.executor.post(work)
        busy.wait()
        try:
            setting_records.alter(db.core, QueryAltered(stream.id, "a", 5.0, active=True))
            assert settings_of(db)["a weight"] == 5.0
        finally:
            go_on.set()
        db.budgets.set_weight("b", 6.0)
        assert db.core.store.catalog.checkpoint_parts() == before
        assert (format_of(tmp_path / "data") or 0) >= FORMAT_ALTERED


def test_the_newest_alteration_stands_with_and_without_a_checkpoint_between(
    tmp_path: Path,
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    files = PowerFiles(root)
    with with_queries(root, files) as db:
        for number, weight in enumerate((2.0, 3.0, 4.0, 5.0)):
            db.budgets.set_weight("a", weight)
            if number % 2:
                checkpoint(db)
            files.crash_into(tmp_path / str(number), seed=number)
            with opened(tmp_path / str(number)) as again:
                assert settings_of(again) == FIRST | {"a weight": weight}


def test_a_query_made_anew_has_the_weight_of_its_text(tmp_path: Path) -> None:
    """Records of its predecessor of that name are behind it."""
    root = tmp_path / "data"
    root.mkdir()
    files = PowerFiles(root)
    with with_queries(root, files) as db:
        db.budgets.set_weight("a", 9.0)
        db.budgets.set_active("a", active=False)
        db.execute("DROP QUERY a")
        files.crash_into(tmp_path / "dropped", seed=1)
        db.register("a", f"{QUERY} WEIGHT 2")
        files.crash_into(tmp_path / "anew", seed=2)
    with opened(tmp_path / "dropped") as again:
        assert list(again.core.stream("s").queries) == ["b"]
    with opened(tmp_path / "anew") as again:
        assert settings_of(again) == FIRST | {"a weight": 2.0}
