"""Which DELETEs the panes of a query reflect: by event time, position and the order of DELETEs."""

from __future__ import annotations

import pytest

from shedder.archive.metadata.deleted_positions import Deletion
from shedder.engine.standing_queries.pane_deletions import PaneDeletions
from shedder.engine.synopsis_plans.synopsis_plan import plan
from shedder.engine.window_state.query_state import QueryState
from shedder.streams.windows import Span
from tests.cql.trees import bound_query

SECOND = 1_000_000
ALL = Span(None, None)


def standing_of(window, panes=(), name="q"):
    query = bound_query(f"SELECT COUNT(*) AS n FROM stream {window}")
    query_state = QueryState(name, query, plan(query, {}), part_bytes_max=1 << 20)
    for number in panes:
        query_state.panes.adopt(number, _empty(query_state), closed=True)
    return query_state


def _empty(query_state):
    other = QueryState("other", query_state.query, query_state.plan, part_bytes_max=1 << 20)
    other.panes.open_pane(0, 1)
    return other.panes.to_bytes(0)


def deletion(low_s, high_s, position):
    return Deletion(1, "DELETE", 5, low_s * SECOND, high_s * SECOND, position, 0)


def test_only_panes_that_a_delete_reaches_are_behind():
    query_state = standing_of("[RANGE 4 SECONDS SLIDE 2 SECONDS]", range(6))
    found, deletions = PaneDeletions(), [deletion(3, 5, 100)]
    found.look(deletions, query_state, 100)
    assert found == PaneDeletions(1, {1: 0, 2: 0})
    grid = query_state.grid
    assert found.pending(deletions, grid, Span(4 * SECOND, 8 * SECOND)) == deletions
    assert not found.pending(deletions, grid, Span(6 * SECOND, 10 * SECOND))
    assert not found.pending(deletions, grid, ALL)  # No window has closed.


def test_a_pane_that_begins_after_the_delete_was_applied_is_not_behind():
    query_state = standing_of("[RANGE 4 SECONDS SLIDE 2 SECONDS]", [1])
    found, deletions = PaneDeletions(), [deletion(0, 20, 100)]
    found.look(deletions, query_state, 100)
    query_state.panes.adopt(2, _empty(query_state), closed=True)
    found.look(deletions, query_state, 120)
    assert found.behind == {1: 0}
    assert not found.pending(deletions, query_state.grid, Span(4 * SECOND, 8 * SECOND))


def test_a_delete_of_tuples_that_are_not_applied_yet_concerns_every_window():
    """A replay of the log after a restart may read them into any pane."""
    query_state = standing_of("[RANGE 4 SECONDS SLIDE 2 SECONDS]")
    found, deletions = PaneDeletions(), [deletion(0, 20, 100)]
    found.look(deletions, query_state, 60)
    assert found == PaneDeletions()
    assert found.pending(deletions, query_state.grid, Span(4 * SECOND, 8 * SECOND)) == deletions
    query_state.panes.adopt(2, _empty(query_state), closed=True)
    found.look(deletions, query_state, 100)
    assert found.behind == {2: 0}


def test_a_rebuilt_pane_lacks_the_deletes_that_came_while_it_was_read():
    query_state = standing_of("", [0])
    found, deletions = PaneDeletions(), [deletion(0, 9, 10), deletion(0, 9, 20)]
    found.look(deletions, query_state, 20)
    found.rebuild(0, 1, deletions, query_state.grid)
    assert found.pending(deletions, query_state.grid, ALL) == deletions[1:]
    found.rebuild(0, 2, deletions, query_state.grid)
    assert found == PaneDeletions(2)
    assert not found.pending(deletions, query_state.grid, ALL)


def test_cells_of_collapsed_panes_are_concerned_by_every_delete_in_their_window():
    query_state = standing_of("[RANGE 8 SECONDS SLIDE 1 SECOND COLLAPSE BY 2 AFTER 2]", range(8))
    found, deletions = PaneDeletions(), [deletion(3, 5, 100), deletion(90, 99, 200)]
    found.look(deletions, query_state, 200)
    assert found == PaneDeletions()
    assert found.pending(deletions, query_state.grid, Span(0, 8 * SECOND)) == deletions[:1]


def test_panes_that_a_query_is_going_to_take_are_behind_with_those_that_it_has():
    provider = standing_of("[RANGE 2 SECONDS SLIDE 2 SECONDS]", name="provider")
    consumer = standing_of("[RANGE 8 SECONDS SLIDE 4 SECONDS]", name="consumer")
    consumer.take_from(provider, (0, 0))
    for number in (1, 2, 3):
        provider.panes.adopt(number, _empty(provider), closed=True)
    found = PaneDeletions()
    found.look([deletion(3, 5, 100)], consumer, 100)
    assert found.behind == {0: 0, 1: 0}


def test_panes_that_no_window_needs_are_forgotten():
    query_state = standing_of("[RANGE 4 SECONDS SLIDE 2 SECONDS]", range(6))
    found, deletions = PaneDeletions(), [deletion(3, 5, 100)]
    found.look(deletions, query_state, 100)
    query_state.drop_before(2)
    found.look(deletions, query_state, 120)
    assert found.behind == {2: 0}
    assert PaneDeletions.from_json(found.to_json()) == found


@pytest.mark.parametrize(("position", "reflected"), [(0, 0), (10, 0), (11, 1), (20, 1), (21, 2)])
def test_a_query_stored_before_panes_were_rebuilt_reflects_what_was_deleted_before_it(
    position, reflected
):
    deletions = [deletion(0, 9, 10), deletion(0, 9, 20)]
    assert PaneDeletions.registered_at(deletions, position) == PaneDeletions(reflected)
