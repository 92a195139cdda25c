"""The part of delta of chosen groups, against all levels asked of all groups."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate, Expression
from shedder.queries.evidence.decision_share import LEVELS, doubled, share_of_shown
from shedder.queries.evidence.delta_shares import at_delta_share
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.having_order_limit import first_key, having_outcomes
from shedder.queries.evidence.output_columns import Groups
from shedder.queries.sampling.from_sample import evidence_from_sample
from tests.queries.asking import ask
from tests.queries.sampled import stream_of, view_of

EQUAL = np.full(400, 40)
APART = np.concatenate([np.full(5, 2_000), np.full(300, 40)])
ZIPF = 6_000 // np.arange(1, 401)
SPREAD = np.rint(np.exp(np.linspace(2.0, 7.0, 200))).astype(np.int64)
SPENT = 0.95


def decisions_of(groups: Groups) -> list[Expression]:
    query = groups.query
    keys = [key.expression for key in query.order] if query.limit is not None else []
    return keys if query.having is None else [*keys, query.having]


def at_all_levels(groups: Groups, shown: int, weights: NDArray[np.float64]) -> float:
    """The same share, from each level of each group."""
    query, count = groups.query, groups.evidence.groups
    least = shown / weights.sum()
    shares = np.geomspace(1.0, least / 10.0, LEVELS)
    sure, possible, low, high = [], [], [], []
    for share in shares:
        found = at_delta_share(query, groups.evidence, share, decisions_of(groups))
        wide = {each: doubled(column) for each, column in found.estimates.items()}
        view = Groups(query, replace(found, estimates=wide))
        truth, ends = having_outcomes(view), np.zeros((2, count))
        if query.order:
            keys = first_key(view, query.order[0], np.arange(count))
            ends = np.stack([keys.low, keys.high])
        sure.append(truth.true & ~(truth.false | truth.null))
        possible.append(truth.true)
        low.append(ends[0])
        high.append(ends[1])
    for level, share in enumerate(shares):
        best = np.sort(high[level][sure[level]])
        decision = np.inf
        if query.limit is not None and len(best) >= query.limit:
            decision = best[query.limit - 1]
        counts = np.full(count, np.inf)
        for other, at in enumerate(shares):
            counts[~(possible[other] & (low[other] <= decision))] = at
        found = largest(counts, weights, SPENT * shown)
        if found >= share * SPENT:
            return max(least * SPENT, found)
    return least * SPENT


def largest(counts: NDArray[np.float64], weights: NDArray[np.float64], budget: float) -> float:
    """The largest a <= 0.95 with sum of weights * min(a, counts) <= budget, by bisection."""
    low, high = 0.0, SPENT
    if (weights * np.minimum(high, counts)).sum() <= budget:
        return high
    for _ in range(100):
        middle = (low + high) / 2.0
        fits = (weights * np.minimum(middle, counts)).sum() <= budget
        low, high = (middle, high) if fits else (low, middle)
    return low


def counting(evidence: Evidence, group_counts: list[int]) -> Evidence:
    """The evidence, which notes of how many groups it is asked again."""
    again = evidence.again
    assert again is not None

    def noted(
        share: float, of: Collection[Aggregate], rows: NDArray[np.int64] | None = None
    ) -> Evidence:
        group_counts.append(evidence.groups if rows is None else len(rows))
        return again(share, of, rows)

    return replace(evidence, again=noted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "chosen"),
    [
        (EQUAL, "ORDER BY n DESC LIMIT 5"),
        (APART, "ORDER BY n DESC LIMIT 5"),
        (ZIPF, "ORDER BY n DESC LIMIT 5"),
        (SPREAD, "ORDER BY n LIMIT 1"),
        (ZIPF, "ORDER BY mean DESC LIMIT 3"),
        (SPREAD, "HAVING COUNT(*) > 300"),
        (APART, "HAVING AVG(bytes) > 4 AND COUNT(*) > 50"),
        (ZIPF, "HAVING COUNT(*) > 100 ORDER BY client LIMIT 7"),
        (SPREAD, "HAVING COUNT(*) > 20 ORDER BY total DESC LIMIT 10"),
    ],
)
def test_levels_of_few_groups_give_the_share_that_all_levels_of_all_groups_give(
    counts: NDArray[np.int64], chosen: str
):
    query = ask(f"""client, COUNT(*) AS n, AVG(bytes) AS mean, SUM(bytes) AS total
        FROM requests GROUP BY client {chosen}""")
    group_counts: list[int] = []
    evidence = counting(
        evidence_from_sample(query, view_of(stream_of(counts), 1_500, 3)), group_counts
    )
    groups = Groups(query, evidence)
    weights = np.ones(evidence.groups)
    for shown in (1, 10):
        expected = at_all_levels(groups, shown, weights)
        group_counts.clear()
        found = share_of_shown(groups, decisions_of(groups), shown=shown, weights=weights)
        assert found == pytest.approx(expected, rel=1e-9)
        assert sum(group_counts) < (LEVELS - 1) * evidence.groups


def test_groups_that_are_all_near_the_decision_are_not_asked_at_other_levels():
    query = ask(
        "client, AVG(bytes) AS mean FROM requests GROUP BY client ORDER BY mean DESC LIMIT 5"
    )
    group_counts: list[int] = []
    found: Any = evidence_from_sample(query, view_of(stream_of(EQUAL), 500, 3))
    groups = Groups(query, counting(found, group_counts))
    weights = np.ones(found.groups)
    share = share_of_shown(groups, decisions_of(groups), shown=5, weights=weights)
    assert share == pytest.approx(SPENT * 5 / found.groups)
    assert group_counts == []
