"""Rewrite report: the changes of a rewritten query, and their costs and savings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import RangeWindow
from shedder.cql.text.durations import duration_text
from shedder.cql.text.sampling_fractions import share_text
from shedder.engine.synopsis_plans.allocation_request import SynopsisSizes
from shedder.engine.synopsis_plans.cpu_costs import costs_ns
from shedder.engine.synopsis_plans.synopsis_plan import BY_HASH, SynopsisPlan, SynopsisSpec
from shedder.engine.synopsis_plans.thinning_levels import outputs_of
from synopses.model.profile import CHOOSING_NS


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A query as it will stand.

    query: with its window as asked, or reduced. plan, levels: its synopses, and what they read.
    given: the largest sizes that keep the limits. size_bytes, ns_per_tuple: what all that takes.
    older: so much older, as a share of RANGE, the newest answer is in the mean.
    shorter: the share of RANGE that answers do not cover any more. longer: so much more they cover
      in the mean.
    error: all predicted errors of its aggregates, added up. missed: targets these miss.
    skipping: what skipped tuples are predicted to cost, per synopsis.
    """

    query: BoundQuery
    plan: SynopsisPlan
    levels: tuple[int, ...]
    given: SynopsisSizes
    size_bytes: int
    ns_per_tuple: float
    older: float
    shorter: float
    longer: float
    error: float
    missed: int
    skipping: tuple[float, ...]


def sampled_by(part: SynopsisSpec) -> str:
    """What a sample is pushed down to a synopsis as: "rows", or "values" of what it counts.

    A share of the rows is a share of every sum, and leaves averages, ranks and frequencies what
    they are. It is no share of the distinct values: those that come often are all in it. A share of
    the values with all their rows is one; and, by one hash on both sides of a comparison of sets,
    of their union and intersection too.
    """
    return "values" if part.kind in BY_HASH else "rows"


def cost_ns(parts: Sequence[SynopsisSpec], levels: Sequence[int], *, grouped: bool) -> float:
    """CPU of synopses per arriving tuple at these levels, with the choosing of rows."""
    each = [float(costs_ns(p, grouped=grouped)[j]) for p, j in zip(parts, levels, strict=True)]
    return sum(each) + CHOOSING_NS * len(set(levels) - {0})


def described(original: BoundQuery, it: Rewritten) -> dict[str, str]:
    """What a rewrite changes and what that costs, for humans; {} where nothing is changed."""
    changes, lost = _window_changes(original, it)
    for level in sorted(set(it.levels) - {original.thinning}):
        parts = [at for at, own in enumerate(it.levels) if own == level]
        named = ", ".join(outputs_of(it.query, it.plan, parts))
        if not named:
            continue  # A row count that no output needs.
        ways = sorted({sampled_by(it.plan.parts[at]) for at in parts if at} or {"rows"})
        changes.append(f"{named} read {share_text(level)} of the {' and '.join(ways)}")
        worst = max(it.skipping[at] for at in parts)
        lost.append(f"{named}: ± {worst:.2%} by skipping, of a million tuples")
    if not changes:
        return {}
    return {"rewrite": "; ".join(changes), "rewrite_costs": "; ".join(lost), "asked": original.text}


def savings(before: Rewritten, after: Rewritten) -> str:
    """What a rewrite saves against the query as it was asked."""
    return (
        f"{after.size_bytes:,} bytes instead of {before.size_bytes:,}, "
        f"{after.ns_per_tuple:.1f} ns per tuple instead of {before.ns_per_tuple:.1f}"
    )


def _window_changes(original: BoundQuery, it: Rewritten) -> tuple[list[str], list[str]]:
    changes, lost = [], []
    before, after = original.window, it.query.window
    if isinstance(before, RangeWindow) and isinstance(after, RangeWindow):
        if before.slide_us != after.slide_us:
            new, old = duration_text(after.slide_us), duration_text(before.slide_us)
            changes.append(f"SLIDE {new} instead of {old}")
            later_us = after.slide_us - before.slide_us
            lost.append(f"the newest answer is up to {duration_text(later_us)} older")
        if before.collapse != after.collapse:
            assert after.collapse is not None
            changes.append(f"COLLAPSE BY {after.collapse.rate} AFTER {after.collapse.depth}")
            earlier = duration_text(after.resolution_us - after.width_us)
            lost.append(f"a window begins up to {earlier} earlier, as it says")
        if before.range_us != after.range_us:
            new, old = duration_text(after.range_us), duration_text(before.range_us)
            changes.append(f"RANGE {new} instead of {old}")
            lost.append(f"answers are of {1 - it.shorter:.0%} of the time")
    return changes, lost
