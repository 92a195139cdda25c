"""COLLAPSE: which cells of old panes stand follows from the window's end, and windows are whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.cql.binding.parse import parse
from shedder.cql.statements.canonical_text import text_of_select
from shedder.cql.statements.pane_coarsening import PANES, Coarsening, Collapse
from shedder.cql.statements.statement import RangeWindow, Select
from shedder.cql.text.size_limits import Limits
from shedder.errors import BadQuery

SECOND = 1_000_000
COLLAPSES = st.builds(Collapse, rate=st.integers(2, 9), depth=st.integers(1, 20))


def window_of(clause: str, limits: Limits | None = None) -> RangeWindow:
    select = parse(f"SELECT COUNT(*) AS n FROM s [{clause}]", None, limits or Limits())
    assert isinstance(select, Select)
    assert isinstance(select.window, RangeWindow)
    again = parse(text_of_select(select), None, limits or Limits())
    assert isinstance(again, Select)
    assert again.window == select.window
    return select.window


@given(panes=st.integers(1, 400), collapse=COLLAPSES, end=st.integers(-1_000, 1_000))
def test_a_window_is_made_of_whole_cells_and_not_of_more_than_were_promised(
    panes: int, collapse: Collapse, end: int
) -> None:
    coarsening = Coarsening.of(panes, collapse)
    start = (end - panes) // coarsening.longest * coarsening.longest
    cells = coarsening.cells(np.arange(start, end), end)
    firsts = np.unique(cells)
    assert firsts[0] == start
    edges = [*coarsening.bounds(end), -(10**9)]
    assert edges == sorted(edges, reverse=True)
    above = end
    for grain, edge, most in zip(
        coarsening.grains, edges, coarsening.cells_max(panes), strict=True
    ):
        mine = firsts[(firsts >= edge) & (firsts < above)]
        assert (mine % grain == 0).all()
        assert len(mine) <= most
        above = min(above, edge)


@given(panes=st.integers(1, 400), collapse=COLLAPSES, end=st.integers(-500, 500))
def test_as_a_window_slides_panes_only_become_coarser(
    panes: int, collapse: Collapse, end: int
) -> None:
    coarsening = Coarsening.of(panes, collapse)
    start = (end - panes) // coarsening.longest * coarsening.longest
    now, then = (coarsening.cells(np.arange(start, end), each) for each in (end, end + 3))
    joined = {}
    for cell, longer in zip(now.tolist(), then.tolist(), strict=True):
        assert joined.setdefault(cell, longer) == longer, "a cell was torn"


def test_by_three_after_two_by_hand() -> None:
    coarsening = Coarsening.of(12, Collapse(3, 2))
    assert coarsening == Coarsening(grains=(1, 3, 9), kept=(2, 8))
    assert coarsening.bounds(20) == (18, 9)
    cells = coarsening.cells(np.arange(0, 20), 20)
    assert np.unique(cells).tolist() == [0, 9, 12, 15, 18, 19]


def test_without_a_collapse_all_cells_are_panes() -> None:
    assert Coarsening.of(10_000, None) == PANES
    assert PANES.bounds(5) == ()
    assert PANES.cells_max(60) == (60,)


def test_collapse_alone_keeps_few_panes_of_each_kind() -> None:
    window = window_of("RANGE 1 DAY SLIDE 1 SECOND COLLAPSE")
    assert window.collapse == Collapse(300, 300)
    assert window.resolution_us == 300 * SECOND
    assert Coarsening.of(86_400, window.collapse).cells_max(86_400) == (599, 288)
    assert window_of("RANGE 1 MINUTE COLLAPSE").resolution_us == 10 * SECOND


def test_rate_and_depth_can_be_said() -> None:
    window = window_of("RANGE 1 HOUR SLIDE 1 SECOND COLLAPSE BY 2 AFTER 100")
    assert window.collapse == Collapse(2, 100)
    assert window.resolution_us == 32 * SECOND
    assert window_of("RANGE 1 MINUTE COLLAPSE BY 2 AFTER 60").resolution_us == 0


@pytest.mark.parametrize(
    ("clause", "words"),
    [
        ("RANGE 1 DAY SLIDE 1 SECOND", "86,400 panes.*COLLAPSE.*multiple of INTERVAL '5' MINUTE"),
        ("RANGE 1 DAY SLIDE 1 SECOND COLLAPSE BY 2 AFTER 20000", "needs .* panes"),
        ("RANGE 1 MINUTE COLLAPSE BY 100 AFTER 10", "longer than the window"),
        ("RANGE 1 MINUTE COLLAPSE BY 1 AFTER 10", "COLLAPSE BY takes a whole number .* 2 or more"),
        ("RANGE 1 MINUTE COLLAPSE BY 2 AFTER 0", "AFTER takes a whole number .* 1 or more"),
        ("RANGE 1 MINUTE COLLAPSE BY 2.5 AFTER 3", "whole number"),
        ("RANGE 1 MINUTE COLLAPSE BY 2", "expected AFTER"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_a_way_out(clause: str, words: str) -> None:
    with pytest.raises(BadQuery, match=words):
        window_of(clause)
