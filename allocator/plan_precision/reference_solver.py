"""Memory for a plan's operators by a packaged solver: what the faster method is measured against.

Between the sizes that are given, an operator's precision is interpolated, so that sizes become
continuous and the loss of the plan a smooth function of them; SLSQP (Kraft 1988, in scipy)
minimises it from several starts. It takes three to five times as long as `memory.best_sizes`,
and its sizes still have to be made whole; but it assumes nothing of how losses of operators add up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import minimize

from allocator.demands import Floats, Integers
from allocator.errors import NothingFits
from allocator.plan_precision.memory import Loss, OperatorSizes, rates
from allocator.plan_precision.precision import Precision
from allocator.plan_precision.query_plan import Step, precision_of

_STARTS = 4
_STEP = 1e-5  # in log2 of bytes, for slopes


def solved_sizes(
    plan: Step, sizes: Sequence[OperatorSizes], budget_bytes: int, loss: Loss = rates
) -> tuple[Floats, float]:
    """Continuous bytes of a plan's operators, float64 [operators], and the loss at them.

    Args:
      plan, sizes, budget_bytes, loss: as `memory.best_sizes` has them; sizes ascend, and
        there are two of each operator, or more.

    Raises:
      NothingFits: not even the smallest sizes fit.
    """
    low = np.log2([float(it.size_bytes.min()) for it in sizes])
    high = np.log2([float(it.size_bytes.max()) for it in sizes])
    least = sum(int(it.size_bytes.min()) for it in sizes)
    if least > budget_bytes:
        raise NothingFits(
            least_bytes=least, budget_bytes=budget_bytes, least_ns=0.0, budget_ns=np.inf
        )
    value = _smooth(plan, sizes, loss)

    def both(at: Floats) -> tuple[float, Floats]:
        steps = np.vstack([at, at + _STEP * np.eye(len(at))])
        found = value(steps)
        return float(found[0]), (found[1:] - found[0]) / _STEP

    def left(at: Floats) -> float:
        return float(1.0 - np.exp2(at).sum() / budget_bytes)

    def left_slope(at: Floats) -> Floats:
        return np.asarray(-np.log(2) * np.exp2(at) / budget_bytes)

    best: tuple[Floats, float] | None = None
    for start in _starts(low, high, budget_bytes):
        found = minimize(
            both,
            start,
            jac=True,
            method="SLSQP",
            bounds=list(zip(low, high, strict=True)),
            constraints=[{"type": "ineq", "fun": left, "jac": left_slope}],
            options={"maxiter": 300, "ftol": 1e-10},
        )
        at = np.clip(found.x, low, high)
        if left(at) >= -1e-9 and (best is None or found.fun < best[1]):
            best = np.exp2(at), float(found.fun)
    assert best is not None  # the smallest sizes are a start that fits
    return best


def whole_sizes(sizes: Sequence[OperatorSizes], size_bytes: Floats) -> Integers:
    """The largest sizes within continuous ones, int64 [operators], as indices."""
    within = [
        np.searchsorted(it.size_bytes, given * (1 + 1e-9), "right") - 1
        for it, given in zip(sizes, size_bytes, strict=True)
    ]
    return np.maximum(np.array(within, np.int64), 0)


def _smooth(plan: Step, sizes: Sequence[OperatorSizes], loss: Loss) -> Callable[[Floats], Floats]:
    """The loss of a plan, [choices], as a function of log2 of bytes, [choices, operators]."""
    curves = [
        [
            PchipInterpolator(np.log2(it.size_bytes.astype(np.float64)), column)
            for column in (it.own.recall, it.own.spurious)
        ]
        for it in sizes
    ]

    def value(at: Floats) -> Floats:
        own = {
            it.name: Precision.one_by_one(*(curve(at[:, place]) for curve in its))
            for place, (it, its) in enumerate(zip(sizes, curves, strict=True))
        }
        return np.broadcast_to(loss(precision_of(plan, own)), (len(at),))

    return value


def _starts(low: Floats, high: Floats, budget_bytes: int) -> list[Floats]:
    """The smallest sizes, equal parts, and parts that favour one half of the operators."""
    count = len(low)
    starts = [low]
    for start in range(_STARTS - 1):
        favour = np.where(np.arange(count) % 2 == start % 2, 1.0 + start, 1.0)
        part = np.log2(budget_bytes * favour / favour.sum())
        at = np.clip(part, low, high)
        room = budget_bytes / np.exp2(at).sum()
        starts.append(np.clip(at + min(0.0, np.log2(room)), low, high))
    return starts
