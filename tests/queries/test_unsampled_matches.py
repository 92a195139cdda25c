"""Values of which no row was sampled: NULL, between the ends that are known all the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.expressions.expression import AggregateFunction
from shedder.queries.certification.value_verdict import Claim, Ranks, judge_quantile, judge_value
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.queries.sampling.from_strata import evidence_from_strata
from tests.queries.asking import ARROW, ask, between, evidence, rows, truth
from tests.queries.sampled import view_of

COUNT = 2_000
OUTPUTS = {
    "s": "SUM(bytes)",
    "sc": "SUM(client)",
    "a": "AVG(bytes)",
    "p": "AVG(client) + 1",
    "lo": "MIN(bytes)",
    "hi": "MAX(client)",
    "ts": "MIN(ts)",
    "day": "MAX(day)",
    "q": "QUANTILE(client, 0.3)",
    "m": "MEDIAN(bytes)",
    "v": "VARIANCE(bytes)",
    "sd": "STDDEV(client)",
    "corr": "CORR(bytes, client)",
    "cov": "COVAR_SAMP(bytes, client)",
    "cdf": "CDF(bytes, 1.0)",
}
SELECTED = ", ".join(f"{text} AS {name}" for name, text in OUTPUTS.items())


def population(seed: int) -> pa.RecordBatch:
    rng = np.random.default_rng([seed, 9])
    drawn = rng.normal(0, 1, COUNT) if seed % 2 else -rng.pareto(1.1, COUNT)
    values = pa.array(drawn, mask=rng.random(COUNT) < 0.05)
    return rows(COUNT, seed).set_column(3, ARROW.field("bytes"), values)


def sampled(query, data: pa.RecordBatch, seed: int) -> Evidence:
    return evidence_from_sample(query, view_of(data, 200, seed))


def from_strata(query, data: pa.RecordBatch, seed: int) -> Evidence:
    views = [view_of(data.slice(0, 1_000), 100, seed), view_of(data.slice(1_000), 150, seed + 1)]
    return evidence_from_strata(query, views, np.random.default_rng(seed))


def is_between(low, truth, high) -> bool:
    room = 1e-9 * abs(truth) if isinstance(truth, float) else truth - truth
    return (low is None or low - room <= truth) and (high is None or truth <= high + room)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "unseen"),
    [
        ("WHERE client > 200", ("v", "sd", "corr", "cov")),
        ("WHERE domain = ''", tuple(OUTPUTS)),
    ],
)
@pytest.mark.parametrize("source", [sampled, from_strata])
def test_what_no_sampled_row_tells_is_null_or_between_the_known_ends(source, where, unseen):
    """These were `none`. Where the ends hold for certain, no seed may show a miss."""
    found = dict.fromkeys(OUTPUTS, 0)
    for seed in range(2):
        data = population(seed)
        for by, group in (("", ""), ("client, ", " GROUP BY client")):
            query = ask(f"{by}{SELECTED} FROM requests {where}{group}")
            exact = {row.get("client"): row for row in finish(query, truth(query, data)).rows()}
            for row in finish(query, source(query, data, seed)).rows():
                true = exact[row.get("client")]
                for name in OUTPUTS:
                    assert row[f"{name}_bound"] != "none", name
                    if row[name] is not None or row[f"{name}_bound"] == "exact":
                        continue
                    found[name] += 1
                    if true[name] is not None:
                        ends = row[f"{name}_low"], row[f"{name}_high"]
                        assert is_between(ends[0], true[name], ends[1]), (name, ends, true[name])
    assert all(found[name] for name in unseen)


def test_the_ends_are_those_of_the_column_in_its_type():
    big = 2**62 + 1
    clients = pa.array([big, -big, *range(998)], pa.int64())
    data = rows(1_000).set_column(2, ARROW.field("client"), clients)
    query = ask(
        "MIN(client) AS lo, MAX(ts) AS hi, SUM(client) AS s FROM requests WHERE domain = ''"
    )
    [row] = finish(query, evidence_from_sample(query, view_of(data, 50))).rows()
    assert (row["lo"], row["hi"], row["s"]) == (None, None, None)
    assert row["lo_low"] <= -big < big <= row["lo_high"]
    assert row["hi_low"] == data.column("ts")[0].as_py()
    assert row["hi_high"] == data.column("ts")[-1].as_py()
    assert row["s_bound"] == "none"  # It may be over 64 bits, and NULL then.


def test_a_null_with_known_ends_misses_every_target_and_keeps_its_ends_in_expressions():
    query = ask("AVG(bytes) AS a, AVG(bytes) * 2 AS d FROM requests WITHIN 1000 ABSOLUTE")
    column = between([0.0], [3.0], [5.0])
    column = replace(column, null=np.array([True]))
    [row] = finish(query, evidence(query, (), column)).rows()
    assert (row["a"], row["a_low"], row["a_high"], row["a_met"]) == (None, 3.0, 5.0, False)
    assert (row["d"], row["d_met"]) == (None, False)
    assert (row["d_low"], row["d_high"]) == (pytest.approx(6.0), pytest.approx(10.0))
    assert (row["a_bound"], row["d_bound"]) == ("interval", "interval")


@pytest.mark.parametrize(("low", "high", "held"), [(1.0, 9.0, True), (6.0, 9.0, False)])
def test_a_null_with_known_ends_is_judged_by_its_ends(low, high, held):
    claim = Claim(None, low, high, "interval", None)
    rounded = Claim(None, 0.1, 0.1, "interval", None)
    assert judge_value(AggregateFunction.AVG, rounded, 0.1 + 2e-17, None, 0.3, 3).held
    assert judge_value(AggregateFunction.AVG, claim, 5.0, None).held is held
    assert judge_value(AggregateFunction.AVG, claim, None, None).held
    ranks = Ranks(n=9, below_low=int(low) - 1, to_high=int(high), below=0, upto=0)
    assert judge_quantile(claim, 0.5, ranks, None).held is held
    assert judge_quantile(claim, 0.5, Ranks(0, 0, 0, 0, 0), None).held
