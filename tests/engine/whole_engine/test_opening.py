"""What a process that opens an engine does without."""

from __future__ import annotations

import subprocess
import sys

import pytest

RARE = ("duckdb", "scipy.optimize", "scipy.stats")


@pytest.mark.slow
def test_opening_imports_nothing_that_only_rare_questions_need() -> None:
    program = f"import sys, shedder.engine.engine; print([m for m in {RARE} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
