"""Parts of the interval of a join's total: with rounding alone they are the interval."""

from __future__ import annotations

import pytest

from synopses.joins.join_groups import JoinGroups
from synopses.joins.window_sums import RowTerm
from tests.synopses.joins.joined_panes import CELLS, drawn

TERMS = {
    "pairs": RowTerm(),
    "present": RowTerm(0, is_present=True),
    "sum": RowTerm(0),
}


@pytest.mark.parametrize("cell", CELLS[::17], ids=str)
def test_parts_and_rounding_are_the_whole_interval(cell):
    world = drawn(cell, 1)
    for aggregate, term in TERMS.items():
        found = world.found(aggregate, 0.95)
        parts = world.totals.parts(0, term, confidence=0.95)
        assert parts is not None
        assert min(parts.below, parts.above, parts.unknown) >= 0.0
        value, low, high = float(found.value[0]), float(found.low[0]), float(found.high[0])
        rounding = 2.0 + 1e-6 * (abs(low) + abs(high))
        for distance, part in ((value - low, parts.below), (high - value, parts.above)):
            assert distance == pytest.approx(part + parts.unknown, abs=rounding)
        if world.level == 0:
            assert parts.below == parts.above == parts.unknown == 0.0


@pytest.mark.parametrize("cell", CELLS[1::31], ids=str)
def test_parts_of_the_other_keys_have_those_of_the_keys_that_are_shown(cell):
    totals = drawn(cell, 2).totals
    groups = JoinGroups(totals.windows, groups_max=1 << 20)
    found = groups.pairs(confidence=0.95)
    whole = totals.parts(0, RowTerm(), confidence=0.95)
    others = groups.parts(0, RowTerm(), confidence=0.95)
    assert whole is not None
    assert others is not None
    shown = (found.high - found.low)[:-1].sum() / 2 if groups.has_others else 0.0
    assert others.unknown - whole.unknown == pytest.approx(shown, abs=1.0 + len(found))
    assert (found.high - found.low)[: groups.known].max(initial=0.0) == 0.0
