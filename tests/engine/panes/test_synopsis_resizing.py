"""Sizes that change while a query stands: new panes, live ones that shrink, a restart between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shedder
from shedder.archive.log.records import Sizes
from shedder.engine.apply.size_records import submit_sizes
from shedder.engine.engine import Engine
from shedder.engine.panes.pane import Pane
from shedder.engine.panes.synopsis_resizing import size_of
from shedder.engine.synopsis_plans.synopsis_plan import with_sizes
from shedder.simulation.virtual_environment import VirtualEnvironment
from shedder.streams.batches import encode
from tests.engine.allocation_world import standing
from tests.engine.killed import copy_killed
from tests.engine.query_worlds import CREATE, SECOND, START, WINDOW, inside, opened, second
from tests.engine.resized import changed, resize
from tests.truth import gate

SKETCHES = f"""SELECT COUNT(*) AS n, SUM(k) AS total, COUNT(DISTINCT k) AS d,
  SELF_JOIN_SIZE(k) AS f2, DISTINCT_BOTH(k, v > 0.5, v < 0.8) AS both, TOP(k, 3) AS top
  FROM s {WINDOW}"""
FOLDED = (
    "SELECT COUNT(DISTINCT k) AS d, SELF_JOIN_SIZE(k) AS f, JACCARD(k, v > 0, v < 1) AS j FROM s"
)
RANKS = f"SELECT QUANTILE(v, 0.5) AS m, QUANTILE(v, 0.99) AS p FROM s {WINDOW} WITHIN 0.02 RANK"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with opened(tmp_path) as engine:
        engine.execute(CREATE)
        yield engine


def check_exactly(row: dict[str, Any], tuples: pa.Table) -> None:
    """No tuple was lost, whatever the sketches became."""
    k = np.asarray(tuples["k"])
    assert row["n"] == len(k)
    assert row["total"] == k.sum()


def test_a_record_of_sizes_round_trips() -> None:
    sizes = Sizes(7, "größe", (0, 12, 1_024), 1 << 40, -5)
    assert Sizes.from_bytes(sizes.to_bytes()) == sizes
    assert not Sizes(7, "q", (1,) * 20_000, 0, 0).fits


@pytest.mark.slow
def test_intervals_hold_the_truth_through_growing_and_shrinking(db: Engine) -> None:
    query = db.register("q", SKETCHES)
    resize(db, "q", -4)
    pushed, held, trials = [], 0, 0
    for number in range(40):
        if number in (10, 15, 20, 32):
            resize(db, "q", {10: 2, 15: -4, 20: 3, 32: -2}[number])
        pushed.append(second(number))
        db.push("s", pushed[-1])
        if number < 9:
            continue
        db.heartbeat("s", (START + number) * SECOND)
        answer = query.answer()
        [row] = answer.rows()
        tuples = inside(answer, pushed)
        check_exactly(row, tuples)
        k, v = np.asarray(tuples["k"]), np.asarray(tuples["v"])
        counts = np.unique(k, return_counts=True)[1]
        both = len(np.intersect1d(k[v > 0.5], k[v < 0.8]))
        truth = {"d": len(counts), "f2": float((counts.astype(float) ** 2).sum()), "both": both}
        for name, value in truth.items():
            assert row[f"{name}_bound"] == "interval"
            held += row[f"{name}_low"] <= value <= row[f"{name}_high"]
            trials += 1
        assert all(item["low"] <= (k == item["value"]).sum() <= item["high"] for item in row["top"])
    assert held >= gate(trials // 8, 0.95) * 8  # Windows of eight panes overlap.


@pytest.mark.slow
def test_ranks_are_within_their_error_through_growing_and_shrinking(db: Engine) -> None:
    query = db.register("q", RANKS)
    pushed = []
    for number in range(40):
        if number in (10, 20, 30):
            resize(db, "q", {10: 1, 20: -2, 30: 1}[number])
        pushed.append(second(number))
        db.push("s", pushed[-1])
        if number < 9:
            continue
        db.heartbeat("s", (START + number) * SECOND)
        answer = query.answer()
        [row] = answer.rows()
        v = np.sort(np.asarray(inside(answer, pushed)["v"]))
        for name, q in (("m", 0.5), ("p", 0.99)):
            assert abs(np.searchsorted(v, row[name]) / len(v) - q) < 0.1
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]


@pytest.mark.slow
def test_what_shrank_is_what_had_always_been_small(tmp_path: Path) -> None:
    """Counters, registers and hashes fold: later answers cannot tell when it was done."""
    answers = []
    for name, at in (("early", 0), ("late", 12)):
        with opened(tmp_path / name) as db:
            db.execute(CREATE)
            query = db.register("q", SKETCHES)
            for number in range(14):
                if number == at:
                    resize(db, "q", -3)
                db.push("s", second(number))
            db.heartbeat("s", (START + 13) * SECOND)
            answers.append(query.answer().table)
    assert answers[0].equals(answers[1])


@pytest.mark.slow
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_restart_brings_the_same_panes(tmp_path: Path, checkpointed: bool) -> None:
    with opened(tmp_path / "data") as db:
        db.execute(CREATE)
        db.register("q", SKETCHES)
        for number in range(12):
            if number == 4:
                resize(db, "q", 1)
            if number == 8:
                resize(db, "q", -3)
                if checkpointed:
                    db.core.executor.call(db.checkpoints.now).result()
            db.push("s", second(number))
        db.heartbeat("s", (START + 11) * SECOND)
        before = facts(db, "q")
        copy_killed(db, tmp_path / "killed")
    with opened(tmp_path / "killed") as db:
        assert facts(db, "q") == before
        db.push("s", second(12))
        db.heartbeat("s", (START + 12) * SECOND)
        ledger = db.ledger("s")
        assert ledger.applied == 13 * 1_000


def facts(db: Engine, name: str) -> dict[str, Any]:
    def read() -> dict[str, Any]:
        standing = db.core.standing_query(name)[1].state
        panes = {
            number: [part.to_bytes() for part in pane.parts]
            for number, pane in standing.panes.items()
        }
        return {"sizes": changed(standing, 0), "cap": standing.sizes.part_bytes_max, "panes": panes}

    return db.core.executor.call(read).result()


class Hurried(VirtualEnvironment):
    """A virtual machine whose clock advances two milliseconds at each reading."""

    looks = 0

    def monotonic_s(self) -> float:
        self.looks += 1
        return super().monotonic_s() + 0.002 * self.looks


@pytest.mark.slow
def test_ingest_goes_on_between_two_panes_that_shrink(tmp_path: Path) -> None:
    machine = Hurried(1, START * SECOND)
    with Engine.open(tmp_path, machine=machine, allocation_seconds=1e6, audit="off") as db:
        db.execute(CREATE)
        db.register("q", SKETCHES)

        def log() -> None:
            group = machine.log.gather()
            assert group
            machine.log.commit(group)

        def send(number: int) -> None:
            (batch,) = second(number).combine_chunks().to_batches()
            db.append("s", encode(batch), producer="p", epoch=0, sequence=None)
            log()

        for number in range(10):
            send(number)
        machine.settle()
        stream, standing_query = db.core.standing_query("q")
        standing = standing_query.state
        sizes = changed(standing, -3)
        submit_sizes(db.core, stream, "q", sizes, standing.sizes.part_bytes_max)
        log()
        machine.applier.step()  # The record of sizes.
        send(10)
        seen = []
        while standing.resizer.shrinks:
            machine.applier.step()
            seen.append(stream.position)
        assert seen[0] == 10_000  # One slice of one pane.
        assert seen[1] == 11_000  # The batch that arrived meanwhile is read before the next slice.
        assert len(seen) > 5
        assert {size_of(pane.parts[2]) for pane in standing.panes.values()} == {11}


def test_a_window_that_never_slides_shrinks_at_once(db: Engine) -> None:
    query = db.register("q", "SELECT COUNT(DISTINCT k) AS d, COUNT(*) AS n FROM s")
    db.push("s", second(0))
    kept = resize(db, "q", -4)
    assert size_of(kept.panes[0].parts[1]) == 10
    [row] = query.answer(after=db.push("s", second(1))).rows()
    k = np.concatenate([second(number)["k"].to_numpy() for number in (0, 1)])
    assert row["n"] == 2_000
    assert row["d_low"] <= len(np.unique(k)) <= row["d_high"]


@pytest.mark.slow
def test_thinned_segments_shrink_with_their_pane(db: Engine) -> None:
    query = db.register("q", SKETCHES)
    pushed = []
    for number in range(12):
        if number == 5:
            db.thinning.set_thinning("q", 1)
        if number == 8:
            resize(db, "q", -4)
        pushed.append(second(number))
        db.push("s", pushed[-1])
    db.heartbeat("s", (START + 12) * SECOND)
    answer = query.answer()
    [row] = answer.rows()
    k = np.asarray(inside(answer, pushed)["k"])
    assert row["d_low"] <= len(np.unique(k)) <= row["d_high"]
    assert row["n_low"] <= len(k) <= row["n_high"]
    standing = db.core.standing_query("q")[1].state
    assert not any(pane.is_larger_than(standing.plan) for pane in standing.panes.values())


@pytest.mark.slow
def test_groups_that_had_no_room_find_it_when_the_cap_is_raised(tmp_path: Path) -> None:
    with shedder.open(tmp_path, group_bytes_max=64 << 10, allocation_seconds=1e6) as db:
        assert isinstance(db, Engine)
        db.execute(CREATE)
        query = db.register("q", "SELECT k, COUNT(*) AS n FROM s GROUP BY k")
        first = second(0, rows=20_000)
        answer = query.answer(after=db.push("s", first))
        assert answer.others is not None
        stream, standing_query = db.core.standing_query("q")
        sizes = changed(standing_query.state, 0)
        submit_sizes(db.core, stream, "q", sizes, 4 << 20).result()
        more = second(1, rows=20_000)
        answer = query.answer(after=db.push("s", more))
        truth = np.bincount(np.concatenate([first["k"], more["k"]]))
        rows = [row for at, row in enumerate(answer.rows()) if at != answer.others]
        assert len(rows) > 10_000
        assert all(row["n_low"] <= truth[row["k"]] <= row["n_high"] for row in rows)
        assert sum(answer.table["n"].to_pylist()) == 40_000


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(st.integers(7, 10), min_size=1, max_size=4))
def test_a_window_is_as_coarse_as_its_coarsest_pane(sizes: list[int]) -> None:
    plan = standing("q", FOLDED).plan
    whole = Pane(plan, 1, of_any_size=True)
    for size in sizes:
        whole.merge(Pane(with_sizes(plan, [size if part.size else 0 for part in plan.parts]), 1))
    assert {size_of(part) for part in whole.parts} == {0, min(sizes)}


THINNED = f"""SELECT COUNT(DISTINCT k) AS d, SELF_JOIN_SIZE(k) AS f2, JOIN_SIZE(k, k) AS j,
  DISTINCT_BOTH(k, v > 0.5, v < 0.8) AS both, JACCARD(k, v > 0.5, v < 0.8) AS alike,
  QUANTILE(v, 0.9) AS q, TOP(k, 3) AS top FROM s {WINDOW}"""


@pytest.mark.slow
@pytest.mark.parametrize("steps", [(1, 1), (-1, 2), (2, -1)])
def test_parts_read_at_several_shares_may_be_of_several_sizes(
    db: Engine, steps: tuple[int, ...]
) -> None:
    """Sizes change between two levels of thinning: one answer over all of them, and it holds."""
    query = db.register("q", THINNED)
    resize(db, "q", -2)
    pushed = []
    for number, (share, step) in enumerate(zip(("1/2", "1/8", "1/4"), (*steps, 0), strict=True)):
        db.execute(f"ALTER QUERY q SET THINNING {share}")
        pushed.append(second(number, 4_000))
        db.push("s", pushed[-1])
        resize(db, "q", step)
    db.heartbeat("s", (START + 4) * SECOND)
    [row] = query.answer().rows()
    whole = pa.concat_tables(pushed)
    k, v = np.asarray(whole["k"]), np.asarray(whole["v"])
    counts = np.unique(k, return_counts=True)[1].astype(float)
    both = len(np.intersect1d(k[v > 0.5], k[v < 0.8]))
    truth = {"d": len(counts), "f2": (counts**2).sum(), "j": (counts**2).sum(), "both": both}
    for name, value in truth.items():
        assert row[f"{name}_low"] <= value <= row[f"{name}_high"], (name, value, row)
        assert row[f"{name}_bound"] == "interval"
