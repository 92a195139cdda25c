"""Steps of shared nodes: made once, in parts if one graph reads them, in doubt if abandoned."""

from __future__ import annotations

import pytest

from shedder.cql.plans.logical_plan import Join, JoinKind
from shedder.errors import RowQueryFailed
from tests.dataflow.worlds import batch_of, dataflow, equal, windowed

COUNT = 400  # Rows of each side with one key: more pairs than one part of a step has.


def two():
    """Two dataflows over one join, in which tuples wait whose pairs are a step of several parts."""
    flows = []
    for left, right in ("ab", "xy"):
        sides = windowed(left, 900, relation="s"), windowed(right, 800, relation="t")
        flows.append(dataflow(Join(JoinKind.INNER, *sides, equal(f"{left}.k", f"{right}.k"))))
    first, second = flows
    assert second.share_with(first, lambda *_: True)
    for flow in flows:
        for alias in flow.sources:
            flow.push(alias, batch_of([(ts, ts, (1, 1, "", 0.0, ts)) for ts in range(COUNT)]), 0)
    return first, second, [dict.fromkeys(flow.sources, COUNT) for flow in flows]


@pytest.mark.slow
def test_a_shared_step_is_made_once_and_whole():
    """The thread that begins a step makes what others read, so they meet no step between parts."""
    first, second, marks = two()
    changes = first.advance(marks[0])
    others = second.advance(marks[1])
    assert len(list(first.parts(dict.fromkeys(marks[0], COUNT + 1)))) == 0
    assert len(changes) == len(others) == COUNT**2
    assert others.columns.schema.names[0] == "x.k"
    joins = [each for each in second.operators() if each.text.startswith("Join")]
    assert [(each.rows_in, each.rows_out) for each in joins] == [(2 * COUNT, COUNT**2)]


def test_a_graph_that_no_other_shares_any_more_makes_its_steps_in_parts():
    first, second, marks = two()
    assert first.source_graph.is_shared
    second.source_graph.leave()
    assert not first.source_graph.is_shared
    parts = list(first.parts(marks[0]))
    assert len(parts) > 1
    assert [each.rows_out for each in first.operators()][-1] == COUNT**2


def test_a_step_that_is_abandoned_between_parts_leaves_a_node_in_doubt():
    first, second, marks = two()
    second.source_graph.leave()
    step = first.parts(marks[0])
    next(step)
    with pytest.raises(RowQueryFailed, match="is in a step"):
        first.advance(marks[0])
    step.close()
    with pytest.raises(RowQueryFailed, match="dropped in a step"):
        first.advance(marks[0])


def test_an_alias_reads_one_shared_source():
    """Two queries have the same streams in sources of their own, and one of them is dropped."""

    def joined(left, right, kind=JoinKind.INNER):
        sides = windowed(left, 900, relation="s"), windowed(right, 800, relation="t")
        return Join(kind, *sides, equal(f"{left}.k", f"{right}.k"))

    def three():
        again = windowed("y", 900, relation="s")
        return dataflow(Join(JoinKind.INNER, joined("x", "z"), again, equal("z.k", "y.k")))

    dropped, other = dataflow(joined("a", "b", JoinKind.LEFT)), dataflow(joined("c", "d"))
    sharing, alone = three(), three()
    for each in (dropped, other):
        sharing.share_with(each, lambda *_: True)
    third = dataflow(joined("e", "f"))
    third.share_with(sharing, lambda *_: True)
    assert third.source_graph.shared_nodes
    made = []
    for flow in (other, sharing, alone):
        for alias in flow.sources:
            flow.push(alias, batch_of([(ts, ts, (1, 1, "", 0.0, ts)) for ts in range(9)]), 0)
        made.append(len(flow.advance(dict.fromkeys(flow.sources, 9))))
    assert made == [9**2, 9**3, 9**3]
