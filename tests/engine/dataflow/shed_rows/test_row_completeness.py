"""Completeness of rows: coverage and width against exact counts, levels that the sample chooses."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.dataflow.row_completeness import of_plan, of_relation, of_stretch
from shedder.engine.dataflow.thinning_levels import (
    LEVEL_MAX,
    KeyStrata,
    KeyThinning,
    strata_of,
)
from synopses.model.estimate import Bound
from tests.scale import scaled
from tests.truth import gate

TRIALS = 1_000


def _level(strata: np.ndarray, room: int) -> int:
    """The least level at which the rows of the kept keys find room."""
    held = [int((strata >= level).sum()) for level in range(LEVEL_MAX + 1)]
    return next((level for level, rows in enumerate(held) if rows <= room), LEVEL_MAX)


@pytest.mark.parametrize(
    ("keys", "room", "rows_max"),
    [(1, 0, 1), (3, 1, 1), (40, 10, 1), (300, 50, 3), (scaled(1_000, 20_000), 200, 10)],
)
def test_counts_are_in_their_intervals_whatever_level_the_sample_leads_to(keys, room, rows_max):
    rng = np.random.default_rng(keys)
    held = np.zeros(2, np.int64)
    for _ in range(TRIALS):
        copies = np.minimum(rng.zipf(1.5, keys), rows_max)
        copies[rng.random(keys) < 0.1] = rows_max
        values = np.repeat(np.arange(keys), copies)
        hashes = KeyStrata(int(rng.integers(1 << 62))).hashes([pa.array(values, pa.int64())])
        strata = strata_of(hashes)
        level = _level(strata, room)
        certain = of_plan(rows_max, None)
        said = of_relation(("k",), hashes[strata >= level], level, certain)
        held += said.rows.holds(len(values)), said.keys.holds(keys)
        assert said.rows.bound is not Bound.NONE
    assert held.min() >= gate(TRIALS, 0.95)


def test_the_interval_of_many_keys_is_at_most_twice_as_wide_as_a_normal_one():
    rng = np.random.default_rng(5)
    for level in range(1, LEVEL_MAX + 1):
        values = pa.array(np.arange(100_000), pa.int64())
        hashes = KeyStrata(int(rng.integers(1 << 62))).hashes([values])
        said = of_relation(("k",), hashes[strata_of(hashes) >= level], level, of_plan(1, None))
        ideal = 1.96 * np.sqrt(100_000 * (2.0**level - 1))
        assert said.keys.half_width < 2.0 * ideal
        assert said.rows == said.keys


def test_strata_halve_and_equal_values_of_other_types_have_one_stratum():
    strata = KeyStrata(7)
    values = np.arange(1 << 16)
    found = strata_of(strata.hashes([pa.array(values, pa.int64())]))
    counts = np.bincount(found, minlength=LEVEL_MAX + 1)
    expected = [2.0 ** -(at + 1) for at in range(LEVEL_MAX)] + [2.0**-LEVEL_MAX]
    assert np.abs(counts / len(values) - expected).max() < 0.01
    narrow = strata_of(strata.hashes([pa.array(values, pa.int32())]))
    assert (found == narrow).all()
    zeros = strata.hashes([pa.array([0.0, -0.0])])
    assert zeros[0] == zeros[1]


def test_rows_without_a_bound_say_why_and_how_many_they_are():
    hashes = KeyStrata(3).hashes([pa.array(np.arange(4_000) // 4, pa.int64())])
    kept = hashes[strata_of(hashes) >= 2]
    relation, stream = of_relation(("k",), kept, 2, None), of_stretch(("k",), kept, 2, 10, 20)
    assert relation.rows.value == stream.rows.value == 4 * len(kept)
    assert (relation.rows.bound, relation.keys.bound) == (Bound.NONE, Bound.INTERVAL)
    assert (stream.rows.bound, stream.keys.bound) == (Bound.NONE, Bound.NONE)
    assert "any number of rows" in relation.text
    assert "without bound" in stream.text
    assert relation.facts()["rows"]["low"] is None
    assert of_stretch(("k",), hashes, 0, 10, 20).rows.bound is Bound.EXACT


def test_levels_say_which_strata_each_instant_has():
    thinning = KeyThinning(1).with_level(100, 2).with_level(200, 1)
    assert thinning.level == 1
    assert [thinning.least_level(us) for us in (None, 99, 100, 200)] == [0, 0, 1, 1]
    assert thinning.highest_level(0, 99) == 0
    assert thinning.highest_level(99, 150) == thinning.highest_level(150, 250) == 2
    instants = np.array([99, 100, 199, 200])
    assert thinning.has(0, instants).tolist() == [True, False, False, False]
    assert thinning.has(1, instants).tolist() == [True, False, False, True]
    assert [thinning.end_us(stratum) for stratum in (0, 1, 2)] == [100, None, None]
    assert thinning.with_level(150, 3).levels == ((100, 2), (150, 3))
    assert KeyThinning.from_json(thinning.to_json()) == thinning
