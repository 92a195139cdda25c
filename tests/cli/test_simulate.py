"""`shedder simulate`: page and data are written, and the exit code says what held."""

from __future__ import annotations

import json
import tomllib

import pytest
import structlog

from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode

SCENARIO = """
title = "small"
seconds = 1
[stream]
keys = 50
[[queries]]
name = "q"
sql = "SELECT COUNT(*) AS n FROM requests [RANGE INTERVAL '1' SECOND SLIDE INTERVAL '1' SECOND]"
[[producers]]
arrivals = {rate = 1000}
[claims]
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SCENARIO + "goodput_min = 0.9\n")
    yield path
    structlog.reset_defaults()


def test_a_page_and_data_are_written(path, tmp_path, capsys):
    page, data = tmp_path / "out.html", tmp_path / "out.json"
    assert run(["simulate", str(path), "-o", str(page), "-o", str(data)]) == ExitCode.FINE
    assert "<svg" in page.read_text()
    assert json.loads(data.read_text())["totals"]["applied"] > 500
    assert "everything held" in capsys.readouterr().err


def test_a_claim_that_is_missed_ends_with_6(path, capsys):
    path.write_text(SCENARIO + "late_min = 1000000\n")
    assert run(["simulate", str(path)]) == ExitCode.PRECISION
    assert "MISSED: late tuples" in capsys.readouterr().err


def test_seed_and_seconds_can_be_told(path, tmp_path):
    data = tmp_path / "out.json"
    run(["simulate", str(path), "--seed", "7", "--seconds", "0.5", "-o", str(data)])
    found = json.loads(data.read_text())
    assert (found["seed"], found["seconds"]) == (7, 0.5)


def test_mistakes_end_with_2(path, capsys):
    assert run(["simulate", str(path), "-o", "page.pdf"]) == ExitCode.USAGE
    path.write_text(SCENARIO.replace("keys", "kyes"))
    assert run(["simulate", str(path)]) == ExitCode.USAGE
    assert "did you mean keys?" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_measured_is_a_scenario_again(path, capsys):
    assert run(["simulate", str(path), "--calibrate"]) == ExitCode.FINE
    printed = capsys.readouterr().out
    costs = tomllib.loads(printed)["costs"]
    assert costs["base_ns"] > 0
    assert costs["factor"]["q"] > 0
    path.write_text(SCENARIO.replace("[claims]\n", printed))
    assert run(["simulate", str(path)]) == ExitCode.FINE
