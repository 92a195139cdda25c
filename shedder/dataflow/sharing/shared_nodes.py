"""Shared nodes: operators that the graphs of several queries read, evaluated once.

Each graph advances to instants of its own. The first graph that reaches an instant evaluates a
node, and its changes wait in a queue of each reader until the reader reaches them.
Source: Motwani et al. 2003, Query processing, resource management, and approximation in a data
stream management system, section 3.2 (one queue, a read pointer for each reader).
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from shedder.cql.plans.subplans import Subplan
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.graph import Node, NodeWork, PartedOperator
from shedder.dataflow.rows_window import NewestRows
from shedder.dataflow.selection import WhereFilter
from shedder.dataflow.sharing.evaluated_once import EvaluatedOnce
from shedder.dataflow.sharing.shared_source import SharedSource
from shedder.dataflow.step_parts import Parts, finished
from shedder.dataflow.tables.table_side import is_position, position_name


class SharedNode:
    """A node with the nodes below it.

    node: its inputs are `inputs`, and not places in a graph.
    source: of a node without an operator, else None.
    subplan: that its rows are; None: it is a part of an operator of the plan.
    sources: of the subplan, left to right.
    readers: get its changes. graphs: read it at any depth.
    has_queue: it is evaluated before the steps of its graphs, and its changes wait in their queues.
    """

    def __init__(
        self,
        node: Node,
        work: NodeWork,
        inputs: Sequence[SharedReader],
        *,
        subplan: Subplan | None,
        sources: Sequence[SharedSource],
        source: SharedSource | None,
        as_of_us: int | None,
        clock_ns: Callable[[], int],
        has_queue: bool = False,
    ) -> None:
        """as_of_us: up to which the operator was evaluated before; None: it was not."""
        self.node = node
        self.work = work
        self.inputs = tuple(inputs)
        self.subplan = subplan
        self.sources = tuple(sources)
        self.source = source
        self.readers: list[SharedReader] = []
        self.graphs: set[object] = set()
        self.has_queue = has_queue or source is not None
        self._clock_ns = clock_ns
        self._once = EvaluatedOnce(as_of_us)
        self._operator_bytes = 0 if node.operator is None else node.operator.size_bytes

    @property
    def as_of_us(self) -> int | None:
        """Instant up to which it was evaluated."""
        return self._once.as_of_us

    @property
    def size_bytes(self) -> int:
        """Bytes of its state, of the rows that are kept, and of what waits for it."""
        kept = 0 if self.node.kept is None else self.node.kept.size_bytes
        if self.source is not None:
            return kept + self.source.buffer.size_bytes
        return kept + self._operator_bytes + sum(each.backlog_bytes for each in self.inputs)

    @property
    def is_shared(self) -> bool:
        """Return whether several graphs read it now."""
        return len(self.graphs) > 1

    def evaluate_ahead(self) -> None:
        """Be evaluated before the steps of its graphs from now on."""
        self.has_queue = True

    @property
    def goes_ahead(self) -> bool:
        """Return whether a step begins with it, before operators that one graph alone reads."""
        return self.is_shared or self.has_queue

    def below(self) -> Iterator[SharedNode]:
        """The nodes below it, and itself."""
        for each in self.inputs:
            yield from each.shared.below()
        yield self

    def advance(self, as_of_us: int) -> Parts[None]:
        """Give the readers all changes up to an instant.

        A node that has failed, or whose step was abandoned between its parts, is in doubt: all
        graphs that read it fail.
        """
        if self._once.has_reached(as_of_us):
            return
        with self._once.evaluation(as_of_us):
            inputs: list[ChangeBatch] = []
            for each in self.inputs:
                changes = yield from each.parts(as_of_us)
                inputs.append(changes)
            began_ns = self._clock_ns()
            if self.source is not None:
                made = self.source.release(as_of_us)
            elif isinstance(self.node.operator, PartedOperator):
                made = yield from self.node.operator.parts(as_of_us, *inputs)
            else:
                assert self.node.operator is not None
                made = self.node.operator.apply(as_of_us, *inputs)
            if self.node.kept is not None:
                self.node.kept.append(as_of_us, made)
            self.work.add(sum(map(len, inputs)), len(made), self._clock_ns() - began_ns)
        if self.node.operator is not None:
            self._operator_bytes = self.node.operator.size_bytes
        for reader in self.readers:
            reader.receive(as_of_us, made)

    @property
    def may_add_positions(self) -> bool:
        """Return whether it gives the tuples of one stream, below conditions alone."""
        if self.source is not None:
            return True
        return isinstance(self.node.operator, WhereFilter) and self.inputs[0].may_add_positions

    def add_positions(self) -> None:
        """Give the positions of tuples, too, behind all columns.

        The tuples that come are those of one stream, as of `may_add_positions`. The name of the
        column has the alias in the node's own subplan, as all its names.
        """
        assert self.subplan is not None
        (alias,) = self.subplan.aliases
        name = position_name(alias)
        if self.source is not None:
            self.source.buffer.add_positions(name)
        else:
            self.inputs[0].add_positions(name)
        schema = self.node.schema.append(pa.field(name, pa.int64()))
        self.node = replace(self.node, schema=schema)

    def least(self, name: str) -> int | None:
        """Return the least value of a column of positions that wait or that ROWS windows hold."""
        if self.source is not None:
            return self.source.buffer.least_position
        if isinstance(self.node.operator, NewestRows):
            found = [self.node.operator.least(name)]
        else:
            found = []
        found += [each.least(name) for each in self.inputs if name in each.schema.names]
        return min((it for it in found if it is not None), default=None)

    def leave(self, graph: object) -> None:
        """Forget a graph; without graphs, the node reads nothing any more."""
        self.graphs.discard(graph)
        if not self.graphs:
            for each in self.inputs:
                each.leave()

    def copied(
        self,
        nodes: dict[int, SharedNode],
        sources: dict[int, SharedSource],
        memo: dict[int, object],
    ) -> SharedNode:
        """Return a node with equal state, which goes on apart.

        nodes: copies of those below, by the ids of these. sources: likewise.
        memo: of `copy.deepcopy`.
        """
        operator = copy.deepcopy(self.node.operator, memo)
        kept = copy.deepcopy(self.node.kept, memo)
        return SharedNode(
            replace(self.node, operator=operator, kept=kept),
            replace(self.work) if self.source is None else sources[id(self.source)].work,
            [each.copied(nodes[id(each.shared)]).joined() for each in self.inputs],
            subplan=self.subplan,
            sources=[sources[id(each)] for each in self.sources],
            source=None if self.source is None else sources[id(self.source)],
            as_of_us=self.as_of_us,
            clock_ns=self._clock_ns,
            has_queue=self.has_queue,
        )


class SharedReader:
    """Operator that stands for a shared node, and for all below it, in one graph or in one node.

    shared: the node. schema: of this graph. places: of its columns among those of the node.
    backlog_bytes: of the changes that wait, because the reader is slower than another one.
    """

    def __init__(self, shared: SharedNode, schema: pa.Schema, places: Sequence[int]) -> None:
        self.shared = shared
        self.schema = schema
        self.backlog_bytes = 0
        self._places = tuple(places)
        self._waiting: deque[tuple[int, ChangeBatch]] = deque()
        self._ready: list[ChangeBatch] = []
        self._ready_us: int | None = None

    @property
    def size_bytes(self) -> int:
        """Nothing is held: `shared_below` has the nodes that hold rows."""
        return 0

    def column_below(self, name: str) -> str:
        """Return the node's name of a column."""
        place = self._places[self.schema.names.index(name)]
        return self.shared.node.schema.names[place]

    def has_rows_of(self, other: SharedReader) -> bool:
        """Return whether another reader has the same columns of the same node."""
        return self.shared is other.shared and self._places == other._places

    @property
    def may_add_positions(self) -> bool:
        """Return whether no changes wait without positions, and the node can add them."""
        return not self.backlog_bytes and not self._ready and self.shared.may_add_positions

    def add_positions(self, name: str) -> None:
        """Have the positions of tuples, too, as `SharedNode.add_positions`.

        name: of the column here; the node's name may have another alias.
        """
        if not is_position(self.shared.node.schema.names[-1]):
            self.shared.add_positions()
        self.schema = self.schema.append(pa.field(name, pa.int64()))
        self._places = (*self._places, len(self.shared.node.schema) - 1)

    def least(self, name: str) -> int | None:
        """Return the least value of a column of positions that wait, here or below."""
        waiting = [changes for _, changes in self._waiting] + self._ready
        found = [int(it.columns.column(name).to_numpy().min()) for it in waiting if len(it)]
        below = self.shared.least(self.column_below(name))
        return min(found + ([] if below is None else [below]), default=None)

    def joined(self) -> SharedReader:
        """Get the changes of the node from now on; return this reader."""
        if not any(each is self for each in self.shared.readers):
            self.shared.readers.append(self)
        return self

    def leave(self) -> None:
        """Get no more changes."""
        self.shared.readers[:] = [each for each in self.shared.readers if each is not self]

    def copied(self, shared: SharedNode | None = None) -> SharedReader:
        """Return a reader of the node, or of another one, for which the same changes wait."""
        made = SharedReader(self.shared if shared is None else shared, self.schema, self._places)
        made._waiting, made.backlog_bytes = self._waiting.copy(), self.backlog_bytes
        return made

    def go_on_from(self, other: SharedReader) -> None:
        """Have the changes wait that wait for a reader of an equal node."""
        for as_of_us, changes in other._waiting:
            named = pa.RecordBatch.from_arrays(changes.columns.columns, schema=self.schema)
            self._waiting.append((as_of_us, changes.with_columns(named)))
        self.backlog_bytes = other.backlog_bytes

    def receive(self, as_of_us: int, changes: ChangeBatch) -> None:
        """Have changes wait that the node made up to an instant."""
        if not len(changes):
            return
        arrays = [changes.columns.column(place) for place in self._places]
        named = changes.with_columns(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
        self._waiting.append((as_of_us, named))
        self.backlog_bytes += named.size_bytes

    def apply(self, as_of_us: int) -> ChangeBatch:
        """Return the changes of the node, under the names of this graph."""
        return finished(self.parts(as_of_us))

    def parts(self, as_of_us: int) -> Parts[ChangeBatch]:
        """As `apply`, with the parts of the node's step."""
        if self._ready_us != as_of_us:
            yield from self.shared.advance(as_of_us)
            self.prepare(as_of_us)
        ready, self._ready = self._ready, []
        return ChangeBatch.concat(ready) if ready else ChangeBatch.empty(self.schema)

    def prepare(self, as_of_us: int) -> None:
        """Take the changes for a step up to an instant: those of earlier event times.

        The step may go on in another thread, in which it leaves the node alone.
        """
        self._ready_us = as_of_us
        taken = self._ready
        while self._waiting:
            made_us, changes = self._waiting.popleft()
            self.backlog_bytes -= changes.size_bytes
            if made_us <= as_of_us:
                taken.append(changes)
                continue
            is_due = changes.ts_us < as_of_us
            taken.append(changes.where(is_due))
            later = changes.where(~is_due)
            if len(later):
                self._waiting.appendleft((made_us, later))
                self.backlog_bytes += later.size_bytes
                break


def shared_below(nodes: Iterable[Node]) -> list[SharedNode]:
    """Return the shared nodes that some nodes read at any depth, each once, after its inputs."""
    found: dict[int, SharedNode] = {}

    def visit(shared: SharedNode) -> None:
        if id(shared) in found:
            return
        for each in shared.inputs:
            visit(each.shared)
        found[id(shared)] = shared

    for node in nodes:
        if isinstance(node.operator, SharedReader):
            visit(node.operator.shared)
    return list(found.values())
