"""Histograms at the byte cap: buckets grow wider before groups lose their room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.queries.answers.answer import Answer
from shedder.streams.group_keys import GroupKeys
from tests import truth
from tests.engine.killed import copy_killed

SECOND = 1_000_000
NOW_US = 1_700_000_000 * SECOND
ROWS, GROUPS = 20_000, 8
CAP = 256 << 10
SLIDING = "[RANGE 6 SECONDS SLIDE 2 SECONDS]"


def opened(directory: Path) -> Engine:
    return Engine.open(
        directory, group_bytes_max=CAP, checkpoint_seconds=1e6, allocation_seconds=1e6
    )


def begun(directory: Path, window: str, rest: str = "") -> Engine:
    db = opened(directory)
    db.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT, x DOUBLE) TIMESTAMP BY ts")
    select = f"SELECT k, COUNT(*) AS n, MEDIAN(x) AS m, QUANTILE(x, 0.99) AS p FROM s {window}"
    db.register("q", f"{select} GROUP BY k {rest}")
    return db


def push(db: Engine, second: int, groups: int = GROUPS) -> dict[int, np.ndarray]:
    """Apply a batch; returns the values of each group."""
    values = truth.draw("lognormal-2", second, ROWS)
    keys = np.arange(ROWS) % groups
    times = pa.array(np.full(ROWS, NOW_US + second * SECOND), pa.timestamp("us"))
    receipt = db.push("s", pa.table({"ts": times, "k": keys, "x": values}))
    db.query("q").answer(after=receipt)
    return {k: values[keys == k] for k in range(groups)}


def check(answer: Answer, pushed: dict[int, dict[int, np.ndarray]]) -> list[float]:
    """All groups have room, and their intervals the truth; returns the relative half-widths."""
    first, last = -(1 << 60), 1 << 60
    if answer.start_us is not None and answer.end_us is not None:
        first, last = ((at - NOW_US) // SECOND for at in (answer.start_us, answer.end_us))
    inside = [values for second, values in pushed.items() if first <= second < last]
    if not answer.table.num_rows:
        return []
    assert answer.others is None
    assert answer.table.num_rows == len(inside[0])
    widths = []
    for row in answer.rows():
        x = np.concatenate([values[row["k"]] for values in inside])
        assert row["n"] == row["n_low"] == len(x)
        for name, q in (("m", 0.5), ("p", 0.99)):
            assert row[f"{name}_low"] <= truth.exact_quantile(x, q) <= row[f"{name}_high"]
            widths.append((row[f"{name}_high"] - row[f"{name}_low"]) / 2 / row[name])
    return widths


def held_bytes(db: Engine) -> int:
    """The largest of the parts of the query."""
    query_state: Any = db.core.standing_query("q")[1].state
    return int(max(np.sum([pane.part_bytes for pane in query_state.panes.values()], axis=0)))


@pytest.mark.slow
@pytest.mark.parametrize(("window", "groups"), [("", 60), (SLIDING, 8)])
def test_buckets_grow_wider_until_all_groups_have_room(
    tmp_path: Path, window: str, groups: int
) -> None:
    db, pushed, widths = begun(tmp_path / "data", window), {}, [0.0]
    for second in range(12):
        pushed[second] = push(db, second, groups)
        answer = db.query("q").answer()
        widths = check(answer, pushed) or widths
        assert held_bytes(db) <= CAP
    assert any(note.startswith("buckets of QUANTILE are 2^-") for note in answer.notes)
    assert 0.005 < max(widths) <= 0.07  # 2^-4 at the fewest bits; 2^-8 when nothing is collapsed.
    db.close()


@pytest.mark.slow
def test_a_recovered_query_has_the_same_widths_and_answers(tmp_path: Path) -> None:
    db, pushed = begun(tmp_path / "data", SLIDING), {}
    for second in range(12):
        pushed[second] = push(db, second)
        if second == 8:
            db.core.executor.call(db.checkpoints.now)
    bits = db.core.standing_query("q")[1].state.panes.widths.bits
    assert max(bits.values()) < 7
    killed = copy_killed(db, tmp_path / "killed")
    with opened(killed) as again:
        assert again.core.standing_query("q")[1].state.panes.widths.bits == bits
        assert again.query("q").answer().table.equals(db.query("q").answer().table)
        for second in range(12, 16):
            pushed[second] = push(db, second)
            push(again, second)
            assert again.query("q").answer().table.equals(db.query("q").answer().table)
            check(again.query("q").answer(), pushed)
    db.close()


@pytest.mark.slow
def test_a_target_is_not_given_up_for_more_groups(tmp_path: Path) -> None:
    with begun(tmp_path / "data", "", "WITHIN 1 PERCENT") as db:
        for second in range(8):
            push(db, second, groups=100)
        rows = [row for row in db.query("q").answer().rows() if row["k"] is not None]
        assert all(row["m_met"] and row["p_met"] for row in rows)
        assert max(row["m_high"] / row["m_low"] for row in rows) > 1.01  # One bit fewer is enough.


@pytest.mark.slow
def test_groups_of_one_value_are_exact_however_wide_the_buckets(tmp_path: Path) -> None:
    with begun(tmp_path / "data", "") as db:
        pushed = push(db, 0, groups=ROWS)
        answer = db.query("q").answer()
        assert answer.others is not None
        for row in answer.rows()[1:5]:
            assert row["m_low"] == row["m_high"] == pushed[row["k"]][0]


def test_keys_that_are_full_are_frozen_as_those_that_were_made_so(tmp_path: Path) -> None:
    keys = GroupKeys((), 2)
    assert not keys.frozen
    keys.adopt(np.array([5, 6], np.uint64), [])
    assert keys.frozen
    keys.keep(np.array([1]))
    assert not keys.frozen
    keys.freeze()
    assert keys.frozen


ALL_SIZES = """SELECT MEDIAN(x) AS m, QUANTILE(x, 0.9) AS p FROM s {window} {target}"""


def of_all_sizes(db: Engine, second: int) -> np.ndarray:
    """Apply doubles of both signs and all exponents; returns them."""
    bits = np.random.default_rng(second).integers(0, 1 << 64, 1 << 17, np.uint64, endpoint=False)
    values = bits.view(np.float64)
    values = values[np.isfinite(values)]
    times = pa.array(np.full(len(values), NOW_US + second * SECOND), pa.timestamp("us"))
    keys = np.zeros(len(values), np.int64)
    receipt = db.push("s", pa.table({"ts": times, "k": keys, "x": values}))
    db.query("q").answer(after=receipt)
    return values


def bits_of(db: Engine) -> set[int]:
    """Of the histograms of all panes."""
    query_state: Any = db.core.standing_query("q")[1].state
    return {part.mantissa_bits for pane in query_state.panes.values() for part in pane.parts[1:]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "target", "bits"),
    [("", "", {5}), (SLIDING, "", {5}), ("", "WITHIN 0.5 PERCENT", {7})],
)
def test_a_histogram_without_groups_keeps_to_its_bytes_unless_a_target_needs_them(
    tmp_path: Path, window: str, target: str, bits: set[int]
) -> None:
    with opened(tmp_path / "data") as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT, x DOUBLE) TIMESTAMP BY ts")
        db.register("q", ALL_SIZES.format(window=window, target=target))
        values = np.concatenate([of_all_sizes(db, second) for second in (0, 1)])
        assert bits_of(db) == bits
        if not target:
            query_state: Any = db.core.standing_query("q")[1].state
            assert all(max(pane.part_bytes) <= 512 << 10 for pane in query_state.panes.values())
        if window:
            of_all_sizes(db, 9)  # Closes the windows before.
        row = db.query("q").answer().rows()[0]
        if not window:
            for name, q in (("m", 0.5), ("p", 0.9)):
                assert row[f"{name}_low"] <= truth.exact_quantile(values, q) <= row[f"{name}_high"]
        killed = copy_killed(db, tmp_path / "killed")
        with opened(killed) as again:
            assert bits_of(again) == bits
            assert again.query("q").answer().table.equals(db.query("q").answer().table)
