"""Widths of whole answers from the archive: what docs/coverage.md promises, for a few columns."""

from __future__ import annotations

from statistics import median

import pytest

from tests.engine.one_time_queries.output_widths import WANTED, measured
from tests.synopses.width_table import COLUMNS

SOURCE = "by group, archive"
ARCHIVE = 1  # Its place in WANTED.


@pytest.mark.slow
def test_sums_averages_and_variances_of_an_archive_part_are_as_narrow_as_promised() -> None:
    long_tails = {
        name: COLUMNS[name] for name in ("exponential", "lognormal, σ = 1", "Pareto, 2.1")
    }
    found = measured(long_tails, 1, (SOURCE,))
    ratios = [
        found[SOURCE, name] / (WANTED[name][ARCHIVE] or 0.0) for name in ("SUM", "AVG", "VAR")
    ]
    assert median(ratios) <= 1.0, ratios
    assert max(ratios) <= 1.1, ratios
