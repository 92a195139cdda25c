"""The sizes of per-change and nightly runs."""

from __future__ import annotations

import pytest

from tests.scale import SCALE, VARIABLE, Scale, scale, scaled


def test_a_run_is_of_a_change_unless_the_environment_says_nightly():
    assert scale({}) is Scale.CHANGE
    assert scale({VARIABLE: "nightly"}) is Scale.NIGHTLY


def test_a_misspelt_scale_is_refused():
    with pytest.raises(ValueError, match="nigthly"):
        scale({VARIABLE: "nigthly"})


def test_each_scale_has_its_size():
    assert scaled(4, 40, Scale.CHANGE) == 4
    assert scaled(4, 40, Scale.NIGHTLY) == 40
    assert scaled(4, 40) == scaled(4, 40, SCALE)
