"""Answers against the truth: what holds, what does not, and what cannot be said."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from shedder.queries.answers.answer import COMPANION, ESTIMATE, ROLE, Answer
from shedder.simulation.verdict import gate, gate_of_draws, judge


def answer(rows: list[tuple]) -> Answer:
    """Rows of (group, value, low, high, bound)."""
    names = ["g", "x", "x_low", "x_high", "x_bound"]
    roles = [None, ESTIMATE, COMPANION, COMPANION, COMPANION]
    types = [pa.int64(), *[pa.float64()] * 3, pa.string()]
    schema = pa.schema(
        [
            pa.field(name, kind, metadata=None if role is None else {ROLE: role})
            for name, kind, role in zip(names, types, roles, strict=True)
        ]
    )
    columns = zip(*rows, strict=True)
    return Answer(pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], schema))


TRUTH = answer([(1, 10.0, 10.0, 10.0, "exact"), (2, 20.0, 20.0, 20.0, "exact")])


def test_intervals_are_held_to_the_truth():
    found = judge(
        answer([(1, 11.0, 9.0, 13.0, "interval"), (2, 30.0, 25.0, 35.0, "interval")]), TRUTH
    )
    assert (found.intervals, found.held, found.exact, found.unbounded) == (2, 1, 0, 0)
    assert found.errors == {"x": (0.1, 0.5)}
    assert found.widths == (0.2, 0.25)


def test_what_is_called_exact_must_be():
    found = judge(answer([(1, 10.0, 10.0, 10.0, "exact"), (2, 20.1, 20.1, 20.1, "exact")]), TRUTH)
    assert (found.exact, found.wrong) == (2, 1)


def test_no_bound_is_no_interval_and_an_open_end_holds():
    found = judge(answer([(1, 99.0, None, None, "none"), (2, 19.0, None, 20.0, "interval")]), TRUTH)
    assert (found.unbounded, found.intervals, found.held) == (1, 1, 1)
    assert found.widths == ()


def test_groups_without_truth_are_not_judged():
    found = judge(answer([(3, 10.0, 9.0, 11.0, "interval")]), TRUTH)
    assert (found.intervals, found.errors) == (0, {"x": ()})


def test_what_is_not_told_is_counted():
    """A group that is missing, and a value that is NULL, are both a value untold."""
    found = judge(answer([(1, 10.0, 9.0, 11.0, "interval")]), TRUTH)
    assert (found.errors, found.untold) == ({"x": (0.0,)}, {"x": 1})
    found = judge(answer([(1, None, None, None, "none"), (2, 20.0, 20.0, 20.0, "exact")]), TRUTH)
    assert (found.errors, found.untold) == ({"x": (0.0,)}, {"x": 1})


def test_the_gate_lets_chance_pass_and_nothing_else():
    assert gate(0, 0.95) == 0
    assert 0.85 * 400 < gate(400, 0.95) < 0.95 * 400


@pytest.mark.parametrize("confidence", [0.0, 0.5, 0.8, 0.95, 0.999, 1 - 1e-10, 1.0])
def test_the_gate_is_the_quantile_of_the_binomial_distribution(confidence):
    for trials in (1, 2, 7, 40, 399, 5_000, 123_457):
        for alarm in (1e-3, 1e-6, 1e-8, 1e-12):
            assert gate(trials, confidence, alarm) == stats.binom.ppf(alarm, trials, confidence)


def test_values_that_one_draw_decides_for_many_windows_are_counted_by_draw():
    answered = answer([(1, 11.0, 9.0, 13.0, "interval"), (2, 30.0, 25.0, 35.0, "interval")])
    found = judge(answered, TRUTH, ["x"])
    assert (found.intervals, found.held) == (0, 0)
    assert found.one_draw == {("x", 1): (1, 1), ("x", 2): (1, 0)}


def test_one_bad_draw_of_a_few_is_chance_and_most_of_many_are_not():
    good, bad = (100, 99), (100, 3)
    assert gate_of_draws([], 0.95)
    assert gate_of_draws([good, good, bad], 0.95)
    assert gate_of_draws([good] * 60 + [bad] * 5, 0.95)
    assert not gate_of_draws([good] * 20 + [bad] * 40, 0.95)


def test_an_honest_draw_of_any_kind_passes_the_gate():
    """Intervals that miss together, five in a hundred times, as values thinned by hash do."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        draws = [(50, 0 if rng.random() < 0.05 else 50) for _ in range(int(rng.integers(1, 200)))]
        assert gate_of_draws(draws, 0.95)
