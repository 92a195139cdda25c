"""While panes of an earlier size live: why sizes are chosen by what windows err by after them."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from allocator.allocate import allocate
from allocator.curves import bound_by_panes
from allocator.demands import Budget
from tests.allocator.problems import demands_of

PANES = 5  # Of a window.
OPTIONS = [(1, 0, 9.0), (4, 0, 3.0), (10, 0, 1.0)]
READERS = [(0, 1, 2.0, 2.0), (1, 3, 2.0, 2.0)]


def lived(turns: int, budget: Budget, *, bound: bool) -> list[list[float]]:
    """What the windows of two synopses err by, turn after turn; all panes were coarse at first.

    bound: whether sizes are chosen by errors that the coarsest live pane bounds.
    """
    demands = demands_of([OPTIONS] * 2, READERS)
    curve = demands.options.error
    live = [deque([0] * PANES, PANES) for _ in READERS]
    found = []
    for _ in range(turns):
        coarsest = [max(curve[row, option] for option in panes) for row, panes in enumerate(live)]
        error = [
            bound_by_panes(of, float(worst)) if bound else of
            for of, worst in zip(curve, coarsest, strict=True)
        ]
        options = replace(demands.options, error=np.array(error))
        present = np.array([panes[-1] for panes in live])
        choice = allocate(replace(demands, options=options, present=present), budget).choice
        for panes, option in zip(live, choice.tolist(), strict=True):
            panes.append(option)
        found.append(
            [float(curve[row, list(panes)].max()) for row, panes in enumerate(live)],
        )
    return found


def test_chosen_by_what_comes_after_targets_are_met_when_the_coarse_panes_have_left():
    errors = lived(PANES + 3, Budget(20), bound=False)
    assert errors[PANES - 2] == [9.0, 9.0]  # One of them is still there.
    assert errors[PANES - 1 :] == [[1.0, 1.0]] * 4


def test_chosen_by_what_is_bound_by_coarse_panes_they_would_stay_for_ever():
    # No size of new panes is of any use to this window, so the least is taken, and is coarse too.
    assert lived(20 * PANES, Budget(20), bound=True) == [[9.0, 9.0]] * (20 * PANES)
