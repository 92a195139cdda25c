"""Memory accounting is true: what synopses say they hold is what the process grew by."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MIB = 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        (),
        ("extremes by group",),
        ("extremes of texts by group",),
        ("items by group",),
        ("texts by group",),
    ],
)
def test_what_standing_queries_say_they_hold_is_what_the_process_grew_by(
    names: tuple[str, ...],
) -> None:
    """All kinds together (or some alone), in a process of their own: above 64 MB within 10 %."""
    command = [sys.executable, "-m", "tests.engine.memory_grown", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    told = json.loads(done.stdout)
    assert told["said"] > 64 * MIB
    assert abs(told["said"] - told["grown"]) <= 0.1 * told["grown"]
