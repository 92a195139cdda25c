"""Part of the way from a choice that takes too much to one that fits."""

from __future__ import annotations

import numpy as np

from allocator.demands import Floats, Integers


def that_free(lost: Floats, freed: Floats, over: Floats) -> Integers | None:
    """Choose the rows that change: least loss per unit freed first, and only as many as needed.

    Args:
      lost: [q]; by each one's change, at prices. freed: [2, q]; bytes and ns, some of them below 0.
      over: [2]; what is to be freed, where it is above 0.

    Returns:
      of these, ascending by what they lose for it; None where even all do not free enough (as sums
      are rounded).
    """
    lacking = over > 0
    relief = np.minimum(freed[lacking] / over[lacking, None], 1.0).sum(0)
    by_relief = np.where(relief > 0, lost, np.inf) / np.maximum(relief, 1e-300)
    order = np.argsort(by_relief, kind="stable")
    enough = (np.cumsum(freed[:, order], axis=1) >= over[:, None]).all(0)
    return order[: int(enough.argmax()) + 1] if enough.any() else None
