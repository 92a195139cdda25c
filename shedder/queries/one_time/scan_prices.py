"""Scan prices of a one-time question: what a second of reading on takes away of each width."""

from __future__ import annotations

import math

from shedder.cql.expressions.expression import Aggregate
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.evidence.confidence_budget import CERTAIN_ENDS
from shedder.queries.evidence.precision_parts import WidthPrices
from shedder.queries.one_time.plan import Source
from shedder.queries.one_time.plan_execution import PlanOutcome

_ONCE = "a KiB, a ns: a question that is answered once keeps no synopsis"
_NO_PACE = "a second: the archive was not read, so the pace of a scan is not known"
_NO_SAMPLE = "a second: the runs were read at several shares, so no part of all tuples is known"
_ENDS = "a second: an end of the range does not narrow as a mean does"


def scan_prices(
    query: BoundQuery, found: PlanOutcome, elapsed_s: float
) -> dict[Aggregate, WidthPrices]:
    """Return the prices of each aggregate of a question that was answered.

    The half width of a sample of a share f of all tuples is taken to be in proportion to
    sqrt((1 - f)/f), as that of a mean is (Cochran 1977, Sampling Techniques, section 2.6). The pace
    is that of the scan: f per elapsed second.

    elapsed_s: that reading and estimating took.
    """
    return {each: _price(each, found, elapsed_s) for each in query.aggregates}


def _price(aggregate: Aggregate, found: PlanOutcome, elapsed_s: float) -> WidthPrices:
    share = 1.0 if found.read is None else found.read.share
    archive = None if found.read is None else found.read.evidence.archive
    if found.source is Source.SAMPLE or elapsed_s <= 0.0:
        return WidthPrices.none(f"{_ONCE}; {_NO_PACE}")
    if aggregate.function in CERTAIN_ENDS:
        return WidthPrices.none(f"{_ONCE}; {_ENDS}")
    if archive is None or archive.given_min != archive.given_max or not 0.0 < share < 1.0:
        return WidthPrices.none(f"{_ONCE}; {_NO_SAMPLE}")
    later = min(1.0, share + share / elapsed_s)
    left = math.sqrt((1.0 - later) / later * share / (1.0 - share))
    return WidthPrices(None, None, 1.0 - left, _ONCE)
