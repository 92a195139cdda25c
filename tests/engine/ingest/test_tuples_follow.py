"""Tuples that follow their summaries: the archive becomes whole, and nothing is counted twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.errors import BadBatch
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import encode
from tests.engine.killed import copy_killed
from tests.engine.summary_world import (
    SECOND,
    answers,
    built,
    created,
    opened,
    plans_of,
    pushed,
    rows,
    same,
)
from tests.engine.supervised import Supervised

COUNTED = "SELECT COUNT(*) AS n, SUM(k) AS s FROM s"


def merged(engine: Engine, table: pa.Table, sequence: int, *, follow: bool = True) -> None:
    data = built(plans_of(engine), table).to_bytes()
    engine.merge("s", data, producer="p", sequence=sequence, tuples_follow=follow)


def followed(engine: Engine, table: pa.Table, epoch: int, **options: Any) -> Receipt:
    (batch,) = conform(table, engine.schema("s"))
    whose = {"producer": "p+rows", "epoch": epoch, "sequence": 0, "summarised": True} | options
    receipt = engine.append("s", encode(batch), **whose).result()
    engine.ledger("s")
    return receipt


def counts(engine: Engine) -> tuple[int, ...]:
    ledger = engine.ledger("s")
    assert ledger.accepted == ledger.applied + ledger.duplicate
    assert {q.read + q.thinned + q.late for q in ledger.queries} == {ledger.applied}
    return ledger.applied, ledger.summarised, ledger.to_follow, ledger.duplicate


def repaired(engine: Engine) -> None:
    """Let the engine repair panes now; the engine must be without load."""
    assert engine.overload.idle
    engine.repair.wake()
    assert isinstance(engine.core.machine, Supervised)
    engine.core.machine.settle("shedder-repair")


@pytest.mark.slow
def test_the_archive_becomes_whole_and_no_query_reads_them_again(tmp_path: Path) -> None:
    tables = [rows(5_000, number, begin_s=20.0 * number) for number in range(3)]
    with created(tmp_path / "whole") as whole, created(tmp_path / "data") as db:
        for table in tables:
            pushed(whole, table)
        pushed(db, tables[0])
        merged(db, tables[1], 0)
        merged(db, tables[2], 1)
        assert counts(db) == (15_000, 10_000, 10_000, 0)
        same(whole, db)
        assert db.execute(COUNTED).rows()[0]["n_bound"] == "none"
        assert followed(db, tables[1], 0).position == 10_000
        assert counts(db) == (15_000, 5_000, 5_000, 0)
        assert db.execute(COUNTED).rows()[0]["n_bound"] == "none"
        followed(db, tables[2], 1)
        assert followed(db, tables[2], 1).duplicate
        assert counts(db) == (15_000, 0, 0, 5_000)
        same(whole, db)
        assert db.execute(COUNTED).table.equals(whole.execute(COUNTED).table)
        assert db.execute(COUNTED).rows()[0]["n_bound"] == "exact"


@pytest.mark.slow
def test_what_is_given_up_stays_unknown_to_the_archive(tmp_path: Path) -> None:
    with created(tmp_path / "data") as db:
        merged(db, rows(1_000, 1), 0, follow=False)
        merged(db, rows(500, 2), 1)
        assert counts(db) == (1_500, 1_500, 500, 0)
        followed(db, rows(500, 2), 0)
        assert counts(db) == (1_500, 1_000, 0, 0)
        assert db.execute(COUNTED).rows()[0]["n_bound"] == "none"


@pytest.mark.slow
@pytest.mark.parametrize("is_closed", [True, False])
def test_they_are_there_after_a_stop_and_still_counted_once(
    tmp_path: Path, *, is_closed: bool
) -> None:
    with created(tmp_path / "data") as db:
        for number in range(3):
            merged(db, rows(1_000, number, begin_s=20.0 * number), number)
        followed(db, rows(1_000, 0), 0)
        before = answers(db)
        if not is_closed:
            copy_killed(db, tmp_path / "copy")
    with opened(tmp_path / ("data" if is_closed else "copy")) as db:
        assert answers(db) == before
        assert counts(db) == (3_000, 2_000, 2_000, 0)
        assert followed(db, rows(1_000, 0), 0).duplicate
        for number in (1, 2):
            followed(db, rows(1_000, number, begin_s=20.0 * number), number)
        assert counts(db)[1:3] == (0, 0)
        assert db.execute(COUNTED).rows()[0]["n"] == 3_000
        assert answers(db) == before


@pytest.mark.slow
def test_tuples_that_nobody_waits_for_are_refused(tmp_path: Path) -> None:
    with created(tmp_path / "data") as db:
        with pytest.raises(BadBatch, match="no summaries have come"):
            followed(db, rows(10, 1), 0)
        merged(db, rows(10, 1), 0)
        with pytest.raises(BadBatch, match="need a producer with a name"):
            followed(db, rows(10, 1), 0, producer="")
        followed(db, rows(10, 1), 0)
        with pytest.raises(BadBatch, match="no summaries have come"):
            followed(db, rows(10, 1), 1)


@pytest.mark.slow
@pytest.mark.parametrize("is_closed", [True, False])
def test_nobody_brings_more_than_it_owes_nor_what_another_one_owes(
    tmp_path: Path, *, is_closed: bool
) -> None:
    """Before a stop and after it, from the checkpoint or from the log."""
    with created(tmp_path / "data", {"q": COUNTED}) as db:
        merged(db, rows(20, 1), 0)
        data = built(plans_of(db), rows(30, 2)).to_bytes()
        db.merge("s", data, producer="other", sequence=0, tuples_follow=True)
        with pytest.raises(BadBatch, match="a producer with a name"):
            db.merge("s", data, tuples_follow=True)
        followed(db, rows(20, 1).slice(0, 5), 0)
        refused_beyond(db, expected=15)
        if not is_closed:
            copy_killed(db, tmp_path / "copy")
    with opened(tmp_path / ("data" if is_closed else "copy")) as db:
        refused_beyond(db, expected=15)
        followed(db, rows(20, 1).slice(5), 0, sequence=1)
        refused_beyond(db, expected=0)
        assert counts(db) == (50, 30, 30, 0)
        followed(db, rows(30, 2), 0, producer="other+rows")
        assert counts(db) == (50, 0, 0, 0)
        assert db.execute(COUNTED).table.equals(db.query("q").answer().table)


def refused_beyond(db: Engine, *, expected: int) -> None:
    """Rows that were not announced, or by another producer, are refused, and nothing is counted."""
    before = counts(db)
    for name, count, said in (
        (
            "p+rows",
            expected + 1,
            f"'p' whose {expected + 1} tuples were to follow: {expected} are expected",
        ),
        ("absent+rows", 1, "'absent' whose 1 tuples were to follow: 0 are expected"),
        ("p", 1, "under its name and '\\+rows', as 'web-2\\+rows'; this is 'p'"),
    ):
        with pytest.raises(BadBatch, match=said):
            followed(db, rows(count, 9), 1, producer=name)
    assert counts(db) == before


def supervised() -> Supervised:
    return Supervised(lambda: 10_000 * SECOND)


def test_thin_panes_are_repaired_once_their_tuples_have_come(tmp_path: Path) -> None:
    text = "SELECT COUNT(*) AS n, SUM(k) AS s, COUNT(DISTINCT k) AS d FROM s"
    table = rows(8_000, 3)
    with (
        created(tmp_path / "data", {"q": text}, machine=supervised()) as db,
        created(tmp_path / "w", {"q": text}) as whole,
    ):
        pushed(whole, table)
        db.execute("ALTER QUERY q SET THINNING 1/4")
        merged(db, table, 0)
        db.execute("ALTER QUERY q SET THINNING 1")
        repaired(db)
        assert db.query("q").answer().rows()[0]["s_bound"] == "interval"
        followed(db, table, 0)
        repaired(db)
        assert db.query("q").answer().table.equals(whole.query("q").answer().table)
