"""Grant report of a query: synopses, predicted errors, needs and prices, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.allocate import Allocation
from allocator.demands import BYTES_END
from allocator.quotes import Quotes, quote
from shedder.cql.expressions.expression import Aggregate
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Contract
from shedder.cql.text.sampling_fractions import share_text
from shedder.engine.allocation.cpu_prices import cpu_prices
from shedder.engine.allocation.problem import Problem
from shedder.engine.allocation.query_demands import Row, is_known_thinned
from shedder.engine.allocation.solver import Solution, bytes_by_query
from shedder.engine.synopsis_plans.error_curves import Curve
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind, kind_of

_KIB = 1024
_REPORTED_STEPS = 16  # Per factor of two: a change of one step is reported.
_ERROR_LEAST = 1e-12  # What is less is no error.
_SMALL = 1e-4  # Of what is smaller, three places behind the point of a percentage say little.


@dataclass(frozen=True, slots=True)
class Headroom:
    """Headroom for a new query, while the standing queries stay as they are.

    quota_of: the tenant whose quota leaves no more; None: the budget does.
    """

    size_bytes: int
    quota_of: str | None = None

    @classmethod
    def before(
        cls, found: Problem, tenant: str, budget: int, quotas: Mapping[str, int]
    ) -> Headroom:
        """Compute the headroom of a problem that contains a new query of this tenant."""
        free = cls(max(0, budget - found.present_bytes))
        if tenant not in quotas:
            return free
        left = max(0, quotas[tenant] - found.present_bytes_of(tenant))
        return cls(left, tenant) if left < free.size_bytes else free


def facts_of(
    found: Problem,
    solution: Solution,
    numbers: Sequence[int],
    group_bytes_max: int,
    free: Headroom | None = None,
    *,
    priced: bool = True,
) -> list[dict[str, str]]:
    """Report the grants of queries for people: bytes, synopses, predictions, needs and prices.

    Args:
      found, solution: the problem, and its allocation.
      numbers: numbers of the queries in the problem.
      group_bytes_max: as in `problem`.
      free: headroom before the problem was solved; None: compute it after.
      priced: report prices, too; those of CPU take twenty times as long as all other columns.
    """
    allocation = solution.allocation
    quotes = quote(found.demands, allocation)
    given = found.given_to(numbers, allocation.choice)
    totals = bytes_by_query(found, allocation)
    taken = int(allocation.size_bytes.sum() + found.beside_bytes.sum())
    free_bytes = allocation.free_bytes + taken - int(totals.sum())
    needed = totals if allocation.met.all() else needed_by_query(found)
    requests = [found.requests[number] for number in numbers]
    has = [given[number] for number in numbers]
    per_ns = cpu_prices(requests, has, group_bytes_max=group_bytes_max).tolist() if priced else []
    readers: dict[int, list[int]] = {number: [] for number in numbers}
    for at, (query, _) in enumerate(found.readers):
        if query in readers:
            readers[query].append(at)
    first, all_facts = 0, []
    for number, one, got in zip(numbers, requests, has, strict=True):
        tenant = one.query.schema.tenant
        left_bytes = min(free_bytes, solution.left(tenant))
        facts = {"bytes": str(int(totals[number])), "free_bytes": str(left_bytes)}
        if one.query.groups:
            facts["group_bytes"] = str(got.group_bytes)
        own = readers[number]
        prices = per_ns[first : first + len(own)] if priced else [None] * len(own)
        first += len(own)
        kept, missed = _kept_and_missed(
            found, allocation, quotes, list(zip(own, prices, strict=True))
        )
        facts |= kept or {"synopses": _kinds(one.query)}
        if missed:
            which = "its targets" if allocation.reachable[own].all() else "what can be reached"
            there_is = _free_in_words(solution, tenant, int(totals[number]), free)
            need = f"the query needs {kib_for(int(needed[number]))} for {which}, {there_is}"
            of_bytes = (quotes.needed_bytes[own] > 0) & ~allocation.met[own]
            facts["missed"] = "; ".join([need] * bool(of_bytes.any()) + missed)
        unplanned = _unplanned(found, number, own)
        if unplanned:
            facts["not_planned"] = unplanned
        if tenant in solution.held:
            facts["limited_by"] = f"the quota of tenant {tenant!r}"
        all_facts.append(facts)
    return all_facts


def grant_keys(found: Problem, allocation: Allocation) -> list[tuple[object, ...]]:
    """Return a key for each query: its facts are made anew when the key changes.

    Its bytes, by a 32nd what its readers are expected to err by, which targets are kept, and
    whether older panes are coarser.
    """
    readers = found.demands.readers
    expected = allocation.error[readers.synopsis] * readers.scale
    steps = np.round(_REPORTED_STEPS * np.log2(np.maximum(expected, _ERROR_LEAST)))
    kept = list(zip(steps.tolist(), allocation.met.tolist(), strict=True))
    owner = np.array([query for query, _ in found.readers], np.int64)
    first = np.searchsorted(owner, np.arange(len(found.requests) + 1)).tolist()
    return [
        (size_bytes, *kept[first[at] : first[at + 1]], one.coarsest not in ((), one.sizes))
        for at, (one, size_bytes) in enumerate(
            zip(found.requests, bytes_by_query(found, allocation).tolist(), strict=True)
        )
    ]


def _kept_and_missed(
    found: Problem,
    allocation: Allocation,
    quotes: Quotes,
    readers: Sequence[tuple[int, float | None]],
) -> tuple[dict[str, str], list[str]]:
    """What is kept for each sized aggregate of a query, with its prices; what is missed.

    readers: of the query, with what a ns is worth to each; None: that is not told.
    """
    facts: dict[str, str] = {}
    missed: list[str] = []
    names = _names(found, [at for at, _ in readers])
    for at, price_ns in readers:
        row = found.rows[int(found.demands.readers.synopsis[at])]
        aggregate, curve = found.readers[at][1], row.curve
        if aggregate is None or is_known_thinned(found.requests[row.request].query, aggregate):
            continue
        expected, target = float(quotes.error[at]), float(found.demands.readers.target[at])
        name = names[at]
        if curve is None:
            kind = kind_of(aggregate, found.requests[row.request].query).value
            if expected > 0:
                facts[name] = f"{kind}, predicted error {percent(expected)}"
            if expected > target:
                missed.append(f"{name}: {_unsized_shortfall(kind, row, quotes, at, target)}")
            continue
        option = int(allocation.choice[found.demands.readers.synopsis[at]])
        scale = float(found.demands.readers.scale[at])
        predicted = found.predicted(row, option, expected, scale)
        now = found.predicted_now(row, predicted, scale)
        measured = found.expected_now(row, expected, scale)
        said = f"predicted error {percent(now)}"
        said += f" while older panes live, then {percent(predicted)}" if now > predicted else ""
        said += "" if curve.tables == 1 else " for columns that are alike"
        if percent(measured) != percent(now):
            said += f"; {percent(measured)} expected from measured answers"
        facts[name] = f"{curve.words(row.size(option))}, {said}"
        if np.isfinite(target):
            facts[f"{name} needs"] = _needs(quotes, at)
        if price_ns is not None:
            facts[f"{name} price"] = (
                f"error falls by {quotes.saved_per_kib[at]:.2g} per KiB and "
                f"{price_ns:.2g} per ns of each tuple"
            )
        if expected > target:
            why = _shortfall(curve, row, quotes, at, target)
            if quotes.needed_bytes[at] >= 0 and price_ns is not None:
                why += f", {price_ns:.2g} for each ns of each tuple"
            missed.append(f"{name}: {why}")
    return facts, missed


def _unplanned(found: Problem, number: int, own: Sequence[int]) -> str:
    """What a query was not promised, though it asks for it: what it needs is known by its values.

    That is a list of items whose counts decide, or a distance from a count that is yet to come.

    own: its readers.
    """
    query = found.requests[number].query
    if query.contract is not Contract.FAIL or query.target is None:
        return ""
    readers = found.demands.readers
    names = [
        name
        for at, name in _names(found, own).items()
        if np.isinf(readers.target[at])
        and not is_known_thinned(query, found.readers[at][1])
        and found.demands.options.error[readers.synopsis[at]].min() > 0
    ]
    if not names or not found.requests[number].active:
        return ""
    return (
        f"{', '.join(names)}: what the target needs depends on values yet to come, so nothing is "
        "set aside for it; an answer that misses it fails"
    )


def _kinds(query: BoundQuery) -> str:
    """The synopses of a query none of which has a size that could be granted."""
    kinds = dict.fromkeys(kind_of(one, query) for one in query.aggregates)
    return ", ".join(kind.value for kind in kinds or (SynopsisKind.COUNT,))


def _needs(quotes: Quotes, at: int) -> str:
    needed = int(quotes.needed_bytes[at])
    if needed < 0:
        return f"no size reaches the target; the best gives {percent(quotes.best_error[at])}"
    if needed == 0:
        return "nothing beyond the cap on its groups for its target"
    return f"{kib_for(needed)} for its target"


def needed_by_query(found: Problem) -> NDArray[np.int64]:
    """The least that each query keeps its targets with, as far as any size keeps them.

    In bytes, [queries], of all that it has: synopses without targets and panes as such with it.
    """
    options = found.demands.options
    size = np.where(np.isfinite(options.error), options.size_bytes, BYTES_END - 1)
    rows, missed = found.demands.missed()
    size[rows] = np.where(missed > 0, BYTES_END - 1, size[rows])
    total = found.beside_bytes.copy()
    np.add.at(total, [row.request for row in found.rows], size.min(1))
    return total


def _free_in_words(solution: Solution, tenant: str, has_bytes: int, free: Headroom | None) -> str:
    """What is free beside what a query has, where its need is looked at; what bounds its tenant
    is told to it.

    has_bytes: by the solution. free: as in `facts_of`.
    """
    if free is not None:
        return f"{free.size_bytes // _KIB:,} KiB are free{_in_quota(free.quota_of)}"
    left, bounds = solution.allocation.free_bytes, tenant in solution.held
    if bounds:
        left = max(0, solution.held[tenant])
    where = _in_quota(tenant if bounds else None)
    return f"it has {has_bytes // _KIB:,} KiB, and {left // _KIB:,} KiB are free{where}"


def _in_quota(tenant: str | None) -> str:
    return "" if tenant is None else f" in the quota of tenant {tenant!r}"


def kib_for(size_bytes: int) -> str:
    """Format a need, rounded up to whole KiB."""
    return f"{-(-size_bytes // _KIB):,} KiB"


def _shortfall(curve: Curve, row: Row, quotes: Quotes, at: int, target: float) -> str:
    """Return why a target is missed, what can be had, and what more would buy."""
    if quotes.needed_bytes[at] < 0:
        return (
            f"no size reaches {percent(target)}{_of_tuples(row)}; the largest, "
            f"{curve.bytes_of(row.sizes[-1]) // _KIB:,} KiB a pane, "
            f"gives {percent(quotes.best_error[at])}"
        )
    return (
        f"{percent(target)} takes {kib_for(int(quotes.needed_bytes[at]))} of that, "
        f"you would get {percent(quotes.error[at])}, "
        f"and {quotes.saved_per_kib[at]:.2g} less for each KiB more"
    )


def _of_tuples(row: Row) -> str:
    """The share that it reads, where it does not read all."""
    return f" with {share_text(row.levels[0])} of the tuples" if row.levels[0] else ""


def _unsized_shortfall(kind: str, row: Row, quotes: Quotes, at: int, target: float) -> str:
    """Return why a target is missed by a synopsis whose size is not chosen."""
    if quotes.needed_bytes[at] < 0:
        return (
            f"no size reaches {percent(target)}{_of_tuples(row)}; "
            f"{kind} give {percent(quotes.best_error[at])}"
        )
    return f"{percent(target)} needs more of the tuples; you would get {percent(quotes.error[at])}"


def percent(error: float) -> str:
    """An error, in percent: with three places, or of a small one three digits."""
    return f"{error:.3%}" if error >= _SMALL or not error else f"{error * 100:.3g}%"


def _names(found: Problem, readers: Sequence[int]) -> dict[int, str]:
    """What the aggregates of one query are called, by reader: by function; by text where several
    have the same one.
    """
    own = {at: one for at in readers if (one := found.readers[at][1]) is not None}
    called = {at: _name(one) for at, one in own.items()}
    times = Counter(called.values())
    return {at: name if times[name] == 1 else text_of(own[at]) for at, name in called.items()}


def _name(aggregate: Aggregate) -> str:
    name = aggregate.function.value.replace("_", " ").lower()
    return f"{name} {aggregate.parameter:g}" if aggregate.parameter is not None else name
