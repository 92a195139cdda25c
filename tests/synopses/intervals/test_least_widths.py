"""Widths of intervals beside the least that can be proven: what docs/coverage.md says of them."""

from __future__ import annotations

import pytest

from tests.synopses.least_widths import SIZES, correlations, median_ranks, variances
from tests.synopses.width_table import COLUMNS


@pytest.mark.parametrize(("size", "read"), [*SIZES, (400, 25), (5_000, 80)])
def test_the_median_has_nearly_the_nearest_ranks_that_hold(size: int, read: int) -> None:
    ranks = median_ranks(size, read)
    assert ranks.least <= ranks.ours <= 1.1 * ranks.least


@pytest.mark.parametrize(("size", "read"), SIZES)
def test_the_variance_of_two_heights_is_no_narrower_than_it_may_be(size: int, read: int) -> None:
    ours, least = variances(size, read, 40)
    assert 0.0 < least <= ours <= 4.0 * least


@pytest.mark.parametrize("name", ["0/1, half ones", "normal", "lognormal, σ = 1"])
def test_a_correlation_is_no_narrower_than_it_may_be(name: str) -> None:
    found = correlations(COLUMNS[name], *SIZES[0], 5)
    assert 0.0 < found.least <= found.ours <= 1.0
    assert found.certified == (name == "0/1, half ones")
