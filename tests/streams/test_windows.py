"""Event time: panes, windows and the watermark, against definitions worked out by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shedder.cql.statements.statement import LandmarkWindow, RangeWindow, UnboundedWindow
from shedder.streams.batches import TIME_MIN_US
from shedder.streams.watermark import Watermark
from shedder.streams.windows import PaneGrid, Span

SECOND = 1_000_000
times = st.integers(-(10**15), 10**15)


def test_a_pane_is_the_greatest_common_divisor_of_range_and_slide() -> None:
    grid = PaneGrid.of(RangeWindow(90 * SECOND, 60 * SECOND))
    assert grid.width_us == 30 * SECOND
    assert grid.panes_in(Span(0, 90 * SECOND)) == range(3)


@given(
    time=times,
    range_s=st.integers(1, 100),
    slide_s=st.integers(1, 100),
    end_number=st.integers(-500, 500),
)
def test_a_tuple_is_in_a_window_exactly_when_its_pane_is(
    time, range_s, slide_s, end_number
) -> None:
    grid = PaneGrid.of(RangeWindow(range_s, slide_s))
    window = grid.window(end_number * slide_s)
    pane = int(grid.panes_of(np.array([time]))[0])
    assert grid.pane_of(time) == pane
    assert window.start_us is not None
    assert window.end_us is not None
    assert (pane in grid.panes_in(window)) == (window.start_us <= time < window.end_us)


@given(watermark=times, range_s=st.integers(1, 100), slide_s=st.integers(1, 100))
def test_panes_that_a_window_to_come_contains_are_never_dropped(
    watermark, range_s, slide_s
) -> None:
    grid = PaneGrid.of(RangeWindow(range_s, slide_s))
    end = grid.window_end(watermark)
    first = grid.first_needed(watermark)
    assert end is not None
    assert first is not None
    assert end <= watermark < end + slide_s
    for later in (end, end + slide_s, end + 7 * slide_s):
        assert grid.panes_in(grid.window(later)).start >= first


def test_every_slide_that_the_watermark_passed_is_listed_once_and_the_newest_win() -> None:
    grid = PaneGrid.of(RangeWindow(20, 10))
    assert list(grid.ends_between(10, 45, most=100)) == [20, 30, 40]
    assert list(grid.ends_between(10, 45, most=2)) == [30, 40]
    assert list(grid.ends_between(40, 45, most=100)) == []
    assert list(grid.ends_between(None, 45, most=100)) == [40]


def test_windows_that_do_not_slide_have_one_pane() -> None:
    for window in (UnboundedWindow(), LandmarkWindow(5)):
        grid = PaneGrid.of(window)
        assert not grid.slides
        assert grid.panes_of(np.array([1, 10**12])).tolist() == [0, 0]
        assert grid.pane_of(10**12) == 0
        assert grid.first_open(10**15) is None


def test_the_watermark_follows_the_newest_event_and_never_goes_back() -> None:
    watermark = Watermark(lateness_us=5, future_us_max=100)
    watermark.observe(50, arrival_us=60)
    assert watermark.value_us == 45
    watermark.observe(20, arrival_us=61)
    assert watermark.value_us == 45


def test_the_watermark_is_never_before_the_first_of_all_event_times() -> None:
    """A calendar grid relies on it, whatever the watermark promises."""
    for move in (
        lambda watermark: watermark.raise_to(-(1 << 63)),
        lambda watermark: watermark.observe(TIME_MIN_US + 4, arrival_us=60),
    ):
        watermark = Watermark(lateness_us=5, future_us_max=100)
        move(watermark)
        assert watermark.value_us == TIME_MIN_US


def test_a_tuple_years_in_the_future_does_not_move_the_watermark() -> None:
    watermark = Watermark(lateness_us=0, future_us_max=100)
    watermark.observe(50, arrival_us=60)
    watermark.observe(10**15, arrival_us=60)
    assert watermark.value_us == 50
