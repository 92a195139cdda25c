"""Intervals of the groups that HAVING, ORDER BY and LIMIT choose by estimates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy import stats

from shedder.cql.expressions.expression import Aggregate
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.answers.answer import Answer, MissingGroups
from shedder.queries.evidence.answer_builder import finish, shown_evidence
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.sampling.from_sample import evidence_from_sample
from synopses.model.estimate import Estimates
from tests.queries.asking import ask, between, evidence
from tests.queries.sampled import evidence_from_parts, stream_of, view_of
from tests.truth import gate

GROUPED = "client, COUNT(*) AS n FROM requests GROUP BY client "
EQUAL = np.full(1_000, 40)
APART = np.concatenate([np.full(5, 4_000), np.full(500, 40)])
ZIPF = (40_000 / np.sum(1 / np.arange(1, 1_001)) / np.arange(1, 1_001)).astype(np.int64)
READ = 2_500

Source = Callable[[BoundQuery, pa.RecordBatch, int], Evidence]


def live(query: BoundQuery, data: pa.RecordBatch, seed: int) -> Evidence:
    return evidence_from_sample(query, view_of(data, READ, seed))


def in_parts(query: BoundQuery, data: pa.RecordBatch, seed: int) -> Evidence:
    return evidence_from_parts(query, data, READ, seed)


def answers(
    text: str, counts: Sequence[int], source: Source, trials: int
) -> Iterator[tuple[Answer, Answer]]:
    """Answers of a query, and of the same evidence with every group."""
    data, query = stream_of(counts), ask(text)
    every = replace(query, having=None, order=(), limit=None)
    for seed in range(trials):
        found = source(query, data, seed)
        yield finish(query, found), finish(every, found)


def held(answer: Answer, counts: Sequence[int]) -> list[bool]:
    rows = answer.rows()
    return [row["n_low"] <= counts[row["client"]] <= row["n_high"] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "chosen", "trials"),
    [
        (live, "ORDER BY n DESC LIMIT 5", 4),
        (live, "HAVING COUNT(*) > 70", 4),
        (in_parts, "ORDER BY n DESC LIMIT 2", 16),
        (in_parts, "HAVING COUNT(*) > 70", 4),
    ],
)
def test_intervals_of_the_largest_of_equal_groups_hold_as_often_as_they_say(source, chosen, trials):
    found = list(answers(GROUPED + chosen, EQUAL, source, trials))
    hits = [hit for answer, _ in found for hit in held(answer, EQUAL)]
    every = [held(whole, EQUAL) for _, whole in found]
    assert len(hits) >= 20
    assert sum(hits) >= gate(len(hits), 0.95)
    assert sum(map(sum, every)) >= gate(sum(map(len, every)), 0.95)
    assert not any(row["certain"] for answer, _ in found for row in answer.rows())


@pytest.mark.slow
def test_intervals_of_groups_well_apart_are_hardly_wider_than_before_the_choice():
    found = list(answers(GROUPED + "ORDER BY n DESC LIMIT 5", APART, live, 10))
    hits = [hit for answer, _ in found for hit in held(answer, APART)]
    assert sum(hits) >= gate(len(hits), 0.95)
    for answer, whole in found:
        before = {row["client"]: row["n_high"] - row["n_low"] for row in whole.rows()}
        for row in answer.rows():
            assert row["n_high"] - row["n_low"] <= 1.05 * before[row["client"]]
            assert row["certain"]


@pytest.mark.slow
def test_a_group_that_is_certain_is_one_of_the_largest():
    found = list(answers(GROUPED + "ORDER BY n DESC LIMIT 20", ZIPF, live, 6))
    certain = [row["client"] for answer, _ in found for row in answer.rows() if row["certain"]]
    assert len(certain) >= len(found)
    assert all(client < 20 for client in certain)


def test_a_target_is_judged_by_the_interval_that_is_shown():
    data, query = stream_of(EQUAL[:200]), ask(GROUPED + "ORDER BY n DESC LIMIT 5 WITHIN 90 PERCENT")
    found = evidence_from_sample(query, view_of(data, 2_000))
    whole = finish(replace(query, order=(), limit=None), found)
    before = {row["client"]: row["n_met"] for row in whole.rows()}
    shown = finish(query, found).rows()
    for row in shown:
        reach = max(row["n_high"] - row["n"], row["n"] - row["n_low"])
        assert row["n_met"] == (reach <= 0.9 * row["n"])
    assert all(before[row["client"]] for row in shown)
    assert not all(row["n_met"] for row in shown)


def test_an_answer_says_at_which_confidence_shown_groups_were_asked():
    query = ask(GROUPED + "ORDER BY n DESC LIMIT 5")
    answer = finish(query, live(query, stream_of(EQUAL), 1))
    assert answer.confidence == pytest.approx(0.95)
    [note] = [note for note in answer.notes if note.startswith("chosen by estimates")]
    assert "99.97" in note  # 1 - delta 5/930, and a little less for the rest of delta.
    assert note in answer.explain()


def test_groups_chosen_by_what_is_exact_pay_nothing():
    text = "client, AVG(bytes) AS a FROM requests GROUP BY client ORDER BY client, a LIMIT 5"
    query, data = ask(text), stream_of(EQUAL)
    found = live(query, data, 1)
    every = finish(replace(query, limit=None), found).table.slice(0, 5)
    assert finish(query, found).table.drop(["certain"]).equals(every.drop(["certain"]))


def test_intervals_that_cannot_be_asked_again_claim_less_and_make_nothing_certain():
    query = ask("domain, COUNT(*) AS n FROM requests GROUP BY domain ORDER BY n DESC LIMIT 2")
    counts = between([30, 20, 10, 5], [28, 18, 9, 4], [32, 22, 11, 6])
    answer = finish(query, evidence(query, [list("abcd")], counts))
    assert answer.confidence == pytest.approx(0.9)
    assert answer.table["certain"].to_pylist() == [False, False]
    assert any("hold with less than 95 %" in note for note in answer.notes)
    assert not any("asked at" in note for note in answer.notes)


@pytest.mark.parametrize(
    ("key", "largest", "certain"),
    [
        ("COUNT(*)", 18.0, [True, True]),
        ("COUNT(*)", 25.0, [True, False]),
        ("AVG(bytes)", 5.0, [False, False]),  # A group of four tuples may have any average.
        ("COUNT(*)", None, [False, False]),
    ],
)
def test_no_place_within_a_limit_is_certain_that_a_missing_group_may_have(key, largest, certain):
    query = ask(f"domain, {key} AS n FROM requests GROUP BY domain ORDER BY n DESC LIMIT 2")
    values = between([30, 20, 10], [28, 18, 9], [32, 22, 11], 1.0)
    missing = MissingGroups(largest, 1.0, "none was read")
    found: Any = evidence(query, [list("abc")], values)
    answer = finish(query, replace(found, missing=missing))
    assert answer.table["certain"].to_pylist() == certain


def evidence_of(
    query: BoundQuery,
    values: Mapping[str, NDArray[np.float64]],
    exact: NDArray[np.bool_],
    shares: list[float],
) -> Evidence:
    """Normal estimates with deviation 1, by the name of the function; counts are never exact.

    shares: gets each part of delta that is asked.
    """
    keys = (pa.array([str(each) for each in range(len(exact))]),)

    def again(
        share: float, of: Collection[Aggregate], rows: NDArray[np.int64] | None = None
    ) -> Evidence:
        shares.append(share)
        width = stats.norm.isf(0.05 * share / 2)
        is_interval = {"AVG": ~exact, "COUNT": np.ones(len(exact), np.bool_)}
        found = {
            each: Estimates(
                (at := values[each.function.name]),
                at - width * is_interval[each.function.name],
                at + width * is_interval[each.function.name],
                is_interval[each.function.name].astype(np.uint8),
                np.zeros(len(exact), np.bool_),
                1.0 - 0.05 * share,
                "normal",
            )
            for each in of
        }
        evidence = Evidence(keys, found, again=again)
        return evidence if rows is None else evidence.take(rows)

    return again(1.0, query.aggregates)


@pytest.mark.parametrize("more", ["", ", COUNT(*) AS c"])
def test_exact_values_that_are_shown_do_not_let_the_intervals_of_their_column_miss(more):
    text = f"domain, AVG(bytes) AS n{more} FROM requests GROUP BY domain ORDER BY n DESC LIMIT 100"
    query = ask(text)
    exact = np.arange(595) < 95
    truth = np.where(exact, 30.0, 10.0)
    hits: list[bool] = []
    for seed in range(10):
        noise = np.where(exact, 0.0, np.random.default_rng(seed).standard_normal(len(truth)))
        rows = finish(
            query, evidence_of(query, {"AVG": truth + noise, "COUNT": truth}, exact, [])
        ).rows()
        hits += [row["n_low"] <= 10 <= row["n_high"] for row in rows if row["n_bound"] != "exact"]
    assert len(hits) == 50
    assert sum(hits) >= gate(len(hits), 0.95)


def test_exact_values_that_are_shown_cost_the_intervals_beside_them_nothing():
    query = ask("domain, AVG(bytes) AS n FROM requests GROUP BY domain ORDER BY n DESC LIMIT 100")
    exact, values = np.arange(600) < 95, np.repeat([100.0, 80.0, 0.0], [95, 5, 500])
    rows = finish(query, evidence_of(query, {"AVG": values}, exact, [])).rows()
    assert [row["n_bound"] for row in rows].count("interval") == 5
    widths = [row["n_high"] - row["n_low"] for row in rows if row["n_bound"] == "interval"]
    assert max(widths) <= 1.05 * 2 * stats.norm.isf(0.025)


def test_all_intervals_that_certain_rests_on_spend_delta_together():
    text = "domain, COUNT(*) AS n FROM requests GROUP BY domain HAVING AVG(bytes) > 5 "
    values = {"COUNT": np.array([40.0, 30.0, 20.0]), "AVG": np.full(3, 50.0)}
    spent = []
    for order in ("", "ORDER BY n DESC", "ORDER BY AVG(bytes)"):
        shares: list[float] = []
        query = ask(text + order)
        finish(query, evidence_of(query, values, np.zeros(3, np.bool_), shares))
        decided_by = {"AVG"} | ({"COUNT"} if "n DESC" in order else set())
        spent.append(min(shares) * len(decided_by) * 3)
    assert max(spent) <= 1.0
    assert min(spent) >= 0.7


def test_the_row_of_others_is_not_among_the_groups_that_could_have_been_chosen():
    query = ask("domain, AVG(bytes) AS n FROM requests GROUP BY domain ORDER BY n DESC LIMIT 1")
    values, exact = np.array([9.0, 5.0, 5.0, 5.0]), np.zeros(4, np.bool_)
    found = replace(evidence_of(query, {"AVG": values}, exact, []), others=0)
    answer = finish(query, found)
    assert answer.others == 1
    [note] = [note for note in answer.notes if note.startswith("chosen by estimates")]
    assert "out of 3 groups" in note


@pytest.mark.parametrize("chosen", ["ORDER BY n DESC LIMIT 5", "HAVING COUNT(*) > 70", ""])
def test_the_evidence_of_shown_rows_has_the_intervals_that_the_answer_shows(chosen: str):
    query = ask(GROUPED + chosen)
    found = live(query, stream_of(EQUAL), 1)
    answer, shown = finish(query, found), shown_evidence(query, found)
    [counts] = shown.estimates.values()
    assert shown.keys[0].to_pylist() == answer.table["client"].to_pylist()
    assert np.rint(counts.low).tolist() == answer.table["n_low"].to_pylist()
    assert np.rint(counts.high).tolist() == answer.table["n_high"].to_pylist()
