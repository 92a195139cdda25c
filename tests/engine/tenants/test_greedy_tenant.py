"""A tenant at ten times its quota hardly moves what another one waits, in virtual time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.greedy_world import QUOTA, TICKS, Shared


@pytest.fixture
def waits_s(tmp_path):
    """Of the modest tenant, beside so many times the quota of the greedy one."""

    def found(times):
        world = Shared(tmp_path / str(times))
        world.engine.quotas.set_quota("greedy", "rows_per_s", str(QUOTA))
        waits = world.waits_s(times)
        world.engine.close()
        return waits, world.refused

    return found


@pytest.mark.slow
def test_ten_times_a_quota_moves_nobody_elses_waits_by_more_than_two(waits_s):
    """Of any batch: a tenant that was idle may not send what a second brings at once."""
    at_quota, _ = waits_s(1)
    at_ten, refused = waits_s(10)
    assert refused["greedy"] > 5 * TICKS
    assert refused["modest"] == 0
    assert np.percentile(at_ten, 99) <= 2 * np.percentile(at_quota, 99)
    assert at_ten.max() <= 2 * np.percentile(at_quota, 99)
    assert np.median(at_ten) <= 2 * np.median(at_quota)
