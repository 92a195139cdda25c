"""Shared nodes whose step has several parts: made once, and in doubt if a step is abandoned."""

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
def test_a_step_of_several_parts_is_made_once():
    first, second, marks = two()
    parts, made = 0, first.parts(marks[0])
    try:
        while True:
            next(made)
            parts += 1
    except StopIteration as end:
        changes = end.value
    others = second.advance(marks[1])
    assert parts > 1
    assert len(changes) == len(others) == COUNT**2
    assert others.columns.schema.names[0] == "x.k"
    joins = [each for each in second.operators() if each.text.startswith("Join")]
    assert [(each.rows_in, each.rows_out) for each in joins] == [(2 * COUNT, COUNT**2)]


def test_an_abandoned_step_fails_the_other_reader():
    first, second, marks = two()
    step = first.parts(marks[0])
    next(step)
    step.close()
    with pytest.raises(RowQueryFailed, match="dropped in a step"):
        second.advance(marks[1])


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
    assert third.shared_nodes
    made = []
    for flow in (other, sharing, alone):
        for alias in flow.sources:
            flow.push(alias, batch_of([(ts, ts, (1, 1, "", 0.0, ts)) for ts in range(9)]), 0)
        made.append(len(flow.advance(dict.fromkeys(flow.sources, 9))))
    assert made == [9**2, 9**3, 9**3]
