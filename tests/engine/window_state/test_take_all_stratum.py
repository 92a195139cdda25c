"""Rows with extreme values are read in full by thinned queries: what follows of it, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.engine.estimates.thinned_window import levels_of
from shedder.engine.window_state.query_state import QueryState
from synopses.model.estimate import Bound
from tests.engine.window_state.take_all_world import (
    BY_GROUP,
    STRETCH_ROWS,
    WARM_ROWS,
    answered,
    batch,
    query_state,
    read,
    schema,
    thinned_to,
)
from tests.scale import scaled
from tests.truth import gate

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
COLUMNS: dict[str, Draw] = {
    "normal": lambda rng, size: rng.normal(10.0, 2.0, size),
    "exponential": lambda rng, size: rng.exponential(1.0, size),
    "lognormal": lambda rng, size: rng.lognormal(0.0, 2.0, size),
    "Pareto": lambda rng, size: rng.pareto(1.1, size) + 1.0,
    "two heights": lambda rng, size: rng.choice([-1.0, 1.0], size),
    "spikes": lambda rng, size: np.where(rng.random(size) < 1e-3, 1e5, rng.random(size)),
    "constant": lambda _, size: np.full(size, 7.25),
    "rising": lambda rng, size: np.arange(size) + rng.random(size),
    "turning": lambda rng, size: rng.exponential(1.0, size) * np.where(np.arange(size) % 2, 1, -1),
}
LEVELS: dict[str, tuple[tuple[int, int], ...]] = {
    "1/2": ((20_000, 1),),
    "1/8": ((20_000, 3),),
    "1/64": ((20_000, 6),),
    "1/8, all, 1/2": ((10_000, 3), (2_000, 0), (10_000, 1)),
}
TRIALS = scaled(3, 40)
SIZES = np.repeat([0, 1, 2, 3, 4, 5, 6, 7], [1, 4, 40, 400, 4_000, 4_000, 4_000, 4_000])


def warm(seed: int, draw: Draw, level: int, sql: str = BY_GROUP) -> tuple[QueryState, Any]:
    """A query that has read WARM_ROWS rows, and the generator of more rows."""
    rng = np.random.default_rng(seed)
    state = query_state(schema(seed + 1), sql)
    thinned_to(state, level)
    values = draw(rng, WARM_ROWS)
    read(state, batch(rng.integers(0, 50, WARM_ROWS), values), 0, range(3_000, WARM_ROWS, 3_000))
    return state, rng


def begun(warmed: QueryState, sql: str = BY_GROUP) -> QueryState:
    """A query with nothing in its panes that goes on with the ends of another one."""
    state = query_state(warmed.query.schema, sql)
    state.take_all.restore(json.loads(json.dumps(warmed.take_all.to_json())))
    return state


@pytest.mark.slow
@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("column", COLUMNS)
def test_intervals_hold_for_groups_of_all_sizes(column: str, levels: str) -> None:
    held: dict[str, list[bool]] = {}
    for seed in range(TRIALS):
        warmed, rng = warm(seed, COLUMNS[column], LEVELS[levels][0][1])
        state, position = begun(warmed), WARM_ROWS
        size = sum(rows for rows, _ in LEVELS[levels])
        ids, values = rng.choice(SIZES, size), COLUMNS[column](rng, size)
        unread, first = np.zeros(size), 0
        for rows, level in LEVELS[levels]:
            thinned_to(state, level)
            last = first + rows
            read(state, batch(ids[first:last], values[first:last]), position + first, (1, 777))
            unread[first:last] = 2.0**level - 1
            first = last
        found = answered(state, ids, values, unread)
        for name in found.estimates:
            held.setdefault(name, []).extend(found.held(name))
    for name, each in held.items():
        assert sum(each) >= gate(len(each), 0.95), (name, sum(each) / len(each))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("levels", "most"),
    [
        (((40_000, 3),), {"SUM": 1.6, "AVG": 1.6, "VAR": 3.0}),
        (((20_000, 3), (20_000, 1)), {"SUM": 2.0, "AVG": 2.0, "VAR": 4.0}),
    ],
)
def test_widths_are_near_the_ideal(
    levels: tuple[tuple[int, int], ...], most: dict[str, float]
) -> None:
    """Without the stratum VAR is 7.3 times as wide at 1/8, and 9.1 times with both levels."""
    medians: dict[str, list[float]] = {name: [] for name in most}
    for column in ("normal", "exponential", "lognormal", "Pareto", "spikes"):
        warmed, rng = warm(1, COLUMNS[column], 3)
        state = begun(warmed)
        ids, values = rng.integers(0, 50, 40_000), COLUMNS[column](rng, 40_000)
        unread, first = np.zeros(40_000), 0
        for rows, level in levels:
            thinned_to(state, level)
            read(state, batch(ids[first:][:rows], values[first:][:rows]), WARM_ROWS + first)
            unread[first:][:rows] = 2.0**level - 1
            first += rows
        found = answered(state, ids, values, unread)
        for name, each in medians.items():
            each.append(median(found.widths(name)))
    assert {name: median(each) <= most[name] for name, each in medians.items()} == dict.fromkeys(
        most, True
    ), medians


def panes_by(cuts: list[int], rows: pa.RecordBatch, sql: str) -> list[Any]:
    """What was read in full and what is known of the rest, by pane; the state of the ends.

    Groups stand in order of their keys: ids are given in order of time within a batch.
    """
    state = query_state(schema(5), sql)
    thinned_to(state, 2)
    read(state, rows, 1_000, cuts)
    order = np.zeros(1, np.int64)
    if state.keys is not None:
        order = np.argsort(state.keys.keys(np.arange(1, state.keys.size))[0].to_numpy()) + 1
    panes = [
        (number, pane.select(order).to_bytes(), {at: it.basics for at, it in pane.segments.items()})
        for number, pane in state.panes.items()
    ]
    ends = [
        [*each["ends"], *each["counts"], *sorted(each["gathered"])]
        for each in state.take_all.to_json().values()
    ]
    return [sorted(panes, key=lambda pane: pane[0]), ends]


@pytest.mark.parametrize(
    "sql",
    [
        BY_GROUP,
        BY_GROUP.replace("FROM s", "FROM s WHERE g < 3"),
        "SELECT g, SUM(x) AS s FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY g",
        "SELECT g, SUM(x) AS s, AVG(g) AS a, MEDIAN(x) AS m FROM s GROUP BY g",
        "SELECT SUM(x) AS s, MAX(x) AS h FROM s",
    ],
)
@pytest.mark.parametrize("kind", [ColumnType.DOUBLE, ColumnType.BIGINT])
def test_panes_do_not_depend_on_the_batches_that_rows_come_in(sql: str, kind: ColumnType) -> None:
    """Replay reads batches one by one that were read together. Whole numbers: sums are exact."""
    rng, size = np.random.default_rng(3), 3 * WARM_ROWS
    values = np.rint(1e4 * rng.standard_t(3, size)) * np.where(np.arange(size) < WARM_ROWS, 1, 3)
    values = values.astype(np.int64 if kind is ColumnType.BIGINT else np.float64)
    times = np.arange(size) * 10 + rng.integers(0, 500_000, size)
    column = pa.array(values, mask=rng.random(size) < 0.05)
    rows = batch(rng.integers(0, 5, size), column, times)
    whole = panes_by([], rows, sql)
    some = np.sort(rng.choice(size, 60, replace=False)).tolist()
    few = list(range(70_000, 70_100))
    for cuts in (some, few, list(range(0, size, STRETCH_ROWS))[1:]):
        assert panes_by(cuts, rows, sql) == whole
    assert all(basics[0] for _, _, segments in whole[0] for basics in segments.values())
    assert any(np.isfinite(ends[0]) for ends in whole[1])


def test_rows_beyond_the_ends_are_read_in_full_and_no_others() -> None:
    """By every thinned sum, and by the count of rows; a median is read at its level."""
    warmed, rng = warm(2, COLUMNS["turning"], 3)
    sql = BY_GROUP.replace("VAR(x) AS v", "MEDIAN(x) AS m")
    state = begun(warmed, sql)
    thinned_to(state, 3)
    low, high = warmed.take_all.to_json()["1"]["ends"]
    values = COLUMNS["turning"](rng, STRETCH_ROWS)
    read(state, batch(np.zeros(STRETCH_ROWS, np.int64), values), WARM_ROWS)
    extreme = int(np.count_nonzero((values < low) | (values > high)))
    assert 10 < extreme < STRETCH_ROWS / 8 / 4
    pane = state.panes[0]
    whole = [
        int(np.sum(synopsis.counts() if callable(synopsis.counts) else synopsis.counts))
        for synopsis in pane.parts
    ]
    assert whole[:2] == [extreme, extreme]
    assert not any(whole[2:])
    moments = pane.segments[1, 3]
    assert moments.population == STRETCH_ROWS - extreme
    assert (moments.low, moments.high) == (low, high)
    for part, skipped in enumerate(state.thinned):
        segment = pane.segments[part, 3]
        assert skipped + segment.read + whole[part] == STRETCH_ROWS


def test_observed_errors_are_those_of_the_level() -> None:
    warmed, rng = warm(2, COLUMNS["exponential"], 3)
    state = begun(warmed)
    thinned_to(state, 3)
    ids, values = rng.integers(0, 3, 8_000), rng.exponential(1.0, 8_000)
    read(state, batch(ids, values), WARM_ROWS)
    found = answered(state, ids, values, np.full(8_000, 7.0))
    assert set(levels_of(state, found.merged).values()) == {3}
    thinned_to(state, 0)
    read(state, batch(ids, values), WARM_ROWS + 8_000)
    found = answered(state, ids, values, np.full(8_000, 7.0))
    assert not levels_of(state, found.merged)


def test_values_that_rise_for_ever_are_not_read_in_full() -> None:
    """Each end is beyond the last one; after an overflow there are none for ever longer."""
    state = query_state(schema(1), stretch_rows=1 << 15)
    thinned_to(state, 3)
    rng, rows, size = np.random.default_rng(1), 0, 1 << 13
    for number in range(scaled(400, 2_000)):
        values = 10.0 * np.arange(number * size, (number + 1) * size) + rng.exponential(2e4, size)
        read(state, batch(np.zeros(size, np.int64), values), number * size)
        rows += size
    share = 1 - state.thinned[0] / rows
    assert 0.13 < share < 0.125 + 0.08


@pytest.mark.parametrize("column", ["two heights", "constant", "tenths", "uniform"])
def test_of_flat_columns_only_new_values_are_read_in_full(column: str) -> None:
    draws: dict[str, Draw] = {
        "tenths": lambda _, size: np.full(size, 0.1),
        "uniform": lambda rng, size: rng.random(size),
    }
    draw = (COLUMNS | draws)[column]
    warmed, rng = warm(4, draw, 3)
    state = begun(warmed)
    thinned_to(state, 3)
    values = draw(rng, STRETCH_ROWS)
    values[[5, 600]] = -1e9, 1e9
    read(state, batch(np.zeros(STRETCH_ROWS, np.int64), values), WARM_ROWS)
    assert state.panes[0].parts[1].counts().tolist()[-1:] == [2]


@pytest.mark.parametrize("sign", [1, -1])
def test_columns_with_one_tail_have_one_end_that_values_are_beyond(sign: int) -> None:
    warmed, rng = warm(4, lambda rng, size: sign * rng.exponential(1.0, size), 3)
    low, high = warmed.take_all.to_json()["1"]["ends"]
    values = sign * rng.exponential(1.0, 10_000)
    beyond = [int((values < low).sum()), int((values > high).sum())]
    assert beyond[sign > 0] > 20
    assert beyond[sign < 0] == 0


@pytest.mark.parametrize("share", [0.001, 0.1])
def test_ends_are_no_farther_out_than_infinite_values(share: float) -> None:
    def draw(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        values = rng.normal(0.0, 1.0, size)
        infinite = rng.random(size) < share
        return np.where(infinite, rng.choice([-np.inf, np.inf], size), values)

    warmed, _ = warm(4, draw, 3)
    ends = warmed.take_all.to_json()["1"]["ends"]
    assert list(np.isfinite(ends)) == [share < 0.01] * 2


def test_infinite_values_leave_only_their_groups_without_a_bound() -> None:
    warmed, rng = warm(6, COLUMNS["exponential"], 3)
    state = begun(warmed)
    thinned_to(state, 3)
    ids, values = rng.integers(0, 4, 8_000), rng.exponential(1.0, 8_000)
    ids[:2], values[:2] = (0, 1), (np.inf, -np.inf)
    values[2:400] = np.nan
    read(state, batch(ids, values), WARM_ROWS)
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        found = answered(state, ids[there], values[there], np.full(there.sum(), 7.0))
    for name in ("SUM", "AVG", "VAR"):
        bounds = found.estimates[name].bound
        finite = np.isfinite(found.truths["SUM"])
        assert (bounds[~finite] == Bound.NONE).all(), name
        assert (bounds[finite] == Bound.INTERVAL).all(), name
        assert found.held(name)[finite].all(), name


def test_greatest_whole_numbers_beyond_doubles_stay_exact() -> None:
    """MAX without groups is known of all rows, also where the end is a double beside the value."""
    sql = "SELECT MAX(x) AS h, MIN(x) AS l, SUM(x) AS s FROM s"
    rng = np.random.default_rng(8)
    base = 1 << 60
    for seed in range(20):
        state = query_state(schema(seed, ColumnType.BIGINT), sql)
        thinned_to(state, 3)
        values = base + np.rint(300 * rng.standard_t(2, WARM_ROWS + 3_000)).astype(np.int64)
        read(state, batch(np.zeros(len(values), np.int64), values)[:WARM_ROWS], 0)
        rest = begun(state, sql)
        thinned_to(rest, 3)
        read(rest, batch(np.zeros(3_000, np.int64), values[WARM_ROWS:]), WARM_ROWS)
        [moments] = [it for (part, _), it in rest.panes[0].segments.items() if part == 1]
        whole = rest.panes[0].parts[1]
        ends = [int(whole.maximum().value[0])] * bool(whole.counts().sum()) + [moments.high]
        assert max(ends) == values[WARM_ROWS:].max()


def test_values_that_set_the_ends_count_as_memory_of_the_query() -> None:
    state = query_state(schema(8))
    thinned_to(state, 3)
    rng = np.random.default_rng(8)
    before = state.take_all.size_bytes
    read(state, batch(rng.integers(0, 5, 2_900), rng.lognormal(0.0, 1.0, 2_900)), 0)
    assert state.take_all.size_bytes - before == 100 * 8  # Every 29th value, as a double.
    assert state.size_bytes >= state.memory.size_bytes + 100 * 8
