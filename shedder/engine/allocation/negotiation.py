"""Negotiated admission: the grant of a new query, and what standing queries give up for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from allocator.allocate import Allocation
from allocator.demands import Budget
from allocator.errors import NothingFits
from shedder.cql.expressions.expression import Aggregate
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Contract
from shedder.engine.allocation.demand_cache import DemandCache
from shedder.engine.allocation.grant_report import Headroom, facts_of, grant_keys
from shedder.engine.allocation.group_sizing import coarsest
from shedder.engine.allocation.problem import Problem, problem
from shedder.engine.allocation.refusal_reasons import (
    broken_by,
    does_not_fit,
    only_by_breaking,
    over_quota,
)
from shedder.engine.allocation.solver import Solution, solved
from shedder.engine.synopsis_plans.allocation_request import AllocationRequest, SynopsisSizes
from shedder.engine.synopsis_plans.error_curves import sizes_wanted
from shedder.engine.synopsis_plans.synopsis_plan import plan
from shedder.errors import BudgetExceeded, PrecisionUnavailable


@dataclass(frozen=True, slots=True)
class Grant:
    """What a query gets.

    sizes: of each sized aggregate. facts: for humans. size_bytes: what that takes, at most.
    group_bytes: the cap on the groups of each synopsis; 0 without GROUP BY.
    others: what standing queries have to become before, by name; only those that change.
    limits: what it may be given at most, later as now; None: what there is.
    grant_key: what the facts were made for; another key makes new facts.
    """

    sizes: dict[Aggregate, int]
    facts: dict[str, str]
    size_bytes: int
    group_bytes: int
    others: Mapping[str, SynopsisSizes]
    limits: SynopsisSizes | None = None
    grant_key: tuple[object, ...] = ()


def negotiate(
    query: BoundQuery,
    budget_bytes: int,
    standing: Sequence[AllocationRequest] = (),
    *,
    group_bytes_max: int,
    last: Allocation | None = None,
    levels: Sequence[int] | None = None,
    limits: SynopsisSizes | None = None,
    quotas: Mapping[str, int] = MappingProxyType({}),
    drawings: DemandCache | None = None,
) -> Grant:
    """Size the synopses of a new query, and shrink those of other queries as far as necessary.

    Other queries stay as they are if that keeps all targets. Else those that lose least yield, as
    few as suffice. If that breaks a target, the whole budget is allocated anew.

    Args:
      query: query to be registered.
      budget_bytes: bytes of all synopses.
      state: queries that are registered already.
      group_bytes_max: largest cap on the groups of one synopsis.
      last: newest solution, whose prices still hold; None: there is none.
      levels: levels at which its synopses will read; None: those of the query.
      limits: most that the query may be given; None: no limit but the budget.
      quotas: bytes by tenant; a tenant's own queries yield if its quota is short.
      drawings: cached demands of the standing queries.

    Raises:
      PrecisionUnavailable: the contract is FAIL and the target does not fit, or only by breaking
        promises to other queries. The message says what would be needed, and the prices.
      BudgetExceeded: not even the smallest synopses fit, or only by breaking promises to other
        queries. The message names the tenant whose quota is short.
    """
    sized = sizes_wanted(query)
    wanted = plan(query, sized)
    request = replace(AllocationRequest.new("the new query", query, wanted), limits=limits)
    if levels is not None:
        request = replace(request, levels=tuple(levels))
    new = len(standing)
    fitting = _Fitting(standing, budget_bytes, group_bytes_max, last, quotas, drawings)
    try:
        found, free, solution = fitting.of(request)
    except BudgetExceeded:
        smaller = coarsest(request)
        if query.target is not None or smaller.sizes == request.sizes:
            raise  # The error says what the target needs.
        found, free, solution = fitting.of(smaller)  # It becomes finer when there is more.
    [facts] = facts_of(found, solution, [new], group_bytes_max, free)
    _refuse(found, solution, facts, free)
    given = found.given(solution.allocation.choice)
    sizes = {
        aggregate: given[new].sizes[wanted.answers[at]]
        for at, aggregate in enumerate(query.aggregates)
        if aggregate in sized
    }
    others = {
        one.name: after
        for one, after in zip(standing, given, strict=False)
        if after != SynopsisSizes(one.sizes, one.group_bytes)
    }
    size_bytes, grant_key = int(facts["bytes"]), grant_keys(found, solution.allocation)[new]
    return Grant(sizes, facts, size_bytes, given[new].group_bytes, others, limits, grant_key)


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Solutions with one more query. The fields are those of `negotiate`."""

    standing: Sequence[AllocationRequest]
    budget_bytes: int
    group_bytes_max: int
    last: Allocation | None
    quotas: Mapping[str, int]
    drawings: DemandCache | None

    def of(self, request: AllocationRequest) -> tuple[Problem, Headroom, Solution]:
        """Solve the problem with a request, which is the last one in it.

        Raises:
          BudgetExceeded: the smallest synopses do not fit, or the tenant's quota is short.
        """
        found = problem(
            [*self.standing, request],
            group_bytes_max=self.group_bytes_max,
            drawings=self.drawings,
        )
        new, tenant = len(self.standing), request.query.schema.tenant
        free = Headroom.before(found, tenant, self.budget_bytes, self.quotas)
        budget = Budget(max(0, self.budget_bytes - int(found.beside_bytes.sum())))
        try:
            solution = solved(found, budget, found.rows_of([new]), self.last, self.quotas)
        except NothingFits as error:
            raise BudgetExceeded(does_not_fit(found, new, free)) from error
        if solution.held.get(tenant, 0) < 0:
            raise BudgetExceeded(over_quota(found, solution, tenant, self.quotas[tenant]))
        return found, free, solution


def _refuse(found: Problem, solution: Solution, facts: Mapping[str, str], free: Headroom) -> None:
    """The newest query is not granted what it was given, where that breaks a promise."""
    new = len(found.requests) - 1
    query = found.requests[new].query
    broken = broken_by(found, solution.allocation, query.schema.tenant)
    if query.contract is Contract.FAIL and "missed" in facts:
        raise PrecisionUnavailable("; ".join([facts["missed"], *broken]))
    if broken:
        error = PrecisionUnavailable if query.contract is Contract.FAIL else BudgetExceeded
        raise error(only_by_breaking(found, new, free, broken[0]))


def group_bytes(facts: Mapping[str, str], otherwise: int) -> int:
    """The cap on the groups of one synopsis that a query was granted."""
    return int(facts.get("group_bytes", otherwise))
