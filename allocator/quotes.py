"""Price quotes for readers: the bytes that a target needs, and the worth of one more KiB."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.allocate import Allocation
from allocator.demands import Booleans, Demands, Floats, Integers

_KIB = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Quotes:
    """Per reader, [m].

    error: what it is predicted to err by.
    needed_bytes, needed_ns: of the cheapest option that meets its target, at the present prices;
      -1 and nan without a target, or where nothing meets it.
    best_error: of the best option that its synopsis has, whatever it costs.
    saved_per_kib, saved_per_ns: by how much its error falls per unit on the way to the next
      better option that costs only bytes, or only CPU; 0 where there is none.
    """

    error: Floats
    needed_bytes: Integers
    needed_ns: Floats
    best_error: Floats
    saved_per_kib: Floats
    saved_per_ns: Floats


def quote(demands: Demands, allocation: Allocation) -> Quotes:
    """Return the prices of an allocation in the unit of the readers' errors."""
    options, readers = demands.options, demands.readers
    rows = readers.synopsis
    errors = options.error[rows] * readers.scale[:, None]
    sizes, costs = options.size_bytes[rows], options.cost_ns[rows]
    error = allocation.error[rows] * readers.scale
    meets = errors <= readers.target[:, None]
    payment = allocation.per_byte * sizes + allocation.per_ns * costs
    if not (allocation.per_byte or allocation.per_ns):
        payment = sizes.astype(np.float64)
    if not errors.size:
        zeros = np.zeros(len(readers))
        return Quotes(error, rows - 1, zeros, zeros, zeros, zeros)
    cheapest = np.where(meets, payment, np.inf).argmin(1)
    has_price = np.isfinite(readers.target) & meets.any(1)
    at = np.arange(len(readers))
    more_bytes = sizes - allocation.size_bytes[rows][:, None]
    more_ns = costs - allocation.cost_ns[rows][:, None]
    saved = error[:, None] - errors
    return Quotes(
        error=error,
        needed_bytes=np.where(has_price, sizes[at, cheapest], -1),
        needed_ns=np.where(has_price, costs[at, cheapest], np.nan),
        best_error=errors.min(1, initial=np.inf),
        saved_per_kib=_KIB * _best_rate(saved, more_bytes, more_ns <= 0),
        saved_per_ns=_best_rate(saved, more_ns, more_bytes <= 0),
    )


def _best_rate(saved: Floats, more: Floats | Integers, allowed: Booleans) -> Floats:
    rate = np.where(allowed & (more > 0) & (saved > 0), saved, 0.0) / np.where(more > 0, more, 1)
    return np.asarray(rate.max(1, initial=0.0))
