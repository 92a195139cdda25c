"""What solving ten thousand demands takes."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from allocator.allocate import Allocation, allocate
from allocator.curves import table, thinned
from allocator.demands import Budget, Demands, Readers
from allocator.incremental import change
from allocator.plan_precision.plan_levels import best_levels
from benchmarks.measure import Report, cpu_seconds
from shedder.cql.binding.bind import bind
from shedder.cql.binding.parse import parse
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import CreateStream, Select
from shedder.engine.allocation.demand_cache import DemandCache
from shedder.engine.allocation.problem import problem
from shedder.engine.synopsis_plans.allocation_request import AllocationRequest
from shedder.engine.synopsis_plans.error_curves import sizes_wanted
from shedder.engine.synopsis_plans.synopsis_plan import plan
from shedder.overload.fair_shedding import FairSteps
from shedder.overload.shedding_steps import Unit

SYNOPSES = 10_000
SIZES = 1024 * 2 ** np.arange(14)
SHARES = 2.0 ** -np.arange(7)
LESS = 0.9  # Of a budget.
CORNERS = 120
QUERIES = 1_000
ROW_QUERIES = 2_000
QUERY = (
    "SELECT COUNT(*) AS n, SUM(v) AS t, COUNT(DISTINCT k) AS d, MEDIAN(v) AS m FROM s "
    "[RANGE INTERVAL '60' SECOND SLIDE INTERVAL '5' SECOND] WITHIN {} PERCENT"
)
STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts"
GROUP_BYTES_MAX = 32 << 20


def demands(n: int = SYNOPSES, *, seed: int = 1) -> Demands:
    """Errors that fall as bytes^-1/2 or bytes^-1 and rise with thinning; three in ten targets."""
    rng = np.random.default_rng(seed)
    costs, errors = list[Any](), list[Any]()
    for _ in range(n):
        error = rng.lognormal() * (SIZES / 1024.0) ** -rng.choice([0.5, 1.0])
        costs.append(rng.uniform(1, 30) * SHARES)
        errors.append(thinned(error, 0.01 * rng.lognormal() * np.sqrt(1 / SHARES - 1)))
    names = [f"s{row}" for row in range(n)]
    options = table(names, [SIZES] * n, costs, errors)
    wished = options.error.min(1) * rng.uniform(1, 30, n)
    target = np.where(rng.random(n) < 0.3, wished, np.inf)
    readers = Readers(
        np.arange(n),
        rng.lognormal(size=n),
        np.ones(n),
        target,
        np.where(np.isfinite(target), target, 0.0),
        rng.random(n) < 0.2,
    )
    return Demands.new(options, readers)


def _fitted_in(standing: Demands, row: int, last: Allocation, budget: Budget) -> None:
    """One demand is another one: it and all that follows from it."""
    weight = standing.readers.weight.copy()
    weight[row] *= 100.0
    change(
        replace(standing, readers=replace(standing.readers, weight=weight)),
        np.array([row]),
        last,
        budget,
    )


def _requests() -> list[AllocationRequest]:
    """Standing queries of four aggregates each."""
    created = parse(STREAM)
    assert isinstance(created, CreateStream)
    schema = StreamSchema("s", created.columns, "ts", 0, None, created.layout, seed=1)
    found = []
    for number in range(QUERIES):
        select = parse(QUERY.format(1 + number % 5))
        assert isinstance(select, Select)
        query = bind(select, schema)
        new = AllocationRequest.new(f"q{number}", query, plan(query, sizes_wanted(query)))
        found.append(replace(new, stands=True, tuples_per_s=1e5, tuples=6e6))
    return found


def _drawn() -> str:
    """What the problem of these queries takes: anew, and after one of them has changed."""
    requests, drawings = _requests(), DemandCache()
    anew = cpu_seconds(partial(problem, requests, group_bytes_max=GROUP_BYTES_MAX))
    problem(requests, group_bytes_max=GROUP_BYTES_MAX, drawings=drawings)
    levels = itertools.cycle([1, 2])

    def one_changes() -> None:
        of_parts = (0, *(next(levels),) * (len(requests[7].levels) - 1))
        requests[7] = replace(requests[7], weight=requests[7].weight + 1, levels=of_parts)
        problem(requests, group_bytes_max=GROUP_BYTES_MAX, drawings=drawings)

    in_part = cpu_seconds(one_changes)
    return (
        f"the engine's problem of {QUERIES:,} queries of four aggregates each: {anew * 1e3:.0f} ms "
        f"drawn anew, {in_part * 1e3:.1f} ms when one of them has changed"
    )


def _tick() -> str:
    """The price of CPU moves along the steps of all units; the units that change are found."""
    rng = np.random.default_rng(3)
    units = [
        Unit(
            query=f"q{number // 2}",
            parts=(1 + number % 2,),
            weight=rng.lognormal(),
            cost_ns=rng.lognormal(2, 1) * (float(rng.uniform(0, 0.3)) + np.exp2(-np.arange(11.0))),
            tuples=10.0 ** rng.uniform(2, 7),
            spread=1.0,
        )
        for number in range(SYNOPSES)
    ]
    owner = {unit.query: f"t{number % 10}" for number, unit in enumerate(units)}
    steps = FairSteps.of(units, owner, {}, {})
    budgets = itertools.cycle(steps.ends.full_ns * share for share in (0.5, 0.49, 0.2, 0.8))
    before, changed = steps.levels(np.inf), []

    def tick() -> None:
        nonlocal before
        levels = steps.levels(next(budgets))
        changed.append(len(np.flatnonzero(levels != before)))
        before = levels

    took = cpu_seconds(tick)
    return (
        f"a tick moves the price of CPU along the known steps of {SYNOPSES:,} units of ten tenants "
        f"and finds the units that change, up to {max(changed):,} of them: {took * 1e3:.2f} ms; "
        f"making these steps takes "
        f"{cpu_seconds(partial(FairSteps.of, units, owner, {}, {})) * 1e3:.0f} ms"
    )


def _row_queries() -> str:
    """Row queries that hold too much together: a level of each, by weight."""
    rng = np.random.default_rng(4)
    full = rng.lognormal(13, 1, ROW_QUERIES)
    sizes = np.ceil(full[:, None] * SHARES).astype(np.int64)
    loss = np.tile(1.0 - SHARES, (ROW_QUERIES, 1))
    weight = rng.choice([1.0, 2.0, 10.0], ROW_QUERIES)
    took = [
        cpu_seconds(partial(best_levels, sizes, loss, weight, int(sizes[:, 0].sum() * share)))
        for share in (0.9, 0.5, 0.1)
    ]
    return (
        f"levels of {ROW_QUERIES:,} row queries with `ON OVERLOAD SHED`, of {len(SHARES)} levels "
        f"and three weights, in 0.9, 0.5 and 0.1 of what they hold: "
        + ", ".join(f"{each * 1e3:.1f}" for each in took)
        + " ms"
    )


def _corners() -> str:
    """Severe shortages: what there is beyond the least that all need is next to nothing."""
    chance = np.random.default_rng(2026)
    above, took, longest = [], 0.0, 0.0
    for seed in range(CORNERS):
        n = int(np.exp(chance.uniform(np.log(50), np.log(SYNOPSES)))) if seed % 12 else SYNOPSES
        more_bytes = np.exp(chance.uniform(np.log(0.05), np.log(500)))
        more_ns = np.exp(chance.uniform(np.log(0.003), np.log(20)))
        problem = demands(n, seed=seed)
        options = problem.options
        least_bytes, least_ns = options.size_bytes.min(1).sum(), options.cost_ns.min(1).sum()
        most_ns = options.cost_ns.max(1).sum()
        budget = Budget(
            int(least_bytes * (1 + more_bytes)), float(min(least_ns * (1 + more_ns), most_ns))
        )
        began = time.thread_time()
        found = allocate(problem, budget)
        took += time.thread_time() - began
        if n == SYNOPSES:
            longest = max(longest, cpu_seconds(partial(allocate, problem, budget)))
        above.append(found.loss / found.bound - 1)
    return (
        f"{CORNERS} shortages of 50 to {SYNOPSES:,} synopses, with 0.05 to 500 times the least "
        f"bytes and 0.003 to 20 times the least CPU beyond what all need: "
        f"{np.sum(np.array(above) > 0.01)} are more than 1 % above the bound, {max(above):.1%} at "
        f"most; all together take {took:.1f} s, each solved once; the longest of {SYNOPSES:,} "
        f"synopses {longest * 1e3:.0f} ms, the least of five runs"
    )


def run() -> Report:
    """Measure; about half a minute."""
    all_of_them = demands()
    most_bytes = int(all_of_them.options.size_bytes.max(1).sum())
    most_ns = float(all_of_them.options.cost_ns.max(1).sum())
    rows = []
    for words, of_bytes, of_ns in (
        ("all targets fit", 0.05, 0.3),
        ("all promises fit, not all targets", 0.3, 0.1),
        ("not all promises fit", 0.002, 0.05),
    ):
        budget = Budget(int(most_bytes * of_bytes), most_ns * of_ns)
        found = allocate(all_of_them, budget)
        solving = cpu_seconds(partial(allocate, all_of_them, budget))
        above = found.loss / found.bound - 1
        standing = replace(all_of_them, present=found.choice)
        less = Budget(int(budget.size_bytes * LESS), budget.cost_ns * LESS)
        rebudgeting = cpu_seconds(partial(allocate, standing, less, found))
        after = allocate(standing, less, found)
        changing = [
            cpu_seconds(partial(_fitted_in, standing, row, found, budget))
            for row in range(0, SYNOPSES, SYNOPSES // 20)
        ]
        rows.append(
            (
                words,
                f"{solving * 1e3:.0f} ms",
                f"{above:.2%}",
                f"{found.met.mean():.0%}",
                f"{rebudgeting * 1e3:.0f} ms",
                f"{after.loss / after.bound - 1:.2%}",
                f"{np.median(changing) * 1e3:.1f} ms",
                f"{max(changing) * 1e3:.1f} ms",
            )
        )
    return Report(
        claim=f"{SYNOPSES:,} synopses of {len(SIZES)} sizes at {len(SHARES)} levels each, CPU time "
        "of one solution.",
        columns=(
            "budget",
            "solved in full",
            "above the bound at most",
            "targets met",
            "a tenth less of both",
            "above its bound at most",
            "one demand changes",
            "the longest of 20",
        ),
        rows=rows,
        notes=(
            "a tenth less of both: everything is solved in full again, from the present prices",
            "one demand changes: it weighs a hundred times as much, and all that follows from it",
            _tick(),
            _drawn(),
            _row_queries(),
            _corners(),
            "the least of five runs; where others use the machine's caches, all of it takes longer",
        ),
    )
