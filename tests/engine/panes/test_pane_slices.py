"""Where a view is cut from one pane to the next, beside a look at every row."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.cql.statements.pane_coarsening import Collapse
from shedder.cql.statements.statement import RangeWindow
from shedder.engine.panes.pane_slices import Integers, slices, slices_of
from shedder.streams.frame import Frame
from shedder.streams.windows import PaneGrid

_SECOND_US = 1_000_000


def _view(times: Integers) -> Frame:
    return Frame(pa.record_batch({"ts": pa.array(times, pa.timestamp("us"))}), "ts")


def _row_by_row(panes: Integers) -> list[tuple[int, int, int]]:
    found = []
    for pane, rows in groupby(range(len(panes)), key=lambda row: int(panes[row])):
        held = list(rows)
        found.append((pane, held[0], held[-1] + 1))
    return found


@given(
    rows=st.integers(1, 3_000),
    within_us=st.sampled_from([1, 1_000, _SECOND_US, 100 * _SECOND_US]),
    width_us=st.integers(1, 2 * _SECOND_US),
    from_us=st.integers(-(10**15), 10**15),
    seed=st.integers(0, 2**32 - 1),
)
def test_cuts_are_those_that_a_look_at_every_row_finds(
    rows: int, within_us: int, width_us: int, from_us: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    times = from_us + np.sort(rng.integers(0, within_us, rows))
    grid = PaneGrid.of(RangeWindow(width_us, width_us))
    expected = _row_by_row(grid.panes_of(times))
    assert list(slices(_view(times), grid.panes_of)) == expected
    assert list(slices_of(_view(times), grid)) == expected


@pytest.mark.parametrize("first_open", [None, 0, 40, 99])
def test_cuts_between_cells_of_several_panes_are_found_too(first_open: int | None) -> None:
    grid = PaneGrid.of(RangeWindow(80 * _SECOND_US, _SECOND_US, Collapse(4, 8)))
    times = np.sort(np.random.default_rng(1).integers(0, 100 * _SECOND_US, 5_000))

    def cells_of(some: Integers) -> Integers:
        return grid.cells_of(some, 100 * _SECOND_US, first_open)

    assert list(slices(_view(times), cells_of)) == _row_by_row(cells_of(times))


def test_few_rows_are_looked_at_where_panes_are_long() -> None:
    times = np.arange(65_536, dtype=np.int64)
    looked = []

    def panes_of(some: Integers) -> Integers:
        looked.append(some.size)
        return some // 30_000

    assert list(slices(_view(times), panes_of)) == [
        (0, 0, 30_000),
        (1, 30_000, 60_000),
        (2, 60_000, 65_536),
    ]
    assert sum(looked) < 1_000
