"""Why runs are not sampled: it holds where runs are alike, and misses an incident in one of them.

The figures of docs/archive.md are from here: 20 of 200 runs, 3,000 tuples of each, 4 M in each.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from shedder.archive.tasks.deadline import Deadline
from synopses.intervals.means import sampled_mean
from synopses.intervals.sample_values import SampledValues
from tests.archive.dealt import DealtRuns
from tests.queries.asking import SCHEMA, rows
from tests.truth import gate

RUNS, CHOSEN, OF_EACH = 200, 20, 3_000
DEVIATION = 20.0
TRIALS = 2_000


def two_stages(means: np.ndarray, seed: int = 1) -> tuple[float, float]:
    """The share of intervals of 95 % that hold the mean, and their median half width beside it.

    Means of runs of one size, of which a simple random sample of the tuples of a simple random
    sample of the runs is read. Source: Cochran 1977, Sampling Techniques, 10.3.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.permuted(np.tile(np.arange(RUNS), (TRIALS, 1)), axis=1)[:, :CHOSEN]
    found = means[chosen] + rng.normal(0.0, DEVIATION / np.sqrt(OF_EACH), chosen.shape)
    between = (1 - CHOSEN / RUNS) * found.var(axis=1, ddof=1) / CHOSEN
    within = DEVIATION**2 / OF_EACH / RUNS
    half = t.ppf(0.975, CHOSEN - 1) * np.sqrt(between + within)
    held = np.abs(found.mean(axis=1) - means.mean()) <= half
    return float(held.mean()), float(np.median(half) / means.mean())


def one_stage(means: np.ndarray) -> float:
    """The half width of a simple random sample of as many tuples of all runs, beside the mean."""
    deviation = np.sqrt(DEVIATION**2 + means.var())
    return float(1.96 * deviation / np.sqrt(CHOSEN * OF_EACH) / means.mean())


def incident(times: float, runs: int) -> np.ndarray:
    means = np.full(RUNS, 100.0)
    means[70 : 70 + runs] *= times
    return means


def test_of_runs_that_are_alike_some_are_as_good_as_all():
    held, width = two_stages(np.full(RUNS, 100.0))
    assert held * TRIALS >= gate(TRIALS, 0.95)
    assert width < 1.2 * one_stage(np.full(RUNS, 100.0))


@pytest.mark.parametrize(
    "means",
    [np.linspace(95, 105, RUNS), 100 + 5 * np.sin(np.arange(RUNS) * 2 * np.pi / 24)],
    ids=["drift", "days"],
)
def test_of_runs_that_drift_by_a_tenth_some_say_eight_times_less_than_all(means):
    held, width = two_stages(means)
    assert held * TRIALS >= gate(TRIALS, 0.95)
    assert width > 0.01
    assert width > 7 * one_stage(means)


@pytest.mark.parametrize(("times", "runs", "holds"), [(10, 1, 0.15), (3, 2, 0.25)])
def test_an_incident_in_one_run_is_missed_nine_times_in_ten(times, runs, holds):
    held, _ = two_stages(incident(times, runs))
    assert held < holds


@pytest.mark.slow
def test_a_little_of_every_run_holds_an_incident_in_one_of_them():
    data = rows(20_000)
    latency = np.random.default_rng(5).normal(100.0, DEVIATION, 20_000)
    latency[8_000:8_500] *= 10  # One run of 40.
    at = data.schema.get_field_index("bytes")
    data = data.set_column(at, "bytes", latency)
    low, high = float(latency.min()), float(latency.max())
    held = 0
    for seed in range(40):
        dealt = DealtRuns(SCHEMA, data, [500] * 40, 8, seed, 2)
        sample = dealt.sample(("bytes",), seed)
        sample.extend(sample.fitted([0.25] * 40), Deadline())
        [view] = sample.views()
        values = SampledValues.by_group(
            view.rows.column("bytes").to_numpy(),
            ids=None,
            groups=1,
            population=view.population,
            read=view.rows.num_rows,
            low=low,
            high=high,
            everything=True,
        )
        found = sampled_mean(values, confidence=0.95)
        held += bool(found.low[0] <= latency.mean() <= found.high[0])
    assert held >= gate(40, 0.95)
