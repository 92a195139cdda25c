"""Aggregates of joins by key: groups that are shown, and the group of the other keys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from synopses.joins.closed_panes import ClosedPane
from synopses.joins.join_groups import JoinGroups
from synopses.joins.joined_windows import JoinedWindows
from synopses.joins.pane_counts import PaneRoom
from synopses.model.estimate import Bound
from tests.seeds import seed
from tests.sequential import holds
from tests.synopses.joins.joined_panes import SIZES, VALUES, Cell, JoinedPanes, drawn, hashes_of

CONFIDENCE = 0.95
NAMES = ("pairs", "present", "sum", "average")


def _found(world: JoinedPanes, groups_max: int = 10_000) -> tuple[JoinGroups, dict]:
    groups = JoinGroups(JoinedWindows(world.panes, world.secrets), groups_max)
    found = {"pairs": groups.pairs(confidence=CONFIDENCE)}
    for name in NAMES[1:]:
        found[name] = getattr(groups, name)(0, 0, confidence=CONFIDENCE)
    return groups, found


def _truths(world: JoinedPanes) -> dict[str, np.ndarray]:
    others = np.prod(world.counts[1:], axis=0)
    present = world.values[0] * others
    total = world.values[1] * others / 8
    with np.errstate(invalid="ignore", divide="ignore"):
        average = total / present
    return dict(zip(NAMES, (world.counts[0] * others, present, total, average), strict=True))


def _checked(world: JoinedPanes, aggregate: str, groups_max: int = 10_000) -> bool:
    """Assert what is certain, and return whether the group of the other keys holds the truth."""
    groups, every = _found(world, groups_max)
    assert len(groups.hashes) <= groups_max
    found, truth = every[aggregate], _truths(world)
    keys = {hashed: at for at, hashed in enumerate(hashes_of(np.arange(len(truth["pairs"]))))}
    places = np.array([keys[each] for each in groups.hashes], int)
    assert len(set(places)) == len(places)
    assert (truth["pairs"][places] > 0).all()
    shown = slice(0, len(places))
    is_empty = np.isnan(found.high[shown])
    assert (truth["present"][places[is_empty]] == 0).all()
    low, high = found.low[shown][~is_empty], found.high[shown][~is_empty]
    of_groups = truth[aggregate][places][~is_empty]
    known = ~np.isnan(of_groups)
    slack = 1e-9 * np.abs(of_groups[known])
    assert (low[known] <= of_groups[known] + slack).all()
    assert (of_groups[known] - slack <= high[known]).all()
    hidden = np.setdiff1d(np.flatnonzero(truth["pairs"]), places)
    if not groups.has_others:
        assert len(hidden) == 0
        return True
    number = groups.hidden(confidence=CONFIDENCE)
    sums = {name: truth[name][hidden].sum() for name in NAMES[:3]}
    if aggregate == "average":
        if not sums["present"]:
            return True
        sums["average"] = sums["sum"] / sums["present"]
    rest = sums[aggregate]
    is_held = bool(found.low[-1] <= rest + 1e-6 and rest - 1e-6 <= found.high[-1])
    return is_held and bool(number.low[0] <= len(hidden) <= number.high[0])


@pytest.mark.parametrize("aggregate", NAMES)
@pytest.mark.parametrize("inputs", [2, 3])
def test_groups_are_certain_and_the_other_keys_have_an_interval_that_holds(aggregate, inputs):
    kind = NAMES.index(aggregate) + inputs
    cell = Cell(
        (0.5, 1.1)[kind % 2],
        kind % 3 > 0,
        ("steady", "bursts", "moving")[kind % 3],
        SIZES[1],
        rows=600,
        values=VALUES[kind % 3],
        inputs=inputs,
    )

    def is_held(trial: int) -> bool:
        world = drawn(cell, seed("groups", aggregate, inputs, trial))
        return _checked(world, aggregate, (20, 10_000)[trial % 2])

    # Two intervals in a trial.
    assert holds(is_held, 1.0 - 2 * (1.0 - CONFIDENCE), trials=100)


def test_where_all_keys_find_room_all_groups_are_exact():
    cell = Cell(0.8, True, "steady", PaneRoom(16, 4_096, 256), values="signed")
    world = drawn(cell, seed("exact groups"))
    groups, found = _found(world)
    assert not groups.has_others
    assert len(groups.hashes) == np.count_nonzero(_truths(world)["pairs"])
    assert _checked(world, "sum")
    assert (found["pairs"].bound == Bound.EXACT).all()
    few, _ = _found(world, 30)
    most = np.sort(_truths(world)["pairs"])[-30:]
    assert few.pairs(confidence=CONFIDENCE).value[:-1].sum() == most.sum()
    assert _checked(world, "pairs", 30)
    hidden = groups.hidden(confidence=CONFIDENCE)
    assert (hidden.value[0], hidden.bound[0]) == (0, Bound.EXACT)


def test_a_join_without_panes_has_no_groups():
    world = drawn(Cell(0.8, True, "steady", PaneRoom(16, 64, 256)), seed("no groups"))
    none: list[ClosedPane] = []
    groups, found = _found(replace(world, panes=(world.panes[0], none)))
    assert len(groups.hashes) == 0
    assert [len(each) for each in found.values()] == [0] * 4
