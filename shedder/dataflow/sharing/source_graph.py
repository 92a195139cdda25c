"""Graph of one dataflow with its sources, of which the graphs of other queries may read parts.

Source: Motwani et al. 2003, Query processing, resource management, and approximation in a data
stream management system, section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.plans.logical_plan import Plan, RelationKind, scans_of
from shedder.cql.plans.subplans import Subplan, covers, subplan_of
from shedder.dataflow.graph import ChangeOperator, Graph, Node, NodeWork
from shedder.dataflow.reorder_buffer import ReorderBuffer
from shedder.dataflow.rows_window import NewestRows
from shedder.dataflow.selection import WhereFilter
from shedder.dataflow.sharing.shared_nodes import SharedNode, SharedReader, shared_below
from shedder.dataflow.sharing.shared_source import SharedSource, StreamSource
from shedder.dataflow.sharing.store_readers import aggregate_stored, read_stores, readers_of
from shedder.dataflow.step_parts import finished
from shedder.dataflow.stores.stream_rows import StreamRows
from shedder.dataflow.tables.table_changes import TableChanges
from shedder.dataflow.tables.table_side import is_position, position_name, stream_of_position
from shedder.dataflow.whole_relation import WholeRelation

Agrees = Callable[[str, str, Plan], bool]
"""(own alias, alias of another dataflow, own plan above it) to whether both have read the same
tuples of one stream, as far as the state of the plan depends on them, and read the same ones from
now on."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A node that another graph may read.

    aliases: in its own graph, of the scans. at: its place, or the shared node. as_of_us: up to
    which it was evaluated.
    """

    subplan: Subplan
    aliases: tuple[str, ...]
    at: int | SharedNode
    node: Node
    as_of_us: int | None


class SourceGraph:
    """A graph, its sources, and the instant up to which it was evaluated.

    graph: the operators. sources: streams by alias, each with the columns that are read.
    buffers: tuples that wait for this graph alone, by alias. changes: those of tables.
    shared_nodes: that the graph reads at any depth, inputs first.
    """

    def __init__(
        self,
        graph: Graph,
        sources: Mapping[str, StreamSource],
        scanned: frozenset[str],
        changes: Mapping[str, TableChanges],
        clock_ns: Callable[[], int],
    ) -> None:
        """scanned: aliases that nodes of the graph read; others read their tuples."""
        self.graph = graph
        self.changes = changes
        self.shared_nodes: tuple[SharedNode, ...] = ()
        self.as_of_us: int | None = None
        schemas = {node.alias: node.schema for node in graph.nodes}
        self.buffers = {alias: _buffer(schemas[alias]) for alias in scanned}
        self._sources = dict(sources)
        self._shared_sources: dict[str, SharedSource] = {}
        self._clock_ns = clock_ns
        self._operator_bytes = graph.size_bytes
        self._subplans: dict[int, Subplan] = {}

    @property
    def sources(self) -> dict[str, StreamSource]:
        """The streams in FROM by alias, with the columns that must be pushed."""
        shared = {alias: each.of for alias, each in self._shared_sources.items()}
        return self._sources | {
            alias: StreamSource(own.relation, shared[alias].columns, own.time_column)
            for alias, own in self._sources.items()
            if alias in shared
        }

    @property
    def size_bytes(self) -> int:
        """Bytes of operators behind the last step, of what waits, and of what is shared."""
        waiting = sum(buffer.size_bytes for buffer in self.buffers.values())
        shared = sum(each.size_bytes for each in self.shared_nodes)
        return self._operator_bytes + waiting + shared + self.backlog_bytes

    @property
    def backlog_bytes(self) -> int:
        """Bytes of changes of shared nodes that wait for this graph alone."""
        return sum(each.backlog_bytes for each in self._readers())

    @property
    def is_shared(self) -> bool:
        """Return whether another graph reads a node of this one now."""
        return any(each.is_shared for each in self.shared_nodes)

    @property
    def stores(self) -> list[StreamRows]:
        """Stores that operators of this graph read, each once."""
        nodes = [*self.graph.nodes, *(each.node for each in self.shared_nodes)]
        found = (each.reader.rows for each in readers_of(nodes))
        return list({id(rows): rows for rows in found}.values())

    @property
    def operators(self) -> list[ChangeOperator]:
        """All operators, those that other graphs read included."""
        nodes = [*self.graph.nodes, *(each.node for each in self.shared_nodes)]
        return [each.operator for each in nodes if each.operator is not None]

    def work_of(self, alias: str) -> NodeWork:
        """Return the work of a source that is this graph's alone."""
        pairs = zip(self.graph.nodes, self.graph.work, strict=True)
        return next(work for node, work in pairs if node.alias == alias)

    def push(
        self,
        alias: str,
        batch: pa.RecordBatch,
        positions: NDArray[np.int64],
    ) -> int:
        """Have tuples of an alias wait; return how many were late. As of `Dataflow.push`."""
        late = 0
        if alias in self._shared_sources:
            late = self._shared_sources[alias].push(batch, positions, self._clock_ns)
        if alias not in self.buffers:
            return late
        source, buffer = self._sources[alias], self.buffers[alias]
        began_ns = self._clock_ns()
        ts_us = batch.column(source.time_column).view(pa.int64()).to_numpy()
        arrays = [batch.column(name) for name in source.columns]
        rows = pa.RecordBatch.from_arrays(arrays, schema=buffer.schema)
        late = buffer.push(rows, ts_us, positions)
        self.work_of(alias).add(batch.num_rows - late, 0, self._clock_ns() - began_ns)
        return late

    def least_position(self, alias: str) -> int | None:
        """Return the least position of the tuples of an alias that wait or that ROWS windows hold.

        None: there is no such tuple, or rows do not have the position.
        """
        name = position_name(alias)
        found = [
            node.operator.least(name)
            for node in self.graph.nodes
            if isinstance(node.operator, NewestRows | SharedReader) and name in node.schema.names
        ]
        if alias in self.buffers and self.buffers[alias].position_name is not None:
            found.append(self.buffers[alias].least_position)
        return min((it for it in found if it is not None), default=None)

    def close(self, alias: str, watermark_us: int) -> None:
        """Accept no more tuples of an alias with event time before the watermark."""
        if alias in self.buffers:
            self.buffers[alias].close(watermark_us)
        if alias in self._shared_sources:
            self._shared_sources[alias].buffer.close(watermark_us)

    def release(self, as_of_us: int) -> None:
        """Evaluate what other graphs read, too, and the shared sources, up to an instant.

        The rest of a step may go on in another thread. Meanwhile tuples are pushed, and other
        graphs evaluate what is shared.
        """
        for each in self.shared_nodes:
            if each.goes_ahead:
                finished(each.advance(as_of_us))
        alone = (each for each in self.shared_nodes if not each.is_shared)
        for reader in (*self._readers(), *(it for each in alone for it in each.inputs)):
            if reader.shared.goes_ahead:
                reader.prepare(as_of_us)

    def queue_filters(self) -> bool:
        """Have a queue behind each filter of a stream, and return whether there is one.

        The filters of streams in a query with tables have none.
        """
        while (
            at := next(filter(self._is_filter_of_stream, range(len(self.graph.nodes))), None)
        ) is not None:
            self._shared(at).evaluate_ahead()
        return any(each.has_queue and each.source is None for each in self.shared_nodes)

    def filter_ahead(self, as_of_us: int) -> None:
        """Evaluate filters of streams up to an instant; what they let through waits for a step.

        No step goes on.
        """
        for each in self.shared_nodes:
            if each.has_queue and each.source is None:
                finished(each.advance(as_of_us))

    def _is_filter_of_stream(self, at: int) -> bool:
        node = self.graph.nodes[at]
        if not isinstance(node.operator, WhereFilter) or self.graph.result is node:
            return False
        below = self.graph.nodes[node.inputs[0]]
        if below.alias is not None:
            return below.alias in self._sources and len(below.schema) == len(
                self._sources[below.alias].columns
            )
        return isinstance(below.operator, SharedReader) and below.operator.shared.source is not None

    def end_step(self, as_of_us: int) -> None:
        """All operators were evaluated up to an instant."""
        self.as_of_us = as_of_us
        self.count_bytes()

    def count_bytes(self) -> None:
        """Note the bytes of the operators, behind a step or a resize."""
        self._operator_bytes = self.graph.size_bytes

    def alias_of(self, source: object) -> str | None:
        """Return the alias by which this graph reads a shared source; None: it is no source."""
        return next((it for it, of in self._shared_sources.items() if of is source), None)

    # --- sharing ---------------------------------------------------------------------------------

    def share_with(self, other: SourceGraph, agrees: Agrees) -> bool:
        """Read one set of operators for the subplans that another graph has, too.

        The operators of this graph are given up for those of the other. Both graphs may be at
        different instants: the node is evaluated up to the later one, and its changes wait for the
        other graph.

        Returns:
          True if the rows of both are the same from now on, under other names.
        """
        while (found := self._match(other, agrees)) is not None:
            self._read_instead(other, *found)
        for each in (self, other):
            aggregate_stored(each.graph, each.shared_nodes, each.as_of_us)
        ours, theirs = self.graph.result.operator, other.graph.result.operator
        return (
            isinstance(ours, SharedReader)
            and isinstance(theirs, SharedReader)
            and ours.has_rows_of(theirs)
        )

    def leave(self) -> None:
        """Read no shared node any more: the query ends."""
        for reader in self._readers():
            reader.leave()
        for own in readers_of(self.graph.nodes):
            own.reader.leave()
        for each in reversed(self.shared_nodes):
            each.leave(self)
        self.shared_nodes = ()

    def split(self) -> None:
        """Go on with copies of all nodes that this graph shares with others."""
        sources = {id(each): each for each in self._shared_sources.values()}
        copies = {key: each.copied() for key, each in sources.items()}
        nodes: dict[int, SharedNode] = {}
        memo: dict[int, object] = {}
        for each in self.shared_nodes:
            nodes[id(each)] = each.copied(nodes, copies, memo)
        leaves = {
            at: node.operator.copied(nodes[id(node.operator.shared)])
            for at, node in enumerate(self.graph.nodes)
            if isinstance(node.operator, SharedReader)
        }
        for own in readers_of(self.graph.nodes):
            rows = memo.get(id(own.reader.rows))
            if isinstance(rows, StreamRows):
                own.reader.read_from(rows)
        self._shared_sources = {it: copies[id(of)] for it, of in self._shared_sources.items()}
        self._set_graph(self.graph.with_leaves(leaves))

    def _match(
        self, other: SourceGraph, agrees: Agrees
    ) -> tuple[int, Subplan, _Candidate, list[int]] | None:
        """Return a node that is not shared, with a node of the other graph that has its rows.

        Nodes above others come first.

        Returns:
          the place of the node, its subplan, the other node, and the places of the node's columns
          among those of the other.
        """
        candidates = list(other._candidates())
        for at in sorted(self.graph.plans, reverse=True):
            node, plan = self.graph.nodes[at], self.graph.plans[at]
            if isinstance(node.operator, SharedReader) or not _is_of_streams(plan):
                continue
            mine = self._subplan(plan)
            for theirs in candidates:
                if theirs.node.label != node.label or not covers(theirs.subplan.plan, mine.plan):
                    continue
                names = [_name_of(theirs.subplan, it) for it in theirs.node.schema.names]
                wanted = [_name_of(mine, name) for name in node.schema.names]
                missing = set(wanted) - set(names)
                if missing and (
                    not all(map(is_position, missing)) or not other.may_add_positions(theirs.at)
                ):
                    continue
                if self._agrees(at, other, theirs, agrees):
                    names += missing
                    return at, mine, theirs, [names.index(name) for name in wanted]
        return None

    def _agrees(self, at: int, other: SourceGraph, theirs: _Candidate, agrees: Agrees) -> bool:
        """Return whether a node has the state of another one, and takes the same tuples."""
        plan = self.graph.plans[at]
        ours = self._subplan(plan).aliases
        if isinstance(theirs.node.operator, WholeRelation):
            mine = self.graph.nodes[at].operator
            assert isinstance(mine, WholeRelation)
            if self.as_of_us != theirs.as_of_us or mine.next_us != theirs.node.operator.next_us:
                return False
        reach = self._reach(theirs)
        return all(
            agrees(our, its, plan) and self._takes_same(our, other, its, reach)
            for our, its in zip(ours, theirs.aliases, strict=True)
        )

    def _takes_same(
        self, alias: str, other: SourceGraph, other_alias: str, from_us: int | None
    ) -> bool:
        """Return whether nodes at an instant take the same tuples of an alias from there on.

        An alias reads one shared source. If another graph is ahead, the sources are shared first.
        """
        ours, theirs = self._shared_sources.get(alias), other._shared_sources.get(other_alias)
        if ours is not None:
            return ours is theirs
        known_us = other.as_of_us if theirs is None else theirs.as_of_us
        if _later(known_us, from_us) != from_us:
            return False
        waiting = (other.buffers[other_alias] if theirs is None else theirs.buffer).positions
        return np.array_equal(self.buffers[alias].positions(from_us), waiting(from_us))

    def may_add_positions(self, at: int | SharedNode) -> bool:
        """Return whether a node can have the positions of tuples, as `SharedNode.add_positions`."""
        if isinstance(at, SharedNode):
            return at.may_add_positions
        node = self.graph.nodes[at]
        if isinstance(node.operator, SharedReader):
            return node.operator.may_add_positions
        is_below = isinstance(node.operator, WhereFilter)
        return node.alias is not None or (is_below and self.may_add_positions(node.inputs[0]))

    def _candidates(self) -> Iterator[_Candidate]:
        by_source = {id(source): alias for alias, source in self._shared_sources.items()}
        for each in self.shared_nodes:
            if each.subplan is not None:
                aliases = tuple(by_source[id(source)] for source in each.sources)
                yield _Candidate(each.subplan, aliases, each, each.node, each.as_of_us)
        for at, plan in self.graph.plans.items():
            node = self.graph.nodes[at]
            if not isinstance(node.operator, SharedReader) and _is_of_streams(plan):
                subplan = self._subplan(plan)
                yield _Candidate(subplan, subplan.aliases, at, node, self.as_of_us)

    def _subplan(self, plan: Plan) -> Subplan:
        """As `subplan_of`; the plans of a graph live as long as it does."""
        if id(plan) not in self._subplans:
            self._subplans[id(plan)] = subplan_of(plan)
        return self._subplans[id(plan)]

    def _read_instead(
        self, other: SourceGraph, at: int, mine: Subplan, theirs: _Candidate, places: list[int]
    ) -> None:
        """Read the other's node in place of the one at a place."""
        reach = self._reach(theirs)
        shared = other._shared(theirs.at) if isinstance(theirs.at, int) else theirs.at
        if max(places) >= len(shared.node.schema):
            shared.add_positions()
        reader = SharedReader(shared, self.graph.nodes[at].schema, places)
        if reach is not None:
            finished(shared.advance(reach))
            if self.as_of_us != reach:
                own = self._shared(at)
                finished(own.advance(reach))
                at = next(it for it, of in enumerate(self.graph.nodes) if _reads(of, own))
                before = self.graph.nodes[at].operator
                assert isinstance(before, SharedReader)
                reader.go_on_from(before)
        for alias, source in zip(mine.aliases, shared.sources, strict=True):
            self._shared_sources[alias] = source
        self._set_graph(self.graph.with_leaves({at: reader}))
        read_stores(self.graph)

    def _reach(self, theirs: _Candidate) -> int | None:
        """Return the instant at which a node of this graph becomes a node of another one.

        A stream may be ahead of the windows above it, of which another graph reads another one.
        """
        reach = _later(self.as_of_us, theirs.as_of_us)
        if isinstance(theirs.at, SharedNode) and len(theirs.aliases) == 1:
            for each in theirs.at.below():
                reach = _later(reach, each.as_of_us)
        return reach

    def _shared(self, at: int) -> SharedNode:
        """Make a node, and all nodes below it, shared; this graph reads them from now on."""
        graph = self.graph
        made: dict[int, SharedNode] = {}
        leaves: dict[int, SharedReader] = {}
        for place in graph.below(at):
            node = graph.nodes[place]
            if isinstance(node.operator, SharedReader):
                leaves[place] = node.operator
                continue
            plan = graph.plans.get(place)
            subplan = None if plan is None else self._subplan(plan)
            aliases = () if subplan is None else subplan.aliases
            made[place] = SharedNode(
                node,
                graph.work[place],
                [leaves[each].copied().joined() for each in node.inputs],
                subplan=subplan,
                sources=[self._source_for_all(alias) for alias in aliases],
                source=None if node.alias is None else self._source_for_all(node.alias),
                as_of_us=self.as_of_us,
                clock_ns=self._clock_ns,
            )
            leaves[place] = SharedReader(made[place], node.schema, range(len(node.schema)))
        self._set_graph(graph.with_leaves(leaves))
        return made[at]

    def _source_for_all(self, alias: str) -> SharedSource:
        """Return the waiting tuples of an alias as a source for several graphs."""
        if alias not in self._shared_sources:
            source, work = self._sources[alias], self.work_of(alias)
            self._shared_sources[alias] = SharedSource(
                self.buffers[alias], source, work, self.as_of_us
            )
        return self._shared_sources[alias]

    def _readers(self) -> list[SharedReader]:
        operators = (node.operator for node in self.graph.nodes)
        return [each for each in operators if isinstance(each, SharedReader)]

    def _set_graph(self, graph: Graph) -> None:
        before, nodes = self._readers(), self.shared_nodes
        self.graph = graph
        self._operator_bytes = graph.size_bytes
        read = {node.alias for node in graph.nodes}
        self.buffers = {alias: it for alias, it in self.buffers.items() if alias in read}
        self.shared_nodes = tuple(shared_below(graph.nodes))
        now = {id(each.joined()) for each in self._readers()}
        for reader in before:
            if id(reader) not in now:
                reader.leave()
        for each in self.shared_nodes:
            each.graphs.add(self)
        kept = set(map(id, self.shared_nodes))
        for each in reversed(nodes):
            if id(each) not in kept:
                each.leave(self)


def _buffer(schema: pa.Schema) -> ReorderBuffer:
    """Return a buffer of what a source gives: the columns of tuples, and perhaps positions."""
    last = len(schema) - 1
    if last and is_position(schema.names[last]):
        return ReorderBuffer(schema.remove(last), schema.names[last])
    return ReorderBuffer(schema)


def _name_of(subplan: Subplan, name: str) -> str:
    """Return the name of a column that does not depend on aliases."""
    if is_position(name):
        return position_name(f"#{subplan.aliases.index(stream_of_position(name))}")
    return subplan.names.get(name, name)


def _is_of_streams(plan: Plan) -> bool:
    """Return whether rows depend on streams alone, and not on the changes of a query's tables."""
    return all(scan.kind is RelationKind.STREAM for scan in scans_of(plan))


def _reads(node: Node, shared: SharedNode) -> bool:
    return isinstance(node.operator, SharedReader) and node.operator.shared is shared


def _later(left: int | None, right: int | None) -> int | None:
    return max((us for us in (left, right) if us is not None), default=None)
