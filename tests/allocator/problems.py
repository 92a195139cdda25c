"""Problems for the allocator: drawn ones, and random ones of a size."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_matrix

from allocator.curves import table, thinned
from allocator.demands import Budget, Demands, Options, Readers

NO_TARGET = np.inf
PROMISED = None


def options_of(*synopses):
    """Options from a list per synopsis of (bytes, ns, error)."""
    width = max((len(rows) for rows in synopses), default=0)
    size, cost = np.zeros((2, len(synopses), width))
    error = np.full((len(synopses), width), np.inf)
    for row, its in enumerate(synopses):
        for column, (*resources, err) in enumerate(its):
            size[row, column], cost[row, column] = resources
            error[row, column] = err
    names = [f"s{row}" for row in range(len(synopses))]
    return Options(names, size.astype(np.int64), cost, error)


def readers_of(*rows):
    """Readers from rows of (synopsis, weight, target, forfeit); forfeit None: promised."""
    rows = [(*row[:3], 0.0 if row[3] is None else row[3], row[3] is None) for row in rows]
    synopsis, weight, target, forfeit, promised = np.array(rows, np.float64).reshape(-1, 5).T
    ones = np.ones(len(rows))
    return Readers(synopsis.astype(np.int64), weight, ones, target, forfeit, promised > 0)


def readers_without_targets(synopsis, weight):
    none, no = np.full(len(synopsis), np.inf), np.zeros(len(synopsis), bool)
    return Readers(synopsis, weight, np.ones(len(synopsis)), none, np.zeros(len(synopsis)), no)


def demands_of(synopses, readers):
    return Demands.new(options_of(*synopses), readers_of(*readers))


@st.composite
def small_problems(draw):
    """(demands, budget): up to four synopses of up to five options, both resources scarce."""
    option = st.tuples(st.integers(0, 20), st.integers(0, 10), st.sampled_from([0, 1, 2, 3, 5, 9]))
    synopses = draw(st.lists(st.lists(option, min_size=1, max_size=5), min_size=1, max_size=4))
    reader = st.tuples(
        st.integers(0, len(synopses) - 1),
        st.sampled_from([1, 2, 7]),
        st.sampled_from([1, 2.5, 4, NO_TARGET]),
        st.sampled_from([0, 1.5, PROMISED]),
    )
    readers = draw(st.lists(reader, max_size=6))
    budget = Budget(draw(st.integers(0, 60)), draw(st.sampled_from([3.0, 10.0, 25.0, np.inf])))
    return demands_of(synopses, readers), budget


def power_law_problem(n, *, seed, sizes=14, levels=7, with_targets=0.3):
    """n synopses whose error falls as bytes^-1/2 or bytes^-1 and rises as they are thinned."""
    rng = np.random.default_rng(seed)
    size = 1024 * 2 ** np.arange(sizes)
    share = 2.0 ** -np.arange(levels)
    names, costs, errors = [], [], []
    for row in range(n):
        error = rng.lognormal() * (size / 1024.0) ** -rng.choice([0.5, 1.0])
        skipped = 0.01 * rng.lognormal() * np.sqrt(1 / share - 1)
        names.append(f"s{row}")
        costs.append(rng.uniform(1, 30) * share)
        errors.append(thinned(error, skipped))
    options = table(names, [size] * n, costs, errors)
    wished = options.error.min(1) * rng.uniform(1, 30, n)
    target = np.where(rng.random(n) < with_targets, wished, NO_TARGET)
    forfeit = np.where(np.isfinite(target), target, 0.0)
    weight, promised = rng.lognormal(size=n), rng.random(n) < 0.2
    readers = Readers(np.arange(n), weight, np.ones(n), target, forfeit, promised)
    return Demands.new(options, readers)


def whole_need(demands):
    """Budget: what the largest option of each needs together, read in full."""
    return demands.options.size_bytes.max(1).sum(), demands.options.cost_ns.max(1).sum()


def goals(demands, choice):
    """What is minimised, in order: whether any target is missed, promises broken, the loss."""
    missed, broken = (
        float(of_options[np.arange(len(rows)), choice[rows]].sum())
        for rows, of_options in (demands.missed(), demands.missed_promises())
    )
    return missed > 0, broken, demands.loss_of(choice)


def fits(demands, choice, budget):
    rows = np.arange(len(choice))
    size = demands.options.size_bytes[rows, choice].sum()
    cost = demands.options.cost_ns[rows, choice].sum()
    return size <= budget.size_bytes and cost <= budget.cost_ns


def best_of_all(demands, budget):
    """The goals of the best choice, by trying every one; None when nothing fits."""
    possible = [np.flatnonzero(np.isfinite(error)) for error in demands.options.error]
    choices = [np.array(choice, np.int64) for choice in product(*possible)]
    fitting = [goals(demands, choice) for choice in choices if fits(demands, choice, budget)]
    return min(fitting, default=None)


def best_by_bytes(demands, budget_bytes):
    """The least weighted error by dynamic programming over whole bytes."""
    objective = demands.loss()
    least = np.zeros(budget_bytes + 1)  # by bytes that may be used
    for row, sizes in enumerate(demands.options.size_bytes):
        after = np.full(budget_bytes + 1, np.inf)
        for size, error in zip(sizes, objective[row], strict=True):
            if size <= budget_bytes:
                after[size:] = np.minimum(after[size:], least[: budget_bytes + 1 - size] + error)
        least = after
    return least[-1]


def by_milp(objective, options, budget, **how):
    """The least objective by HiGHS, and what it knows to be a bound: one option each, in budget.

    HiGHS prints a line of its own now and then, whatever it is told (HiGHS.jl, #312).
    """
    row, option = np.nonzero(np.isfinite(objective))
    at = np.arange(len(row))
    one_each = csr_matrix((np.ones(len(row)), (row, at)), shape=(len(objective), len(row)))
    limits = [LinearConstraint(one_each, 1, 1)]
    for column, amount in (
        (options.size_bytes, budget.size_bytes),
        (options.cost_ns, budget.cost_ns),
    ):
        if np.isfinite(amount):
            shares = csr_matrix(column[row, option] / max(amount, 1) * 1e3)
            limits.append(LinearConstraint(shares, ub=amount / max(amount, 1) * 1e3))
    goal = objective[row, option]
    found = milp(goal, integrality=1, bounds=(0, 1), constraints=limits, options=how)
    assert found.x is not None
    return found.fun, found.mip_dual_bound
