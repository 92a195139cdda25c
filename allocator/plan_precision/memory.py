"""Memory for a plan's operators so that its result is as precise as the budget allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from allocator.demands import Budget, Floats, Integers, Options
from allocator.errors import BadPrecision, NothingFits
from allocator.plan_precision.precision import Precision
from allocator.plan_precision.query_plan import Step, precision_of
from allocator.prices import find_prices
from allocator.rounding import fill

_ROUNDS_MAX = 20
_NEAR = 4  # Sizes up and down that pairs are tried with.
Loss = Callable[[Precision], Floats]


@dataclass(frozen=True, slots=True, eq=False)
class OperatorSizes:
    """What an operator may be given: size_bytes int64 [k], and its own precision then, [k]."""

    name: str
    size_bytes: Integers
    own: Precision


def rates(it: Precision) -> Floats:
    """FP + FN: the loss that is minimised unless another is asked for."""
    return np.asarray(it.false_positives + it.false_negatives)


def best_sizes(
    plan: Step, sizes: Sequence[OperatorSizes], budget_bytes: int, loss: Loss = rates
) -> Integers:
    """Sizes of a plan's operators, int64 [operators], each an index into its own.

    From the present sizes, the loss of changing one operator alone is exact; their sum stands for
    the loss of changing several, and `allocate` finds its minimum. That is repeated from there,
    and at the end pairs are tried, because two operators' losses are not quite a sum: an invented
    tuple that a later operator drops has cost nothing.

    Args:
      plan: its root; statistics are in its operators.
      sizes: of the operators that have a choice.
      budget_bytes: for all of them.
      loss: of a result's precision; smaller is better.

    Raises:
      NothingFits: not even the smallest sizes fit.
      BadPrecision: sizes of what is no operator of the plan.
    """
    operators = {step.name for step in plan.walk() if step.operator is not None}
    for it in sizes:
        if it.name not in operators:
            raise BadPrecision("sizes", f"those of {', '.join(sorted(operators))}", it.name)
    choice = _smallest(sizes, budget_bytes)
    if not len(choice):
        return choice
    for _ in range(_ROUNDS_MAX):
        better = _together(plan, sizes, choice, budget_bytes, loss)
        better = _best_pair(plan, sizes, better, budget_bytes, loss)
        if not _loss_of(plan, sizes, better[None], loss)[0] < _loss_of(
            plan, sizes, choice[None], loss
        )[0] * (1 - 1e-9):
            break
        choice = better
    return choice


def losses(
    plan: Step, sizes: Sequence[OperatorSizes], choices: Integers, loss: Loss = rates
) -> Floats:
    """The losses of many choices at once, [choices], of int64 [choices, operators]."""
    return _loss_of(plan, sizes, choices, loss)


def _loss_of(plan: Step, sizes: Sequence[OperatorSizes], choices: Integers, loss: Loss) -> Floats:
    own = {
        it.name: Precision.one_by_one(
            it.own.recall[choices[:, at]], it.own.spurious[choices[:, at]]
        )
        for at, it in enumerate(sizes)
    }
    return np.broadcast_to(loss(precision_of(plan, own)), (len(choices),))


def _smallest(sizes: Sequence[OperatorSizes], budget_bytes: int) -> Integers:
    choice = np.array([int(it.size_bytes.argmin()) for it in sizes], np.int64)
    least = sum(int(it.size_bytes.min()) for it in sizes)
    if least > budget_bytes:
        raise NothingFits(
            least_bytes=least, budget_bytes=budget_bytes, least_ns=0.0, budget_ns=np.inf
        )
    return choice


def _alone(
    plan: Step, sizes: Sequence[OperatorSizes], choice: Integers, loss: Loss
) -> list[Floats]:
    """Per operator, [k]: the plan's loss when it alone changes."""
    found = []
    for at, it in enumerate(sizes):
        choices = np.tile(choice, (len(it.size_bytes), 1))
        choices[:, at] = np.arange(len(it.size_bytes))
        found.append(_loss_of(plan, sizes, choices, loss))
    return found


def _together(
    plan: Step, sizes: Sequence[OperatorSizes], choice: Integers, budget_bytes: int, loss: Loss
) -> Integers:
    """The minimum of the sum of changes, or the present choice where that is no better."""
    alone = _alone(plan, sizes, choice, loss)
    least = min(float(it.min()) for it in alone)
    width = max(len(it.size_bytes) for it in sizes)
    size = np.zeros((len(sizes), width), np.int64)
    error = np.full((len(sizes), width), np.inf)
    for row, (it, changed) in enumerate(zip(sizes, alone, strict=True)):
        size[row, : len(changed)] = it.size_bytes
        error[row, : len(changed)] = changed - least
    options = Options([it.name for it in sizes], size, np.zeros(size.shape), error)
    budget = Budget(budget_bytes)
    prices = find_prices(error, options, budget)
    assert prices.choice is not None  # the smallest sizes fit
    found = fill(error, options, budget, prices, prices.choice)
    now, then = _loss_of(plan, sizes, np.stack([choice, found]), loss)
    return found if then < now else choice


def _best_pair(
    plan: Step, sizes: Sequence[OperatorSizes], choice: Integers, budget_bytes: int, loss: Loss
) -> Integers:
    """The best choice that differs in one or two operators, by a few sizes up or down."""
    near = [
        np.arange(max(0, at - _NEAR), min(len(it.size_bytes), at + _NEAR + 1))
        for at, it in zip(choice.tolist(), sizes, strict=True)
    ]
    candidates = [choice[None]]
    for one in range(len(sizes)):
        for other in range(one, len(sizes)):
            first, second = (axis.ravel() for axis in np.meshgrid(near[one], near[other]))
            changed = np.tile(choice, (len(first), 1))
            changed[:, one] = first
            changed[:, other] = second
            candidates.append(changed)
    choices = np.concatenate(candidates)
    used = sum(
        (it.size_bytes[choices[:, at]] for at, it in enumerate(sizes)), np.zeros(len(choices))
    )
    choices = choices[used <= budget_bytes]
    return np.asarray(choices[int(_loss_of(plan, sizes, choices, loss).argmin())])
