"""Thinned functions of pairs read pairs beyond the ends of either column in full."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from shedder.engine.estimates.thinned_window import window_parts
from shedder.engine.panes.diagonal_ranges import DiagonalRanges, PairAxes, joined
from shedder.engine.panes.level_segment import Segment
from shedder.engine.panes.pane_codec import pane_from_bytes, pane_to_bytes
from shedder.engine.window_state.merged_window import merged_window
from shedder.engine.window_state.query_state import QueryState
from shedder.streams.frame import ArgumentBasics
from shedder.streams.ipc import table_bytes
from shedder.streams.windows import Span
from synopses.model.estimate import Bound, Estimates
from synopses.moments.covariance import GroupedCrossMoments
from tests.engine.window_state.take_all_world import (
    STRETCH_ROWS,
    WARM_ROWS,
    batch,
    query_state,
    read,
    schema,
    thinned_to,
)
from tests.scale import scaled
from tests.truth import gate

CORRELATION = "SELECT CORR(x, g) AS r FROM s"
SIZE, LEVEL = 8_000, 3
TRIALS = scaled(8, 200)


def drawn(rng: np.random.Generator, size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Lognormal values, and whole numbers with half of their variance from them."""
    x, noise = rng.lognormal(0.0, 1.0, (2, size))
    return np.rint(100.0 * (x + noise)).astype(np.int64), x


def warm(seed: int, *, stretch_rows: int = STRETCH_ROWS) -> QueryState:
    """A query that goes on with the ends that a long stream has set."""
    rng = np.random.default_rng(seed)
    before, state = (query_state(schema(seed + 1), CORRELATION, stretch_rows) for _ in range(2))
    thinned_to(before, LEVEL)
    read(before, batch(*drawn(rng, WARM_ROWS)), 0)
    state.take_all.restore(json.loads(json.dumps(before.take_all.to_json())))
    thinned_to(state, LEVEL)
    return state


def correlation(state: QueryState) -> Estimates:
    merged = merged_window(state, Span(None, None))
    [(aggregate, part)] = window_parts(state, merged, state.query.aggregates).items()
    return part.estimate(aggregate, 0.95)


@pytest.mark.coverage_gate
def test_correlations_of_long_tails_are_narrow_and_hold() -> None:
    """Without the stratum, lognormal columns stayed at [-1, 1]."""
    held, widths = 0, []
    for seed in range(TRIALS):
        state = warm(seed)
        ids, values = drawn(np.random.default_rng([seed, 1]), SIZE)
        read(state, batch(ids, values), WARM_ROWS, (1, 777))
        found, right = correlation(state), float(np.corrcoef(ids, values)[0, 1])
        assert found.bound.tolist() == [Bound.INTERVAL]
        held += bool(found.low[0] - 1e-9 <= right <= found.high[0] + 1e-9)
        widths.append(found.high[0] - found.low[0])
    assert held >= gate(TRIALS, 0.95)
    assert np.mean(widths) / 2 < 0.1


def test_pairs_beyond_either_end_are_read_in_full_and_no_others() -> None:
    state = warm(2)
    ids, values = drawn(np.random.default_rng(9), STRETCH_ROWS)
    missing = np.random.default_rng(10).random(STRETCH_ROWS) < 0.1
    read(state, batch(ids, pa.array(values, mask=missing)), WARM_ROWS)
    (at,) = (at for at, part in enumerate(state.plan.parts) if part.second is not None)
    ends = state.take_all.to_json()
    low, high = ends[str(at)]["ends"]
    least, most = ends[str(-1 - at)]["ends"]
    diagonals = ends[str(at)]["diagonals"]
    (centers, scales), [total, difference] = diagonals["axes"], diagonals["ends"]
    u, v = (values - centers[0]) / scales[0], (ids - centers[1]) / scales[1]
    beyond = (values < low) | (values > high) | (ids < least) | (ids > most)
    for both, [first, last] in ((u + v, total["ends"]), (u - v, difference["ends"])):
        assert 0 < np.count_nonzero((both < first) | (both > last)) < STRETCH_ROWS / 20
        beyond |= (both < first) | (both > last)
    pane = state.panes[0]
    segment = pane.segments[at, LEVEL]
    assert pane.parts[at].sums().pairs.tolist() == [np.count_nonzero(beyond & ~missing)]
    assert segment.population == np.count_nonzero(~beyond & ~missing)
    assert (segment.high, segment.high_beside) == (high, np.floor(most))
    assert segment.low == max(low, values[~missing].min())
    inside = ~beyond & ~missing
    known = segment.diagonals
    assert known is not None
    for both, (first, last) in ((u + v, known.total), (u - v, known.difference)):
        assert first <= both[inside].min()
        assert both[inside].max() <= last
    assert [[*known.total], [*known.difference]] == [total["ends"], difference["ends"]]


def test_axes_and_ranges_are_stored_with_the_pane_and_with_the_ends() -> None:
    rows = batch(*drawn(np.random.default_rng(4), SIZE))
    state, other = warm(6), warm(6)
    read(state, rows.slice(0, SIZE // 2), WARM_ROWS)
    stored = pane_from_bytes(pane_to_bytes(state.panes[0], None), state.plan, None)
    known = {place: segment.diagonals for place, segment in state.panes[0].segments.items()}
    assert any(known.values())
    assert {place: segment.diagonals for place, segment in stored.segments.items()} == known
    other.take_all.restore(json.loads(json.dumps(state.take_all.to_json())))
    for each in (state, other):
        read(each, rows.slice(SIZE // 2), WARM_ROWS + SIZE // 2)
    assert other.take_all.to_json() == state.take_all.to_json()


def without_ranges(data: bytes, *, squares: bool) -> bytes:
    """A stored pane without ranges of sums and differences, as builds before them wrote it.

    squares: have moments of as many equal numbers in the place of the squares of these. Read as
      squares on any axes, they would say that nothing varies.
    """
    table = pa.ipc.open_stream(data).read_all()
    assert b"diagonals" in table.schema.metadata
    metadata = {it: of for it, of in table.schema.metadata.items() if it != b"diagonals"}
    columns = {}
    for name in table.column_names:
        stored = table[name][0].as_py()
        if name.startswith("u"):
            pairs = int(GroupedCrossMoments.from_bytes(stored).sums().pairs.sum())
            ones, moments = np.ones(pairs), GroupedCrossMoments(1)
            moments.update(None, ones, ones)
            stored = moments.to_bytes()
        if squares or not name.startswith("u"):
            columns[name] = pa.array([stored], pa.binary())
    return table_bytes(pa.table(columns, metadata=metadata))


def test_moments_of_a_stored_pane_are_not_read_as_squares_on_axes_that_it_does_not_name() -> None:
    """Also when the pane goes on with pairs that have axes."""
    ids, values = drawn(np.random.default_rng(11), SIZE)
    rows, half = batch(ids, values), SIZE // 2
    state = warm(12)
    read(state, rows.slice(0, half), WARM_ROWS)
    data = pane_to_bytes(state.panes[0], None)
    narrow = correlation(state)
    found: list[list[tuple[float, float]]] = []
    for squares in (False, True):
        again = warm(12)
        older = pane_from_bytes(without_ranges(data, squares=squares), again.plan, None)
        assert any(it.shape is not None for it in older.segments.values()) == squares
        again.panes.put({0: older}, closed=False)
        ends = []
        for end in (half, SIZE):
            if end > half:
                read(again, rows.slice(half), WARM_ROWS + half)
            made, right = correlation(again), float(np.corrcoef(ids[:end], values[:end])[0, 1])
            assert made.low[0] - 1e-9 <= right <= made.high[0] + 1e-9
            ends.append((float(made.low[0]), float(made.high[0])))
        found.append(ends)
    assert found[0] == found[1]
    assert found[0][0][1] - found[0][0][0] > narrow.high[0] - narrow.low[0]


def test_ranges_on_other_axes_and_pairs_without_ranges_are_not_joined() -> None:
    axes, others = PairAxes((0.0, 1.0), (2.0, 3.0)), PairAxes((0.0, 1.0), (2.0, 4.0))
    first = DiagonalRanges(axes, (-1.0, 1.0), (0.0, 2.0))
    second = DiagonalRanges(axes, (-2.0, 0.5), (1.0, 3.0))
    assert joined(first, second) == DiagonalRanges(axes, (-2.0, 1.0), (0.0, 3.0))
    assert joined(first, DiagonalRanges(others, (0.0, 0.0), (0.0, 0.0))) is None
    segment = Segment(GroupedCrossMoments(1))
    segment.notice(ArgumentBasics(3, 0.0, 1.0, 0.0, 1.0), 1, first)
    segment.notice(ArgumentBasics(0, None, None), 0)
    assert segment.diagonals == first
    segment.notice(ArgumentBasics(3, 0.0, 1.0, 0.0, 1.0), 1)
    segment.notice(ArgumentBasics(3, 0.0, 1.0, 0.0, 1.0), 1, first)
    assert segment.diagonals is None


def basics_by(cuts: list[int], rows: pa.RecordBatch) -> list[Any]:
    """How many pairs were read in full, and what is known of the rest; the state of the ends."""
    state = query_state(schema(5), CORRELATION)
    thinned_to(state, LEVEL)
    read(state, rows, 1_000, cuts)
    segments = {at: (it.basics, it.diagonals) for at, it in state.panes[0].segments.items()}
    found = []
    for each in state.take_all.to_json().values():
        both = each.get("diagonals", {"ends": []})
        found.append([both.get("axes"), both.get("stretch")])
        found.extend(
            [*one["ends"], *one["counts"], *sorted(one["gathered"])]
            for one in (each, *both["ends"])
        )
    return [segments, found]


def test_what_is_known_of_pairs_does_not_depend_on_the_batches_that_rows_come_in() -> None:
    rng, size = np.random.default_rng(3), 3 * WARM_ROWS
    ids, values = drawn(rng, size)
    values *= np.where(np.arange(size) < WARM_ROWS, 1.0, 3.0)
    rows = batch(ids, pa.array(values, mask=rng.random(size) < 0.05))
    whole = basics_by([], rows)
    some = np.sort(rng.choice(size, 60, replace=False)).tolist()
    for cuts in (some, list(range(70_000, 70_100))):
        assert basics_by(cuts, rows) == whole
    assert any(np.isfinite(ends[0]) for ends in whole[1] if isinstance(ends[0], float))
