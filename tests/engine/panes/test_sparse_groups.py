"""Panes with rows for their own groups only say what panes with rows for all groups say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.allocation.negotiation import negotiate
from shedder.engine.synopsis_plans.error_curves import SIZED
from shedder.engine.synopsis_plans.synopsis_plan import plan
from shedder.engine.window_state.merged_window import merged_window
from shedder.engine.window_state.query_state import QueryState
from shedder.streams.frame import Frame
from shedder.streams.positions import Positions
from synopses.kernels.grouped_arrays import place_new, united
from tests.engine.allocation_world import MIB, bound
from tests.scale import scaled
from tests.seeds import seed

SECOND = 1_000_000
ROWS = 300
LOOK = 5  # So many seconds apart, when all has shrunk.
TEXT = "'u' || CAST(k % 50 AS VARCHAR)"
WINDOW = "[RANGE INTERVAL '12' SECOND SLIDE INTERVAL '1' SECOND]"
AGGREGATES = {
    "moments": "SUM(v) AS a, VAR(v) AS b, MAX(k) AS c",
    "ends": "FIRST(v) AS a, LAST(k) AS b, CORR(v, k) AS c",
    "texts": f"MIN({TEXT}) AS a, LAST({TEXT}) AS b",
    "medians": "MEDIAN(v) AS a",
    "distinct": "COUNT(DISTINCT k % 1000) AS a",
    "sets": "DISTINCT_BOTH(k % 90, v < 0.6, v > 0.4) AS a",
    "counters": "SELF_JOIN_SIZE(k % 20) AS a",
    "items": "TOP(k % 20, 3) AS a",
}
MERGED_ALIKE = ("moments", "ends", "texts", "medians", "distinct", "sets", "counters")


def standing(name: str, *, own_span_min: int = 64) -> QueryState:
    """A query by a key that is new for most tuples, with late tuples."""
    query = bound(
        f"SELECT CASE WHEN v < 0.2 THEN k % 9 ELSE k END AS g, {AGGREGATES[name]} FROM s {WINDOW} "
        "GROUP BY g"
    )
    query = replace(query, schema=replace(query.schema, lateness_us=2 * SECOND))
    granted = negotiate(query, 512 * MIB, group_bytes_max=64 * MIB)
    return QueryState(
        name,
        query,
        plan(query, granted.sizes),
        part_bytes_max=64 * MIB,
        own_span_min=own_span_min,
    )


def frames(seconds: int) -> Iterator[Frame]:
    """A batch for each second, with tuples of the two seconds before; keys come back at last."""
    rng = np.random.default_rng(11)
    for number in range(seconds):
        times = np.sort(rng.integers(max(0, number - 2) * SECOND, (number + 1) * SECOND, ROWS))
        keys = rng.integers(0, 400 if number > 40 else 1 << 40, ROWS)
        columns = {
            "ts": pa.array(times, pa.timestamp("us")),
            "k": pa.array(keys),
            "v": pa.array(rng.random(ROWS)),
        }
        batch = pa.RecordBatch.from_pydict(columns)
        yield Frame(batch, "ts", positions=Positions(1, number * ROWS))


def feed(query: QueryState, levels: Sequence[int] = ()) -> Iterator[int]:
    """Read a stream, thinned from the tenth second on, smaller from the twentieth; yields when."""
    for number, frame in enumerate(frames(55)):
        watermark = (number - 2) * SECOND
        if number == 10 and levels:
            query.set_levels([levels[0], *([levels[-1]] * (len(query.plan.parts) - 1))])
        if number == 20:
            sizes = [
                SIZED[part.kind].profile.sizes[0] if part.kind in SIZED else part.size
                for part in query.plan.parts
            ]
            query.resizer.set_sizes(sizes, query.sizes.part_bytes_max)
        query.apply(frame, watermark_us=watermark, limit_us=None)
        query.close(watermark)
        if query.resizer.shrinks and number % LOOK != LOOK - 1:
            query.resizer.shrink_some()
        else:
            query.resizer.shrink_all()
        if watermark >= 0:
            query.drop_before(query.grid.panes_in(query.grid.window(watermark)).start)
        yield number


def window_bytes(query: QueryState, number: int) -> tuple[list[int], list[bytes], list[bytes]]:
    """The groups of a window by their hashes, and its synopses in that order."""
    merged = merged_window(query, query.grid.window((number - 2) * SECOND))
    assert merged.ids is not None
    assert query.keys is not None
    hashes = query.keys.hashes(merged.ids)
    order = np.argsort(hashes)
    pane = merged.pane.select(order)
    thinned = [pane.segments[place].synopsis.to_bytes() for place in sorted(pane.segments)]
    return hashes[order].tolist(), pane.to_bytes(), thinned


LEVELS = {"full": (), "thinned": (1, 1), "in part": (0, 2)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "levels"),
    [
        pytest.param(name, levels, id=f"{name}-{kind}")
        for (i, name), (j, (kind, levels)) in product(
            enumerate(AGGREGATES), enumerate(LEVELS.items())
        )
        if scaled((i + j + seed("own groups")) % len(LEVELS) == 0, True)
    ],
)
def test_rows_for_own_groups_only_change_nothing_but_bytes(
    name: str, levels: tuple[int, ...]
) -> None:
    """Panes, windows and what is stored; while keys are new, come back, and old ones go."""
    few, all_groups = standing(name), standing(name, own_span_min=1 << 30)
    feeds = feed(few, levels), feed(all_groups, levels)
    own, saved = 0, 0.0
    for number in range(55):
        next(feeds[0])
        mine = window_bytes(few, number) if number % LOOK == LOOK - 1 else None
        next(feeds[1])
        theirs = window_bytes(all_groups, number) if mine is not None else None
        assert all(pane.own is None for pane in all_groups.panes.values())
        own += sum(pane.own is not None for pane in few.panes.values())
        saved = max(saved, 1 - few.size_bytes / all_groups.size_bytes)
        if mine is not None:
            assert few.panes.keys() == all_groups.panes.keys()
            for pane in few.panes:
                assert few.panes.to_bytes(pane) == all_groups.panes.to_bytes(pane), (number, pane)
        if name in MERGED_ALIKE:
            assert mine == theirs, number
        elif mine is not None and theirs is not None:
            assert mine[0] == theirs[0], number
    assert own > 300
    assert saved > 0.2


def test_stored_panes_of_few_groups_are_taken_back_with_rows_for_these() -> None:
    """The bytes of a pane do not say how it was held."""
    before, after = standing("moments"), standing("moments")
    for _ in feed(before):
        if len(before.panes) == 14:
            break
    assert before.keys is not None
    assert after.keys is not None
    after.keys.restore(before.keys.to_bytes())
    for number in sorted(before.panes):
        is_open = number in before.panes.open_numbers()
        after.panes.adopt(number, before.panes.to_bytes(number), closed=not is_open)
        assert after.panes.to_bytes(number) == before.panes.to_bytes(number)
        assert (after.panes[number].own is None) is is_open or before.panes[number].own is None


def test_ids_of_two_columns_become_one() -> None:
    """Worked out by hand."""
    left, right = np.array([1, 4, 9], np.int32), np.array([0, 4, 5], np.int32)
    ids, of_left, of_right = united(left, right)
    assert ids.tolist() == [0, 1, 4, 5, 9]
    assert of_left.tolist() == [1, 2, 4]
    assert of_right.tolist() == [0, 2, 3]
    nothing = np.zeros(0, np.int32)
    assert [column.tolist() for column in united(nothing, left)] == [[1, 4, 9], [], [0, 1, 2]]


def test_new_groups_get_the_next_rows_in_the_order_of_their_coming() -> None:
    """Worked out by hand; the groups that have rows keep them."""
    places = np.array([-1, 0, -1, -1], np.int32)
    fresh = place_new(places, np.array([3, 1, 3, 0], np.int32), 1)
    assert fresh.tolist() == [3, 0]
    assert places.tolist() == [2, 0, -1, 1]
