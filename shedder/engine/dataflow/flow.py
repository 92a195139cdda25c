"""Dataflow of a standing query, with the sinks that the engine reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.statements.table_schema import TableSchema
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.dataflow import Dataflow
from shedder.dataflow.estimates.state_bytes import StateBytes, counted_bytes, relation_bytes
from shedder.dataflow.expiry.expiry_modes import Expiry
from shedder.dataflow.join_order import StreamStatistics
from shedder.dataflow.joins.arriving_side import Unmatched
from shedder.dataflow.operator_facts import OperatorFacts
from shedder.dataflow.relation_to_stream import stream_batch
from shedder.dataflow.sampled_joins.sampled_join_aggregates import SampledJoinAggregates
from shedder.dataflow.sharing.shared_nodes import SharedNode
from shedder.dataflow.sharing.shared_source import StreamSource
from shedder.dataflow.sharing.source_graph import Agrees
from shedder.dataflow.step_parts import Parts, finished
from shedder.dataflow.tables.table_places import TablePlaces
from shedder.dataflow.tables.table_versions import TableVersions
from shedder.engine.dataflow.interval_columns import with_roles
from shedder.engine.dataflow.join_sizes import JoinSizes
from shedder.engine.dataflow.relation_sinks import RelationSinks
from shedder.engine.dataflow.row_output import BEGINNING_US
from shedder.engine.dataflow.row_target import EVENT_TIME, SIGN
from shedder.engine.dataflow.standing_plan import StandingPlan
from shedder.errors import StorageFailed

SharedPart = SharedNode | RelationSinks
PAST = 8  # The tuples of a window take more memory while they are read again, before they are rows.


@dataclass(frozen=True, slots=True, eq=False)
class FlowStep:
    """What a step has made: changes up to an instant, and the rows that they are in the stream."""

    as_of_us: int | None
    changes: ChangeBatch
    rows: ChangeBatch


class RowFlow:
    """Tuples in; out come the rows of a stream, or the changes of a relation with their signs.

    The sequence of rows depends on the tuples alone: neither on how tuples are divided into batches
    nor on how often watermarks are given. So the number of a row is the same after a restart.

    is_stream: the query is a stream; else it is a relation, and `relation` has its content.
    source_graph: as of `Dataflow`.
    columns: of the rows, without event time and sign. A column of the query with the name of one
      of the two is in `relation` alone, unless the columns are given names.
    """

    def __init__(
        self,
        plan: StandingPlan,
        *,
        bytes_max: int,
        tables: Mapping[str, TableSchema],
        names: Sequence[str] | None = None,
        statistics: Mapping[str, StreamStatistics] | None = None,
        expiry: Expiry = Expiry.PATTERN,
        seeds: Mapping[str, int] | None = None,
        clock_ns: Callable[[], int] = time.thread_time_ns,
        shares: bool = True,
        sizes: JoinSizes | None = None,
    ) -> None:
        """A flow without tuples.

        Args:
          plan: of the query.
          bytes_max: of the relation; of operators and waiting tuples it is PAST times as much.
          tables: that the query reads, by name.
          names: of the columns of the rows, in place of the query's; None: they have its names.
          statistics: of streams, by alias, for the order of joins.
          expiry: of rows in time windows.
          seeds: as of `Dataflow`.
          clock_ns: measures the time of operators.
          shares: aliases and queries may read one window; else each alias has tuples of its own.
          sizes: of a sampled join; None: there is none, or its bytes do not change.

        Raises:
          Unimplemented: an operator of the query is not in this version.
        """
        query = plan.query
        self._insertions_only = plan.insertions_only
        self._flow = Dataflow(
            query,
            state_bytes_max=PAST * bytes_max,
            tables=tables,
            statistics=statistics,
            expiry=expiry,
            seeds=seeds or {},
            clock_ns=clock_ns,
            shares_windows=shares,
        )
        self.source_graph = self._flow.source_graph
        self._arriving = self._flow.arriving
        self._unmatched = None if self._arriving is None else self._arriving.unmatched
        self._expiry = expiry
        self._shares = shares
        self._sizes = sizes
        self.is_stream = self._flow.is_stream
        self._schema = with_roles(self._flow.schema, query.plan)
        self._shown, self.columns = _shown_columns(self._schema, names)
        self._sinks: RelationSinks | None = None
        self._shares_sinks = False
        if not self.is_stream:
            relation = self._flow.current_relation(bytes_max)
            signs, pattern = self._flow.signed_changes(), self._flow.label.pattern
            self._sinks = RelationSinks(relation, signs, pattern, clock_ns)
        self._sinks_bytes = 0 if self._sinks is None else self._sinks.size_bytes
        self._as_of_us: int | None = None  # Of the relation.

    @property
    def sources(self) -> Mapping[str, StreamSource]:
        """The streams that are read, by alias."""
        return self._flow.sources

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows; event time and sign are the last two."""
        fields = [pa.field(EVENT_TIME, pa.timestamp("us")), pa.field(SIGN, pa.int8())]
        return pa.schema([*self.columns, *fields])

    @property
    def size_bytes(self) -> int:
        """Bytes of all state behind the last step, with what it shares, and of waiting tuples."""
        if self._shares_sinks and self._sinks is not None:
            return self._flow.size_bytes + self._sinks.size_bytes
        return self._flow.size_bytes + self._sinks_bytes

    @property
    def shared_parts(self) -> tuple[SharedPart, ...]:
        """What other queries may read, too, each once."""
        sinks = (self._sinks,) if self._sinks is not None and self._shares_sinks else ()
        return (*self.source_graph.shared_nodes, *sinks)

    @property
    def unmatched(self) -> Unmatched | None:
        """As `QueryFlow.unmatched`, behind the last step that has ended."""
        return self._unmatched

    def count_unmatched(self, from_us: int | None, unmatched: Unmatched) -> None:
        """As `QueryFlow.count_unmatched`."""
        if self._arriving is not None:
            self._arriving.count_from(from_us, unmatched)
            self._unmatched = unmatched

    def share_with(self, other: object, agrees: Agrees) -> None:
        """Read the state of another query where it is the same, as `Dataflow.share_with`."""
        if not isinstance(other, RowFlow) or not (self._shares and other._shares):
            return
        is_same = self._flow.share_with(other._flow, agrees)
        if is_same and other._sinks is not None and self.as_of_us == other.as_of_us:
            self._sinks = other._sinks
            self._shares_sinks = other._shares_sinks = True

    @property
    def is_shared(self) -> bool:
        """Return whether another query reads some of the state now."""
        return self.source_graph.is_shared

    @property
    def backlog_bytes(self) -> int:
        """Return the bytes that wait for this query alone."""
        return self.source_graph.backlog_bytes

    @property
    def may_wait(self) -> bool:
        """As `QueryFlow.may_wait`."""
        in_step = self._shares_sinks or (self._expiry is Expiry.NEGATIVE and self.is_shared)
        return not in_step

    def queue_filters(self) -> bool:
        """As `SourceGraph.queue_filters`."""
        return self.source_graph.queue_filters()

    def filter_ahead(self, watermarks: Mapping[str, int]) -> None:
        """As `Dataflow.filter_ahead`."""
        self._flow.filter_ahead(watermarks)

    def leave(self) -> None:
        """Share nothing any more: the query ends."""
        self.source_graph.leave()

    def keeps(self, rows: object) -> bool:
        """As `Dataflow.keeps`."""
        return self._flow.keeps(rows)

    def split(self) -> None:
        """Go on with copies of what is shared, apart from other queries."""
        self.source_graph.split()
        if self._sinks is not None and self._shares_sinks:
            self._sinks, self._shares_sinks = self._sinks.copied(), False

    def end_step(self) -> None:
        """Forget what was kept for other queries of this step: all have advanced."""
        if self._sinks is not None:
            self._sinks.forget()

    @property
    def versions(self) -> Mapping[str, TableVersions]:
        """Versions of the tables that are read, by alias."""
        return self._flow.versions

    @property
    def places(self) -> TablePlaces:
        """Places of the changes of tables, as of `Dataflow`."""
        return self._flow.places

    def push(
        self,
        alias: str,
        batch: pa.RecordBatch,
        positions: NDArray[np.int64],
    ) -> None:
        """Take tuples of an input, none of them before its watermark."""
        late = self._flow.push(alias, batch, positions)
        assert late == 0, (alias, late)

    def advance(self, watermarks: Mapping[str, int]) -> pa.Table:
        """Raise watermarks, by alias, and return the rows that are complete now."""
        return self.end(finished(self.parts(watermarks)))

    def parts(self, watermarks: Mapping[str, int]) -> Parts[FlowStep]:
        """Make a step, for `end`. Between parts, and before `end`, the relation is as before."""
        before_us = self._flow.as_of_us
        changes = rows = yield from self._flow.parts(watermarks)
        as_of_us = self._flow.as_of_us
        if self._sinks is None or as_of_us is None or as_of_us == before_us:
            return FlowStep(None, changes, rows)
        rows = self._sinks.apply(as_of_us, changes)
        if self._insertions_only:
            rows = rows.where(rows.weight > 0)
        return FlowStep(as_of_us, changes, rows)

    def end(self, step: FlowStep) -> pa.Table:
        """Put a step's changes into the relation, and return the rows that are complete now."""
        if self._arriving is not None:
            self._unmatched = self._arriving.unmatched
        if self._sinks is not None and step.as_of_us is not None:
            self._as_of_us = step.as_of_us
            self._sinks.add(step.as_of_us, step.changes)
            self._sinks_bytes = self._sinks.size_bytes
        table = pa.Table.from_batches([stream_batch(step.rows)])
        last = table.num_columns
        shown = table.select([*self._shown, last - 2, last - 1])
        return pa.Table.from_arrays(shown.columns, schema=self.schema)

    def set_bytes_max(self, bytes_max: int) -> None:
        """Have another limit, as of the arguments."""
        self._flow.set_bytes_max(PAST * bytes_max)
        if self._sinks is not None:
            self._sinks.set_bytes_max(bytes_max)

    def least_place(self, alias: str) -> int | None:
        """As `Dataflow.least_place`."""
        return self._flow.least_place(alias)

    @property
    def as_of_us(self) -> int | None:
        """Instant up to which rows are complete; None: there are none yet."""
        return self._flow.as_of_us

    @property
    def corrects(self) -> frozenset[str]:
        """Aliases of tables whose changes correct earlier rows."""
        return self._flow.corrects

    @property
    def plan_choices(self) -> list[tuple[str, str]]:
        """What statistics decided of the plan: names of the choices, and their texts."""
        orders = [choice.fact for choice in self._flow.join_choices]
        return orders + [choice.fact for choice in self._flow.negation_choices]

    @property
    def sampled_join(self) -> SampledJoinAggregates | None:
        """As `Dataflow.sampled_join`."""
        return self._flow.sampled_join

    def operators(self) -> list[OperatorFacts]:
        """What each operator is and did, each after its inputs; what the rows are made by last."""
        made = self._flow.operators()
        if self._sinks is None:
            return made
        return [*made, *self._sinks.facts(len(made) - 1, self._signs_text)]

    def estimated_bytes(self, statistics: Mapping[str, StreamStatistics]) -> list[StateBytes]:
        """Return what each of `operators` is expected to hold, as `state_bytes`."""
        found, rows = self._flow.estimated_bytes(statistics)
        if self._sinks is None:
            return found
        signs = 0 if self._sinks.size_bytes == 0 else counted_bytes(rows)
        return [*found, relation_bytes(rows), signs]

    @property
    def _signs_text(self) -> str:
        return "ISTREAM" if self._insertions_only else "Insertions and deletions"

    def go_on(self) -> None:
        """Go on behind rows that were made before, as `Dataflow.go_on`."""
        self._flow.go_on()

    @property
    def thinning(self) -> None:
        """Return None: all keys are kept."""
        return None

    @property
    def _next_us(self) -> int:
        return BEGINNING_US if self.as_of_us is None else self.as_of_us + 1

    def relieve(self, excess_bytes: int) -> bool:
        """Have a sampled join free so many bytes; return False if that is not possible.

        If bytes cannot be stored now, nothing is freed before they can be.
        """
        join, sizes = self.sampled_join, self._sizes
        if join is None or sizes is None:
            return False
        bytes_max = sizes.relieved(join, excess_bytes)
        if bytes_max is None:
            return False
        sizes.put(self._next_us, bytes_max, self._flow.resize_join)
        return True

    def resize_join(self, bytes_max: int) -> None:
        """Have a sampled join hold other bytes from the next instant on.

        Raises:
          BudgetExceeded: it needs more, or its bytes have changed too often.
          StorageFailed: bytes cannot be stored now. DiskFull.
        """
        join = self.sampled_join
        assert join is not None
        assert self._sizes is not None
        join.spec.sizes(bytes_max)
        if not self._sizes.put(self._next_us, bytes_max, self._flow.resize_join):
            raise StorageFailed("the query is being registered; set its bytes again")

    def completeness(self, table: pa.Table) -> None:
        """Return None: no key is left out."""

    def relation(self) -> pa.Table:
        """Return the present content of a query that is a relation."""
        assert self._sinks is not None
        table = self._sinks.table(0 if self._as_of_us is None else self._as_of_us)
        return pa.Table.from_arrays(table.columns, schema=self._schema)


def _shown_columns(schema: pa.Schema, names: Sequence[str] | None) -> tuple[list[int], pa.Schema]:
    """Return the places of the columns that rows have, and these columns, as of `RowFlow`."""
    if names is not None:
        return list(range(len(schema))), pa.schema([*map(pa.Field.with_name, schema, names)])
    shown = [at for at, each in enumerate(schema) if each.name not in (EVENT_TIME, SIGN)]
    return shown, pa.schema([schema.field(at) for at in shown])
