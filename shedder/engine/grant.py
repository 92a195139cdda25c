"""Negotiated admission: what a new query is granted, and what those who stand give up for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from allocator.allocate import Allocation
from allocator.demands import Budget
from allocator.errors import BudgetExceeded as NothingFits
from allocator.quotes import Quotes, quote
from shedder.cql.expression import Aggregate
from shedder.cql.query import BoundQuery
from shedder.cql.statement import Contract
from shedder.engine.allocation import Problem, Row, problem
from shedder.engine.asked import Asked, Given
from shedder.engine.cpu_prices import cpu_prices
from shedder.engine.plan import Kind, kind_of, plan
from shedder.engine.solving import Solved, bytes_by_query, bytes_by_tenant, solved
from shedder.engine.synopsis_curves import SIZED, Curve, curve_of
from shedder.errors import BudgetExceeded, PrecisionUnavailable
from shedder.queries.confidence import EXACT_IN_PANES, split_confidence

_KIB = 1024


@dataclass(frozen=True, slots=True)
class Granted:
    """What a query gets.

    sizes: of each sized aggregate. facts: for humans. size_bytes: what that takes, at most.
    group_bytes: the cap on the groups of each synopsis; 0 without GROUP BY.
    others: what standing queries have to become before, by name; only those that change.
    """

    sizes: dict[Aggregate, int]
    facts: dict[str, str]
    size_bytes: int
    group_bytes: int
    others: Mapping[str, Given]


def negotiate(
    query: BoundQuery,
    budget_bytes: int,
    standing: Sequence[Asked] = (),
    *,
    group_bytes_max: int,
    last: Allocation | None = None,
    limits: Given | None = None,
    quotas: Mapping[str, int] = MappingProxyType({}),
) -> Granted:
    """Size the synopses of a new query, and those of the others as far as it takes from them.

    The others go on as they are when that keeps all targets; else those yield who lose least, as
    few as suffice; and if that breaks a target, everything is shared out anew.

    Args:
      query: to be registered.
      budget_bytes: of all synopses.
      standing: who is registered already.
      group_bytes_max: the largest cap on the groups of one synopsis.
      last: the newest solution, whose prices hold still; None: there is none.
      limits: what the query may be given at most; None: what there is.
      quotas: bytes by tenant; a tenant's own queries yield where its quota is short.

    Raises:
      PrecisionUnavailable: the contract is FAIL and the target does not fit, or only by breaking
        what others were promised; says what would be needed, and what more would buy.
      BudgetExceeded: not even the smallest synopses fit, or only by breaking what others were
        promised; says whose quota was in the way.
    """
    confidences = split_confidence(query, EXACT_IN_PANES)
    curves = {
        aggregate: curve_of(query, aggregate, confidences[aggregate])
        for aggregate in query.aggregates
        if kind_of(aggregate, query) in SIZED
    }
    wanted = plan(query, {aggregate: curve.wanted for aggregate, curve in curves.items()})
    asked = replace(Asked.new("the new query", query, wanted), limits=limits)
    found = problem([*standing, asked], group_bytes_max=group_bytes_max)
    beside_bytes = int(found.beside_bytes.sum())
    new = len(standing)
    own = found.rows_of([new])
    free_bytes = budget_bytes - found.present_bytes
    try:
        solution = solved(found, Budget(max(0, budget_bytes - beside_bytes)), own, last, quotas)
    except NothingFits as error:
        raise BudgetExceeded(
            f"the query does not fit: {max(0, free_bytes) // _KIB:,} KiB of the synopsis budget "
            f"are free; besides {beside_bytes // _KIB:,} KiB for panes as such, {error}"
        ) from error
    allocation, tenant = solution.allocation, query.schema.tenant
    if solution.held.get(tenant, 0) < 0:
        raise BudgetExceeded(_over_quota(found, solution, tenant, quotas[tenant]))
    given = found.given(allocation.choice)
    [facts] = facts_of(found, solution, [new], group_bytes_max, free_bytes)
    broken = _broken(found, allocation, tenant)
    if query.contract is Contract.FAIL:
        refused = [facts["missed"]] if "missed" in facts else []
        if refused + broken:
            raise PrecisionUnavailable("; ".join(refused + broken))
    elif broken:
        raise BudgetExceeded(
            f"the query does not fit: {max(0, free_bytes) // _KIB:,} KiB of the synopsis budget "
            f"are free; {broken[0]}"
        )
    sizes = {
        aggregate: given[new].sizes[wanted.answers[at]]
        for at, aggregate in enumerate(query.aggregates)
        if aggregate in curves
    }
    others = {
        one.name: after
        for one, after in zip(standing, given, strict=False)
        if after != Given(one.sizes, one.group_bytes)
    }
    return Granted(sizes, facts, int(facts["bytes"]), given[new].group_bytes, others)


def facts_of(
    found: Problem,
    solution: Solved,
    numbers: Sequence[int],
    group_bytes_max: int,
    free_bytes: int | None = None,
) -> list[dict[str, str]]:
    """What queries are granted, for humans: bytes, synopses, predictions, needs and prices.

    Args:
      found, solution: the problem, and who gets what.
      numbers: of the queries in it.
      group_bytes_max: as in `problem`.
      free_bytes: before it was solved; None: after.
    """
    allocation = solution.allocation
    quotes, given = quote(found.demands, allocation), found.given(allocation.choice)
    totals = bytes_by_query(found, allocation)
    asked = [found.asked[number] for number in numbers]
    has = [given[number] for number in numbers]
    per_ns = cpu_prices(asked, has, group_bytes_max=group_bytes_max)
    readers: dict[int, list[int]] = {number: [] for number in numbers}
    for at, (query, _) in enumerate(found.readers):
        if query in readers:
            readers[query].append(at)
    free = allocation.free_bytes if free_bytes is None else free_bytes
    first, all_facts = 0, []
    for number, one, got in zip(numbers, asked, has, strict=True):
        tenant = one.query.schema.tenant
        room = _room(solution, tenant, free)
        left_bytes = min(allocation.free_bytes, solution.left(tenant))
        facts = {"bytes": str(int(totals[number])), "free_bytes": str(left_bytes)}
        if one.query.groups:
            facts["group_bytes"] = str(got.group_bytes)
        own = readers[number]
        prices = per_ns[first : first + len(own)].tolist()
        first += len(own)
        told, missed = _told(found, allocation, quotes, zip(own, prices, strict=True), room)
        facts |= told or {"synopses": _kinds(one.query)}
        if missed:
            facts["missed"] = "; ".join(missed)
        if tenant in solution.held:
            facts["limited_by"] = f"the quota of tenant {tenant!r}"
        all_facts.append(facts)
    return all_facts


def group_bytes(facts: Mapping[str, str], otherwise: int) -> int:
    """The cap on the groups of one synopsis that a query was granted."""
    return int(facts.get("group_bytes", otherwise))


def _told(
    found: Problem,
    allocation: Allocation,
    quotes: Quotes,
    readers: Iterable[tuple[int, float]],
    room: str,
) -> tuple[dict[str, str], list[str]]:
    """What is kept for each sized aggregate of a query, with its prices; what is missed.

    readers: of the query, with what a ns is worth to each. room: what is free, in words.
    """
    facts: dict[str, str] = {}
    missed: list[str] = []
    for at, price_ns in readers:
        row = found.rows[int(found.demands.readers.synopsis[at])]
        aggregate, curve = found.readers[at][1], row.curve
        if aggregate is None:
            continue
        predicted, target = float(quotes.error[at]), float(found.demands.readers.target[at])
        name = _name(aggregate)
        if curve is None:
            kind = kind_of(aggregate, found.asked[row.asked].query).value
            if predicted > 0:
                facts[name] = f"{kind}, predicted error {predicted:.3%}"
            if predicted > target:
                missed.append(f"{name}: {_unsized_shortfall(kind, quotes, at, target)}")
            continue
        size = row.size(int(allocation.choice[found.demands.readers.synopsis[at]]))
        of_what = "" if curve.tables == 1 else " for columns that are alike"
        facts[name] = f"{curve.words(size)}, predicted error {predicted:.3%}{of_what}"
        if np.isfinite(target):
            facts[f"{name} needs"] = _needs(quotes, at)
        facts[f"{name} price"] = (
            f"error falls by {quotes.saved_per_kib[at]:.2g} per KiB and "
            f"{price_ns:.2g} per ns of each tuple"
        )
        if predicted > target:
            why = _shortfall(curve, row, quotes, at, target, room)
            if quotes.needed_bytes[at] >= 0:
                why += f", {price_ns:.2g} for each ns of each tuple"
            missed.append(f"{name}: {why}")
    return facts, missed


def _kinds(query: BoundQuery) -> str:
    """The synopses of a query none of which has a size that could be granted."""
    kinds = dict.fromkeys(kind_of(one, query) for one in query.aggregates)
    return ", ".join(kind.value for kind in kinds or (Kind.COUNT,))


def _needs(quotes: Quotes, at: int) -> str:
    needed = int(quotes.needed_bytes[at])
    if needed < 0:
        return f"no size reaches the target; the best gives {quotes.best_error[at]:.3%}"
    if needed == 0:
        return "nothing beyond the cap on its groups for its target"
    return f"{needed / _KIB:,.0f} KiB for its target"


def _room(solution: Solved, tenant: str, free_bytes: int) -> str:
    """What is free, in words, and where: what bounds a tenant is told to it."""
    if tenant not in solution.held:
        return f"{max(0, free_bytes) // _KIB:,} KiB are free"
    left = max(0, solution.held[tenant]) // _KIB
    return f"{left:,} KiB are free in the quota of tenant {tenant!r}"


def _over_quota(found: Problem, solution: Solved, tenant: str, quota: int) -> str:
    """Why a query cannot stand although there are bytes enough."""
    least = bytes_by_tenant(found, solution.allocation)[tenant]
    return (
        f"the query does not fit the quota of tenant {tenant!r}: with it, the smallest synopses of "
        f"all its queries take {least // _KIB:,} KiB, the quota is {quota // _KIB:,} KiB"
    )


def _broken(found: Problem, allocation: Allocation, tenant: str) -> list[str]:
    """Promises to others that were kept and would not be any more; told by name to their tenant."""
    readers, present = found.demands.readers, found.demands.present
    rows = readers.synopsis
    had = found.demands.options.error[rows, np.maximum(present[rows], 0)] * readers.scale
    lost = readers.promised & (present[rows] >= 0) & (had <= readers.target) & ~allocation.met
    losers = [found.asked[found.readers[at][0]] for at in np.flatnonzero(lost).tolist()]
    names = {
        one.name if one.query.schema.tenant == tenant else "another tenant's query"
        for one in losers
    }
    return [f"it fits only if {', '.join(sorted(names))} lost what was promised"] if names else []


def _shortfall(curve: Curve, row: Row, quotes: Quotes, at: int, target: float, room: str) -> str:
    """Why a target is missed, what can be had, and what more would buy."""
    if quotes.needed_bytes[at] < 0:
        return (
            f"no size reaches {target:.3%}; the largest, "
            f"{curve.bytes_of(row.sizes[-1]) // _KIB:,} KiB a pane, "
            f"gives {quotes.best_error[at]:.3%}"
        )
    return (
        f"{target:.3%} needs {quotes.needed_bytes[at] // _KIB:,} KiB, "
        f"{room}; you would get {quotes.error[at]:.3%}, "
        f"and {quotes.saved_per_kib[at]:.2g} less for each KiB more"
    )


def _unsized_shortfall(kind: str, quotes: Quotes, at: int, target: float) -> str:
    """Why a target is missed by a synopsis whose size is not chosen."""
    if quotes.needed_bytes[at] < 0:
        return f"no size reaches {target:.3%}; {kind} give {quotes.best_error[at]:.3%}"
    return f"{target:.3%} needs more of the tuples; you would get {quotes.error[at]:.3%}"


def _name(aggregate: Aggregate) -> str:
    name = aggregate.function.value.replace("_", " ").lower()
    return f"{name} {aggregate.parameter:g}" if aggregate.parameter is not None else name
