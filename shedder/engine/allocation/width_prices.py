"""Width prices of a standing query: what a KiB or a nanosecond takes away of each width."""

from __future__ import annotations

import numpy as np

from allocator.allocate import describe
from allocator.demands import Budget
from allocator.prices import Prices
from allocator.quotes import quote
from shedder.cql.expressions.expression import Aggregate
from shedder.engine.allocation.cpu_prices import cpu_prices
from shedder.engine.allocation.problem import problem
from shedder.engine.synopsis_plans.allocation_request import AllocationRequest
from shedder.queries.evidence.precision_parts import WidthPrices

_FREE = Prices(0.0, 0.0, 0.0, None)
_ONE_SIZE = "a KiB: the synopsis has one size"
_LARGEST = "a KiB: no larger size has a smaller error"
_ALL_READ = "a ns: new panes read all tuples"
_NO_LEVEL = "a ns: reading more tuples does not change the predicted error"
_NOT_KNOWN = "a KiB, a ns: the error is not predicted"
_SLIDES = "a second: a standing query answers when its window closes"


def width_prices(
    request: AllocationRequest, *, group_bytes_max: int
) -> dict[Aggregate, WidthPrices]:
    """Return the prices of each aggregate of a query that stands.

    A price is the fall of the predicted error per unit, divided by the predicted error: the share
    of the width that one more unit takes away. The predictions are those of EXPLAIN ALLOCATION.
    """
    found = problem([request], group_bytes_max=group_bytes_max)
    demands = found.demands
    budget = Budget(int(demands.options.size_bytes.max(1, initial=0).sum()))
    quotes = quote(demands, describe(demands, budget, demands.present, _FREE))
    of_cpu = cpu_prices([request], found.given(demands.present), group_bytes_max=group_bytes_max)
    prices: dict[Aggregate, WidthPrices] = {}
    for reader, (_, aggregate) in enumerate(found.readers):
        if aggregate is None:
            continue
        row = found.rows[int(demands.readers.synopsis[reader])]
        level = request.levels[row.parts[0]]
        prices[aggregate] = _price(
            float(quotes.error[reader]),
            float(quotes.saved_per_kib[reader]),
            float(of_cpu[reader]) if level else None,
            is_sized=row.curve is not None,
        )
    return prices


def _price(error: float, per_kib: float, per_ns: float | None, *, is_sized: bool) -> WidthPrices:
    """per_ns: None: all tuples are read."""
    if not (np.isfinite(error) and error > 0.0):
        reason = _NOT_KNOWN if per_ns is not None else f"{_NOT_KNOWN}; {_ALL_READ}"
        return WidthPrices.none(f"{reason}; {_SLIDES}")
    reasons = []
    if per_kib <= 0.0:
        reasons.append(_LARGEST if is_sized else _ONE_SIZE)
    if per_ns is None:
        reasons.append(_ALL_READ)
    elif per_ns <= 0.0:
        reasons.append(_NO_LEVEL)
    return WidthPrices(
        per_kib / error if per_kib > 0.0 else None,
        per_ns / error if per_ns is not None and per_ns > 0.0 else None,
        None,
        "; ".join([*reasons, _SLIDES]),
    )
