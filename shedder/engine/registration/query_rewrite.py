"""Static approximation: changes of a new standing query that keep it within its limits.

Motwani et al., CIDR 2003, section 5.1: windows are reduced, samples are added and pushed down,
before the query begins; the user is told, and may refuse. A plan of panes leaves four changes:

- SLIDE, coarser: there are fewer panes and merges of them. Each answer stays an answer to the
  question, of another moment: at any time the newest one is older.
- COLLAPSE: old panes become coarser, so there are fewer. Answers come as often as they did, and
  a window begins where one of its longest cells does, which it says.
- RANGE, shorter: the same in bytes, but answers are of less time, which their window says. Never
  where that would mislead (reduced_windows.range_is_fixed).
- THINNING from the first tuple on: less CPU, wider intervals. The sample is pushed below grouping
  and aggregation, to each synopsis by itself (rewrite_words.sampled_by). It stays above WHERE:
  the basics, which make counts and extremes exact, are taken of all tuples that pass it.

Sizes of synopses are no rewrite: they are what a query is granted anyway.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from allocator.allocate import allocate
from allocator.demands import Budget
from allocator.errors import NothingFits
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Contract, Costing, RangeWindow, Rewrite
from shedder.cql.text.sampling_fractions import LEVEL_MAX
from shedder.engine.allocation.problem import problem
from shedder.engine.registration.rewrite_report import Rewritten, cost_ns, described
from shedder.engine.registration.smaller_windows import range_is_fixed, windows_of
from shedder.engine.synopsis_plans.allocation_request import AllocationRequest
from shedder.engine.synopsis_plans.error_curves import sizes_wanted
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisSpec, plan
from shedder.engine.synopsis_plans.thinning_error import skipping_error
from shedder.errors import BudgetExceeded, PrecisionUnavailable
from synopses.model.profile import CHOOSING_NS

_TRIED_MAX = 8  # Windows that fit, the mildest first, in ever larger steps.
_ROUNDS_MAX = 12
_PLENTY = 1 << 60


def rewritten(query: BoundQuery, *, free_bytes: int, group_bytes_max: int) -> Rewritten:
    """The query with the changes that keep its limits and lose least.

    Args:
      query: as asked; it has limits (`costing`).
      free_bytes: of the synopsis budget. group_bytes_max: cap on the groups of a synopsis.

    Raises:
      BudgetExceeded: no permitted change makes it fit; says which other would.
      PrecisionUnavailable: the contract is FAIL, and it would miss its target.
    """
    costing = query.costing
    assert costing is not None
    try:
        return _least_changed(query, costing, free_bytes, group_bytes_max)
    except (BudgetExceeded, PrecisionUnavailable) as problem:
        words = _what_would_fit(query, costing, free_bytes, group_bytes_max)
        raise type(problem)("; ".join([str(problem), *words])) from problem


def without_limits(query: BoundQuery, *, group_bytes_max: int) -> Rewritten:
    """The query as it would stand if memory and CPU were free: to say what a rewrite saves."""
    levels = _levels(query, Costing(None, None, ()), group_bytes_max)
    return _with_window(query, query, levels, _PLENTY, group_bytes_max)


def _least_changed(
    query: BoundQuery, costing: Costing, free_bytes: int, group_bytes_max: int
) -> Rewritten:
    if costing.size_bytes is not None:
        free_bytes = min(free_bytes, costing.size_bytes)
    levels = _levels(query, costing, group_bytes_max)
    windows = windows_of(query, costing.rewrites if costing.size_bytes is not None else ())

    @cache
    def tried(at: int) -> Rewritten:
        changed = replace(query, window=windows[at])
        return _with_window(query, changed, levels, free_bytes, group_bytes_max)

    def fits(at: int) -> bool:
        try:
            tried(at)
        except (BudgetExceeded, PrecisionUnavailable):
            return False
        return True

    # Each has fewer panes than the one before: from the first that fits on, all do, and from the
    # first that misses as few targets as the last one, all do.
    last = len(windows) - 1
    first = bisect_left(range(last), True, key=fits)
    fewest = tried(last).missed
    first = bisect_left(range(last), True, first, key=lambda at: tried(at).missed <= fewest)
    steps = np.geomspace(1, last + 1 - first, _TRIED_MAX).astype(int) - 1
    return min((tried(first + step) for step in sorted(set(steps.tolist()))), key=_lost)


def _lost(it: Rewritten) -> float:
    """What is lost, as shares of the answers.

    A window that lies d away from another one, or is shorter or longer by d, has a share d / RANGE
    of other tuples: so staleness and lost time are compared with errors.
    """
    return it.older + it.shorter + it.longer + it.error


def _with_window(
    original: BoundQuery,
    query: BoundQuery,
    levels: tuple[int, ...],
    free_bytes: int,
    group_bytes_max: int,
) -> Rewritten:
    """The best sizes of a query within so many bytes, at levels that are chosen already."""
    wanted = plan(query, sizes_wanted(query))
    found = problem(
        [replace(AllocationRequest.new("the query", query, wanted), levels=levels)],
        group_bytes_max=group_bytes_max,
    )
    own_bytes = free_bytes - int(found.beside_bytes.sum())
    try:
        allocation = allocate(found.demands, Budget(max(0, own_bytes)))
    except NothingFits as error:
        least = free_bytes - own_bytes + error.least_bytes
        raise BudgetExceeded(
            f"the query takes {least:,} bytes at least; {free_bytes:,} may be used"
        ) from error
    size_bytes = int(allocation.size_bytes.sum() + found.beside_bytes.sum())
    missed = int((~allocation.met).sum())
    if missed and query.contract is Contract.FAIL:
        raise PrecisionUnavailable(
            f"within its limits it would miss {missed} of its targets: its synopses take "
            f"{size_bytes:,} of {free_bytes:,} bytes that may be used"
        )
    older = shorter = longer = 0.0
    if isinstance(original.window, RangeWindow) and isinstance(query.window, RangeWindow):
        older = (query.window.slide_us - original.window.slide_us) / (2 * original.window.range_us)
        shorter = 1 - query.window.range_us / original.window.range_us
        if query.window.collapse != original.window.collapse:
            earlier_us = query.window.resolution_us - query.window.width_us
            longer = earlier_us / (2 * original.window.range_us)
    readers = found.demands.readers
    return Rewritten(
        query=query,
        plan=wanted,
        levels=levels,
        given=found.given(allocation.choice)[0],
        size_bytes=size_bytes,
        ns_per_tuple=cost_ns(wanted.parts, levels, grouped=bool(query.groups)),
        older=older,
        shorter=shorter,
        longer=longer,
        error=float((allocation.error[readers.synopsis] * readers.scale).sum()),
        missed=missed,
        skipping=_skipping(query, wanted.parts, levels),
    )


def _levels(query: BoundQuery, costing: Costing, group_bytes_max: int) -> tuple[int, ...]:
    """The levels that the query asks for, or those that lose least within the limit of CPU.

    They depend neither on the window nor on sizes. What a synopsis takes depends a little on the
    others: rows are counted at the smallest level of all, and choosing the rows of a level is paid
    once. What that adds is taken off the limit, and the allocator asked again.
    """
    kept = plan(query, sizes_wanted(query))
    grouped, limit = bool(query.groups), costing.ns_per_tuple
    levels = (query.thinning,) * len(kept.parts)
    takes = cost_ns(kept.parts, levels, grouped=grouped)
    if limit is None or takes <= limit:
        return levels
    if Rewrite.THINNING not in costing.rewrites:
        raise BudgetExceeded(f"the query takes {takes:.1f} ns per tuple; {limit:g} may be used")
    free = replace(AllocationRequest.new("the query", query, kept), levels=levels, tuples_per_s=1.0)
    found = problem(
        [free], group_bytes_max=group_bytes_max, levels=range(query.thinning, LEVEL_MAX + 1)
    )
    left_ns = limit
    for _ in range(_ROUNDS_MAX):
        try:
            allocation = allocate(found.demands, Budget(_PLENTY, max(0.0, left_ns)))
        except NothingFits:
            break
        levels = found.levels(allocation.choice)[0]
        takes = cost_ns(kept.parts, levels, grouped=grouped)
        if takes <= limit:
            return levels
        left_ns -= max(takes - limit, CHOOSING_NS / 2)
    least = min(
        cost_ns(kept.parts, (level,) * len(kept.parts), grouped=grouped)
        for level in range(query.thinning, LEVEL_MAX + 1)
    )
    raise BudgetExceeded(
        f"the query takes {least:.1f} ns per tuple at least, however few it reads; "
        f"{limit:g} may be used"
    )


def _skipping(
    query: BoundQuery, parts: Sequence[SynopsisSpec], levels: Sequence[int]
) -> tuple[float, ...]:
    grouped = bool(query.groups)
    errors = (skipping_error(part.kind, 0.0, query.confidence, grouped=grouped) for part in parts)
    return tuple(float(error[level]) for error, level in zip(errors, levels, strict=True))


def _what_would_fit(
    query: BoundQuery, costing: Costing, free_bytes: int, group_bytes_max: int
) -> list[str]:
    """Return why what is permitted is not enough, and what else would do."""
    found = []
    fixed = range_is_fixed(query)
    if fixed is not None and Rewrite.RANGE in costing.rewrites and costing.size_bytes is not None:
        found.append(f"RANGE is not shortened: {fixed}")
    lacking = [rewrite for rewrite in Rewrite if rewrite not in costing.rewrites]
    for more in [[each] for each in lacking] + [lacking]:
        permitted = tuple(r for r in Rewrite if r in more or r in costing.rewrites)
        freer = replace(costing, rewrites=permitted)
        try:
            it = _least_changed(query, freer, free_bytes, group_bytes_max)
        except (BudgetExceeded, PrecisionUnavailable):
            continue
        words = ", ".join(r.value for r in permitted)
        changes = described(query, it).get("rewrite", "")
        return [*found, f"REWRITE {words} would make it fit: {changes}"]
    return found
