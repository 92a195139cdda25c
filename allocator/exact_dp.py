"""The exact optimum of a small problem: bounded dynamic programming.

Synopses choose one after the other. A state is what the first of them were given together: bytes,
ns, objective. Three things keep states few, and none of them costs the optimum:

1. what leaves no room for the least that the others need is dropped;
2. so is what is dominated: another state takes no more of either resource, and its objective is
   no larger. Whatever the others choose then, fits with that one, too (Bellman 1957);
3. and, once a choice is known, what cannot become better than it: at any prices, what a state
   has paid and the least that the others pay is a bound of all that continues it
   (`lower_bounds.py`).

Sources: Morin & Marsten 1976, Oper. Res. 24(4); with one option of each class, Dyer, Riha & Walker
1995, EJOR 80(1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.demands import Budget, Floats, Integers, Options
from allocator.dp_states import States
from allocator.lower_bounds import Payments, Remaining
from allocator.prices import Prices

OPTIONS_MAX = 300  # of all synopses together: some milliseconds
STATES_MAX = 10_000  # States, not seconds: the same problem has the same answer on any machine.
_UNSORTED_MAX = 10  # times the states that are kept: so many are searched for dominated ones


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """choice: int64 [n]; None where none was found. bound: no choice has a smaller objective.

    The bound is the choice's own objective, unless there were too many states to keep all.
    """

    choice: Integers | None
    bound: float


def optimum(
    objective: Floats,
    options: Options,
    budget: Budget,
    prices: Prices,
    known: Integers | None = None,
    *,
    states_max: int = STATES_MAX,
) -> Optimum:
    """The choice with the least objective.

    Args:
      objective: [n, k], >= 0, inf where there is no option.
      options: [n, k]. budget: what there is.
      prices: the nearer to those that maximise the dual, the fewer states there are.
      known: int64 [n], a choice that fits, if one is known: the better, the fewer states.
      states_max: beyond these, those with the least bounds are kept.
    """
    if not len(options):
        return Optimum(np.zeros(0, np.int64), 0.0)
    least = np.inf if known is None else _of(objective, known)
    hopeful = np.isfinite(objective)
    if not hopeful.any(1).all():
        return Optimum(None, np.inf)
    payments = Payments.around(objective, options, budget, prices)
    hopeful &= payments.bounds() < least
    if not hopeful.any(1).all():
        return Optimum(known, least)  # Nothing is better.
    remaining = Remaining.of(objective, options, payments, hopeful)
    states, path = remaining.first, list[States]()
    best, dropped = known, np.inf
    for step, row in enumerate([*remaining.order.tolist(), None]):
        states, bounds = remaining.within(states, budget, step)
        states, bounds, worst = _fewest(states, bounds, least, _UNSORTED_MAX * states_max)
        dropped = min(dropped, worst)
        lost, at, price = remaining.own_ends(states, budget, step)
        if lost < least:
            least, best = lost, remaining.choice([*path, states], at, price)
        kept = states.undominated()
        states, _, worst = _fewest(states.only(kept), bounds[kept], least, states_max)
        dropped = min(dropped, worst)
        if row is None or not len(states):
            break
        path.append(states)
        option = np.flatnonzero(hopeful[row])
        at_row = row, option
        states = states.grown(
            options.size_bytes[at_row], options.cost_ns[at_row], objective[at_row], option
        )
    # Sum once more in the order in which the caller sums the choice.
    return Optimum(best, min(np.inf if best is None else _of(objective, best), dropped))


def _fewest(
    states: States, bounds: Floats, below: float, most: int
) -> tuple[States, Floats, float]:
    """Those whose bounds are less, and of these so many with the least.

    Returns:
      they, their bounds, and the least bound that was less and is not among them; inf if all are.
    """
    at, worst = np.flatnonzero(bounds < below), np.inf
    if len(at) > most:
        by_bound = np.argpartition(bounds[at], most)
        worst = float(bounds[at[by_bound[most]]])
        at = np.sort(at[by_bound[:most]])
    return states.only(at), bounds[at], worst


def _of(objective: Floats, choice: Integers) -> float:
    return float(objective[np.arange(len(choice)), choice].sum())
