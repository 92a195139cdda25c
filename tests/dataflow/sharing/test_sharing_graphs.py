"""Graphs that share nodes at paces of their own: the changes of graphs that stand alone."""

from __future__ import annotations

from random import Random

import pytest

from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Op
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Plan,
    Project,
    RowsWindow,
    StreamOperator,
    ToStream,
    WindowOf,
)
from shedder.cql.statements.statement import Output, RangeWindow
from shedder.dataflow.dataflow import Dataflow
from tests.dataflow.brute_force import Tuple
from tests.dataflow.worlds import (
    BIGINT,
    END,
    Run,
    batch_of,
    boolean,
    column,
    dataflow,
    equal,
    number,
    scan,
    stream,
    windowed,
)
from tests.scale import scaled

LATENESS = 15
MAX = AggregateFunction.MAX


def ranged(alias: str, relation: str, size: int = 60, slide: int = 1) -> WindowOf:
    return windowed(alias, size, slide, relation)


def joined(left: Plan, right: Plan, *keys: str, kind: JoinKind = JoinKind.INNER) -> Join:
    return Join(kind, left, right, equal(*keys))


def rs(a: str, b: str) -> Join:
    """r joined with s, under any aliases."""
    return joined(ranged(a, "r"), ranged(b, "s", 40, 10), f"{a}.k", f"{b}.k")


def keys_of(plan: Plan, name: str) -> Project:
    return Project(plan, (Output("k", column(name)),))


def plans() -> list[Plan]:
    """Plans over r, s and t that have parts in common."""
    largest = Aggregate(MAX, column("a.x"), type=BIGINT)
    names = Aggregate(AggregateFunction.COUNT_DISTINCT, column("a.name"), type=BIGINT)
    count = Aggregate(AggregateFunction.COUNT, None, type=BIGINT)
    newest = WindowOf(scan("n", "r"), RowsWindow(5, partition=("n.k",)))
    return [
        rs("a", "b"),
        joined(rs("c", "d"), ranged("e", "t", 30), "c.k", "e.k"),
        Filter(rs("a", "b"), boolean(Op.GT, column("a.x"), number(1))),
        Aggregated(ranged("a", "r"), (column("a.k"),), (largest,)),
        Aggregated(rs("a", "b"), (column("a.k"),), (largest,)),
        Distinct(keys_of(newest, "n.k")),
        joined(
            WindowOf(scan("p", "r"), RowsWindow(5, partition=("p.k",))),
            ranged("q", "t"),
            "p.k",
            "q.k",
        ),
        ToStream(StreamOperator.RSTREAM, ranged("a", "r", 40, 10)),
        ToStream(
            StreamOperator.RSTREAM, Distinct(Project(rs("a", "b"), (Output("k", column("a.k")),)))
        ),
        joined(ranged("a", "r"), ranged("b", "s", 40, 10), "a.k", "b.k", kind=JoinKind.LEFT),
        WindowOf(scan("z", "t"), RangeWindow(30, 1)),
        joined(ranged("a", "r"), ranged("b", "t", 25), "a.x", "b.x"),
        joined(ranged("a", "r", 20, 5), ranged("b", "s", 90), "a.k", "b.k"),
        joined(ranged("a", "r", 35), ranged("b", "r", 60), "a.name", "b.name", kind=JoinKind.FULL),
        joined(newest, ranged("b", "s", 50), "n.k", "b.k", kind=JoinKind.ANTI),
        Aggregated(ranged("a", "r", 20, 5), (), (largest, names)),
        Aggregated(rs("a", "b"), (column("a.k"),), (count,)),
    ]


class World:
    """Batches of three streams in one order, for any number of dataflows."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._left = {
            name: sorted(
                stream(seed + at, 80),
                key=lambda each: each[0] + 0.9 * LATENESS * self._random.random(),
            )
            for at, name in enumerate("rst")
        }
        self._marks: dict[str, int] = {}
        self._pushed = dict.fromkeys("rst", 0)

    def _disordered(self, seed: int) -> list[Tuple]:
        late_us = 0.9 * LATENESS
        return sorted(stream(seed, 80), key=lambda each: each[0] + late_us * self._random.random())

    @property
    def goes_on(self) -> bool:
        return any(self._left.values())

    def step(self, runs: list[Run]) -> None:
        """Push one batch of a stream, and raise its watermark."""
        random = self._random
        name = random.choice([it for it, rows in self._left.items() if rows])
        size = random.randint(1, 15)
        rows, self._left[name] = self._left[name][:size], self._left[name][size:]
        newest = max(ts for ts, _, _ in rows) - LATENESS
        self._marks[name] = max(newest, self._marks.get(name, newest))
        first = self._pushed[name]
        self._pushed[name] += len(rows)
        random.shuffle(runs)
        for each in runs:
            for alias, source in each.flow.sources.items():
                if source.relation == name:
                    each.flow.push(alias, batch_of(rows), first)
            self.advance(each)

    def advance(self, each: Run, end: int | None = None) -> None:
        marks = {
            alias: self._marks[source.relation] if end is None else end
            for alias, source in each.flow.sources.items()
            if end is not None or source.relation in self._marks
        }
        before_us = each.flow.as_of_us
        changes = each.flow.advance(marks)
        if each.flow.as_of_us is not None and each.flow.as_of_us != before_us:
            each.steps.append((each.flow.as_of_us, changes))


def share(flow: Dataflow, others: list[Dataflow]) -> None:
    """Share as the engine does: streams of both have read the same tuples."""

    def agrees(other: Dataflow):
        return lambda alias, its, _: flow.sources[alias].relation == other.sources[its].relation

    for other in others:
        flow.share_with(other, agrees(other))


@pytest.mark.parametrize("seed", range(scaled(3, 200)))
def test_shared_graphs_have_the_relations_of_graphs_alone(seed):
    """Graphs share at a random instant, some go apart again, and one leaves."""
    world, random = World(1000 * seed), Random(seed)
    drawn = random.sample(plans(), 7)
    drawn.append(random.choice(drawn))
    alone, together = ([Run(dataflow(plan), []) for plan in drawn] for _ in range(2))
    pairs = list(zip(alone, together, strict=True))
    runs = [*alone, *together]
    shares_at, splits_at, leaves_at = (random.randrange(12) for _ in range(3))
    at = 0
    while world.goes_on:
        if at == shares_at:
            for place, each in enumerate(together):
                share(each.flow, [it.flow for it in together[:place]])
        if at == shares_at + splits_at:
            together[2].flow.source_graph.split()
        if at == shares_at + leaves_at:
            together[0].flow.source_graph.leave()
            runs = [each for each in runs if each is not together[0]]
            pairs = [pair for pair in pairs if pair[1] is not together[0]]
        world.step(runs)
        at += 1
    for each in runs:
        world.advance(each, 2 * END)
    for own, shared in pairs:
        for e in (*(random.randrange(END + 60) for _ in range(40)), END):
            assert own.at(e) == shared.at(e), e
        if own.flow.is_stream:
            assert own.rows == shared.rows
    assert any(each.flow.source_graph.shared_nodes for each in together)
    assert not any(each.flow.source_graph.backlog_bytes for each in together[1:])


def test_a_slow_graph_has_what_a_fast_one_made_in_its_backlog():
    """r advances without t: the join of r and s is made for both, and waits for the slow graph."""
    fast = dataflow(rs("a", "b"))
    slow = dataflow(joined(rs("c", "d"), ranged("e", "t", 30), "c.k", "e.k"))
    share(slow, [fast])
    for flow in (fast, slow):
        for alias, source in flow.sources.items():
            if source.relation != "t":
                flow.push(alias, batch_of([(ts, ts, (1, 1, "", 0.0, ts)) for ts in range(10)]), 0)
    made = len(fast.advance({"a": 10, "b": 10}))
    assert made == 10 * 10
    slow.advance({"c": 10, "d": 10})
    assert (fast.source_graph.backlog_bytes, slow.as_of_us) == (0, None)
    assert slow.source_graph.backlog_bytes > made * 8
    slow.push("e", batch_of([(3, 0, (1, 1, "", 0.0, 3))]), 0)
    assert len(slow.advance({"e": 8})) == 8 * 8
    assert 0 < slow.source_graph.backlog_bytes < made * 100
    slow.advance({"e": 10})
    assert slow.source_graph.backlog_bytes == 0
    joins = {each.text: each.rows_in for each in slow.operators() if each.text.startswith("Join")}
    assert sorted(joins.values())[0] == 20


def distinct_operators(flows: list[Dataflow]) -> tuple[list[str], int]:
    """Operators of some graphs, each once, and the bytes of all of them."""
    found, size_bytes, seen = list[str](), 0, set[int]()
    for flow in flows:
        for each in flow.operators():
            if each.shared is None or id(each.shared) not in seen:
                found.append(each.text.partition(" ")[0])
                size_bytes += each.size_bytes
            seen.add(id(each.shared))
    return sorted(found), size_bytes


def filled(plan: Plan) -> Dataflow:
    """A graph whose windows have 5,000 tuples of each stream; the stream t is behind."""
    flow = dataflow(plan)
    rows = [(at // 20, at, (at, at % 7, "", 0.0, at // 20)) for at in range(5_000)]
    for alias in flow.sources:
        flow.push(alias, batch_of(rows), 0)
    flow.advance({it: 100 if of.relation == "t" else 250 for it, of in flow.sources.items()})
    return flow


@pytest.mark.parametrize("newest_first", [False, True])
def test_q6_shares_the_join_of_two_streams_and_its_queue(newest_first):
    """r join s beside r join s join t: one join of r and s, whose pairs two readers take.

    The paper counts 3 operators, 4 join synopses and 4 queues. Here are 2 joins with 4 sides: the
    selection of the first query is the third operator there. Shedder pushes selections below
    joins, so that states have fewer rows; then the joins differ, and the test leaves it out.
    Windows compute lifetimes and store nothing; they are 3 operators more. Queues are the waiting
    tuples of r, s and t, and the pairs of r and s, which two readers take at instants of their own.
    """
    texts = [rs("a", "b"), joined(rs("c", "d"), ranged("e", "t", 30), "c.k", "e.k")]
    flows = [filled(plan) for plan in (reversed(texts) if newest_first else texts)]
    _, alone = distinct_operators(flows)
    (first, least) = (flows[1], flows[0]) if newest_first else (flows[0], flows[1])
    _, pairs_bytes = distinct_operators([first])
    share(flows[1], [flows[0]])
    found, size_bytes = distinct_operators(flows)
    assert found == ["Join"] * 2 + ["Window"] * 3 + ["r", "s", "t"]
    (node,) = (
        each
        for each in first.source_graph.shared_nodes
        if each in least.source_graph.shared_nodes
        and each.readers
        and each.node.operator is not None
        and len(each.inputs) == 2
    )
    assert len(node.readers) == 2
    assert (first.source_graph.backlog_bytes, first.as_of_us, least.as_of_us) == (0, 250, 100)
    assert size_bytes < alone - pairs_bytes // 2


def stores_of(flows: list[Dataflow]) -> list[str]:
    """By what the rows of each store are looked up; a store of several graphs is there once."""
    facts = [each for flow in flows for each in flow.operators() if each.kept is not None]
    return sorted({id(each.kept): each.kept_text for each in facts}.values())


@pytest.mark.parametrize("join_first", [True, False])
@pytest.mark.parametrize(("group", "size"), [(False, 60), (True, 60), (True, 30)])
def test_q8_and_q9_have_two_stores_of_tuples(join_first, group, size):
    """MAX over a window of r beside a join with it, with or without GROUP BY: two data stores.

    The paper counts 4 operators, 5 synopses and 2 data stores: the windows of r and s have the
    tuples, and the synopses of MAX and of both sides of the join point into them. So it is here,
    also if the window of MAX is shorter. MAX keeps its values, but no tuple that will leave.
    """
    largest = Aggregate(MAX, column("a.x"), type=BIGINT)
    maximum = Aggregated(ranged("a", "r", size), (column("a.k"),) if group else (), (largest,))
    pairs = joined(ranged("c", "r"), ranged("d", "s"), "c.k", "d.k")
    flows = [filled(plan) for plan in ((pairs, maximum) if join_first else (maximum, pairs))]
    _, alone = distinct_operators(flows)
    share(flows[1], [flows[0]])
    for flow in flows:
        flow.advance(dict.fromkeys(flow.sources, 251))
    found, size_bytes = distinct_operators(flows)
    windows = 2 if size == 60 else 3
    assert found == ["Aggregate", "Join", *["Window"] * windows, "r", "s"]
    stores = stores_of(flows)
    assert stores == ["k", "k"]
    operators = [each for each in found if each in ("Aggregate", "Join")]
    assert len(stores) + sum({"Aggregate": 1, "Join": 2}[each] for each in operators) == 5
    assert size_bytes < alone - 20 * size * 32  # An expiry has so many bytes.


def test_joins_with_different_keys_have_one_store_with_an_index_for_each():
    flows = [
        filled(joined(ranged("a", "r"), ranged("b", "s"), "a.k", "b.k")),
        filled(joined(ranged("c", "r", 20), ranged("d", "t"), "c.ts", "d.ts")),
        filled(joined(ranged("e", "r", 45), ranged("f", "t"), "e.k", "f.k")),
    ]
    _, alone = distinct_operators(flows)
    for at in (1, 2):
        share(flows[at], flows[:at])
    assert stores_of(flows) == ["k", "k, and by ts", "ts, and by k"]
    _, size_bytes = distinct_operators(flows)
    assert size_bytes < 0.75 * alone  # Three stores in place of six; two of them have two indexes.
    flows[1].source_graph.leave()
    for flow in (flows[0], flows[2]):
        flow.advance(dict.fromkeys(flow.sources, 252))
    assert stores_of([flows[0], flows[2]]) == ["k", "k", "k"]


def test_columns_of_one_window_under_two_aliases_are_not_taken_for_each_other():
    """Two queries join a window with itself, so that each alias is one name of the same columns."""
    plans_of_both = [
        joined(ranged(left, "r"), ranged(right, "r"), f"{left}.k", f"{right}.x")
        for left, right in ("ab", "cd")
    ]
    flows = [dataflow(plan) for plan in plans_of_both]
    share(flows[1], [flows[0]])
    made = []
    for flow in flows:
        rows = [(ts, ts, (ts % 3, ts % 4, "", 0.0, ts)) for ts in range(20)]
        for alias in flow.sources:
            flow.push(alias, batch_of(rows), 0)
        columns = flow.advance(dict.fromkeys(flow.sources, 20)).columns
        made.append(sorted(tuple(each.values()) for each in columns.to_pylist()))
    assert made[0] == made[1]
    assert all(row[0] == row[6] for row in made[0])
