"""Evidence that lacks tuples which nothing holds: dropped, unreadable, or lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.late_tuple_bounds import widen_late
from shedder.streams.basics import ColumnBasics
from synopses.model.estimate import Bound

_LATE = "tuples came too late"


def allow_for(
    query: BoundQuery,
    evidence: Evidence,
    rows: int,
    basics: Mapping[str, ColumnBasics],
    *,
    became: str,
    among: Mapping[str, ColumnBasics] | None = None,
) -> Evidence:
    """The evidence with every interval wide enough for tuples that it lacks.

    They are as tuples that came too late for a pane, at any time of the window: whether they pass
    WHERE, and of which group they are, is not known.

    Args:
      query: whose evidence it is. evidence: of the others.
      rows: how many it lacks at most.
      basics: of the columns of those tuples, at least.
      became: what has become of them, in words that follow "tuples".
      among: of the columns of all tuples, those that the evidence has, too; None: `basics` are.
    """
    lacking = replace(evidence, late=rows, late_span=None)
    wide = widen_late(query, lacking, basics, became, among=among)
    estimates = {
        aggregate: replace(column, reason=column.reason.replace(_LATE, f"tuples {became}"))
        for aggregate, column in wide.estimates.items()
    }
    return replace(wide, estimates=estimates, late=evidence.late, late_span=evidence.late_span)


def of_the_others(evidence: Evidence, reason: str) -> Evidence:
    """Of tuples of which not even the number is known these say nothing."""
    return without_bounds(evidence, reason, f"{reason}; this is of the others")


def without_bounds(evidence: Evidence, reason: str, note: str) -> Evidence:
    """The evidence without any bound, for a reason, with a note on the answer."""
    estimates = {
        aggregate: replace(
            column,
            bound=np.full(len(column), np.uint8(Bound.NONE)),
            reason=column.reason or reason,
        )
        for aggregate, column in evidence.estimates.items()
    }
    return replace(evidence, estimates=estimates, notes=(*evidence.notes, note), again=None)
