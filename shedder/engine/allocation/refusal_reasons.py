"""Reasons of a refused query: the missing resource, its needs, its possible grant and the price."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from allocator.allocate import Allocation
from allocator.demands import Budget
from shedder.engine.allocation.grant_report import Headroom, facts_of, kib_for
from shedder.engine.allocation.problem import Problem, problem
from shedder.engine.allocation.solver import Solution, bytes_by_tenant, solved

_KIB = 1024


def does_not_fit(found: Problem, number: int, free: Headroom) -> str:
    """That not even the smallest synopses fit.

    Args:
      found: the problem. number: of the new query in it. free: before it came.
    """
    return f"{_free(free)}; {_alone(found, number, free)}"


def only_by_breaking(found: Problem, number: int, free: Headroom, broken: str) -> str:
    """That others would lose what they were promised; the rest as in `does_not_fit`."""
    return f"{_free(free)}; {broken}; {_alone(found, number, free)}"


def _free(free: Headroom) -> str:
    of = "synopsis budget" if free.quota_of is None else f"quota of tenant {free.quota_of!r}"
    return f"the query does not fit: {free.size_bytes // _KIB:,} KiB of the {of} are free"


def _alone(found: Problem, number: int, free: Headroom) -> str:
    """What it would get of what is free, or of the least that it can do with; need and prices."""
    alone = problem([found.requests[number]], group_bytes_max=found.group_bytes_max)
    beside_bytes = int(alone.beside_bytes.sum())
    options = alone.demands.options
    possible = np.where(np.isfinite(options.error), options.size_bytes, np.iinfo(np.int64).max)
    least_bytes = int(possible.min(1).sum())
    there_is = max(least_bytes, free.size_bytes - beside_bytes)
    solution = solved(alone, Budget(there_is), None, None, {})
    [facts] = facts_of(alone, solution, [0], found.group_bytes_max, free)
    outcome = facts.get("missed") or "; ".join(_predicted(facts))
    if least_bytes + beside_bytes <= free.size_bytes:
        return f"with what is free, {outcome or 'it has all that it needs'}"
    least = f"its smallest synopses take {kib_for(least_bytes)}"
    if beside_bytes >= _KIB:
        least += f" and its panes as such {kib_for(beside_bytes)}"
    return f"{least}; with these, {outcome}" if outcome else least


def _predicted(facts: Mapping[str, str]) -> list[str]:
    """Of each aggregate whose synopsis has a size: its error, and what more would buy."""
    ends = " price"
    names = [key.removesuffix(ends) for key in facts if key.endswith(ends)]
    return [f"{name}: {facts[name]}, {facts[name + ends]}" for name in names]


def over_quota(found: Problem, solution: Solution, tenant: str, quota: int) -> str:
    """Return why a query cannot stand although there are bytes enough."""
    least = bytes_by_tenant(found, solution.allocation)[tenant]
    return (
        f"the query does not fit the quota of tenant {tenant!r}: with it, the smallest synopses of "
        f"all its queries take {least // _KIB:,} KiB, the quota is {quota // _KIB:,} KiB"
    )


def broken_by(found: Problem, allocation: Allocation, tenant: str) -> list[str]:
    """Promises to others that were kept and would not be any more; told by name to their tenant."""
    readers, present = found.demands.readers, found.demands.present
    rows = readers.synopsis
    had = found.demands.options.error[rows, np.maximum(present[rows], 0)] * readers.scale
    lost = readers.promised & (present[rows] >= 0) & (had <= readers.target) & ~allocation.met
    losers = [found.requests[found.readers[at][0]] for at in np.flatnonzero(lost).tolist()]
    names = {
        one.name if one.query.schema.tenant == tenant else "another tenant's query"
        for one in losers
    }
    return [f"it fits only if {', '.join(sorted(names))} lost what was promised"] if names else []
