"""Sizes of sketches with GROUP BY, in a full solution: coarser ones leave room for more groups.

The bytes that groups need depend on the size of their sketches, and the error of answers on both.
Each of the allocator's options is of one demand, so the sizes of a query's groups are set first. At
the price of a byte, each query alone finds the sizes with the least loss and cost, as each synopsis
does (allocator/prices.py). Then the whole budget is allocated with these sizes, which gives another
price, and so on a few times. The best allocation is taken, and never one that is worse than the
present one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from allocator.demands import Penalty
from allocator.errors import NothingFits
from allocator.prices import best_response
from shedder.engine.allocation.problem import Problem, problem
from shedder.engine.allocation.query_demands import offered_sizes, readers_of, tied
from shedder.engine.allocation.solver import Solution
from shedder.engine.synopsis_plans.allocation_request import AllocationRequest
from shedder.engine.synopsis_plans.error_curves import SIZED, curve_of
from shedder.engine.synopsis_plans.memory_footprint import copies_of, pane_bytes
from shedder.engine.synopsis_plans.synopsis_plan import with_sizes
from shedder.engine.synopsis_plans.thinning_error import skipping_error
from shedder.queries.evidence.confidence_budget import EXACT_IN_PANES, split_confidence

_ROUNDS_MAX = 4
_DEARER = 4.0  # Times: bytes at whose price more is wanted than there is.
_STEPS = range(-4, 7)  # Halvings of all sketches of a query at once.
_WORTH = 0.98  # Part of the present loss. A change has to lose less than this.

Solve = Callable[[Sequence[AllocationRequest]], tuple[Problem, Solution]]


def solved_with_sizes(
    requests: Sequence[AllocationRequest], solve: Solve, *, group_bytes_max: int
) -> tuple[Problem, Solution]:
    """Share out everything, the sizes of groups' sketches with it.

    Args:
      requests: all queries, as they are.
      solve: a full solution with the sizes of groups' sketches as they are.
      group_bytes_max: as in `problem`.

    Returns:
      the problem that is best, whose queries have their sketches' sizes, and its solution.

    Raises:
      allocator.errors.NothingFits: nothing fits, however coarse sketches are.
    """
    able = [number for number, one in enumerate(requests) if one.stands and _coarser(one)]
    now = list(requests)
    try:
        best = found, solution = solve(now)
    except NothingFits:
        now = [coarsest(one) if at in able else one for at, one in enumerate(now)]
        best = found, solution = solve(now)
    penalty = found.demands.penalty()
    least = _lost(found, solution, penalty)
    per_byte = solution.allocation.per_byte
    for _ in range(_ROUNDS_MAX if able else 0):
        then = list(now)
        for number in able:
            then[number] = _cheapest(
                requests[number], now[number], per_byte, penalty, group_bytes_max=group_bytes_max
            )
        if [one.sizes for one in then] == [one.sizes for one in now]:
            break
        try:
            found, solution = solve(then)
        except NothingFits:
            per_byte = max(_DEARER * per_byte, least / sum(map(_needed, then)))
            continue
        now, per_byte = then, solution.allocation.per_byte
        lost = _lost(found, solution, penalty)
        if lost < least:
            best, least = (found, solution), lost
    return best


def of_sizes(request: AllocationRequest, sizes: Sequence[int]) -> AllocationRequest:
    """A query as it would be if its parts had these sizes."""
    share = request.needed_share(sizes)

    def scaled(size_bytes: int) -> int:
        return round(size_bytes * share)

    return replace(
        request,
        plan=with_sizes(request.plan, sizes),
        held_bytes=scaled(request.held_bytes),
        needed_bytes=scaled(request.needed_bytes),
        grown_bytes=scaled(request.grown_bytes),
        foreseen=tuple(map(scaled, request.foreseen)),
    )


def variants(request: AllocationRequest) -> list[AllocationRequest]:
    """A query with all of its sketches coarser or finer by the same factor, and as it is."""
    offered = _offered(request)
    found = {request.sizes: request}
    for steps in _STEPS:
        sizes = list(request.sizes)
        for parts, sizes_of in offered:
            part = request.plan.parts[parts[0]]
            aim = math.log2(pane_bytes(part, part.size)) - steps
            near = min(sizes_of, key=lambda size: abs(math.log2(pane_bytes(part, size)) - aim))
            for at in parts:
                sizes[at] = near
        if tuple(sizes) not in found:
            found[tuple(sizes)] = of_sizes(request, sizes)
    return list(found.values())


def coarsest(request: AllocationRequest) -> AllocationRequest:
    """A query with the sketches that take least, where it has groups; else as it is."""
    return min(variants(request), key=_needed) if request.query.groups else request


def _needed(request: AllocationRequest) -> int:
    return max(request.needed_bytes, _of_one_group(request) // len(request.plan.parts))


def _of_one_group(request: AllocationRequest) -> int:
    """What one group in every pane takes, whatever its cap."""
    return copies_of(request.query) * sum(
        pane_bytes(part, part.size) for part in request.plan.parts if part.kind in SIZED
    )


def _coarser(request: AllocationRequest) -> bool:
    """Return whether groups are known to take less room with coarser sketches."""
    if not request.query.groups:
        return False
    is_bound = _of_one_group(request) > len(request.plan.parts) * request.group_bytes
    return is_bound or min(request.halved, default=1.0) < 1.0


def _offered(request: AllocationRequest) -> list[tuple[tuple[int, ...], Sequence[int]]]:
    """The sizes of each part that has any; those that are compared with each other are one."""
    confidences = split_confidence(request.query, EXACT_IN_PANES)
    found = []
    for parts in tied(request.plan):
        first, readers = request.plan.parts[parts[0]], readers_of(request, parts)
        if first.kind not in SIZED:
            continue
        confidence = confidences[readers[0]]
        skipped = skipping_error(
            first.kind,
            request.tuples,
            confidence,
            grouped=bool(request.query.groups),
            factor=request.skipping_factor(parts[0]),
        )
        curve = curve_of(request.query, readers[0], confidence, request.factor(parts[0]))
        level = request.levels[parts[0]]
        found.append((parts, offered_sizes(request, parts, curve, skipped=float(skipped[level]))))
    return [(parts, sizes) for parts, sizes in found if sizes]


def _cheapest(
    before: AllocationRequest,
    now: AllocationRequest,
    per_byte: float,
    penalty: Penalty,
    *,
    group_bytes_max: int,
) -> AllocationRequest:
    """Of what a query may be, what loses least with what it costs; it stays for little more."""

    def paid(one: AllocationRequest) -> float:
        demands = problem([one], group_bytes_max=group_bytes_max).demands
        loss = demands.ranked_loss(penalty)
        return float(best_response(loss, demands.options, per_byte, 0.0)[1].sum())

    choices = variants(before)
    costs = [paid(one) for one in choices]
    at = int(np.argmin(costs))
    stays = [cost for one, cost in zip(choices, costs, strict=True) if one.sizes == now.sizes]
    return now if stays and stays[0] * _WORTH <= costs[at] else choices[at]


def _lost(found: Problem, solution: Solution, penalty: Penalty) -> float:
    """By all, with what promises count that are not kept."""
    loss = found.demands.ranked_loss(penalty)
    choice = solution.allocation.choice
    return float(loss[np.arange(len(choice)), choice].sum())
