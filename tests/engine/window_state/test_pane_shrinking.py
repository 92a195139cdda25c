"""Panes that shrink a few groups at a time, while they count: the result shows no trace of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shedder.engine.panes.pane_codec import pane_from_bytes
from shedder.engine.panes.synopsis_resizing import size_of
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind
from shedder.engine.window_state.merged_window import merged_window
from shedder.engine.window_state.query_state import QueryState
from shedder.streams.frame import Frame
from shedder.streams.positions import Positions
from shedder.streams.windows import Span
from tests.engine.allocation_world import CAP, bound
from tests.engine.allocation_world import standing as granted
from tests.engine.resized import changed

SECOND = 1_000_000
ROWS = 600
SLICE_BYTES = 4 << 10  # So that a pane of 23 groups takes many turns.
WINDOW = "[RANGE INTERVAL '3' SECOND SLIDE INTERVAL '1' SECOND]"
SKETCHES = """COUNT(*) AS n, COUNT(DISTINCT k) AS d, SELF_JOIN_SIZE(k) AS f2,
  DISTINCT_BOTH(k, v > 0.5, v < 0.8) AS both, TOP(k, 3) AS top, QUANTILE(v, 0.5) AS m"""
GROUPED = f"SELECT k % 23 AS g, {SKETCHES} FROM s {WINDOW} GROUP BY k % 23 WITHIN 0.02 RANK"
EVER = f"SELECT k % 23 AS g, {SKETCHES} FROM s GROUP BY k % 23 WITHIN 0.02 RANK"
RANDOM = (
    SynopsisKind.KLL,
    SynopsisKind.FREQUENT,
)  # Sketches that toss coins, or depend on what came when.


def started(text: str) -> QueryState:
    """A standing query with the sizes that it wants."""
    return QueryState("q", bound(text), granted("q", text).plan, part_bytes_max=CAP)


def frame(number: int, at_us: int) -> Frame:
    """A second of the stream."""
    rng = np.random.default_rng(number)
    columns = {
        "ts": pa.array(at_us + np.sort(rng.integers(0, SECOND, ROWS)), pa.timestamp("us")),
        "k": pa.array(rng.integers(0, 4_000, ROWS)),
        "v": pa.array(rng.random(ROWS)),
    }
    positions = Positions(1, number * ROWS)
    return Frame(pa.RecordBatch.from_pydict(columns), "ts", positions=positions)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.just(0)),
        st.tuples(st.just("close"), st.just(0)),
        st.tuples(st.just("resize"), st.sampled_from([-2, -1, 1])),
        st.tuples(st.just("thin"), st.integers(0, 2)),
        st.tuples(st.just("slices"), st.integers(1, 30)),
    ),
    min_size=4,
    max_size=14,
)


def run(query: QueryState, steps: list[tuple[str, int]], *, at_once: bool) -> QueryState:
    """Take some steps; `at_once`: whatever is to shrink does so before anything else happens."""
    now = scale = 0
    for number, (step, amount) in enumerate([("read", 0), *steps]):
        watermark = now * SECOND or None
        match step:
            case "read":
                query.apply(frame(number, now * SECOND), watermark_us=watermark, limit_us=None)
            case "close":
                now += 1
                query.close(now * SECOND)
            case "resize" if -5 <= scale + amount <= 1:
                scale += amount
                query.resizer.set_sizes(changed(query, amount), query.sizes.part_bytes_max)
            case "thin":
                query.set_levels([amount] * len(query.plan.parts))
            case "slices" if not at_once:
                for _ in range(amount):
                    if query.resizer.shrinks:
                        query.resizer.shrink_some(slice_bytes=SLICE_BYTES)
        if at_once:
            query.resizer.shrink_all()
    query.resizer.shrink_all()
    return query


def bytes_of(query: QueryState) -> Iterator[tuple[object, bytes]]:
    """Of every synopsis of every pane that is a matter of what was read alone."""
    for number, pane in query.panes.items():
        for at, part in enumerate(query.plan.parts):
            if part.kind not in RANDOM:
                yield (number, at), pane.parts[at].to_bytes()
        for place, segment in pane.segments.items():
            if query.plan.parts[place[0]].kind not in RANDOM:
                yield (number, place), segment.synopsis.to_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("text", [GROUPED, EVER])
@settings(max_examples=30, deadline=None)
@given(steps=STEPS)
def test_it_makes_no_difference_when_a_group_shrank(
    text: str, steps: list[tuple[str, int]]
) -> None:
    slowly = run(started(text), steps, at_once=False)
    at_once = run(started(text), steps, at_once=True)
    assert dict(bytes_of(slowly)) == dict(bytes_of(at_once))
    for number, pane in slowly.panes.items():
        other = at_once.panes[number]
        assert list(map(size_of, pane.parts)) == list(map(size_of, other.parts))
        for mine, theirs, part in zip(pane.parts, other.parts, slowly.plan.parts, strict=True):
            if part.kind is SynopsisKind.KLL:
                assert mine.counts().tolist() == theirs.counts().tolist()
            elif part.kind is SynopsisKind.FREQUENT:
                assert mine.totals.tolist() == theirs.totals.tolist()


@pytest.mark.slow
def test_while_groups_shrink_a_pane_is_asked_stored_and_merged_as_it_was() -> None:
    query = started(GROUPED)
    for number in range(3):
        query.apply(frame(number, number * SECOND), watermark_us=None, limit_us=None)
    query.close(3 * SECOND)
    before = {number: query.panes.to_bytes(number) for number in query.panes}
    query.resizer.set_sizes(changed(query, -3), query.sizes.part_bytes_max)
    window = merged_window(query, Span(0, 3 * SECOND))
    turns = 0

    def all_are_larger() -> bool:
        return all(pane.is_larger_than(query.plan) for pane in query.panes.values())

    while all_are_larger():  # The first pane has not been replaced yet.
        query.resizer.shrink_some(slice_bytes=SLICE_BYTES)
        turns += 1
        if all_are_larger():
            assert {number: query.panes.to_bytes(number) for number in query.panes} == before
            assert merged_window(query, Span(0, 3 * SECOND)).pane.counts.tolist() == (
                window.pane.counts.tolist()
            )
    assert turns > 10
    while query.resizer.shrinks:
        query.resizer.shrink_some(slice_bytes=SLICE_BYTES)
        mixed = merged_window(query, Span(0, 3 * SECOND)).pane
        assert mixed.counts.tolist() == window.pane.counts.tolist()
        distinct = mixed.parts[1].distinct(0.999)
        exact = window.pane.parts[1].distinct(0.999)
        assert (distinct.low <= exact.high).all()
        assert (distinct.high >= exact.low).all()
    assert not any(pane.is_larger_than(query.plan) for pane in query.panes.values())
    data = query.panes.to_bytes(0)
    again = pane_from_bytes(data, query.plan, query.keys)
    assert [size_of(part) for part in again.parts] == [part.size for part in query.plan.parts]


def test_groups_that_wait_for_their_sketch_do_not_grow_by_shrinking() -> None:
    """Rooms for values double as they come; what shrinks keeps just those it needs."""
    query = started(GROUPED)
    for number in range(12):
        query.apply(frame(number, 0), watermark_us=None, limit_us=None)
    query.close(SECOND)
    ranks = [part.kind for part in query.plan.parts].index(SynopsisKind.KLL)
    before = query.panes[0].part_bytes
    query.resizer.set_sizes(changed(query, -1), query.sizes.part_bytes_max)
    query.resizer.shrink_all()
    after = query.panes[0].part_bytes
    assert after[ranks] <= before[ranks]
    assert all(now <= 1.05 * then for now, then in zip(after, before, strict=True))
    query.resizer.set_sizes(changed(query, -3), query.sizes.part_bytes_max)
    query.resizer.shrink_all()
    assert query.panes[0].part_bytes[1] < before[1] / 4


def test_what_shrinks_counts_as_memory_while_there_are_two() -> None:
    query = started(GROUPED)
    for number in range(12):
        query.apply(frame(number, 0), watermark_us=None, limit_us=None)
    before = query.size_bytes
    query.resizer.set_sizes(changed(query, -3), query.sizes.part_bytes_max)
    for _ in range(6):
        query.resizer.shrink_some(slice_bytes=SLICE_BYTES)
    assert query.resizer.shrinks
    assert query.size_bytes > before
    query.resizer.shrink_all()
    assert query.size_bytes < before


def test_sizes_that_were_those_of_another_query_of_this_name_are_left_alone() -> None:
    query = started(GROUPED)
    before = query.plan
    sizes = [part.size for part in before.parts]
    ranks = [part.kind for part in before.parts].index(SynopsisKind.KLL)
    for at, size in ((ranks, 0), (0, 12), (1, 400)):  # No sketch; a size of rows; no registers.
        query.resizer.set_sizes([*sizes[:at], size, *sizes[at + 1 :]], query.sizes.part_bytes_max)
        assert query.plan == before
