"""The soak of `make nightly` shows a growth of 2 %, and refuses arguments that would show none."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks.studies.soak import ALLOWED_GROWTH, ROWS_PER_S, Soaked, duration_s
from benchmarks.workloads.served import environment

SECONDS = 3_600
LEVEL_BYTES = 700e6


def soaked(resident: np.ndarray, rate_share: float = 1.0) -> Soaked:
    return Soaked(resident.astype(int).tolist(), int(rate_share * ROWS_PER_S * SECONDS), SECONDS)


def noisy(shape: np.ndarray) -> np.ndarray:
    """A resident size with spikes of up to a tenth, as writing of runs makes them."""
    spikes = np.random.default_rng(1).random(SECONDS) ** 8
    return LEVEL_BYTES * shape * (1.0 + 0.1 * spikes)


GROWING = np.linspace(0.0, 1.0, SECONDS)
SECOND_HALF = np.maximum(0.0, 2.0 * GROWING - 1.0)


@pytest.mark.parametrize("growth", [0.02, 0.05, 1.0])
def test_a_growth_of_two_percent_in_the_second_half_is_shown(growth: float) -> None:
    steady, step = 1.0 + 1.02 * growth * SECOND_HALF, 1.0 + growth * (GROWING > 0.8)
    for shape in (steady, step, 1.0 + 3.0 * growth * GROWING):
        found = soaked(noisy(shape))
        assert found.growth >= ALLOWED_GROWTH
        assert not found.is_good


def test_a_growth_in_the_first_half_and_a_smaller_one_in_the_second_are_allowed() -> None:
    first_half = np.minimum(1.0, 2.0 * GROWING)
    for shape in (1.0 + first_half, 1.0 + 0.01 * SECOND_HALF, 2.0 - GROWING):
        found = soaked(noisy(shape))
        assert found.growth < ALLOWED_GROWTH
        assert found.is_good


def test_a_rate_that_was_not_kept_fails() -> None:
    steady = noisy(np.ones(SECONDS))
    assert soaked(steady, 0.991).is_good
    assert not soaked(steady, 0.989).is_good


@pytest.mark.parametrize("text", ["", "60s", "-1", "0", "39", "nan", "inf", "1e9", "an hour"])
def test_a_time_that_would_show_no_growth_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="from 40 to 604,800 seconds"):
        duration_s(text)
    assert duration_s("60") == 60.0


def test_a_server_gets_no_settings_of_its_caller() -> None:
    caller = {"PATH": "/bin", "SHEDDER_SCALE": "nightly", "SHEDDER_MEMORY_BYTES": "1GiB"}
    found = environment(caller, {"memory_bytes": 1 << 28})
    assert found == {"PATH": "/bin", "SHEDDER_MEMORY_BYTES": "268435456"}
