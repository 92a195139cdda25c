"""Sizes of tests that differ between a per-change run and a nightly run.

`make test` runs at the scale of a change. `make nightly` sets `SHEDDER_SCALE=nightly`. Only this
module reads the variable.

    CYCLES = scaled(6, 60)  # A per-change run draws different cycles each time (tests/seeds.py).

Tests that are alike in kind take turns: a per-change run has one of them, a nightly run all.

    @in_turn("kills of a JVM", 0, of=3)
    def test_a_driver_that_is_killed_goes_on_where_it_was():
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

import pytest

from tests.seeds import seed

VARIABLE = "SHEDDER_SCALE"

T = TypeVar("T")


class Scale(Enum):
    """The amount of testing in a run."""

    CHANGE = "change"
    NIGHTLY = "nightly"


def scale(environment: Mapping[str, str]) -> Scale:
    """Return the scale that this environment gives to a run."""
    return Scale(environment.get(VARIABLE, Scale.CHANGE.value))


# Read once: tests/conftest.py takes the variable out of the environment of tests.
SCALE = scale(os.environ)


def scaled(change: T, nightly: T, at: Scale = SCALE) -> T:
    """Return the size for this run: `change` in a per-change run, `nightly` in a nightly run."""
    return nightly if at is Scale.NIGHTLY else change


def in_turn(group: str, place: int, *, of: int) -> pytest.MarkDecorator:
    """Return the mark of a test of a group: `slow` if this run has the test, else `nightly`.

    The seed of the run decides which tests a per-change run has, so each commit draws anew.

    Args:
      group: name of the group.
      place: turn of the test; 0 <= place < of.
      of: number of turns.
    """
    assert 0 <= place < of, place
    has_turn = scaled(seed(group) % of == place, True)
    return pytest.mark.slow if has_turn else pytest.mark.nightly
