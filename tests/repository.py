"""Files that belong to the repository, as git lists them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = ("shedder", "synopses", "allocator", "spark_ingest")
"""Top packages that the wheel holds for users, without the benchmarks."""


def tracked(*patterns: str) -> list[Path]:
    """Return the tracked files that match a pattern; skip the test without a git checkout."""
    names = subprocess.run(
        ["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if names.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in names.stdout.split("\0") if name and (ROOT / name).is_file()]
