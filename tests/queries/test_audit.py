"""Every value of an answer is compared with the exact one, by what it claims."""

import dataclasses

import pyarrow as pa
import pytest

from shedder.queries.certification.audit import chances, compared, exact_query, look_at
from shedder.queries.certification.certification import AuditSample, Certification, after, marked
from tests.queries.certified import bound
from tests.spark_ingest.archives import answer


def exactly(values: dict[str, list], keys: dict[str, list]) -> pa.Table:
    cells = {name: [(v, v, v, "exact") for v in column] for name, column in values.items()}
    return answer(keys, cells, confidence=1.0)


def test_the_exact_query_has_every_group_and_what_rounding_is_measured_by():
    query = bound("SELECT k, SUM(x) AS s FROM r GROUP BY k HAVING s > 1 LIMIT 3 WITHIN 1 PERCENT")
    found = exact_query(query)
    assert (found.having, found.limit, found.target) == (None, None, None)
    assert [output.name for output in found.outputs] == ["k", "s", "__absolute0", "__count0"]
    assert len(found.aggregates) == 3


def test_a_sum_may_differ_by_rounding_and_no_more():
    query = bound("SELECT SUM(x) AS s FROM r")
    truth = exactly({"s": [1.0], "__absolute0": [1e6], "__count0": [1_000]}, {})
    for off, held in ((1e-8, True), (1e-5, False)):
        said = answer({}, {"s": [(1.0 + off, None, None, "exact")]})
        [one] = compared(query, said, truth)
        assert (one.verdict.held, one.certain, one.fresh) == (held, True, False)


def test_intervals_of_hashes_are_not_bet_on_and_certain_ones_refute():
    query = bound("SELECT COUNT(DISTINCT k) AS d, COUNT(*) AS n, AVG(k) AS m FROM r")
    cells = {
        "d": [(100, 90, 110, "interval")],
        "n": [(7, 7, 7, "exact")],
        "m": [(5.0, 4.0, 6.0, "interval")],
    }
    said = answer({}, cells)
    values = compared(query, said, exactly({"d": [150], "n": [7], "m": [6.5]}, {}))
    found = look_at(values, [], 0.95)
    assert found == AuditSample(3, 2, 1, 1, pytest.approx(0.05), "")
    wrong = compared(query, said, exactly({"d": [100], "n": [8], "m": [5.0]}, {}))
    found = look_at(wrong, [], 0.95)
    assert found is not None
    assert found.refuted == "n was said to be 7, and is 8"


def test_a_miss_of_the_strict_interval_refutes():
    query = bound("SELECT k, AVG(x) AS m FROM r GROUP BY k")
    keys = {"k": [1, 2]}
    said = answer(keys, {"m": [(5.0, 4.0, 6.0, "interval"), (5.0, 4.0, 6.0, "interval")]})
    strict = answer(keys, {"m": [(5.0, 1.0, 9.0, "interval"), (5.0, 1.0, 9.0, "interval")]})
    for true, refuted in ((8.0, ""), (9.5, "m of 2 was said to be 5 ± 80 %, and is 9.5")):
        exact = {"m": [5.0, true], "__absolute0": [5.0, true], "__count0": [1, 1]}
        truth = exactly(exact, keys)
        values, wide = (compared(query, each, truth) for each in (said, strict))
        found = look_at(values, wide, 0.95)
        assert found is not None
        assert (found.missed, found.refuted) == (1, refuted)


def test_as_many_intervals_can_miss_as_are_compared_that_are_not_exact():
    query = bound(
        "SELECT k, COUNT(*) AS n, AVG(x) AS m, HISTOGRAM(x, [0, 1]) AS h, TOP(k, 2) AS top, "
        "FREQUENT(k, 0.1) AS heavy, COUNT(*) / 2 AS half FROM r GROUP BY k"
    )
    buckets = [{"count": 2, "low": 1, "high": 3}] * 3
    items = [{"value": 1, "count": 5, "low": 4, "high": 6, "guaranteed": True}] * 2
    cells = {
        "n": [(3, 2, 4, "interval"), (1, 1, 1, "exact")],
        "m": [(3.0, None, None, "none"), (1.0, 0.0, 4.0, "interval")],
        "h": [(buckets, None, None, "interval"), (buckets, None, None, "exact")],
        "top": [(items, None, None, "interval"), (items, None, None, "exact")],
        "heavy": [(items[:1], None, None, "interval"), ([], None, None, "interval")],
        "half": [(3.0, 2.0, 4.0, "interval"), (1.0, 1.0, 1.0, "exact")],
    }
    said = answer({"k": [1, 2]}, cells)
    # n, m, three buckets, two items, one item, and which items each of three lists has.
    assert chances(query, said) == 1 + 1 + 3 + 2 + 1 + 3


def test_a_group_that_is_not_there_has_a_count_of_nothing():
    query = bound("SELECT k, COUNT(*) AS n FROM r GROUP BY k")
    said = answer({"k": [1, 2]}, {"n": [(3, 3, 3, "exact"), (1, 0, 4, "interval")]})
    values = compared(query, said, exactly({"n": [3]}, {"k": [1]}))
    assert [one.verdict.held for one in values] == [True, True]


def test_what_promises_nothing_is_not_compared():
    query = bound("SELECT AVG(x) AS m FROM r")
    said = answer({}, {"m": [(5.0, None, None, "none")]})
    truth = exactly({"m": [9.0], "__absolute0": [9.0], "__count0": [1]}, {})
    assert look_at(compared(query, said, truth), [], 0.95) is None


def test_an_answer_says_what_became_of_its_query_and_no_more_than_once():
    said = dataclasses.replace(answer({}, {"n": [(1, 1, 1, "exact")]}), notes=("late",))
    assert marked(said, Certification()) is said
    lost = after(Certification(), AuditSample(1, 1, 0, 0, 0.05, "n was said to be 1, and is 2"))
    once = marked(said, lost)
    assert (once.certified, once.notes[0]) == (False, "late")
    assert marked(once, lost).notes == ("late", "not certified: n was said to be 1, and is 2")
    assert str(once).splitlines()[-1].startswith("NOT CERTIFIED")
    assert str(marked(said, after(Certification(), AuditSample(1, 0, 0, 0, 0.05)))) == str(said)
