"""Solver of the present allocation problem within the budget and all tenants' quotas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from allocator.allocate import Allocation, allocate, describe
from allocator.demands import BYTES_END, Budget, Demands, Integers
from allocator.group_bounds import bounded
from allocator.incremental import change
from allocator.prices import Prices
from shedder.engine.allocation.problem import Problem
from shedder.engine.allocation.query_demands import room_bytes

_MANY = 1_000  # Synopses: all of fewer are solved anew in some milliseconds.


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A solution, and what tenants' quotas had to do with it.

    held: the tenants whose quota was in the way, with what is left of it, in bytes; below 0 where
      not even the smallest synopses of their queries fit.
    provisional: whether only some chose, of many that are short: all should before long.
    """

    allocation: Allocation
    held: Mapping[str, int] = field(default_factory=dict)
    provisional: bool = False

    def left(self, tenant: str) -> int:
        """Bytes that a tenant's quota leaves free, where it was in the way; else more than any."""
        return max(0, self.held[tenant]) if tenant in self.held else BYTES_END


def solved(
    found: Problem,
    budget: Budget,
    changed: Integers | None,
    last: Allocation | None,
    quotas: Mapping[str, int],
) -> Solution:
    """The least change that keeps all targets, or else everything anew.

    Where many were short already, the least change that breaks no promise.

    Args:
      found: the problem. budget: what there is for its options.
      changed: rows that choose anew (or for the first time) while the others stay; none: all stay
        if they can; None: all rows choose anew.
      last: the newest solution, whose prices hold still; None: there is none. New prices are
        looked for around them.
      quotas: bytes of all synopses by tenant, with what their queries take beside; others have no
        bound.

    Raises:
      allocator.errors.BudgetExceeded: nothing fits.
    """

    def solve(rows: Integers, there_is: Budget) -> Allocation:
        demands = found.demands.only(rows) if len(rows) < len(found.rows) else found.demands
        if changed is None or (last is None and len(changed)):
            return allocate(demands, there_is, last)
        return _fitted(demands, np.flatnonzero(np.isin(rows, changed)), last, there_is)

    every = np.arange(len(found.rows))
    if not quotas:
        allocation = solve(every, budget)
        return Solution(allocation, provisional=_is_provisional(changed, allocation))
    owners = [request.query.schema.tenant for request in found.requests]
    tenants = sorted(set(owners))
    beside = dict.fromkeys(tenants, 0)
    for owner, size_bytes in zip(owners, found.beside_bytes.tolist(), strict=True):
        beside[owner] += size_bytes
    quota = [min(quotas.get(tenant, BYTES_END - 1), BYTES_END - 1) for tenant in tenants]
    bounds = [most - beside[tenant] for most, tenant in zip(quota, tenants, strict=True)]
    group = np.array([tenants.index(owners[row.request]) for row in found.rows], np.int64)
    it = bounded(found.demands, budget, group, np.array(bounds, np.int64), solve)
    taken = np.zeros(len(tenants), np.int64)
    np.add.at(taken, group, it.allocation.size_bytes)
    return Solution(
        it.allocation,
        {
            tenant: bounds[at] - int(taken[at])
            for at, tenant in enumerate(tenants)
            if it.held[at] or taken[at] > bounds[at]
        },
        _is_provisional(changed, it.allocation),
    )


def _is_provisional(changed: Integers | None, allocation: Allocation) -> bool:
    is_short = not (allocation.met | ~allocation.reachable).all()
    return changed is not None and is_short and len(allocation.choice) >= _MANY


def _fitted(
    demands: Demands, changed: Integers, last: Allocation | None, budget: Budget
) -> Allocation:
    """Some rows choose anew; if that breaks what it need not, all do."""
    fitted = _changed(demands, changed, last, budget)
    if fitted is not None and _keeps_enough(demands, changed, fitted, last):
        return fitted
    return allocate(demands, budget, last)


def _keeps_enough(
    demands: Demands, changed: Integers, fitted: Allocation, last: Allocation | None
) -> bool:
    """Return whether a change is good enough until the whole problem is solved again.

    It is where all targets are kept. Where memory is short already, many have to solve anew for
    little: there it is enough that no promise is broken that was kept, or is asked for now.
    """
    if (fitted.met | ~fitted.reachable).all():
        return True
    if last is None or len(demands.options) < _MANY or (last.met | ~last.reachable).all():
        return False
    readers, rows = demands.readers, demands.readers.synopsis
    had = demands.options.error[rows, np.maximum(demands.present[rows], 0)] * readers.scale
    promised = (demands.present[rows] >= 0) & (had <= readers.target)
    promised |= np.isin(rows, changed) & fitted.reachable
    return bool(fitted.met[promised & readers.promised].all())


def _changed(
    demands: Demands, changed: Integers, last: Allocation | None, budget: Budget
) -> Allocation | None:
    if last is not None and len(changed):
        return change(demands, changed, last, budget)
    prices = Prices(0.0, 0.0, 0.0, None)
    if last is not None:
        prices = Prices(last.per_byte, last.per_ns, last.bound, None)
    stays = describe(demands, budget, demands.present, prices)
    return stays if stays.free_bytes >= 0 else None


def bytes_by_query(found: Problem, allocation: Allocation) -> NDArray[np.int64]:
    """What each query takes once it is as an allocation has it, int64 [queries].

    Where groups get larger sketches and more room at once this is less than their options say:
    the room that is added holds some of what is larger, and is never above its maximum.
    """
    total = found.beside_bytes.copy()
    np.add.at(total, [row.request for row in found.rows], allocation.size_bytes)
    moved = found.moved(allocation.choice)
    grouped = {number for number in moved if found.requests[number].query.groups}
    for number, given in found.given_to(grouped, allocation.choice).items():
        request = found.requests[number]
        groups = room_bytes(request, given.sizes, given.group_bytes)
        total[number] = found.beside_bytes[number] + groups
    return total


def bytes_by_tenant(found: Problem, allocation: Allocation) -> dict[str, int]:
    """What the queries of each tenant take by an allocation."""
    total: dict[str, int] = {}
    sizes = bytes_by_query(found, allocation).tolist()
    for request, size_bytes in zip(found.requests, sizes, strict=True):
        tenant = request.query.schema.tenant
        total[tenant] = total.get(tenant, 0) + size_bytes
    return total
