"""Lower bounds of what the synopses that have not chosen yet need, pay and would choose.

At any prices p of a byte and q of a nanosecond, no choice within the budget has an objective below
the sum over synopses of the least objective + p * bytes + q * ns, less p and q times the budget
(Lagrange). The same holds for all continuations of a state: the resources it was given count as
they are, and the least counts for the other synopses. The best prices depend on what a state has
left, so bounds are taken at several prices and the highest one counts. At each of these prices, the
best options of the remaining synopses continue a state to a choice, which is a solution if it fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from allocator.demands import Booleans, Budget, Floats, Integers, Options
from allocator.dp_states import States
from allocator.prices import Prices

_Number = TypeVar("_Number", np.int64, np.float64)
_ROUNDED = 1 + 1e-12  # times: by so much a sum of ns may depend on its order; bytes are whole
_AROUND = (0.5, 1.0, 2.0)  # times the best prices: where bounds are taken


@dataclass(frozen=True, slots=True, eq=False)
class Payments:
    """What options cost at several prices.

    per_byte, per_ns: [p]. paid: [p, n, k], inf where there is no option. income: [p], what the
    budget is worth. near: which of them are the best prices.
    """

    per_byte: Floats
    per_ns: Floats
    paid: Floats
    income: Floats
    near: int

    @classmethod
    def around(
        cls, objective: Floats, options: Options, budget: Budget, prices: Prices
    ) -> Payments:
        """At prices, and some more around them."""
        is_scarce = bool(np.isfinite(budget.cost_ns)) and prices.per_ns > 0
        times = [(byte, ns) for byte in _AROUND for ns in (_AROUND if is_scarce else (1.0,))]
        per_byte, per_ns = np.array(times).T * [[prices.per_byte], [prices.per_ns * is_scarce]]
        paid = objective + per_byte[:, None, None] * options.size_float
        paid += per_ns[:, None, None] * options.cost_ns
        income = per_byte * budget.size_bytes + per_ns * (budget.cost_ns if is_scarce else 0.0)
        return cls(per_byte, per_ns, paid, income, len(times) // 2)

    def bounds(self) -> Floats:
        """[n, k]: no choice in which an option is has a smaller objective."""
        least = self.paid.min(2)
        above = self.paid - least[:, :, None]
        bounds: Floats = ((least.sum(1) - self.income)[:, None, None] + above).max(0)
        return bounds


@dataclass(frozen=True, slots=True, eq=False)
class Remaining:
    """Synopses that choose one after the other, and totals over the remaining ones.

    order: int64 [m]; synopses with several options, in the order in which they choose.
    first: state before the first choice.
    only_choice: int64 [n]; option of each synopsis that has one option.
    own: int64 [p, m]; each synopsis' best option at prices.
    The other fields are totals over the synopses that choose at step s or later:
    needed_bytes, needed_ns: [m + 1]; the least.
    paid: [p, m + 1]; the least.
    own_bytes, own_ns, own_objective: [p, m + 1]; of their own best options.
    """

    payments: Payments
    order: Integers
    first: States
    only_choice: Integers
    own: Integers
    needed_bytes: Integers
    needed_ns: Floats
    paid: Floats
    own_bytes: Integers
    own_ns: Floats
    own_objective: Floats

    @classmethod
    def of(
        cls, objective: Floats, options: Options, payments: Payments, hopeful: Booleans
    ) -> Remaining:
        """hopeful: [n, k], the options that count; each synopsis has one at least."""
        several = hopeful.sum(1) > 1
        paid = np.where(hopeful, payments.paid, np.inf)
        two = np.sort(paid[payments.near], axis=1)[:, :2]
        choosing = np.flatnonzero(several)
        # The synopsis that loses most by its second best option chooses first, which prunes soon.
        order = choosing[np.argsort((two[:, 0] - two[:, -1])[choosing], kind="stable")]
        only_choice = hopeful.argmax(1)
        rest = np.flatnonzero(~several)
        size_bytes, cost_ns = options.size_bytes[order], options.cost_ns[order]
        own = paid[:, order].argmin(2)
        at = np.arange(len(order)), own
        end = np.iinfo(np.int64).max
        return cls(
            payments,
            order,
            States.first(
                int(options.size_bytes[rest, only_choice[rest]].sum()),
                float(options.cost_ns[rest, only_choice[rest]].sum()),
                float(objective[rest, only_choice[rest]].sum()),
            ),
            only_choice,
            own,
            _from_step(np.where(hopeful[order], size_bytes, end).min(1)),
            _from_step(np.where(hopeful[order], cost_ns, np.inf).min(1)),
            _from_step(paid[:, order].min(2)),
            _from_step(size_bytes[at]),
            _from_step(cost_ns[at]),
            _from_step(objective[order][at]),
        )

    def within(self, states: States, budget: Budget, step: int) -> tuple[States, Floats]:
        """Those that leave room for the others; and a bound of all that continues each, [s]."""
        fits = states.size_bytes + self.needed_bytes[step] <= budget.size_bytes
        fits &= states.cost_ns + self.needed_ns[step] <= budget.cost_ns * _ROUNDED
        left = states.only(np.flatnonzero(fits))
        bounds = np.full(len(left), -np.inf)
        of_rest = self.paid[:, step] - self.payments.income
        for per_byte, per_ns, of in zip(
            self.payments.per_byte, self.payments.per_ns, of_rest, strict=True
        ):
            bound = left.size_bytes * per_byte
            bound += left.cost_ns * per_ns
            bound += of
            np.maximum(bounds, bound, out=bounds)
        return left, bounds + left.objective

    def own_ends(self, states: States, budget: Budget, step: int) -> tuple[float, int, int]:
        """The best choice in which all others take what is best for them at some prices.

        Returns:
          its objective, inf where none fits; the state; the prices.
        """
        best = np.inf, -1, -1
        for price in range(len(self.own)):
            fits = states.size_bytes + self.own_bytes[price, step] <= budget.size_bytes
            fits &= states.cost_ns + self.own_ns[price, step] <= budget.cost_ns * _ROUNDED
            if fits.any():
                objective = np.where(fits, states.objective, np.inf)
                at = int(objective.argmin())
                lost = float(objective[at] + self.own_objective[price, step])
                best = min(best, (lost, at, price))
        return best

    def choice(self, path: Sequence[States], at: int, price: int) -> Integers:
        """The choice that a state comes from, [n], continued by the others' own best.

        path: the states of each step; at is one of the last.
        """
        choice = self.only_choice.copy()
        step = len(path) - 1
        choice[self.order[step:]] = self.own[price, step:]
        for row, states in zip(self.order[:step][::-1], path[:0:-1], strict=True):
            choice[row] = states.option[at]
            at = int(states.parent[at])
        return choice


def _from_step(column: NDArray[_Number]) -> NDArray[_Number]:
    """Sums of what is from each step on, with the end's 0: [..., m] to [..., m + 1]."""
    sums = np.zeros((*column.shape[:-1], column.shape[-1] + 1), column.dtype)
    np.cumsum(column[..., ::-1], axis=-1, out=sums[..., 1:])
    return sums[..., ::-1]
