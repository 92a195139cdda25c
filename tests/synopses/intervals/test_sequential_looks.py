"""Looking more than once: the parts of delta, the plan of the next look, and what looking costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from synopses.intervals.sequential_looks import (
    MET_OVER,
    alone_confidence,
    look_confidence,
    rows_wanted,
)
from synopses.model.errors import BadParameter
from tests.truth import gate

POPULATION = 10**9


@given(st.floats(0.01, 0.999), st.integers(1, 60))
def test_all_looks_together_spend_no_more_than_delta(confidence, looks):
    spent = sum(1.0 - look_confidence(look, confidence) for look in range(looks))
    assert spent <= (1.0 - confidence) * (1 + 1e-9)


def test_a_hundred_looks_spend_all_of_it():
    spent = sum(1.0 - look_confidence(look, 0.95) for look in range(100))
    assert spent == pytest.approx(0.05)


@pytest.mark.parametrize("look", [-1, -100])
def test_there_is_no_look_before_the_first(look):
    with pytest.raises(BadParameter, match=str(look)):
        look_confidence(look, 0.95)


@given(
    st.integers(1, 10**9),
    st.integers(1, 10**6),
    st.floats(0.0, 1e6),
    st.integers(0, 20),
)
def test_a_plan_reads_on_and_never_more_than_there_is(population, read, error, look):
    wanted = rows_wanted(
        population=population, read=min(read, population), error=error, look=look, confidence=0.95
    )
    assert min(population, min(read, population) + 1) <= wanted <= population


def test_twice_the_error_needs_four_times_the_tuples():
    once, twice = (
        rows_wanted(population=POPULATION, read=1000, error=error, look=0, confidence=0.95)
        for error in (10.0, 20.0)
    )
    assert twice == pytest.approx(4 * once, rel=0.01)


def test_near_the_whole_the_finite_population_helps():
    wanted = rows_wanted(population=10_000, read=5_000, error=2.0, look=1, confidence=0.95)
    assert 7_500 < wanted < 10_000


def test_before_it_reads_much_it_looks_whether_the_width_falls_with_one_over_n():
    wanted = [
        rows_wanted(population=1_000_000, read=1_000, error=error, look=0, confidence=0.95)
        for error in (30.0, 80.0, 1e6)
    ]
    assert 20_000 < wanted[0] < 40_000
    assert 50_000 < wanted[1] < 100_000
    assert wanted[2] == 100_000
    again = rows_wanted(population=1_000_000, read=100_000, error=5.0, look=1, confidence=0.95)
    assert again > 700_000


def test_where_nothing_is_known_it_reads_some_times_more():
    wanted = rows_wanted(population=POPULATION, read=1000, error=math.inf, look=0, confidence=0.95)
    assert wanted == 4000


def test_nothing_read_says_nothing_so_all_is_wanted():
    assert rows_wanted(population=70, read=0, error=2.0, look=0, confidence=0.95) == 70


def _stopped(rng: np.random.Generator, spread: float, target: float) -> tuple[int, bool]:
    """Read a normal mean of 1 until it is known to `target`: tuples read, and whether it held."""
    read = 500
    total = rng.normal(read, spread * math.sqrt(read))
    look = 0
    while True:
        quantile = -ndtri((1.0 - look_confidence(look, 0.95)) / 2.0)
        mean, half = total / read, quantile * spread / math.sqrt(read)
        error = half / (target * abs(mean))
        if error <= 1.0:
            return read, abs(mean - 1.0) <= half
        wanted = rows_wanted(
            population=POPULATION, read=read, error=error, look=look, confidence=0.95
        )
        total += rng.normal(wanted - read, spread * math.sqrt(wanted - read))
        read, look = wanted, look + 1


def _doubling(rng: np.random.Generator, spread: float, target: float) -> int:
    """The same with six equal looks at doubling sizes."""
    quantile, read = -ndtri(0.05 / 6 / 2), 500
    total = rng.normal(read, spread * math.sqrt(read))
    while quantile * spread / math.sqrt(read) > target * abs(total / read):
        total += rng.normal(read, spread * math.sqrt(read))
        read *= 2
    return read


def _sequence(rng: np.random.Generator, spread: float, target: float) -> int:
    """The same with a normal-mixture confidence sequence that is best at the size it needs."""
    fixed = (1.96 * spread / target) ** 2
    rate = 2 * fixed / (2 * math.log(1 / 0.05) + math.log(1 + 2 * math.log(1 / 0.05)))
    read, step = fixed, 0.02 * fixed
    total = rng.normal(read, spread * math.sqrt(read))
    while True:
        wide = (read + rate) * (math.log((read + rate) / rate) + 2 * math.log(1 / 0.05))
        if spread * math.sqrt(wide) / read <= target * abs(total / read):
            return int(read)
        total += rng.normal(step, spread * math.sqrt(step))
        read += step


def test_the_interval_at_which_it_stops_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(4)
    for spread, target in ((1.0, 0.01), (3.0, 0.02), (0.5, 0.05)):
        held = sum(_stopped(rng, spread, target)[1] for _ in range(2_000))
        assert held >= gate(2_000, 0.95)


def test_a_planned_look_reads_less_than_doubling_looks_and_than_a_sequence():
    rng = np.random.default_rng(5)
    for spread in (1.0, 3.0):
        planned = np.mean([_stopped(rng, spread, 0.01)[0] for _ in range(300)])
        others = [
            np.mean([reader(rng, spread, 0.01) for _ in range(300)])
            for reader in (_doubling, _sequence)
        ]
        assert planned < 0.85 * min(others)


def _shown(rng: np.random.Generator, target: float, population: int = 40_000) -> bool | None:
    """Read 400 of so many normal values, of mean 1 and deviation 1/2, then what is planned.

    Returns: whether the interval that is shown holds; None: everything was read.
    """

    def half(confidence: float) -> float:
        rate = 1.0 / read - 1.0 / population
        return float(-ndtri((1.0 - confidence) / 2.0)) * 0.5 * math.sqrt(rate)

    read, off, look, wanted = 0, 0.0, 0, 400  # off: the sum of distances from the mean, a bridge.
    while wanted <= 0.4 * population:
        left, new = population - read, wanted - read
        spread = 0.5 * math.sqrt(new * (left - new) / left)
        off, read = off * (left - new) / left + rng.normal(0.0, spread), wanted
        error = half(look_confidence(look, 0.95)) / (target * (1.0 + off / read))
        if error <= 1.0:
            alone = look == 0 and error <= 1.0 / MET_OVER
            shown = alone_confidence(0.95) if alone else look_confidence(look, 0.95)
            return abs(off / read) <= half(shown)
        wanted = rows_wanted(
            population=population, read=read, error=error, look=look, confidence=0.95
        )
        look += 1
    return None


@pytest.mark.parametrize("needed", [20, 80, 350, 800, 8_000, 12_500, 13_000])
def test_intervals_that_are_shown_hold_as_often_as_they_say_given_that_they_are_shown(needed):
    """needed: rows at which an interval of 95 % meets the target; of many, all are read instead."""
    rng = np.random.default_rng([6, needed])
    target = 1.96 * 0.5 * math.sqrt(1.0 / needed - 1.0 / 40_000)
    found = [_shown(rng, target) for _ in range(2_000)]
    shown = [held for held in found if held is not None]
    assert len(shown) >= 100
    assert sum(shown) >= gate(len(shown), 0.95)


def test_a_first_look_that_is_alone_costs_nearly_nothing():
    quantiles = [-ndtri((1.0 - c) / 2.0) for c in (0.95, alone_confidence(0.95))]
    assert quantiles[1] / quantiles[0] < 1.03
    with pytest.raises(BadParameter, match="1"):
        alone_confidence(1.0)
