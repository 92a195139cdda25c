"""The command `shedder accuracy`: its report, its exit codes and its authorization.

One test starts the command as a process with its own JVM; the other tests call it in this process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import shedder
from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode
from tests.scale import scaled
from tests.server.conftest import Authority
from tests.server_process import running

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECOND = 1_000_000
ROWS = 20_000
QUESTIONS = scaled(12, 48)
CREATE = "CREATE STREAM s (ts TIMESTAMP NOT NULL, x DOUBLE, k BIGINT, g VARCHAR) TIMESTAMP BY ts"
WINDOW = "[RANGE 10 SECONDS SLIDE 10 SECONDS]"


def rows(number: int) -> pa.Table:
    """Ten seconds of tuples."""
    rng = np.random.default_rng(number)
    times = np.sort(rng.integers(0, 10 * SECOND, ROWS)) + number * 10 * SECOND
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "x": rng.lognormal(0, 1, ROWS),
            "k": rng.zipf(1.4, ROWS) % 500,
            "g": rng.choice(["a", "b", "c"], ROWS, p=[0.7, 0.2, 0.1]),
        }
    )


def accuracy(*arguments: object) -> int:
    """Call the command in this process, which uses the present session."""
    return run(["accuracy", *map(str, arguments)])


def test_questions_are_asked_of_a_directory_and_judged_in_a_report(tmp_path: Path) -> None:
    with shedder.open(tmp_path / "data") as db:
        db.execute(CREATE)
        for number in range(2):
            db.push("s", rows(number))
    report = tmp_path / "report"
    command = [sys.executable, "-m", "shedder.cli.main", "accuracy", "--heap-mb", "1024"]
    command += ["--data", str(tmp_path / "data"), "--report", str(report)]
    command += ["--questions", str(QUESTIONS)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)
    assert ended.returncode == ExitCode.FINE, ended.stderr[-3000:]
    found = json.loads((report / "report.json").read_text())
    assert found["subject"] == f"s, {2 * ROWS:,} tuples"
    assert (found["passed"], len(found["questions"])) == (True, QUESTIONS)
    assert len(found["values"]) > QUESTIONS
    assert all(value["held"] for value in found["values"] if value["bound"] == "exact")
    assert {"aggregate", "held", "required"} <= set(ended.stdout.splitlines()[0].split())
    assert f"{QUESTIONS} answered, 0 refused: " in " ".join(ended.stderr.split())
    page = (report / "report.html").read_text()
    assert "<svg" in page
    assert "<script" not in page
    assert "src=" not in page


def test_what_cannot_be_asked_is_said_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with shedder.open(tmp_path / "data") as db:
        db.execute(CREATE)
    assert accuracy("--data", tmp_path / "data", "--every", 5) == ExitCode.USAGE
    assert "--every needs --connect" in capsys.readouterr().err
    assert accuracy("--data", tmp_path / "nowhere") == ExitCode.USAGE


def test_a_server_with_tokens_lends_its_answers_to_its_admin_alone(
    spark: SparkSession,
    tmp_path: Path,
    authority: Authority,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, ca, token = tmp_path / "data", tmp_path / "ca.pem", tmp_path / "token"
    ca.write_bytes(authority.ca_pem)
    settings = authority.settings(tokens_file=authority.tokens_file, audit="off", overload="off")
    with shedder.open(data, settings) as db, running(db, settings) as address:
        db.execute(CREATE)
        db.register("q", f"SELECT g, COUNT(*) AS n, SUM(x) AS total FROM s {WINDOW} GROUP BY g")
        here = ["--data", data, "--connect", address, "--stream", "s", "--ca", ca]
        once = [*here, "--token-file", token, "--every", 1, "--rounds", 1]

        db.push("s", rows(0))
        db.heartbeat("s", 10 * SECOND)
        token.write_text(authority.tokens["query"])
        assert accuracy(*once) == ExitCode.IDENTITY
        token.write_text(authority.tokens["admin"])
        capsys.readouterr()
        assert accuracy(*once) == ExitCode.FINE
        assert capsys.readouterr().out == "q: 0 of 6 values missed; certified\n"

        db.push("s", rows(1))  # Behind the service's back, the archive gets another truth.
        db.heartbeat("s", 20 * SECOND)
        db.seal("s")
        newest = max((data / "runs").rglob("*.parquet"))
        table = pq.read_table(newest)
        at = table.schema.get_field_index("x")
        pq.write_table(table.set_column(at, "x", pa.array(table["x"].to_numpy() + 1.0)), newest)
        assert accuracy(*once) == ExitCode.PRECISION
        assert capsys.readouterr().out.startswith("q: 3 of 6 values missed; not certified: ")
