"""What `exact` leaves to rounding in functions of pairs, as docs/answers.md says it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import shedder

ROWS = 3000
QUESTION = "SELECT VAR(y) AS v, REGR_SLOPE(x, y) AS s, REGR_INTERCEPT(x, y) AS i FROM t"


def exactly(x: np.ndarray, y: np.ndarray) -> dict[str, Fraction]:
    xs, ys = ([Fraction(value) for value in column.tolist()] for column in (x, y))
    mean_x, mean_y = sum(xs) / ROWS, sum(ys) / ROWS
    squares = sum((b - mean_y) ** 2 for b in ys)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(xs, ys, strict=True)) / squares
    return {"v": squares / (ROWS - 1), "s": slope, "i": mean_x - slope * mean_y}


@pytest.mark.slow
@pytest.mark.parametrize("mean", [0.0, 1e6, 1e9])
def test_panes_and_archive_are_as_near_as_exact_promises(mean: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(int(mean))
    y = rng.normal(mean, 1, ROWS)
    x = y / 2 + rng.normal(0, 1, ROWS)
    with shedder.open(tmp_path / "data") as db:
        db.execute("CREATE STREAM t (ts TIMESTAMP NOT NULL, x DOUBLE, y DOUBLE) TIMESTAMP BY ts")
        standing = db.register("pairs", QUESTION)
        times = pa.array(np.arange(ROWS), pa.timestamp("us"))
        receipt = db.push("t", pa.table({"ts": times, "x": x, "y": y}))
        answers = standing.answer(after=receipt), db.execute(QUESTION)
        rows = [answer.rows()[0] for answer in answers]
    truth, ratio = exactly(x, y), np.std(x) / np.std(y)
    largest = {"v": np.var(y), "s": ratio, "i": abs(x.mean()) + abs(y.mean()) * ratio}
    kappa = 1 + max(abs(column.mean()) / np.std(column) for column in (x, y))
    for name, exact in truth.items():
        for row in rows:
            assert row[f"{name}_bound"] == "exact"
            off = abs(Fraction(row[name]) - exact)
            assert off <= ROWS * kappa * 2.0**-53 * largest[name]
        assert abs(Fraction(rows[0][name]) - exact) <= 1e-12 * largest[name]


@pytest.mark.slow
def test_whole_numbers_beyond_doubles_are_exact_wherever_they_are_asked(tmp_path: Path) -> None:
    """Panes, the archive and a sample of everything tell neighbours of 2^62 apart."""
    rng = np.random.default_rng(6)
    y = 2**62 + rng.integers(0, 1000, ROWS)
    x = y - rng.integers(0, 100, ROWS)
    parts = "VAR(y) AS v, COVAR_SAMP(x, y) AS c, REGR_SLOPE(x, y) AS s, MEDIAN(y) AS m"
    question = f"SELECT {parts} FROM t"
    pairs = "SELECT VAR(y) AS v, COVAR_SAMP(x, y) AS c, REGR_SLOPE(x, y) AS s FROM t"
    with shedder.open(tmp_path / "data") as db:
        db.execute("CREATE STREAM t (ts TIMESTAMP NOT NULL, x BIGINT, y BIGINT) TIMESTAMP BY ts")
        standing = db.register("pairs", pairs)
        times = pa.array(np.arange(ROWS), pa.timestamp("us"))
        receipt = db.push("t", pa.table({"ts": times, "x": x, "y": y}))
        answers = (
            standing.answer(after=receipt),
            db.execute(question),
            db.execute(f"{question} WITHIN 5 PERCENT"),
        )
        rows = [answer.rows()[0] for answer in answers]
    truth = exactly(x, y)
    covariance = float(truth["s"] * truth["v"])
    for row in rows:
        assert {row[f"{name}_bound"] for name in "vcs"} == {"exact"}
        assert row["v"] == pytest.approx(float(truth["v"]), rel=1e-12)
        assert row["s"] == pytest.approx(float(truth["s"]), rel=1e-12)
        assert row["c"] == pytest.approx(covariance, rel=1e-12)
    assert [row["m"] for row in rows[1:]] == [int(np.sort(y)[ROWS // 2 - 1])] * 2
