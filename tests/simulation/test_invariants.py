"""Random worlds: the ledger is exact, receipts are kept, budgets hold, intervals cover."""

from __future__ import annotations

import pytest

from tests.simulation.invariants import look, scenario_of


def check(first: int, count: int) -> None:
    found = look(first, count)
    assert not found.wrong
    assert not found.uncovered()
    assert found.worlds == count
    assert found.thinned > count // 10
    assert found.crashed > count // 20
    assert found.of_tenants > count // 10
    assert found.merges >= count // 20
    assert found.slowest_s <= 10


@pytest.mark.slow
def test_a_few_random_worlds():
    check(0, 8)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 3_000, 250))
def test_two_thousand_random_worlds(first):
    check(first, 250)


def test_a_seed_is_a_scenario():
    assert scenario_of(5) == scenario_of(5) != scenario_of(6)
