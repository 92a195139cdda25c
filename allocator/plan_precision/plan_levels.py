"""Levels of several plans within one budget, so that the weighted loss of all is least."""

from __future__ import annotations

import numpy as np

from allocator.allocate import allocate
from allocator.demands import Budget, Demands, Floats, Integers, Options, Readers


def best_levels(size_bytes: Integers, loss: Floats, weight: Floats, budget_bytes: int) -> Integers:
    """Choose a level for each plan, int64 [plans].

    The choice is exact for up to 300 levels in all, except adversarial ones; else it is near the
    bound of `allocate`.

    Args:
      size_bytes: int64 [plans, levels], >= 0; of each plan at each level.
      loss: float64 [plans, levels], such as FN + FP; inf: the plan has no such level.
      weight: float64 [plans], > 0 and finite.
      budget_bytes: of all plans, >= 0.

    Raises:
      NothingFits: not even the smallest levels fit.
    """
    plans = len(loss)
    if not plans:
        return np.zeros(0, np.int64)
    names = [f"plan {number}" for number in range(plans)]
    options = Options(names, size_bytes, np.zeros(loss.shape), loss)
    readers = Readers(
        synopsis=np.arange(plans),
        weight=weight,
        scale=np.ones(plans),
        target=np.full(plans, np.inf),
        forfeit=np.zeros(plans),
        promised=np.zeros(plans, np.bool_),
    )
    return allocate(Demands.new(options, readers), Budget(budget_bytes)).choice
