"""From prices to whole options: what the budget has left goes where it lowers the error most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from allocator.candidates import Candidates, blocks
from allocator.demands import Budget, Floats, Integers, Options
from allocator.prices import Prices

_ROUNDS_MAX = 6
_PROMISING_MAX = 600  # synopses: after the first round, what is left is little
_ENOUGH = 1.003  # times the bound: then the options that are near have sufficed
_FAR = 1.009  # times the bound: what keeps a choice so far away is not what is left
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
        spend(objective, options, budget, prices, choice, [prices.near])
        lost = float(objective[rows, choice].sum())
        if lost <= prices.bound * _ENOUGH or lost > prices.bound * _FAR:
            return choice
    every = [Candidates.all_of(objective, options, rows[part]) for part in blocks(objective)]
    spend(objective, options, budget, prices, choice, every)
    return choice


def spend(
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
        able = np.sort(rows[promising])
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
    worths: list[Floats] = []
    whose: list[Integers] = []
    options_of: list[Integers] = []
    for part in some:
        at, worth = _best_steps(part, prices, now, (now_bytes, now_ns), (free_bytes, free_ns))
        worths.append(worth)
        whose.append(part.row[at])
        options_of.append(part.option[at])
    owner, worth = np.concatenate(whose), np.concatenate(worths)
    takers = np.argsort(-worth, kind="stable")
    taking, step = owner[takers], np.concatenate(options_of)[takers]
    more_bytes = options.size_bytes[taking, step] - now_bytes[taking]
    more_ns = options.cost_ns[taking, step] - now_ns[taking]
    taken = _first_that_fit(more_bytes, more_ns, free_bytes, free_ns)
    choice[taking[taken]] = step[taken]
    return bool(len(taken)), owner, worth


def _best_steps(
    part: Candidates,
    prices: Prices,
    now: Floats,
    taken: tuple[Integers, Floats],
    free: tuple[int, float],
) -> tuple[Integers, Floats]:
    """Each synopsis' best step up among these that fits: which of them, [r], and its worth, [r]."""
    gain = now[part.row] - part.objective
    at = np.flatnonzero(gain > 0)
    row = part.row[at]
    bytes_up, ns_up = part.size_bytes[at] - taken[0][row], part.cost_ns[at] - taken[1][row]
    fits = np.flatnonzero((bytes_up <= free[0]) & (ns_up <= free[1]))
    if not len(fits):
        return fits, np.zeros(0)
    at, row = at[fits], row[fits]
    price = prices.per_byte * bytes_up[fits] + prices.per_ns * ns_up[fits]
    worth = gain[at] / np.maximum(price, 1e-300)
    start = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
    most = np.maximum.reduceat(worth, start)
    best = np.flatnonzero(worth == np.repeat(most, np.diff(start, append=len(row))))
    best = best[np.r_[True, row[best[1:]] != row[best[:-1]]]]
    return at[best], most


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
