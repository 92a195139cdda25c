"""TOP over ROWS windows against counts of the newest tuples."""

from __future__ import annotations

from collections import Counter

import pytest

from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Op
from shedder.cql.plans.logical_plan import Aggregated, RowsWindow, WindowOf
from tests.dataflow import brute_force as brute
from tests.dataflow.worlds import BIGINT, boolean, column, instants, number, run, scan, stream

LOG = stream(71, size=400, keys=30)


def listed(name: str, window: RowsWindow, length: int, condition=None) -> Aggregated:
    value = column(f"s.{name}")
    count = Aggregate(AggregateFunction.COUNT, value, type=BIGINT)
    return Aggregated(WindowOf(scan("s"), window, condition), (value,), (count,), listed=length)


def newest(log: list, window: RowsWindow, e: int, place: int) -> Counter:
    tuples = brute.before(log, e)
    whole = len(tuples) // window.slide_rows * window.slide_rows
    values = [row[place] for _, _, row in tuples[:whole][-window.rows :]]
    return Counter(value for value in values if value is not None)


@pytest.mark.parametrize(("name", "place"), [("k", 0), ("name", 2), ("d", 3)])
@pytest.mark.parametrize(
    ("rows", "slide", "length"), [(40, 10, 2), (60, 20, 3), (12, 2, 1), (30, 30, 3)]
)
def test_intervals_hold_the_counts_as_of_each_instant(name, place, rows, slide, length):
    window = RowsWindow(rows, slide)
    made = run(listed(name, window, length), {"s": LOG}, seed=72)
    shown = 0
    for e in instants(64):
        truth = newest(LOG, window, e, place)
        found = made.at(e)
        assert len(found) == min(length, len(truth)) == sum(found.values())
        values = [row[0] for row in found]
        others = max((n for value, n in truth.items() if value not in values), default=0)
        for value, count, low, high, bound, met, guaranteed in found:
            assert count == low <= truth[value] <= high
            assert (bound, met) == ("exact" if low == high else "interval", None)
            assert not guaranteed or low >= others
        shown += len(found)
    assert shown > 100


def test_one_pane_is_exact():
    made = run(listed("k", RowsWindow(50, 50), 3), {"s": LOG}, seed=4)
    shown = [row for e in instants(67) for row in made.at(e)]
    assert shown
    assert all(low == high and bound == "exact" for _, _, low, high, bound, _, _ in shown)


def test_lists_that_are_long_enough_are_exact():
    window = RowsWindow(40, 10)
    made = run(listed("k", window, 10), {"s": LOG}, seed=1)
    for e in instants(65):
        truth = newest(LOG, window, e, 0)
        counts = sorted(truth.values(), reverse=True)[:10]
        assert sorted((row[1] for row in made.at(e)), reverse=True) == counts
        assert all(row[3] == truth[row[0]] for row in made.at(e))


def test_where_inside_of_the_window_is_applied_before_it():
    window = RowsWindow(40, 10)
    late = boolean(Op.GT, column("s.x"), number(1))
    kept = [each for each in LOG if each[2][1] is not None and each[2][1] > 1]
    made = run(listed("k", window, 10, late), {"s": LOG}, seed=2)
    for e in instants(66):
        truth = newest(kept, window, e, 0)
        assert all(row[1] == truth[row[0]] for row in made.at(e))


def test_values_that_no_list_has_are_forgotten_and_steps_do_not_matter():
    log = [(at, at, (at % 1500 * (at // 1500 + 1), 0, "", 0.0, at)) for at in range(6000)]
    plan = listed("k", RowsWindow(200, 50), 20)
    one, other = (
        run(plan, {"s": log}, seed=each, batch_max=size) for each, size in ((3, 90), (4, 700))
    )
    assert one.changes.columns.num_rows == other.changes.columns.num_rows
    assert one.rows == other.rows
    assert one.flow.size_bytes < 120_000  # 2,400 values were listed, at most 100 at a time.
    for e in (1500, 4321, 6100):
        truth = newest(log, RowsWindow(200, 50), e, 0)
        assert all(row[2] <= truth[row[0]] <= row[3] for row in one.at(e))
