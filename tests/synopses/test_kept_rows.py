"""Rows that are kept in a file: a run goes on with them, but not with those of other modules."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.synopses.kept_rows import KeptRows


def refuse() -> list[float]:
    pytest.fail("a row that is kept was measured again")


def test_a_run_goes_on_with_the_rows_that_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "build" / "rows.jsonl"
    first = KeptRows(file)
    assert first.row("widths", "uniform", lambda: (1.5, math.nan)) == pytest.approx(
        [1.5, math.nan], nan_ok=True
    )
    again = KeptRows(file)
    assert again.holds("widths", "uniform")
    assert again.row("widths", "uniform", refuse) == pytest.approx([1.5, math.nan], nan_ok=True)
    assert again.row("widths", "normal", lambda: [2.0]) == [2.0]
    assert len(file.read_text(encoding="utf-8").splitlines()) == 2


def test_rows_of_other_modules_are_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(["0" * 16, "widths: uniform", [1.0]]) + "\n", encoding="utf-8")
    rows = KeptRows(file)
    assert not rows.holds("widths", "uniform")
    assert rows.row("widths", "uniform", lambda: [2.0]) == [2.0]


def test_without_a_file_rows_stay_in_memory() -> None:
    rows = KeptRows()
    assert rows.row("widths", "uniform", lambda: [2.0]) == [2.0]
    assert rows.row("widths", "uniform", refuse) == [2.0]
