"""What a second of reading on takes away of a width, and the steps of a plan's evidence."""

from __future__ import annotations

import pytest

from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.answers.answer import ArchiveRead
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.precision_parts import EvidenceStep, WidthPrices, interval_parts
from shedder.queries.one_time.plan import KnownSources, ScanEstimate, Source, TimeRange
from shedder.queries.one_time.plan_execution import PlanOutcome, find
from shedder.queries.one_time.scan_prices import scan_prices
from shedder.queries.one_time.source_choice import choose
from tests.queries.asking import ask, rows, truth
from tests.queries.plans import REDUCED, Archive

DATA = rows(500)


def found(query: BoundQuery, share: float, given: tuple[float, float] = (0.9, 0.9)) -> PlanOutcome:
    """A scan that read a share of all tuples. given: least and largest reduction."""
    read = ArchiveRead("uniform(0.9)", 0.9, 0.9, *given, 1, 10, 1, 10)
    evidence = Evidence((), truth(query, DATA).estimates, archive=read)
    step = EvidenceStep("archive reduction", evidence, spends=True)
    return PlanOutcome(Source.REDUCED, ScanEstimate(evidence, 0.0, share), (step,))


@pytest.mark.parametrize(
    ("share", "elapsed_s", "saved"),
    [
        (0.1, 1.0, 1 / 3),  # Of a fifth: sqrt(0.8 / 0.2 * 0.1 / 0.9) = 2/3 is left.
        (0.5, 2.0, 1 - (1 / 3) ** 0.5),  # Of three quarters: sqrt(0.25 / 0.75).
        (0.5, 0.5, 1.0),  # All tuples are read by then.
    ],
)
def test_a_second_reads_as_many_tuples_as_the_scan_did(share, elapsed_s, saved):
    query = ask("AVG(bytes) AS a FROM requests")
    [price] = scan_prices(query, found(query, share), elapsed_s).values()
    assert price.per_second == pytest.approx(saved)
    assert (price.per_kib, price.per_ns) == (None, None)


@pytest.mark.parametrize(
    ("text", "share", "given", "elapsed_s", "reason"),
    [
        ("AVG(bytes)", 0.5, (0.9, 0.9), 0.0, "the pace of a scan is not known"),
        ("AVG(bytes)", 0.5, (0.2, 0.9), 1.0, "read at several shares"),
        ("MAX(bytes)", 0.5, (0.9, 0.9), 1.0, "does not narrow as a mean does"),
    ],
)
def test_a_price_that_is_not_known_has_a_reason(text, share, given, elapsed_s, reason):
    query = ask(f"{text} AS a FROM requests")
    [price] = scan_prices(query, found(query, share, given), elapsed_s).values()
    assert price == WidthPrices(None, None, None, price.reason)
    assert reason in price.reason


def test_tuples_that_are_not_archived_are_a_step_without_a_bound():
    query, stretch = ask("COUNT(*) AS n FROM requests REDUCE BY uniform(0.5)"), TimeRange(dropped=5)
    read = ScanEstimate(truth(query, DATA), 0.0, 0.5)
    plan = choose(query, KnownSources(part=REDUCED, stretch=stretch))
    steps = find(query, plan, stretch, Archive(read=read)).steps
    [first, second, whole], hidden = interval_parts(query, steps, {})
    assert (first.part, first.lower, first.upper) == ("archive reduction", 0.0, 0.0)
    assert (second.part, second.lower, second.upper) == ("tuples that are not archived", None, None)
    assert second.reason == whole.reason
    assert "5 tuples were dropped under overload" in str(whole.reason)
    assert (whole.bound, hidden) == ("none", 0)
