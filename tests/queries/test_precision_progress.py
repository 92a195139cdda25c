"""How far an answer is from its target, and the confidence that looks leave it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shedder.queries.answers.answer import MissingGroups
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.one_time.precision_progress import at_look, claimed, error_of
from shedder.queries.sampling.from_sample import evidence_from_sample
from synopses.model.estimate import Bound, Estimates
from tests.queries.asking import ask, between, evidence, known, rows
from tests.queries.sampled import view_of

AVERAGE = "AVG(bytes) AS a FROM requests"
INF = float("inf")


@pytest.mark.parametrize(
    ("target", "low", "high", "error"),
    [
        ("10 PERCENT", 95.0, 105.0, 0.5),
        ("1 PERCENT", 97.0, 101.0, 3.0),
        ("2 ABSOLUTE", 97.0, 101.0, 1.5),
        ("1 PERCENT", 100.0, 100.0, 0.0),
    ],
)
def test_the_error_is_the_larger_half_width_by_what_is_allowed(target, low, high, error):
    query = ask(f"{AVERAGE} WITHIN {target}")
    found = error_of(query, evidence(query, (), between([100.0], [low], [high])))
    assert found == pytest.approx(error)


def test_the_widest_value_of_all_groups_counts_but_for_those_not_shown():
    text = "domain, AVG(bytes) AS a FROM requests GROUP BY domain"
    columns = between([100.0, 10.0], [99.0, 8.0], [101.0, 12.0], 1.0)
    for more, error in (("", 20.0), (" ORDER BY a DESC LIMIT 1", 1.0)):
        query = ask(f"{text}{more} WITHIN 1 PERCENT")
        assert error_of(query, evidence(query, [["x", "y"]], columns)) == pytest.approx(error)


def test_whole_numbers_that_no_double_holds_have_an_error_too():
    """A question with a target whose answer was such a number failed."""
    value = 2**60 + 1
    low, high = value - value // 20, value + value // 20
    whole = Estimates(
        np.array([value]),
        np.array([low]),
        np.array([high]),
        np.array([Bound.INTERVAL], np.uint8),
        np.array([False]),
        0.95,
        "test",
    )
    query = ask("SUM(client) AS a FROM requests WITHIN 10 PERCENT")
    assert error_of(query, evidence(query, (), whole)) == pytest.approx(0.5)


def test_a_value_without_a_bound_is_infinitely_far():
    query = ask(f"{AVERAGE} WITHIN 1 PERCENT")
    none = Estimates(
        np.array([5.0]),
        np.array([-INF]),
        np.array([INF]),
        np.array([Bound.NONE], np.uint8),
        np.array([False]),
        0.95,
        "test",
    )
    assert error_of(query, evidence(query, (), none)) == INF


def test_a_value_of_zero_that_is_not_exact_is_infinitely_far():
    query = ask(f"{AVERAGE} WITHIN 1 PERCENT")
    assert error_of(query, evidence(query, (), between([0.0], [-1.0], [1.0]))) == INF


def test_without_a_row_nothing_is_met():
    query = ask("domain, COUNT(*) AS n FROM requests GROUP BY domain WITHIN 1 PERCENT")
    assert error_of(query, evidence(query, [[]], between([], [], []))) == INF


def test_exact_values_meet_everything():
    query = ask("COUNT(*) AS n FROM requests WITHIN 0.001 PERCENT ELSE FAIL")
    assert error_of(query, evidence(query, (), known(7))) == 0.0


def test_ranks_are_judged_as_ranks():
    text = "MEDIAN(bytes) AS m FROM requests WITHIN {} RANK"
    view = view_of(rows(6_000), 1_000)
    for size, met in ((0.2, True), (0.01, False)):
        query = ask(text.format(size))
        error = error_of(query, evidence_from_sample(query, view))
        assert (error <= 1.0) is met
        assert error < INF


def test_a_list_that_misses_is_infinitely_far():
    query = ask("TOP(client, 3) AS t FROM requests WITHIN 0.1 PERCENT")
    assert error_of(query, evidence_from_sample(query, view_of(rows(6_000), 100))) == INF


def test_a_look_asks_for_more_and_claims_what_was_asked():
    query = ask(f"{AVERAGE} WITHIN 1 PERCENT CONFIDENCE 90 PERCENT")
    first_look = at_look(query, 0)
    assert first_look.confidence > 0.98
    missing = MissingGroups(9.0, first_look.confidence)
    found = evidence(first_look, (), between([1.0], [0.0], [2.0], first_look.confidence))
    evidence_claimed = claimed(query, 0, Evidence((), found.estimates, missing=missing))
    assert finish(query, evidence_claimed).confidence == pytest.approx(0.9)
    assert evidence_claimed.missing.confidence == pytest.approx(0.9)


def test_a_column_that_spent_twice_its_part_does_not_claim_all_of_it():
    """An output of two aggregates at one's price each holds with less."""
    query = ask(f"{AVERAGE} WITHIN 1 PERCENT")
    part = 1 - at_look(query, 0).confidence
    found = evidence(query, (), between([1.0], [0.0], [2.0], 1 - 2 * part))
    assert finish(query, claimed(query, 0, found)).confidence == pytest.approx(0.9)


SEVERAL = "AVG(bytes) AS a, LAST(bytes) AS l FROM requests WITHIN 10 PERCENT"


@pytest.mark.parametrize(
    ("contract", "error"), [("WIDEN", 0.5), ("OMIT", 0.5), ("EXACT", INF), ("FAIL", INF)]
)
def test_an_output_without_a_bound_decides_only_where_no_value_may_miss(contract, error):
    """One LAST beside an average that meets its target sent the whole statement to the archive."""
    none = replace(between([5.0], [-INF], [INF]), bound=np.array([Bound.NONE], np.uint8))
    query = ask(f"{SEVERAL} ELSE {contract}")
    found = evidence(query, (), between([100.0], [95.0], [105.0]), none)
    assert error_of(query, found) == pytest.approx(error)


def test_an_output_without_a_bound_decides_beside_exact_ones():
    none = replace(between([5.0], [-INF], [INF]), bound=np.array([Bound.NONE], np.uint8))
    query = ask(SEVERAL)
    assert error_of(query, evidence(query, (), known(7), none)) == INF
