"""Dataflow: the graph of one row query, with its sources and its watermarks.

The caller, which has the streams, drives a dataflow in this way:

    dataflow = Dataflow(query, state_bytes_max=64 << 20)
    dataflow.sources                        # alias -> StreamSource(relation, columns)
    late = dataflow.push(alias, batch, first_position)      # once per alias of the stream
    changes = dataflow.advance({alias: watermark_us, ...})  # watermarks never go back
    dataflow.as_of_us                       # instant up to which `changes` is complete

Equal windows over one stream, under several aliases, are one window. So all aliases of a stream
must get the same tuples, with the same positions.

`push` takes a batch with the columns of the stream, under their own names, and its position in
the stream. It holds the tuples until the watermark passes them, and counts late tuples.
`advance` gives all changes up to the least watermark. They do not depend on how tuples were cut
into batches, nor on their order within the lateness.

A query with tables has `versions`, by alias: put each change there at its place, before the tuples
behind it are pushed with this place. The places of a table in `corrects` are instants: put each
change at one that `as_of_us` has not reached.

If the query is a relation (`is_stream` is false), feed the changes to a sink:

    relation = dataflow.current_relation(bytes_max)
    relation.add(dataflow.as_of_us, changes); relation.table(as_of_us)    # rows as of an instant
    signs = dataflow.signed_changes()
    stream_batch(signs.apply(dataflow.as_of_us, changes))                 # rows with _ts, _sign

If the query is a stream (ISTREAM, DSTREAM, RSTREAM), the changes are its tuples:
`stream_batch(changes)`. A step that raises leaves the dataflow in doubt: drop it, and rebuild.
State is derived from the streams: a rebuild pushes the tuples that windows can still hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.plans.logical_plan import (
    BoundRelational,
    Ordered,
    RelationKind,
    Scan,
    ToStream,
    scans_of,
)
from shedder.cql.plans.needed_columns import with_needed_columns
from shedder.cql.plans.push_down import pushed_down
from shedder.cql.plans.shared_windows import with_shared_windows
from shedder.cql.statements.table_schema import TableSchema
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.current_relation import CurrentRelation
from shedder.dataflow.graph import Node
from shedder.dataflow.join_order import StreamStatistics, ordered_joins
from shedder.dataflow.operator_facts import OperatorFacts, operator_text
from shedder.dataflow.plan_properties import scan_schema
from shedder.dataflow.planner import graph_of
from shedder.dataflow.relation_to_stream import RelationToStream
from shedder.dataflow.reorder_buffer import ReorderBuffer
from shedder.dataflow.tables.table_changes import TableChanges
from shedder.dataflow.tables.table_join import TableJoin
from shedder.dataflow.tables.table_versions import TableVersions
from shedder.dataflow.update_patterns import EdgeLabel
from shedder.dataflow.whole_relation import WholeRelation
from shedder.errors import BudgetExceeded


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A stream in FROM.

    relation: name of the stream. columns: those that the query reads, by the stream's own names.
    time_column: of the event time, by the stream's own name.
    """

    relation: str
    columns: tuple[str, ...]
    time_column: str


class Dataflow:
    """The operators of one query, and the tuples that wait for a watermark.

    corrects: aliases of tables whose changes correct earlier rows.
    """

    def __init__(
        self,
        query: BoundRelational,
        *,
        state_bytes_max: int,
        tables: Mapping[str, TableSchema] = MappingProxyType({}),
        statistics: Mapping[str, StreamStatistics] | None = None,
        clock_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        """The graph of a query, without tuples.

        Args:
          query: bound. Its ORDER BY and LIMIT apply to `current_relation`.
          state_bytes_max: limit of `size_bytes`.
          tables: definitions of those that the query reads, by name.
          statistics: of streams, by alias, for the order of joins; without them it is the written.
          clock_ns: measures the time of operators.

        Raises:
          Unimplemented: an operator of the query is not in this version; the message names it.
        """
        plan = query.plan
        self._ordered = plan if isinstance(plan, Ordered) else None
        if isinstance(plan, Ordered):
            plan = plan.input
        plan, self.join_choices = ordered_joins(pushed_down(plan), statistics or {})
        scanned = [it for it in scans_of(plan) if it.kind is RelationKind.STREAM]
        plan, self._readers = with_shared_windows(plan)
        plan = with_needed_columns(plan)
        self._graph = graph_of(plan, state_bytes_max, clock_ns, tables)
        self._clock_ns = clock_ns
        self._state_bytes_max = state_bytes_max
        scans = {it.alias: it for it in scans_of(plan) if it.kind is RelationKind.STREAM}
        schemas = {node.alias: node.schema for node in self._graph.nodes}
        self._buffers = {alias: ReorderBuffer(schemas[alias]) for alias in scans}
        self.versions: Mapping[str, TableVersions] = self._graph.versions
        self._changes: Mapping[str, TableChanges] = self._graph.changes
        self.corrects = frozenset(self._changes)
        self._releasing: Mapping[str, ReorderBuffer | TableChanges] = {
            **self._buffers,
            **self._changes,
        }
        self._watermarks: dict[str, int] = {}
        self._source_work = {
            node.alias: work
            for node, work in zip(self._graph.nodes, self._graph.work, strict=True)
            if node.alias is not None
        }
        self.sources = {
            scan.alias: _source(scans[scan.alias]) if scan.alias in scans else _unread(scan)
            for scan in scanned
        }
        self.is_stream = isinstance(plan, ToStream)
        self.as_of_us: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """Columns of the result."""
        return self._graph.result.schema

    @property
    def label(self) -> EdgeLabel:
        """Update pattern of the result."""
        return self._graph.result.label

    @property
    def size_bytes(self) -> int:
        """Bytes of all operators and of the tuples that wait."""
        waiting = sum(buffer.size_bytes for buffer in self._buffers.values())
        versions = sum(each.size_bytes for each in self.versions.values())
        return self._graph.size_bytes + waiting + versions

    def push(
        self,
        alias: str,
        batch: pa.RecordBatch,
        positions: int | NDArray[np.int64],
        places: NDArray[np.int64] | None = None,
    ) -> int:
        """Take a batch of the stream behind an alias; return how many tuples were late.

        Args:
          alias: one of `sources`.
          batch: has at least the columns of the source and its event time, without NULL.
          positions: of the first tuple, or of each tuple.
          places: of each tuple, among the changes of the query's tables; None: it reads none.

        Raises:
          BudgetExceeded: the tuples that wait need more than `state_bytes_max`.
        """
        if alias in self._readers:
            return self._late_of(alias, batch)
        source, buffer, work = self.sources[alias], self._buffers[alias], self._source_work[alias]
        began_ns = self._clock_ns()
        ts_us = batch.column(source.time_column).view(pa.int64()).to_numpy()
        if isinstance(positions, int):
            positions = np.arange(positions, positions + batch.num_rows)
        arrays = [batch.column(name) for name in source.columns]
        if len(buffer.schema) > len(arrays):  # A column of places is behind those of the stream.
            assert places is not None
            arrays.append(pa.array(places, pa.int64()))
        late = buffer.push(
            pa.RecordBatch.from_arrays(arrays, schema=buffer.schema), ts_us, positions
        )
        work.add(batch.num_rows - late, 0, self._clock_ns() - began_ns)
        self._check_size()
        return late

    def advance(self, watermarks: Mapping[str, int]) -> ChangeBatch:
        """Raise watermarks, by alias, and give the changes up to the least of all.

        Raises:
          BudgetExceeded: the state needs more than `state_bytes_max`.
        """
        for alias, watermark_us in watermarks.items():
            before_us = self._watermarks.get(alias, watermark_us)
            self._watermarks[alias] = max(before_us, watermark_us)
            if alias in self._buffers:
                self._buffers[alias].close(self._watermarks[alias])
        if len(self._watermarks) < len(self.sources):
            return ChangeBatch.empty(self.schema)
        as_of_us = min(self._watermarks.values())
        if self.as_of_us is not None and as_of_us <= self.as_of_us:
            return ChangeBatch.empty(self.schema)
        self.as_of_us = as_of_us
        sources = {it: self._released(it, of, as_of_us) for it, of in self._releasing.items()}
        changes = self._graph.apply(as_of_us, sources)
        self._check_size()
        return changes

    def operators(self) -> list[OperatorFacts]:
        """What each operator is and did, each after its inputs, the result last.

        Tables come first; a join with versions of a table has the table as its last input.
        """
        graph = self._graph
        made = [
            OperatorFacts((), f"table {alias}", None, of.size_bytes, len(of), len(of), 0)
            for alias, of in self._joined_versions.items()
        ]
        return made + [
            OperatorFacts(
                tuple(at + len(made) for at in node.inputs) + self._tables_of(node),
                self._text_of(node),
                node.label.pattern,
                self._bytes_of(node),
                work.rows_in,
                work.rows_out,
                work.ns,
                node.alias,
            )
            for node, work in zip(graph.nodes, graph.work, strict=True)
        ]

    def _tables_of(self, node: Node) -> tuple[int, ...]:
        """The place of the table that a node reads, among all tables."""
        join = node.operator
        if not isinstance(join, TableJoin):
            return ()
        tables = self._joined_versions.values()
        return tuple(at for at, of in enumerate(tables) if of is join.versions)

    @property
    def _joined_versions(self) -> dict[str, TableVersions]:
        """The versions that tuples join, by alias of the table."""
        return {it: of for it, of in self.versions.items() if it not in self._changes}

    def _text_of(self, node: Node) -> str:
        if node.alias is None:
            assert node.operator is not None
            return operator_text(node.operator)
        if node.alias in self._changes:
            return f"table {node.alias}"
        relation = self.sources[node.alias].relation
        others = [alias for alias, reader in self._readers.items() if reader == node.alias]
        if relation == node.alias and not others:
            return relation
        return f"{relation} AS {', '.join([node.alias, *others])}"

    def _bytes_of(self, node: Node) -> int:
        if node.alias is not None:
            return self._releasing[node.alias].size_bytes
        return 0 if node.operator is None else node.operator.size_bytes

    def go_on(self) -> None:
        """Go on behind rows of a stream that were made before a restart, up to `as_of_us`."""
        operator = self._graph.result.operator
        if isinstance(operator, WholeRelation) and self.as_of_us is not None:
            operator.go_on(self.as_of_us)

    def current_relation(self, bytes_max: int) -> CurrentRelation:
        """An empty sink for the rows of a query that is a relation."""
        assert not self.is_stream
        return CurrentRelation(self.schema, bytes_max, self._ordered)

    def signed_changes(self) -> RelationToStream:
        """An empty sink for the insertions and deletions of a query that is a relation."""
        assert not self.is_stream
        by_value = not self._graph.result.in_order
        return RelationToStream(None, self.schema, self.label, by_value=by_value)

    def _late_of(self, alias: str, batch: pa.RecordBatch) -> int:
        """Count the late tuples of an alias whose tuples another alias reads."""
        if alias not in self._watermarks:
            return 0
        ts_us = batch.column(self.sources[alias].time_column).view(pa.int64()).to_numpy()
        return int(np.count_nonzero(ts_us < self._watermarks[alias]))

    def _released(
        self, alias: str, source: ReorderBuffer | TableChanges, as_of_us: int
    ) -> ChangeBatch:
        began_ns = self._clock_ns()
        changes = source.release(as_of_us)
        rows_in = len(changes) if alias in self._changes else 0  # Tuples count when they come.
        self._source_work[alias].add(rows_in, len(changes), self._clock_ns() - began_ns)
        return changes

    def _check_size(self) -> None:
        size_bytes = self.size_bytes
        if size_bytes > self._state_bytes_max:
            raise BudgetExceeded(
                f"the operators of the query need {size_bytes:,} bytes; the limit is "
                f"{self._state_bytes_max:,}; shorter windows or a WHERE need less"
            )


def _unread(scan: Scan) -> StreamSource:
    """The source of an alias whose tuples another alias reads: its event time alone."""
    return _source(replace(scan, columns=()))


def _source(scan: Scan) -> StreamSource:
    assert scan.time_column is not None
    prefix = len(scan.alias) + 1
    columns = tuple(name[prefix:] for name in scan_schema(scan).names)
    return StreamSource(scan.relation, columns, scan.time_column[prefix:])
