"""From prices to whole options: what the budget has left goes where it lowers the error most."""

from __future__ import annotations

import numpy as np

from allocator.demands import Budget, Floats, Integers, Options
from allocator.prices import Prices, blocks

_ROUNDS_MAX = 6
_PROMISING_MAX = 1_000  # synopses: after the first round, what is left is little
_SKIPS_MAX = 64  # takers that do not fit are passed over; after so many the rest is small change


def fill(
    objective: Floats, options: Options, budget: Budget, prices: Prices, choice: Integers
) -> Integers:
    """Improve a choice that fits by spending what is left, the best gain per price first.

    Args:
      objective: [n, k]. options: [n, k]. budget: choice is within it.
      prices: what gains are compared by.
      choice: int64 [n].

    Returns:
      a choice within the budget, of an objective that is not larger.
    """
    choice = choice.copy()
    rows = np.arange(len(choice))
    for _ in range(_ROUNDS_MAX):
        took, worth = _spend_once(objective, options, budget, prices, choice, rows)
        if not took:
            break
        promising = np.argsort(-worth, kind="stable")[:_PROMISING_MAX]
        rows = np.sort(rows[promising[worth[promising] > 0]])
    return choice


def _spend_once(
    objective: Floats,
    options: Options,
    budget: Budget,
    prices: Prices,
    choice: Integers,
    some: Integers,
) -> tuple[bool, Floats]:
    """Give some synopses, [m] ascending, their best step up, in place, as far as they fit.

    Returns:
      whether any did, and what a step of each was worth, [m].
    """
    rows = np.arange(len(choice))
    free_bytes = budget.size_bytes - int(options.size_bytes[rows, choice].sum())
    free_ns = budget.cost_ns - float(options.cost_ns[rows, choice].sum())
    everybody = len(some) == len(choice)
    goal = objective if everybody else objective[some]
    size_bytes = options.size_bytes if everybody else options.size_bytes[some]
    size_float = options.size_float if everybody else options.size_float[some]
    cost_ns = options.cost_ns if everybody else options.cost_ns[some]
    now_at = choice[some]
    step = now_at.copy()
    worth = np.zeros(len(some))
    for part in blocks(goal):
        now = (np.arange(len(goal[part])), now_at[part])
        gain = goal[part][now][:, None] - goal[part]
        bytes_up = size_float[part] - size_float[part][now][:, None]
        ns_up = cost_ns[part] - cost_ns[part][now][:, None]
        possible = (gain > 0) & (bytes_up <= free_bytes) & (ns_up <= free_ns)
        price = np.maximum(prices.per_byte * bytes_up + prices.per_ns * ns_up, 1e-300)
        per_price = np.where(possible, gain / price, 0.0)
        best = per_price.argmax(1)
        step[part] = best
        worth[part] = per_price[now[0], best]
    by_worth = np.argsort(-worth, kind="stable")
    takers = by_worth[worth[by_worth] > 0]
    at = np.arange(len(some))
    more_bytes = (size_bytes[at, step] - size_bytes[at, now_at])[takers]
    more_ns = (cost_ns[at, step] - cost_ns[at, now_at])[takers]
    taken = takers[_first_that_fit(more_bytes, more_ns, free_bytes, free_ns)]
    choice[some[taken]] = step[taken]
    return bool(len(taken)), worth


def _first_that_fit(
    size_bytes: Integers, cost_ns: Floats, free_bytes: int, free_ns: float
) -> Integers:
    """Indices of steps that fit one after the other; those that do not are passed over."""
    taken: list[Integers] = []
    start = 0
    for _ in range(_SKIPS_MAX):
        fits = (np.cumsum(size_bytes[start:]) <= free_bytes) & (
            np.cumsum(cost_ns[start:]) <= free_ns
        )
        count = len(fits) if fits.all() else int(fits.argmin())
        part = np.arange(start, start + count)
        taken.append(part)
        free_bytes -= int(size_bytes[part].sum())
        free_ns -= float(cost_ns[part].sum())
        start += count + 1
        if start >= len(size_bytes):
            break
    return np.concatenate(taken)
