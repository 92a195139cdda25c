"""What solving ten thousand demands takes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from allocator.allocate import Allocation, allocate
from allocator.change import change
from allocator.curves import table, thinned
from allocator.demands import Budget, Demands, Readers
from allocator.ladder import Ladder
from benchmarks.measure import Report, cpu_seconds

SYNOPSES = 10_000
SIZES = 1024 * 2 ** np.arange(14)
SHARES = 2.0 ** -np.arange(7)


def demands() -> Demands:
    """Errors that fall as bytes^-1/2 or bytes^-1 and rise with thinning; three in ten targets."""
    rng = np.random.default_rng(1)
    costs, errors = [], []
    for _ in range(SYNOPSES):
        error = rng.lognormal() * (SIZES / 1024.0) ** -rng.choice([0.5, 1.0])
        costs.append(rng.uniform(1, 30) * SHARES)
        errors.append(thinned(error, 0.01 * rng.lognormal() * np.sqrt(1 / SHARES - 1)))
    names = [f"s{row}" for row in range(SYNOPSES)]
    options = table(names, [SIZES] * SYNOPSES, costs, errors)
    wished = options.error.min(1) * rng.uniform(1, 30, SYNOPSES)
    target = np.where(rng.random(SYNOPSES) < 0.3, wished, np.inf)
    readers = Readers(
        np.arange(SYNOPSES),
        rng.lognormal(size=SYNOPSES),
        np.ones(SYNOPSES),
        target,
        np.where(np.isfinite(target), target, 0.0),
        rng.random(SYNOPSES) < 0.2,
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


def run() -> Report:
    """Measure; about ten seconds."""
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
                f"{np.median(changing) * 1e3:.1f} ms",
                f"{max(changing) * 1e3:.1f} ms",
            )
        )
    ladder = Ladder.of(all_of_them, found)
    moving = cpu_seconds(partial(ladder.choice, budget.cost_ns / 2))
    return Report(
        claim=f"{SYNOPSES:,} synopses of {len(SIZES)} sizes at {len(SHARES)} levels each, CPU time "
        "of one solution.",
        columns=(
            "budget",
            "solved in full",
            "above the bound at most",
            "targets met",
            "one demand changes",
            "the longest of 20",
        ),
        rows=rows,
        notes=(
            "one demand changes: it weighs a hundred times as much, and all that follows from it",
            f"a tick moves the price of CPU along known steps: {moving * 1e3:.2f} ms",
            "the least of five runs; where others use the machine's caches, all of it takes longer",
        ),
    )
