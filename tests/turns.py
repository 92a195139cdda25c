"""Tests that take turns: a per-change run has one of a group of tests that are alike in kind.

    @in_turn("killed drivers", 0, of=3)
    def test_a_driver_that_is_killed_goes_on_where_it_was():

The seed of the run decides which one, so each commit draws anew. A nightly run has the whole group.
"""

from __future__ import annotations

import pytest

from tests.scale import scaled
from tests.seeds import seed


def in_turn(group: str, place: int, *, of: int) -> pytest.MarkDecorator:
    """Return the mark of a test of a group: `slow` if this run has the test, else `nightly`.

    Args:
      group: name of the group.
      place: number of the test in the group; 0 <= place < of.
      of: number of tests in the group.
    """
    assert 0 <= place < of, place
    has_turn = scaled(seed(group) % of == place, True)
    return pytest.mark.slow if has_turn else pytest.mark.nightly
