"""From prices to whole options: what the budget has left goes where it lowers the error most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from allocator.candidates import Candidates, blocks
from allocator.demands import Budget, Floats, Integers, Options
from allocator.prices import Prices

_ROUNDS_MAX = 6
_PROMISING_MAX = 1_000  # synopses: after the first round, what is left is little
_ENOUGH = 1.003  # times the bound: then the options that are near have sufficed
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
    if not len(rows):
        return choice
    if prices.near is not None:
        _spend(objective, options, budget, prices, choice, [prices.near])
        if float(objective[rows, choice].sum()) <= prices.bound * _ENOUGH:
            return choice
    every = [Candidates.all_of(objective, options, rows[part]) for part in blocks(objective)]
    _spend(objective, options, budget, prices, choice, every)
    return choice


def _spend(
    objective: Floats,
    options: Options,
    budget: Budget,
    prices: Prices,
    choice: Integers,
    some: Sequence[Candidates],
) -> None:
    """Spend what is left, in place: first among these, then again among the most promising."""
    for _ in range(_ROUNDS_MAX):
        took, rows, worth = _spend_once(objective, options, budget, prices, choice, some)
        if not took:
            return
        promising = np.argsort(-worth, kind="stable")[:_PROMISING_MAX]
        able = np.sort(rows[promising[worth[promising] > 0]])
        some = [Candidates.all_of(objective, options, able)]


def _spend_once(
    objective: Floats,
    options: Options,
    budget: Budget,
    prices: Prices,
    choice: Integers,
    some: Sequence[Candidates],
) -> tuple[bool, Integers, Floats]:
    """Give synopses their best step up, in place, as far as they fit.

    Returns:
      whether any did; whose steps there are, [r], and what each was worth, [r].
    """
    rows = np.arange(len(choice))
    now_bytes, now_ns = options.size_bytes[rows, choice], options.cost_ns[rows, choice]
    free_bytes = budget.size_bytes - int(now_bytes.sum())
    free_ns = budget.cost_ns - float(now_ns.sum())
    now = objective[rows, choice]
    steps: list[Integers] = []
    worths: list[Floats] = []
    for part in some:
        gain = now[part.row] - part.objective
        bytes_up = part.size_bytes - now_bytes[part.row]
        ns_up = part.cost_ns - now_ns[part.row]
        possible = (gain > 0) & (bytes_up <= free_bytes) & (ns_up <= free_ns)
        price = np.maximum(prices.per_byte * bytes_up + prices.per_ns * ns_up, 1e-300)
        best, less = part.first_least(np.where(possible, -gain / price, 0.0))
        steps.append(part.option[best])
        worths.append(-less)
    who, worth = np.concatenate([part.rows for part in some]), np.concatenate(worths)
    by_worth = np.argsort(-worth, kind="stable")
    takers = by_worth[worth[by_worth] > 0]
    taking, step = who[takers], np.concatenate(steps)[takers]
    more_bytes = options.size_bytes[taking, step] - now_bytes[taking]
    more_ns = options.cost_ns[taking, step] - now_ns[taking]
    taken = _first_that_fit(more_bytes, more_ns, free_bytes, free_ns)
    choice[taking[taken]] = step[taken]
    return bool(len(taken)), who, worth


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
