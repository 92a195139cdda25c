"""The tour of the pipeline, with one year of flights instead of three."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_both_ways_take_every_flight_once_and_spark_agrees(tmp_path: Path) -> None:
    # In a process of its own: it stops its JVM at the end, and there is one per process.
    command = [sys.executable, "-m", "shedder.cli.main", "spark-demo", "--years", "1"]
    done = subprocess.run(
        [*command, "--report", str(tmp_path / "report")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "336,776 flights, taken once by both ways: True" in done.stdout
    assert "UNLIKE" not in done.stdout
    for way in ("summarised", "forwarded"):
        report = json.loads((tmp_path / "report" / way / "report.json").read_text())
        assert report["passed"] is True
