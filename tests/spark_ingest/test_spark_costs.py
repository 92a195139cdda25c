"""The cost model of micro-batches, by hand."""

import pytest

from benchmarks.studies.spark_costs import SparkCosts


def test_waves_of_tasks_and_levels_of_merges_add_up() -> None:
    costs = SparkCosts(batch=1.0, partition=0.5, tuple=1e-6, merge=0.01)
    # One core, four tasks: four waves of 0.5 + 0.25 s; one merge of four summaries.
    assert costs.seconds(1_000_000, 4, 1) == pytest.approx(1 + 4 * 0.75 + 0.04)
    # Eight cores, forty tasks of 25,000: five waves of 0.525 s. Forty summaries become three by
    # merges of sixteen at the same time, and three become one.
    assert costs.seconds(1_000_000, 40, 8) == pytest.approx(1 + 5 * 0.525 + 0.16 + 0.03)


def test_what_it_was_measured_by_is_what_it_says() -> None:
    costs = SparkCosts.measured(
        few_s=0.48, few=5, many_s=0.62, many=12, full_s=3.62, tuples=6_000_000, merge=0.01
    )
    assert costs.partition == pytest.approx(0.01)
    assert costs.tuple == pytest.approx(500e-9)
    assert costs.seconds(6_000_000, 12, 1) == pytest.approx(3.62)
    assert costs.seconds(0, 5, 1) == pytest.approx(0.48)
    assert costs.seconds(0, 1, 1) == pytest.approx(0.39)  # Alone, it is merged with nothing.
