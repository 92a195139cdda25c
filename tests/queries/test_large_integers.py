"""Whole numbers beyond 2^53, which doubles do not tell apart, in samples and in strata."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from shedder.cql.expressions.expression import AggregateFunction
from shedder.queries.answers.answer import Answer
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.queries.sampling.from_strata import evidence_from_strata
from shedder.streams.basics import ColumnBasics
from shedder.streams.live_sample import SampleView
from tests.fractions_of_columns import of_pairs, variance
from tests.queries.asking import SCHEMA, ask, rows
from tests.truth import gate

SIZE, GROUPS = 900, 3
Integers = NDArray[np.int64]
OUTPUTS = (
    "SUM(client) AS total, AVG(client) AS mean, VAR(client) AS var, STDDEV(client) AS dev, "
    "MEDIAN(client) AS median, QUANTILE(client, 0.9) AS p90, MIN(client) AS least, "
    "COVAR_SAMP(client, client) AS cov, CORR(client, client) AS corr, "
    "MEDIAN(ts) AS middle"
)


def values(name: str, size: int = SIZE) -> Integers:
    rng = np.random.default_rng(3)
    match name:
        case "near 2^62":
            return 2**62 + rng.integers(0, 1000, size)
        case "around 2^53":
            return 2**53 + rng.integers(-50, 50, size)
        case "far below 0":
            return -(2**61) + rng.integers(0, 5000, size)
        case "two heights":
            return 2**60 + np.arange(size) % 2
        case _:
            return rng.integers(-(2**61), 2**61, size)


NAMES = ("near 2^62", "around 2^53", "far below 0", "two heights", "all of BIGINT")


def data_of(clients: Integers) -> pa.RecordBatch:
    """The rows of asking.py with these clients, and times beyond 2^53 microseconds."""
    batch = rows(len(clients))
    times = pa.array(2**53 + np.arange(len(clients)) * 3 + 1, pa.timestamp("us"))
    domains = pa.array([f"d{at % GROUPS}" for at in range(len(clients))])
    found = batch.set_column(0, "ts", times).set_column(1, "domain", domains)
    return found.set_column(2, "client", pa.array(clients, pa.int64()))


def view_of(data: pa.RecordBatch, chosen: Integers) -> SampleView:
    basics = {column.name: ColumnBasics.of(data.column(column.name)) for column in SCHEMA.columns}
    return SampleView(SCHEMA, 0, data.num_rows, data.take(pa.array(chosen)), basics, {}, {})


def answer(text: str, views: list[SampleView], seed: int = 0) -> Answer:
    query = ask(text)
    return finish(query, evidence_from_strata(query, views, np.random.default_rng(seed)))


def discrete(sorted_values: Integers, share: float) -> int:
    return int(sorted_values[max(1, math.ceil(share * len(sorted_values))) - 1])


def truth_of(clients: Integers, times: Integers) -> dict[str, float | int | None]:
    ordered, total = np.sort(clients), sum(clients.tolist())
    return {
        "total": total if abs(total) < 2**63 else None,
        "mean": total / len(clients),
        "var": variance(clients),
        "dev": math.sqrt(variance(clients)),
        "median": discrete(ordered, 0.5),
        "p90": discrete(ordered, 0.9),
        "least": int(ordered[0]),
        "cov": of_pairs(AggregateFunction.COVAR_SAMP, clients, clients),
        "corr": 1.0,
        "middle": discrete(times, 0.5),
    }


@pytest.mark.parametrize("tail", ["", " GROUP BY domain"])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_a_sample_of_everything_has_every_digit(name: str, parts: int, tail: str) -> None:
    clients = values(name)
    data = data_of(clients)
    views = []
    for part in range(parts):
        mine = data.slice(part * SIZE // parts, SIZE // parts)
        views.append(view_of(mine, np.arange(mine.num_rows)))
    selected = "domain, " if tail else ""
    found = answer(f"{selected}{OUTPUTS} FROM requests{tail}", views)
    times = 2**53 + np.arange(SIZE) * 3 + 1
    assert len(found.rows()) == (GROUPS if tail else 1)
    for row in found.rows():
        mine = slice(int(row["domain"][1:]), None, GROUPS) if tail else slice(None)
        for output, truth in truth_of(clients[mine], times[mine]).items():
            assert row[f"{output}_bound"] == "exact", output
            value = row[output]
            if output == "middle":
                value = pa.scalar(value, pa.timestamp("us")).value
            if isinstance(truth, float):
                assert value == pytest.approx(truth, rel=1e-13), output
            else:
                assert value == truth, output


@pytest.mark.slow
@pytest.mark.parametrize("strata", [False, True])
@pytest.mark.parametrize("name", ["near 2^62", "around 2^53", "all of BIGINT"])
def test_a_sample_of_some_holds_the_truth(name: str, strata: bool) -> None:
    """One SRS of a fifth, or two strata read at a fifth and at a half."""
    clients, trials, confidence = values(name), 25, 0.95
    data, times = data_of(clients), 2**53 + np.arange(SIZE) * 3 + 1
    truth = truth_of(clients, times)
    rng, held = np.random.default_rng(8), dict.fromkeys(truth, 0)
    for trial in range(trials):
        cuts = [(0, SIZE, 5)] if not strata else [(0, 500, 5), (500, SIZE, 2)]
        views = []
        for first, last, share in cuts:
            mine = data.slice(first, last - first)
            read = mine.num_rows // share
            views.append(view_of(mine, np.sort(rng.choice(mine.num_rows, read, replace=False))))
        [row] = answer(f"{OUTPUTS} FROM requests", views, trial).rows()
        for output, value in truth.items():
            low, high = row[f"{output}_low"], row[f"{output}_high"]
            if output == "middle" and low is not None:
                low, high = (pa.scalar(end, pa.timestamp("us")).value for end in (low, high))
            if value is None or low is None or high is None:
                held[output] += row[f"{output}_bound"] == "none"
                continue
            if isinstance(value, float) and output != "mean":
                low, high = low - 1e-9 * abs(value), high + 1e-9 * abs(value)
            held[output] += low <= value <= high
    for output, count in held.items():
        assert count >= gate(trials, confidence), (output, count)


def test_the_interval_of_a_large_mean_is_as_narrow_as_its_spread() -> None:
    """180 of 900 values within 1,000 of each other: doubles there are 1,024 apart."""
    data = data_of(values("near 2^62"))
    query = ask("AVG(client) AS mean, VAR(client) AS var FROM requests")
    view = view_of(data, np.arange(0, SIZE, 5))
    [row] = finish(query, evidence_from_sample(query, view)).rows()
    assert row["mean_high"] - row["mean_low"] <= 4096
    assert row["var_high"] <= 2.0 * row["var"]
