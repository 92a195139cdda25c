"""Who gets which bytes of the present problem: all of the budget, and no tenant over its quota."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from allocator.allocate import Allocation, allocate, describe
from allocator.bounded import bounded
from allocator.change import change
from allocator.demands import BYTES_END, Budget, Demands, Integers
from allocator.errors import BudgetExceeded as NothingFits
from allocator.prices import Prices
from shedder.engine.allocation import Problem


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """A solution, and what tenants' quotas had to do with it.

    held: the tenants whose quota was in the way, with what is left of it, in bytes; below 0 where
      not even the smallest synopses of their queries fit.
    """

    allocation: Allocation
    held: Mapping[str, int] = field(default_factory=dict)

    def left(self, tenant: str) -> int:
        """Bytes that a tenant's quota leaves free, where it was in the way; else more than any."""
        return max(0, self.held[tenant]) if tenant in self.held else BYTES_END


def solved(
    found: Problem,
    budget: Budget,
    changed: Integers | None,
    last: Allocation | None,
    quotas: Mapping[str, int],
) -> Solved:
    """The least change that keeps all targets, or else everything anew.

    Args:
      found: the problem. budget: what there is for its options.
      changed: rows that choose anew (or for the first time) while the others stay; none: all stay
        if they can; None: everybody chooses anew.
      last: the newest solution, whose prices hold still; None: there is none.
      quotas: bytes of all synopses by tenant, with what their queries take beside; others have no
        bound.

    Raises:
      allocator.errors.BudgetExceeded: nothing fits.
    """

    def solve(rows: Integers, there_is: Budget) -> Allocation:
        demands = found.demands.only(rows) if len(rows) < len(found.rows) else found.demands
        if changed is None or (last is None and len(changed)):
            return allocate(demands, there_is)
        return _fitted(demands, np.flatnonzero(np.isin(rows, changed)), last, there_is)

    every = np.arange(len(found.rows))
    if not quotas:
        return Solved(solve(every, budget))
    owners = [asked.query.schema.tenant for asked in found.asked]
    tenants = sorted(set(owners))
    beside = dict.fromkeys(tenants, 0)
    for owner, size_bytes in zip(owners, found.beside_bytes.tolist(), strict=True):
        beside[owner] += size_bytes
    quota = [min(quotas.get(tenant, BYTES_END - 1), BYTES_END - 1) for tenant in tenants]
    bounds = [most - beside[tenant] for most, tenant in zip(quota, tenants, strict=True)]
    group = np.array([tenants.index(owners[row.asked]) for row in found.rows], np.int64)
    it = bounded(found.demands, budget, group, np.array(bounds, np.int64), solve)
    taken = np.zeros(len(tenants), np.int64)
    np.add.at(taken, group, it.allocation.size_bytes)
    return Solved(
        it.allocation,
        {
            tenant: bounds[at] - int(taken[at])
            for at, tenant in enumerate(tenants)
            if it.held[at] or taken[at] > bounds[at]
        },
    )


def _fitted(
    demands: Demands, changed: Integers, last: Allocation | None, budget: Budget
) -> Allocation:
    """Some rows choose anew; if that breaks a target, all do."""
    try:
        fitted = _changed(demands, changed, last, budget)
    except NothingFits:
        return allocate(demands, budget)
    if fitted is not None and (fitted.met | ~fitted.reachable).all():
        return fitted
    return allocate(demands, budget)


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
    """What each query takes by an allocation, int64 [queries]."""
    total = found.beside_bytes.copy()
    np.add.at(total, [row.asked for row in found.rows], allocation.size_bytes)
    return total


def bytes_by_tenant(found: Problem, allocation: Allocation) -> dict[str, int]:
    """What the queries of each tenant take by an allocation."""
    total: dict[str, int] = {}
    sizes = bytes_by_query(found, allocation).tolist()
    for asked, size_bytes in zip(found.asked, sizes, strict=True):
        tenant = asked.query.schema.tenant
        total[tenant] = total.get(tenant, 0) + size_bytes
    return total
