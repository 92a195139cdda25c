"""A choice where next to nothing is left beyond the least that all can do with.

There hardly any choice at prices fits: each synopsis that changes its mind takes or frees a large
part of what is left. The best prices' own choice is near the bound, and takes a little more than
there is. Two ways lead from there to one that fits, and neither is the better one always:

- synopses go over to other options, one after the other, always who loses least for what it frees,
  counted in the resources that are lacking (Toyoda 1975, Manag. Sci. 21(12), with several options);
- prices are those of a budget that is less by what was too much.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from allocator.demands import Budget, Floats, Integers, Options
from allocator.prices import Prices, best_response, find_prices
from allocator.whole import fill

_GAP = 1e-5  # of the bound: prices of which the choice counts, and not only the bound
_SWAPS_MAX = 300
_ROWS_MAX = 400  # who loses least for what it frees of one resource
_FREES = 1e-9  # of what is lacking: less is nothing


def fitted(
    objective: Floats, options: Options, budget: Budget, needed: Floats, prices: Prices
) -> Integers | None:
    """The better one of the two ways' choices; None where neither finds one that fits.

    Args:
      objective: [n, k]. options: [n, k]. budget: what there is.
      needed: `least` of these. prices: near the best ones.
    """
    sharp = _sharp(objective, options, budget, needed, prices)
    base = best_response(objective, options, sharp.per_byte, sharp.per_ns)[0]
    size, cost = options.taken(base)
    less = Budget(
        max(0, budget.size_bytes - max(0, int(size.sum()) - budget.size_bytes)),
        max(0.0, budget.cost_ns - max(0.0, float(cost.sum()) - budget.cost_ns)),
    )
    dearer = _sharp(objective, options, less, needed, sharp)
    found = [
        fill(objective, options, budget, by, choice)
        for by, choice in (
            (sharp, _swapped(objective, options, budget, sharp, base)),
            (dearer, dearer.choice),
        )
        if choice is not None
    ]
    rows = np.arange(len(base))
    return min(found, key=lambda choice: float(objective[rows, choice].sum()), default=None)


def _sharp(
    objective: Floats, options: Options, budget: Budget, needed: Floats, near: Prices
) -> Prices:
    guess = replace(near, choice=None)
    return find_prices(objective, options, budget, gap=_GAP, needed=needed, near=guess)


def _swapped(
    objective: Floats, options: Options, budget: Budget, prices: Prices, choice: Integers
) -> Integers | None:
    """From a choice that takes too much to one that fits."""
    rows = _who(objective, options, prices, choice)
    part, own, at = options.only(rows), choice[rows], np.arange(len(rows))
    price = np.array([prices.per_byte, prices.per_ns])
    takes = np.stack([part.size_float, part.cost_ns])
    paid = objective[rows] + np.tensordot(price, takes, 1)
    size, cost = options.taken(choice)
    over = np.array([size.sum() - budget.size_bytes, cost.sum() - budget.cost_ns], np.float64)
    may = np.isfinite(paid)
    for _ in range(_SWAPS_MAX):
        if (over <= 0).all():
            swapped = choice.copy()
            swapped[rows] = own
            return swapped if _fits(options, swapped, budget) else None  # Sums were rounded.
        more = takes - takes[:, at, own][:, :, None]
        lost = np.where(may, np.maximum(paid - paid[at, own][:, None], 0), np.inf)
        best = _best(lost, _freed(more, over, price))
        stuck = best is None
        if best is None:  # What frees one resource takes too much of the other: that comes next.
            lacking = over > 0
            best = _best(lost, _freed(more[lacking], over[lacking], price[lacking]))
        if best is None:
            return None
        row, option = best
        over += more[:, row, option]
        own[row] = option
        may[row] &= not stuck  # Else it would go back.
    return None


def _fits(options: Options, choice: Integers, budget: Budget) -> bool:
    size, cost = options.taken(choice)
    return bool(size.sum() <= budget.size_bytes and cost.sum() <= budget.cost_ns)


def _freed(more: Floats, over: Floats, price: Floats) -> Floats:
    """What swaps free of what is lacking, at the prices, [...]; 0 where next to nothing.

    more: [resources, ...], what they take. over: [resources], what is lacking where it is above 0.
    """
    lacking = price @ np.maximum(over, 0)
    lacks = np.maximum(over[:, None, None] + more, 0)
    freed = lacking - np.tensordot(price, lacks, 1)
    return np.where(freed > _FREES * lacking, freed, 0.0)


def _best(lost: Floats, freed: Floats) -> tuple[int, int] | None:
    """The swap that loses least for what it frees: whose, and to which option."""
    worth = np.full(lost.shape, np.inf)
    np.divide(lost, freed, out=worth, where=freed > 0)
    row, option = divmod(int(worth.argmin()), lost.shape[-1])
    return (row, option) if np.isfinite(worth[row, option]) else None


def _who(objective: Floats, options: Options, prices: Prices, choice: Integers) -> Integers:
    """Those who lose least at the prices for what they free of either resource."""
    at = np.arange(len(choice))
    takes = (options.size_float, prices.per_byte), (options.cost_ns, prices.per_ns)
    paid = objective + sum(price * taken for taken, price in takes)
    lost = paid - paid[at, choice][:, None]
    found = [np.zeros(0, np.int64)]
    for taken, price in takes:
        freed = taken[at, choice][:, None] - taken
        worth = np.full(paid.shape, np.inf)
        np.divide(lost, freed * price, out=worth, where=(freed > 0) & (price > 0))
        least = worth.min(1)
        found.append(np.argsort(least)[:_ROWS_MAX])
    return np.unique(np.concatenate(found))
