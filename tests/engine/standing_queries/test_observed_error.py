"""Predictions against what answers really have: widths, and the factors learned from them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shedder
from shedder.engine.engine import Engine
from shedder.engine.standing_queries.observed_error import (
    Measured,
    half_width,
    predictions,
    skipping_predictions,
)
from shedder.queries.evidence.evidence import Evidence
from synopses.model.estimate import Bound, Estimates
from tests.engine.allocation_world import bound, standing
from tests.engine.query_worlds import CREATE, WINDOW, reallocate, second

TUPLES = 1e6
TEXT = "SELECT COUNT(DISTINCT k) AS d FROM s [RANGE INTERVAL '8' SECOND] WITHIN 2 PERCENT"


def column(values: list[float], halves: list[float], kind: Bound = Bound.INTERVAL) -> Estimates:
    """Estimates of one value per group, each with an interval of so much to both sides."""
    value, half = np.array(values), np.array(halves)
    bounds = np.full(len(value), kind, np.uint8)
    null = np.zeros(len(value), np.bool_)
    return Estimates(value, value - half, value + half, bounds, null, 0.95, "hll")


@pytest.mark.parametrize(
    ("found", "width"),
    [
        (column([100.0], [2.0]), 0.02),
        (column([-100.0], [2.0]), 0.02),
        (column([100.0, 10.0, 1000.0], [1.0, 1.0, 1.0]), 0.01),  # The median over groups.
        (column([100.0], [2.0], Bound.EXACT), 0.0),
        (column([100.0], [2.0], Bound.NONE), math.nan),
        (column([0.0], [2.0]), math.nan),
        (column([100.0], [math.inf]), math.nan),
        (column([], []), math.nan),
    ],
)
def test_an_answer_is_as_wide_as_the_larger_half_of_its_interval(
    found: Estimates, width: float
) -> None:
    assert half_width(found, None) == pytest.approx(width, nan_ok=True)


def test_by_rank_the_sketch_says_how_wide() -> None:
    assert half_width(column([1.0], [9.0]), np.array([0.01])) == 0.01


def learned(text: str, ratio: float, rounds: int) -> float:
    """The factor after answers that are so many times as wide as was predicted."""
    request = standing("q", text)
    measured = Measured(len(request.plan.parts))
    predicted = predictions(request.query, request.plan, request.sizes)[1]
    [aggregate] = request.query.aggregates
    estimates = {aggregate: column([1e6], [1e6 * ratio * predicted])}
    for _ in range(rounds):
        measured.look(request.query, request.plan, Evidence((), estimates))
        measured.correct(request.query, request.plan, request.sizes, TUPLES)
    return measured.factors[1]


@pytest.mark.parametrize("ratio", [0.7, 1.0, 3.0])
def test_the_factor_comes_to_what_is_measured(ratio: float) -> None:
    assert learned(TEXT, ratio, 12) == pytest.approx(ratio, rel=1e-2)


@pytest.mark.parametrize(("ratio", "factor"), [(1.4, 1.4**0.5), (0.8, 0.8**0.5), (3.0, 3.0)])
def test_noise_is_smoothed_and_another_stream_is_followed_at_once(
    ratio: float, factor: float
) -> None:
    assert learned(TEXT, ratio, 1) == pytest.approx(factor)


@pytest.mark.parametrize("why", [{"thinning": 0.5}, {"late": 3}, {"others": 0}])
def test_what_else_widens_an_interval_is_not_taken_for_the_size(why: dict[str, Any]) -> None:
    request = standing("q", TEXT)
    measured = Measured(len(request.plan.parts))
    [aggregate] = request.query.aggregates
    wide = Evidence((), {aggregate: column([1e6], [5e5])}, **why)
    measured.look(request.query, request.plan, wide)
    measured.correct(request.query, request.plan, request.sizes, TUPLES)
    assert measured.factors == [1.0, 1.0]
    assert measured.errors[1] == pytest.approx(0.5)  # It is told all the same.


def test_factors_have_ends_and_a_promise_is_never_planned_with_less_than_its_curve() -> None:
    assert learned(TEXT, 1e-3, 20) == pytest.approx(0.5, rel=1e-2)
    assert learned(TEXT, 1e6, 20) == pytest.approx(16.0, rel=1e-2)
    assert learned(f"{TEXT} ELSE FAIL", 1e-3, 20) == 1.0


def skipped(text: str, level: int, errors: list[float]) -> float:
    """What skipping is learned to cost, by what was predicted of it, after answers that err so.

    errors: in what is predicted of skipping at this level, which all of the window was read at.
    """
    request = standing("q", text)
    measured = Measured(len(request.plan.parts))
    [aggregate] = request.query.aggregates
    [of_levels] = skipping_predictions(request.query, request.plan, TUPLES).values()
    levels = dict.fromkeys(request.query.aggregates, level)
    for error in errors:
        answered = column([1e6], [1e6 * error * of_levels[level]])
        evidence = Evidence((), {aggregate: answered}, thinning=2.0**-level, levels=levels.copy)
        measured.look(request.query, request.plan, evidence)
        measured.correct(request.query, request.plan, request.sizes, TUPLES)
    assert set(measured.factors) == {1.0}  # That is what sizes err by.
    return measured.skipping[1]


SUM = "SELECT SUM(v) AS t FROM s [RANGE INTERVAL '8' SECOND] WITHIN 2 PERCENT"


@pytest.mark.parametrize("level", [1, 6])
@pytest.mark.parametrize("ratio", [0.2, 1.0, 30.0])
def test_what_skipping_costs_is_learned_from_windows_of_one_level(level: int, ratio: float) -> None:
    assert skipped(SUM, level, [ratio] * 12) == pytest.approx(ratio, rel=1e-2)
    promised = skipped(f"{SUM} ELSE FAIL", level, [ratio] * 12)
    assert promised == pytest.approx(max(ratio, 1.0), rel=1e-2)


def test_what_the_size_errs_by_is_not_taken_for_what_skipping_costs() -> None:
    request = standing("q", TEXT)
    [own] = [error for error in predictions(request.query, request.plan, request.sizes) if error]
    [of_levels] = skipping_predictions(request.query, request.plan, TUPLES).values()
    both = math.hypot(own, 20.0 * of_levels[3]) / of_levels[3]
    alone = own / of_levels[3]
    assert skipped(TEXT, 3, [both] * 12) == pytest.approx(20.0, rel=1e-2)
    hidden = own * math.sqrt(1.1**2 - 1) / of_levels[3]
    assert skipped(TEXT, 3, [both, alone]) == pytest.approx(hidden)  # No more than that.
    assert skipped(TEXT, 3, [alone] * 3) == 1.0  # It may be as predicted.


def test_of_several_levels_at_once_nothing_is_learned() -> None:
    request = standing("q", SUM)
    measured = Measured(len(request.plan.parts))
    [aggregate] = request.query.aggregates
    mixed = Evidence((), {aggregate: column([1e6], [5e5])}, thinning=0.125)
    measured.look(request.query, request.plan, mixed)
    measured.correct(request.query, request.plan, request.sizes, TUPLES)
    assert measured.skipping == [1.0, 1.0]
    assert measured.errors[1] == pytest.approx(0.5)


def test_what_was_not_measured_corrects_nothing() -> None:
    request = standing("q", TEXT)
    measured = Measured(len(request.plan.parts))
    measured.correct(request.query, request.plan, request.sizes, TUPLES)
    assert measured.factors == [1.0, 1.0]
    [aggregate] = request.query.aggregates
    unknown = {aggregate: column([5.0], [1.0], Bound.NONE)}
    measured.look(bound(TEXT), request.plan, Evidence((), unknown))
    measured.correct(request.query, request.plan, request.sizes, TUPLES)
    assert measured.factors == [1.0, 1.0]
    assert measured.wanted  # The next answer may tell.


def opened(directory: Path) -> Engine:
    engine = shedder.open(directory, checkpoint_seconds=1e6, allocation_seconds=1e6)
    assert isinstance(engine, Engine)
    return engine


@pytest.mark.parametrize("aggregate", ["MEDIAN(v)", "TOP(k, 3)", "COUNT(DISTINCT k)"])
def test_a_window_without_values_says_nothing_of_sizes(tmp_path: Path, aggregate: str) -> None:
    """A sketch of no values errs by nothing; that was taken for half of what was predicted."""
    with opened(tmp_path) as db:
        db.execute(CREATE)
        text = f"SELECT {aggregate} AS a FROM s {WINDOW} WHERE k < 0 THINNING 1/4"
        db.register("q", text)
        db.register("whole", text.replace("THINNING 1/4", ""))
        for number in range(12):
            db.push("s", second(number))
        db.query("q").answer()
        reallocate(db)
        for name in ("q", "whole"):
            measured = db.core.standing_query(name)[1].measured
            assert np.isnan(measured.errors).all()
            assert set(measured.factors) == {1.0}
            assert measured.wanted


def test_of_chosen_groups_the_intervals_that_are_shown_are_measured(tmp_path: Path) -> None:
    """They are asked at more than the query's confidence: a sketch was taken for narrower."""
    with opened(tmp_path) as db:
        db.execute(CREATE)
        text = f"SELECT k % 20 AS g, COUNT(DISTINCT v) AS d FROM s {WINDOW} GROUP BY k % 20"
        for name, chosen in (("every", ""), ("chosen", "ORDER BY d DESC LIMIT 2")):
            db.register(name, f"{text} {chosen} THINNING 1/4")
        for number in range(12):
            receipt = db.push("s", second(number))
        db.query("chosen").answer(after=receipt)
        reallocate(db)  # The next answer is measured.
        receipt = db.push("s", second(12))
        errors = {}
        for name in ("every", "chosen"):
            rows = db.query(name).answer(after=receipt).rows()
            halves = [max(r["d_high"] - r["d"], r["d"] - r["d_low"]) / r["d"] for r in rows]
            errors[name] = np.nanmax(db.core.standing_query(name)[1].measured.errors)
            assert errors[name] == pytest.approx(np.median(halves), rel=1e-6)
        assert errors["chosen"] > errors["every"]


def test_lists_of_items_are_measured_by_the_share_that_a_count_may_lack() -> None:
    request = standing("q", "SELECT TOP(k, 3) AS t FROM s [RANGE INTERVAL '8' SECOND]")
    measured = Measured(len(request.plan.parts))
    [aggregate] = request.query.aggregates
    [predicted] = [each for each in predictions(request.query, request.plan, request.sizes) if each]
    lists = {aggregate: column([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])}
    shares = {aggregate: np.array([0.1, 0.7, 0.9]) * predicted}
    for _ in range(12):
        measured.look(request.query, request.plan, Evidence((), lists, share_errors=shares))
        measured.correct(request.query, request.plan, request.sizes, TUPLES)
    assert measured.errors[1] == pytest.approx(0.7 * predicted)
    assert measured.factors[1] == pytest.approx(0.7, rel=1e-2)
