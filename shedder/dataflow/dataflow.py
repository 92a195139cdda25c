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

A query with tables has `versions`, by alias: put each change there at its place, `places.next`,
before the tuples behind it are released. The places of a table in `corrects` are instants: put each
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
from dataclasses import replace
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
from shedder.cql.statements.canonical_text import percent_text
from shedder.cql.statements.table_schema import TableSchema
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.current_relation import CurrentRelation
from shedder.dataflow.estimates.expected_rows import EdgeRows
from shedder.dataflow.estimates.state_bytes import NO_ESTIMATE, StateBytes, state_bytes
from shedder.dataflow.expiry.expiry_modes import Expiry
from shedder.dataflow.graph import Graph
from shedder.dataflow.join_order import StreamStatistics, ordered_joins
from shedder.dataflow.joins.arriving_side import ArrivingSide
from shedder.dataflow.joins.equi_join import EquiJoin
from shedder.dataflow.negations.negation_order import placed_negations
from shedder.dataflow.operator_facts import OperatorFacts, graph_facts
from shedder.dataflow.plan_properties import scan_schema
from shedder.dataflow.planner import graph_of
from shedder.dataflow.relation_to_stream import RelationToStream
from shedder.dataflow.reorder_buffer import ReorderBuffer
from shedder.dataflow.sampled_joins.sampled_join_aggregates import SampledJoinAggregates
from shedder.dataflow.sharing.shared_source import StreamSource
from shedder.dataflow.sharing.source_graph import Agrees, SourceGraph
from shedder.dataflow.step_parts import Parts, finished
from shedder.dataflow.tables.table_changes import TableChanges
from shedder.dataflow.tables.table_join import TableJoin
from shedder.dataflow.tables.table_places import TablePlaces
from shedder.dataflow.tables.table_versions import TableVersions
from shedder.dataflow.update_patterns import EdgeLabel
from shedder.dataflow.whole_relation import WholeRelation
from shedder.errors import BudgetExceeded
from shedder.streams.positions import sampled


class Dataflow:
    """The operators of one query, and the tuples that wait for a watermark.

    corrects: aliases of tables whose changes correct earlier rows.
    source_graph: the operators, and what they share with other dataflows.
    places: of the changes of tables that do not correct earlier rows.
    """

    def __init__(
        self,
        query: BoundRelational,
        *,
        state_bytes_max: int,
        tables: Mapping[str, TableSchema] = MappingProxyType({}),
        statistics: Mapping[str, StreamStatistics] | None = None,
        expiry: Expiry = Expiry.PATTERN,
        seeds: Mapping[str, int] = MappingProxyType({}),
        clock_ns: Callable[[], int] = time.thread_time_ns,
        shares_windows: bool = True,
    ) -> None:
        """The graph of a query, without tuples.

        Args:
          query: bound. Its ORDER BY and LIMIT apply to `current_relation`.
          state_bytes_max: limit of `size_bytes`.
          tables: definitions of those that the query reads, by name.
          statistics: of streams, by alias, for the order of joins and negations; without them
            it is the written one.
          expiry: of rows in time windows.
          seeds: of random keys, by stream; of streams with SAMPLE there must be one.
          clock_ns: measures the time of operators.
          shares_windows: aliases of equal windows get the same tuples, and have one window.

        Raises:
          Unimplemented: an operator of the query is not in this version; the message names it.
        """
        plan = query.plan
        self._ordered = plan if isinstance(plan, Ordered) else None
        if isinstance(plan, Ordered):
            plan = plan.input
        scanned = [it for it in scans_of(plan) if it.kind is RelationKind.STREAM]
        plan, self.join_choices = ordered_joins(pushed_down(plan), statistics or {})
        plan, self.negation_choices = placed_negations(plan, statistics or {})
        plan, self._readers = with_shared_windows(plan) if shares_windows else (plan, {})
        plan = with_needed_columns(plan)
        self.places = TablePlaces()
        graph = graph_of(plan, state_bytes_max, clock_ns, tables, expiry, self.places)
        self._clock_ns = clock_ns
        self._state_bytes_max = state_bytes_max
        scans = {it.alias: it for it in scans_of(plan) if it.kind is RelationKind.STREAM}
        self.versions: Mapping[str, TableVersions] = graph.versions
        self._changes: Mapping[str, TableChanges] = graph.changes
        self.corrects = frozenset(self._changes)
        self._watermarks: dict[str, int] = {}
        sources = {
            scan.alias: _source(scans[scan.alias]) if scan.alias in scans else _unread(scan)
            for scan in scanned
        }
        self.source_graph = SourceGraph(graph, sources, frozenset(scans), self._changes, clock_ns)
        self._expiry = expiry
        self._samples = {
            it.alias: (it.sample, seeds[it.relation]) for it in scanned if it.sample is not None
        }
        self.is_stream = isinstance(plan, ToStream)

    @property
    def sources(self) -> Mapping[str, StreamSource]:
        """The streams that are read, by alias."""
        return self.source_graph.sources

    @property
    def as_of_us(self) -> int | None:
        """Instant up to which changes are complete; None: there was no step."""
        return self.source_graph.as_of_us

    @property
    def sampled_join(self) -> SampledJoinAggregates | None:
        """The aggregates of a join that have bounded bytes; None: there are none."""
        operators = (node.operator for node in self._graph.nodes)
        return next((each for each in operators if isinstance(each, SampledJoinAggregates)), None)

    def set_bytes_max(self, state_bytes_max: int) -> None:
        """Have another limit of `size_bytes`, and of the rows that one operator makes in a step."""
        self._state_bytes_max = state_bytes_max
        for each in self.source_graph.operators:
            if isinstance(each, EquiJoin | TableJoin | WholeRelation):
                each.set_bytes_max(state_bytes_max)

    def resize_join(self, first_us: int, bytes_max: int) -> None:
        """Have the aggregates of a sampled join hold other bytes, as of `as_of_us` + 1.

        Raises:
          BudgetExceeded: a pane would have too few bytes. Nothing has changed.
        """
        assert self.sampled_join is not None
        self.sampled_join.resize(first_us, bytes_max)
        self.source_graph.count_bytes()

    @property
    def arriving(self) -> ArrivingSide | None:
        """The side of the join whose rows are not held, by a foreign key; None: all are."""
        operators = (node.operator for node in self._graph.nodes)
        found = (each.arriving for each in operators if isinstance(each, EquiJoin))
        return next((each for each in found if each is not None), None)

    @property
    def _graph(self) -> Graph:
        return self.source_graph.graph

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
        """Bytes of all operators behind the last step, and of the tuples that wait."""
        versions = sum(each.size_bytes for each in self.versions.values())
        return self.source_graph.size_bytes + versions

    def push(
        self,
        alias: str,
        batch: pa.RecordBatch,
        positions: int | NDArray[np.int64],
    ) -> int:
        """Take a batch of the stream behind an alias; return how many tuples were late.

        Args:
          alias: one of `sources`.
          batch: has at least the columns of the source and its event time, without NULL.
          positions: of the first tuple, or of each tuple.

        Raises:
          BudgetExceeded: the tuples that wait need more than `state_bytes_max`.
        """
        if alias in self._readers:
            return self._late_of(alias, batch)
        if isinstance(positions, int):
            positions = np.arange(positions, positions + batch.num_rows)
        if alias in self._samples:
            share, seed = self._samples[alias]
            kept = np.flatnonzero(sampled(positions, seed=seed, share=share))
            batch, positions = batch.take(pa.array(kept, pa.int64())), positions[kept]
        late = self.source_graph.push(alias, batch, positions)
        self._check_size()
        return late

    def advance(self, watermarks: Mapping[str, int]) -> ChangeBatch:
        """As `parts`, at once."""
        return finished(self.parts(watermarks))

    def parts(self, watermarks: Mapping[str, int]) -> Parts[ChangeBatch]:
        """Raise watermarks, by alias, and give the changes up to the least of all.

        Between parts, tuples may be pushed. They are of later steps.

        Raises:
          BudgetExceeded: the state needs more than `state_bytes_max`.
        """
        as_of_us = self._raised(watermarks)
        if as_of_us is None:
            return ChangeBatch.empty(self.schema)
        sources = {it: self._released(it, of, as_of_us) for it, of in self._waiting.items()}
        self.source_graph.release(as_of_us)
        changes = yield from self._graph.parts(as_of_us, sources)
        self.source_graph.end_step(as_of_us)
        self._check_size()
        return changes

    def filter_ahead(self, watermarks: Mapping[str, int]) -> None:
        """Raise watermarks, by alias, and evaluate the filters of streams; the step comes later.

        No step goes on.

        Raises:
          BudgetExceeded: the state needs more than `state_bytes_max`.
        """
        as_of_us = self._raised(watermarks)
        if as_of_us is not None:
            self.source_graph.filter_ahead(as_of_us)
            self._check_size()

    def _raised(self, watermarks: Mapping[str, int]) -> int | None:
        """Raise watermarks; return the least of all, or None: no step has more than the last."""
        for alias, watermark_us in watermarks.items():
            before_us = self._watermarks.get(alias, watermark_us)
            self._watermarks[alias] = max(before_us, watermark_us)
            self.source_graph.close(alias, self._watermarks[alias])
        if len(self._watermarks) < len(self.sources):
            return None
        as_of_us = min(self._watermarks.values())
        return as_of_us if self.as_of_us is None or as_of_us > self.as_of_us else None

    def least_place(self, alias: str) -> int | None:
        """Return the least place of the tuples of a stream that wait, or that ROWS windows hold.

        None: there is no such tuple, or its place is not needed.
        """
        position = self.source_graph.least_position(alias)
        if position is None:
            return None
        return int(self.places.of(alias, np.array([position]))[0])

    # --- sharing with other queries --------------------------------------------------------------

    def share_with(self, other: Dataflow, agrees: Agrees) -> bool:
        """Read one set of operators for the subplans that another dataflow has, too.

        The operators of this dataflow are given up for those of the other. The two may be at
        different instants, and advance apart. With NEGATIVE expiry, rows leave behind their event
        time, so changes of one step cannot be divided by it: dataflows of equal streams share.

        Returns:
          True if the rows of both are the same from now on, under other names.
        """
        if Expiry.NEGATIVE in (self._expiry, other._expiry) and not self._is_in_step_with(other):
            return False
        return self.source_graph.share_with(other.source_graph, agrees)

    def _is_in_step_with(self, other: Dataflow) -> bool:
        relations = [{it.relation for it in each.sources.values()} for each in (self, other)]
        return self.as_of_us == other.as_of_us and relations[0] == relations[1]

    # --- what the operators did ------------------------------------------------------------------

    def operators(self) -> list[OperatorFacts]:
        """Return what each operator is and did, as `graph_facts`."""
        joined = {it: of for it, of in self.versions.items() if it not in self._changes}
        return graph_facts(self._graph, joined, self)

    def estimated_bytes(
        self, statistics: Mapping[str, StreamStatistics]
    ) -> tuple[list[StateBytes], EdgeRows | str]:
        """Return what each of `operators` is expected to hold, as `state_bytes`, and the result.

        The dataflow shares nothing.
        """
        found, rows = state_bytes(self._graph, statistics)
        joined = sum(alias not in self._changes for alias in self.versions)
        return [NO_ESTIMATE] * joined + found, rows

    def keeps(self, rows: object) -> bool:
        """Return whether an operator of the query reads a store of rows."""
        return any(each is rows for each in self.source_graph.stores)

    def source_text(self, alias: str) -> str:
        """Return the relation behind an alias, with all aliases of its window."""
        if alias in self._changes:
            return f"table {alias}"
        relation = self.sources[alias].relation
        others = [each for each, reader in self._readers.items() if reader == alias]
        named = relation
        if relation != alias or others:
            named = f"{relation} AS {', '.join([alias, *others])}"
        if alias in self._samples:
            named += f" SAMPLE({percent_text(self._samples[alias][0])})"
        return named

    def source_bytes(self, alias: str) -> int:
        """Return bytes of the tuples, or of the changes of a table, that wait."""
        return self._waiting[alias].size_bytes

    def alias_of(self, source: object) -> str | None:
        """Return the alias by which this dataflow reads a shared source; None: it is no source."""
        return self.source_graph.alias_of(source)

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

    @property
    def _waiting(self) -> dict[str, ReorderBuffer | TableChanges]:
        """What holds the tuples of a stream, or the changes of a table, that wait, by alias."""
        return {**self.source_graph.buffers, **self._changes}

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
        self.source_graph.work_of(alias).add(rows_in, len(changes), self._clock_ns() - began_ns)
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
