"""Loading leaves the collector as it was."""

import gc

import pytest

from shedder.gc_tuning import keeping_what_is_loaded, loading


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_rests_while_loading_and_is_then_as_before(was_on):
    before = gc.isenabled()
    (gc.enable if was_on else gc.disable)()
    try:
        with loading():
            assert not gc.isenabled()
        assert gc.isenabled() is was_on
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.slow
def test_what_is_loaded_rests_meanwhile_and_no_longer():
    with keeping_what_is_loaded():
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
