"""Shared nodes: operators that the graphs of several queries read, evaluated once an instant.

The graphs advance in step: each gets the same tuples and the same instants, in any order. The
first graph that reaches an instant evaluates a node, and the others get the changes that it made.
A node lives as long as a graph reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.plans.subplans import Subplan
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.graph import Node, NodeWork, PartedOperator
from shedder.dataflow.reorder_buffer import ReorderBuffer
from shedder.dataflow.step_parts import Parts, finished
from shedder.errors import RowQueryFailed


class SharedSource:
    """Tuples of a stream that wait for the watermark, for all graphs that read the stream.

    columns: by the stream's own names. work: of the source.
    """

    def __init__(
        self,
        buffer: ReorderBuffer,
        relation: str,
        columns: tuple[str, ...],
        time_column: str,
        work: NodeWork,
    ) -> None:
        self.buffer = buffer
        self.relation = relation
        self.columns = columns
        self.time_column = time_column
        self.work = work
        self._next_position: int | None = None

    def push(
        self, batch: pa.RecordBatch, positions: NDArray[np.int64], clock_ns: Callable[[], int]
    ) -> int:
        """Take a batch if no graph has brought it before; return how many tuples were late."""
        if not len(positions):
            return 0
        if self._next_position is not None and positions[0] < self._next_position:
            return 0
        self._next_position = int(positions[-1]) + 1
        began_ns = clock_ns()
        ts_us = batch.column(self.time_column).view(pa.int64()).to_numpy()
        rows = pa.RecordBatch.from_arrays(
            [batch.column(name) for name in self.columns], schema=self.buffer.schema
        )
        late = self.buffer.push(rows, ts_us, positions)
        self.work.add(batch.num_rows - late, 0, clock_ns() - began_ns)
        return late


class SharedNode:
    """A node with the nodes below it.

    node: its inputs are `inputs`, and not places in a graph.
    source: of a node without an operator, else None.
    subplan: that its rows are; None: it is a part of an operator of the plan.
    sources: of the subplan, left to right.
    """

    def __init__(
        self,
        node: Node,
        work: NodeWork,
        inputs: Sequence[SharedNode],
        *,
        subplan: Subplan | None,
        sources: Sequence[SharedSource],
        source: SharedSource | None,
        clock_ns: Callable[[], int],
    ) -> None:
        self.node = node
        self.work = work
        self.inputs = tuple(inputs)
        self.subplan = subplan
        self.sources = tuple(sources)
        self.source = source
        self._clock_ns = clock_ns
        self._as_of_us: int | None = None
        self._made: ChangeBatch | None = None
        self._error: Exception | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of its state; of a source, of the tuples that wait."""
        if self.source is not None:
            return self.source.buffer.size_bytes
        return 0 if self.node.operator is None else self.node.operator.size_bytes

    def parts(self, as_of_us: int) -> Parts[ChangeBatch]:
        """Return the changes up to an instant, which is that of the last step or later.

        A node that has failed, or whose step was abandoned between its parts, is in doubt: all
        graphs that read it fail.
        """
        if self._error is not None:
            raise self._error
        if self._as_of_us != as_of_us or self._made is None:
            assert self._as_of_us is None or self._as_of_us < as_of_us, (self._as_of_us, as_of_us)
            self._error = RowQueryFailed("a query that shares operators was dropped in a step")
            try:
                self._made = yield from self._evaluated(as_of_us)
            except Exception as error:
                self._error = error
                raise
            self._as_of_us, self._error = as_of_us, None
        return self._made

    def forget(self) -> None:
        """Forget the changes of the last instant: all graphs have read them."""
        self._made = None

    def _evaluated(self, as_of_us: int) -> Parts[ChangeBatch]:
        inputs: list[ChangeBatch] = []
        for each in self.inputs:
            changes = yield from each.parts(as_of_us)
            inputs.append(changes)
        began_ns = self._clock_ns()
        if self.source is not None:
            made = self.source.buffer.release(as_of_us)
        elif isinstance(self.node.operator, PartedOperator):
            made = yield from self.node.operator.parts(as_of_us, *inputs)
        else:
            assert self.node.operator is not None
            made = self.node.operator.apply(as_of_us, *inputs)
        self.work.add(sum(map(len, inputs)), len(made), self._clock_ns() - began_ns)
        return made


class SharedReader:
    """Operator that stands for a shared node, and for all below it, in one graph.

    shared: the node. schema: of this graph. places: of its columns among those of the node.
    """

    def __init__(self, shared: SharedNode, schema: pa.Schema, places: Sequence[int]) -> None:
        self.shared = shared
        self._schema = schema
        self._places = tuple(places)

    @property
    def size_bytes(self) -> int:
        """Nothing is held: `shared_below` has the nodes that hold rows."""
        return 0

    def has_rows_of(self, other: SharedReader) -> bool:
        """Return whether another reader has the same columns of the same node."""
        return self.shared is other.shared and self._places == other._places

    def apply(self, as_of_us: int) -> ChangeBatch:
        """Return the changes of the node, under the names of this graph."""
        return finished(self.parts(as_of_us))

    def parts(self, as_of_us: int) -> Parts[ChangeBatch]:
        """As `apply`, with the parts of the node's step."""
        changes = yield from self.shared.parts(as_of_us)
        arrays = [changes.columns.column(place) for place in self._places]
        return changes.with_columns(pa.RecordBatch.from_arrays(arrays, schema=self._schema))


def shared_below(nodes: Iterable[Node]) -> list[SharedNode]:
    """Return the shared nodes that some nodes read at any depth, each once, after its inputs."""
    found: dict[int, SharedNode] = {}

    def visit(shared: SharedNode) -> None:
        if id(shared) in found:
            return
        for each in shared.inputs:
            visit(each)
        if isinstance(shared.node.operator, SharedReader):
            visit(shared.node.operator.shared)
        found[id(shared)] = shared

    for node in nodes:
        if isinstance(node.operator, SharedReader):
            visit(node.operator.shared)
    return list(found.values())
