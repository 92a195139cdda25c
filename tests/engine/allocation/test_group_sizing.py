"""Sketches with GROUP BY in a full solution: coarser where that leaves room for more groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import shedder
from allocator.demands import Budget
from shedder.engine.allocation.group_sizing import of_sizes, solved_with_sizes, variants
from shedder.engine.allocation.problem import Problem, problem
from shedder.engine.allocation.solver import Solution, solved
from shedder.engine.apply.size_records import shrinks
from shedder.engine.engine import Engine
from shedder.engine.synopsis_plans.allocation_request import AllocationRequest, SynopsisSizes
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.hashing import murmur_int64
from tests.engine.allocation_world import CAP, KIB, MIB, standing
from tests.truth import gate

GROUPED = "SELECT k, COUNT(DISTINCT v) AS d FROM s [RANGE INTERVAL '60' SECOND] GROUP BY k"
LG_K = 12
NEEDED = 8 * MIB


def full(text: str = GROUPED, *, halved: float = 0.5, name: str = "q") -> AllocationRequest:
    """A query whose registers are all in use (or hardly any: halved = 1)."""
    return replace(
        standing(name, text),
        group_bytes=CAP,
        held_bytes=64 * KIB,
        needed_bytes=NEEDED,
        grown_bytes=NEEDED,
        foreseen=(NEEDED // 100, NEEDED),
        halved=(1.0, halved),
    )


def shared_out(
    requests: Sequence[AllocationRequest], budget_bytes: int
) -> tuple[Problem, Solution]:
    def solve(some: Sequence[AllocationRequest]) -> tuple[Problem, Solution]:
        found = problem(some, group_bytes_max=CAP)
        left = budget_bytes - int(found.beside_bytes.sum())
        return found, solved(found, Budget(left), None, None, {})

    return solved_with_sizes(requests, solve, group_bytes_max=CAP)


def given(found: Problem, solution: Solution) -> list[SynopsisSizes]:
    return found.given(solution.allocation.choice)


def roomed(request: AllocationRequest, has: SynopsisSizes) -> float:
    """The share of its groups that finds room, by what they need at these sizes."""
    return min(1.0, has.group_bytes / (request.needed_bytes * request.needed_share(has.sizes)))


def test_in_shortage_registers_are_given_up_for_groups() -> None:
    request = full()
    [has] = given(*shared_out([request], 6 * MIB))
    assert has.sizes[1] < LG_K
    assert roomed(request, has) > 0.95 > roomed(request, SynopsisSizes(request.sizes, 3 * MIB))


def test_with_room_to_spare_they_have_what_their_target_asks_for() -> None:
    coarse = of_sizes(full(), (0, LG_K - 3))
    really = closed_bytes(LG_K - 3) / closed_bytes(LG_K)
    assert coarse.needed_bytes == pytest.approx(NEEDED * really, rel=0.1)
    [has] = given(*shared_out([coarse], 100 * MIB))
    assert has.sizes[1] == LG_K
    assert has.group_bytes >= NEEDED


def closed_bytes(lg_k: int) -> int:
    """What registers of 200 groups take when all are in use and their pane is closed."""
    rng, made = np.random.default_rng(1), GroupedDistinct(200, lg_k)
    for _ in range(30):
        ids = rng.integers(0, 200, 60_000).astype(np.int32)
        made.update(ids, *murmur_int64(rng.integers(0, 2**62, 60_000)))
    made.settle()
    return made.size_bytes


def test_groups_of_few_values_would_gain_nothing_and_keep_their_registers() -> None:
    [has] = given(*shared_out([full(halved=1.0)], 6 * MIB))
    assert has.sizes[1] == LG_K


def test_what_was_promised_is_kept_before_room_for_groups() -> None:
    request = full(GROUPED + " WITHIN 3 PERCENT ELSE FAIL")
    found, solution = shared_out([request], 6 * MIB)
    assert given(found, solution)[0].sizes == request.sizes
    assert solution.allocation.met.all()


def test_another_query_gets_what_coarser_groups_leave() -> None:
    """Its target is worth more than the last halving of registers without a target."""
    other = standing("other", GROUPED.replace("SELECT k, ", "SELECT ").replace(" GROUP BY k", ""))
    grouped = replace(full(), weight=0.01)
    needy = replace(other, weight=100.0)
    found, solution = shared_out([grouped, needy], 10 * MIB)
    assert given(found, solution)[0].sizes[1] < LG_K
    assert given(found, solution)[1].sizes[1] >= needy.sizes[1]


@pytest.mark.parametrize("budget", [3 * MIB, 6 * MIB, 12 * MIB, 40 * MIB])
@pytest.mark.parametrize("halved", [0.5, 0.7, 1.0])
def test_it_is_never_worse_than_leaving_sizes_alone_and_sums_to_the_byte(
    budget: int, halved: float
) -> None:
    requests = [full(name=f"q{at}", halved=halved) for at in range(2)]
    found, solution = shared_out(requests, budget)
    alone = problem(requests, group_bytes_max=CAP)
    left = budget - int(alone.beside_bytes.sum())
    before = solved(alone, Budget(left), None, None, {}).allocation
    assert solution.allocation.loss <= before.loss * (1 + 1e-9)
    assert solution.allocation.size_bytes.sum() + solution.allocation.free_bytes == left
    for has, one, taken in zip(
        given(found, solution), found.requests, solution.allocation.size_bytes[2::3], strict=True
    ):
        assert has.group_bytes * len(one.plan.parts) >= taken


def test_variants_are_coarser_and_finer_but_no_finer_than_is_wanted() -> None:
    sizes = [one.sizes[1] for one in variants(of_sizes(full(), (0, LG_K - 2)))]
    assert max(sizes) == LG_K
    assert min(sizes) == 7
    assert len(sizes) == len(set(sizes)) == 6


CREATE = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts"
QUERY = GROUPED.replace("SECOND]", "SECOND SLIDE INTERVAL '10' SECOND]")
GROUPS, VALUES = 20, 2_000


def batch(second: int) -> pa.RecordBatch:
    """Every group has many values in ten seconds."""
    rng = np.random.default_rng(second)
    rows = GROUPS * VALUES
    times = (1_700_000_000 + second) * 1_000_000 + np.arange(rows)
    return pa.RecordBatch.from_pydict(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "k": pa.array(np.arange(rows) % GROUPS),
            "v": pa.array(rng.integers(0, 1 << 40, rows)),
        }
    )


def registers(db: Engine) -> int:
    """Of new panes, once what was decided is in force."""
    db.heartbeat("s", 1_700_000_000 * 1_000_000)
    return db.core.streams["s"].queries["q"].state.plan.parts[1].size


@pytest.mark.slow
def test_an_engine_logs_smaller_registers_of_groups_and_larger_ones_when_it_can(
    tmp_path: Path,
) -> None:
    with shedder.open(tmp_path, checkpoint_seconds=1e6, allocation_seconds=1e6) as db:
        assert isinstance(db, Engine)
        db.execute(CREATE)
        db.register("q", QUERY)
        assert registers(db) == LG_K
        for second in (0, 10, 20):
            db.push("s", batch(second))
        db.heartbeat("s", (1_700_000_000 + 30) * 1_000_000)
        whole = db.core.streams["s"].queries["q"].state.memory.foreseen[1]
        db.budgets.set_synopsis_bytes(3 * whole)
        assert registers(db) == LG_K
        db.budgets.set_synopsis_bytes(whole // 2)
        coarse = registers(db)
        assert coarse < LG_K
        while db.core.executor.call(lambda: shrinks(db.core)).result():
            pass
        db.push("s", batch(40))
        db.heartbeat("s", (1_700_000_000 + 50) * 1_000_000)
        answer = db.query("q").answer()
        assert answer.table.num_rows == GROUPS
        held = [row["d_low"] <= 4 * VALUES <= row["d_high"] for row in answer.rows()]
        assert sum(held) >= gate(GROUPS, 0.95)
        rows = db.execute("EXPLAIN ALLOCATION").table.to_pylist()
        assert sum(row["size_bytes"] for row in rows) == whole // 2
    with shedder.open(tmp_path, checkpoint_seconds=1e6, allocation_seconds=1e6) as db:
        assert isinstance(db, Engine)
        assert registers(db) == coarse
        db.budgets.set_synopsis_bytes(100 * whole)
        assert registers(db) == LG_K
