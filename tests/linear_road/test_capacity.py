"""The search for the largest number of expressways."""

from __future__ import annotations

import pytest

from examples.linear_road.capacity import largest


@pytest.mark.parametrize("most", [1, 2, 7, 64])
def test_the_largest_number_that_holds_is_found_with_few_trials(most: int) -> None:
    for truth in range(most + 1):
        tried: list[int] = []

        def holds(number: int, truth: int = truth, tried: list[int] = tried) -> bool:
            tried.append(number)
            return number <= truth

        assert largest(holds, most) == truth
        assert len(set(tried)) == len(tried) <= 13
        assert set(tried) <= set(range(1, most + 1))
