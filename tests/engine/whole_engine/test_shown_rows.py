"""Intervals of shown rows hold as often as they say: a sample of the grid of shown rows."""

from __future__ import annotations

from functools import cache, partial
from itertools import product

import numpy as np
import pytest

from tests.engine.shown_rows import (
    CHOICES,
    SIZES,
    SOURCES,
    VALUES,
    Found,
    Service,
    World,
    answers_of,
    opened,
)
from tests.engine.shown_rows_grid import CONFIDENCE, Cell, Measured, failures
from tests.engine.shown_targets import QUESTIONS, WHOLE, targets
from tests.engine.shown_targets import SOURCES as TARGET_SOURCES
from tests.scale import scaled
from tests.seeds import seed
from tests.sequential import holds

TRIALS = scaled(40, 100)
FIRST, EQUAL, _ = SIZES
LARGEST = "ORDER BY n DESC LIMIT"
PLACES = list(product(SOURCES, CHOICES))
DRAWN = PLACES[seed("shown", "place") % len(PLACES)]
PILOT_SEED = 25  # Fixes the target, which about half of the samples meet (docs/coverage_shown.md).
world = cache(World.of)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("shown") / "data") as one:
        yield one


def found_by(
    service: Service, source: str, choice: str, groupings: list[str], number: int
) -> Found:
    """One answer of a stream of its own, with values and groups that the seed draws."""
    drawn = seed("shown", source, choice, number)
    rng = np.random.default_rng(drawn)
    values, sizes = (each[rng.integers(len(each))] for each in (list(VALUES), groupings))
    asking = {choice: CHOICES[choice]}
    found = answers_of(
        service, world(values, sizes), source, asking, confidence=CONFIDENCE, seed=drawn
    )
    assert found[choice].exact, (values, sizes, choice, drawn)
    return found[choice]


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("source", SOURCES)
def test_counts_of_the_largest_of_equal_groups_hold_as_often_as_they_say(service, source):
    def trial(number: int) -> tuple[int, int]:
        score = found_by(service, source, LARGEST, [EQUAL], number).scores["n"]
        return score.held, score.shown

    assert holds(trial, CONFIDENCE, trials=TRIALS)


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("place", range(scaled(1, len(PLACES))))
def test_shown_rows_hold_and_certain_rows_belong_where_they_are(service, place):
    source, choice = scaled([DRAWN], PLACES)[place]
    trial = cache(partial(found_by, service, source, choice, list(SIZES)))

    def shown(number: int) -> tuple[int, int]:
        held, intervals = trial(number).shown
        return (held, intervals) if intervals else (1, 1)  # The false coverage rate is 0 then.

    assert holds(shown, CONFIDENCE, trials=TRIALS)
    assert holds(lambda number: trial(number).certain is not False, CONFIDENCE, trials=TRIALS)


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("source", scaled(["live sample"], list(TARGET_SOURCES)))
@pytest.mark.parametrize("question", scaled([WHOLE], list(QUESTIONS)))
def test_what_a_target_shows_as_intervals_holds(service, source, question):
    target = targets(service, world("0/1, 45 %", FIRST), question, PILOT_SEED)[0]

    def trial(number: int) -> tuple[int, int]:
        drawn = seed("targets", source, question, number)
        score = target.score(service, TARGET_SOURCES[source], drawn)
        assert score.right == score.exact, (question, drawn)
        return score.held, score.shown

    assert holds(trial, CONFIDENCE, trials=TRIALS)


def test_the_grid_names_cells_that_hold_too_rarely_and_exact_values_that_are_not():
    found, cell = Measured(), Cell("spikes", FIRST, "live sample", "HAVING n")
    score = found.scores[cell, "a"]
    score.shown, score.held = 1_000, 950
    assert failures(found) == []
    score.held = 890
    assert "spikes; live sample; HAVING n; a: 890 of 1000" in failures(found)
    score.held, score.exact, score.right = 950, 3, 2
    assert failures(found) == [
        f"spikes; {FIRST}; live sample; HAVING n; a: 2 of 3 exact values are"
    ]
