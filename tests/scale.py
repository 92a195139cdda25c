"""Sizes of tests that differ between a per-change run and a nightly run.

`make test` runs at the scale of a change. `make nightly` sets `SHEDDER_SCALE=nightly`. Only this
module reads the variable.

    CYCLES = scaled(6, 60)  # A per-change run draws different cycles each time (tests/seeds.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

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
