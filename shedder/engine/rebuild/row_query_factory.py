"""Factory of row queries: their parameters in the catalog, plans, operators, inputs and writers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from shedder.archive.metadata.catalog_entries import QueryEntry
from shedder.archive.tables.table_rows import TableRows
from shedder.cql.binding.relational_binding import bind_relational
from shedder.cql.binding.table_checks import relational
from shedder.cql.plans.logical_plan import RelationKind, Scan, scans_of
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.statement import Select, Statement
from shedder.cql.statements.table_schema import RelationSchema
from shedder.dataflow.expiry.expiry_modes import Expiry
from shedder.dataflow.join_order import StreamStatistics
from shedder.engine.dataflow.flow import RowFlow
from shedder.engine.dataflow.join_sizes import SAMPLING, JoinSampling, JoinSizes
from shedder.engine.dataflow.lookback import HISTORY, lookbacks_us
from shedder.engine.dataflow.query_tables import QueryTables, ReadTable
from shedder.engine.dataflow.row_input import RowInput, times_of
from shedder.engine.dataflow.row_output import RowOutput
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.row_state import RowState
from shedder.engine.dataflow.row_target import EVENT_TIME, RowTarget
from shedder.engine.dataflow.row_writer import RowWriter
from shedder.engine.dataflow.rows_bound import MEMORY_SHARE, RowsBound, has_bound, pane_us
from shedder.engine.dataflow.standing_plan import StandingPlan, standing_plan, with_lists, with_seed
from shedder.engine.dataflow.thinned_flow import ThinnedFlow
from shedder.engine.dataflow.thinning_levels import THINNING, WEIGHT, KeyThinning
from shedder.engine.engine_state import EngineState
from shedder.engine.rebuild.stored_levels import StoredLevels
from shedder.engine.tables.live_tables import LiveTable
from shedder.errors import Unimplemented
from shedder.streams.batch_conversion import conform_batch

Kind = TypeVar("Kind", bound=Statement)

KEPT = "kept"  # Parameter of TOP over a window of rows in the catalog.
STATISTICS_INPUTS_MIN = 3  # The order of fewer inputs makes no difference.


@dataclass(frozen=True, slots=True)
class RowParameters:
    """Parameters of a row query in the catalog. Queries of aggregates have no "kind" among theirs.

    incarnation: as of `RowOutput`. target: into which the query inserts its rows.
    sampling: of a join's keys; None: the query has none.
    thinning: of ON OVERLOAD SHED; None: the query has it not.
    weight: as of `RowQuery`.
    kept: values of the lists of TOP over a window of rows; None: as many as it has rows, or there
      is none.
    """

    incarnation: str
    target: RowTarget | None = None
    sampling: JoinSampling | None = None
    thinning: KeyThinning | None = None
    weight: float = 1.0
    kept: int | None = None

    def to_json(self) -> str:
        """Return the JSON that the catalog keeps."""
        into = {} if self.target is None else {"into": self.target.to_json()}
        sampled = {} if self.sampling is None else {SAMPLING: self.sampling.to_json()}
        thinned = {} if self.thinning is None else {THINNING: self.thinning.to_json()}
        weighed = {} if self.weight == 1.0 else {WEIGHT: self.weight}
        stored = {"kind": "rows", "incarnation": self.incarnation, **into, **sampled, **thinned}
        listed = {} if self.kept is None else {KEPT: self.kept}
        return json.dumps({**stored, **weighed, **listed})

    @classmethod
    def of(cls, entry: QueryEntry) -> RowParameters | None:
        """Return those of an entry of the catalog; None: it is a query of aggregates."""
        stored = json.loads(entry.parameters)
        if not isinstance(stored, dict) or stored.get("kind") != "rows":
            return None
        into, sampling, thinning = (stored.get(it) for it in ("into", SAMPLING, THINNING))
        return cls(
            stored["incarnation"],
            None if into is None else RowTarget.from_json(into),
            None if sampling is None else JoinSampling.from_json(sampling),
            None if thinning is None else KeyThinning.from_json(thinning),
            stored.get(WEIGHT, 1.0),
            stored.get(KEPT),
        )


def new_row_query(
    core: EngineState,
    name: str,
    plan: StandingPlan,
    statistics: Mapping[str, StreamStatistics],
    parameters: RowParameters,
    state: RowState | None = None,
) -> RowQuery:
    """Return a query that has read nothing, at the present positions of its streams.

    state: in a checkpoint, from which the query goes on; None: it is new.

    Raises:
      Unimplemented: an operator of the query is not in this version.
    """
    plan = with_parameters(plan, parameters)
    limits, incarnation = core.rows.limits, parameters.incarnation
    found = tables_in(core, plan)
    flow = _flow(core, name, plan, statistics, parameters, state)
    tables = {
        alias: ReadTable(
            table.schema.name, table.id, flow.versions[alias], corrects=alias in flow.corrects
        )
        for alias, table in found.items()
    }
    inputs = _inputs(core, plan, flow)
    output = RowOutput(name, incarnation, flow.schema, bytes_max=limits.output_bytes_max)
    return RowQuery(
        name,
        plan.query,
        flow,
        inputs,
        output,
        limits,
        incarnation=incarnation,
        tables=QueryTables(tables, flow.places),
        steps=core.rows.steps,
        weight=parameters.weight,
    )


def _flow(
    core: EngineState,
    name: str,
    plan: StandingPlan,
    statistics: Mapping[str, StreamStatistics],
    parameters: RowParameters,
    state: RowState | None,
) -> RowFlow | ThinnedFlow:
    """Return the operators of a query, as `new_row_query`."""

    stored = StoredLevels(core, name, begins=state is None)
    sizes = None if parameters.sampling is None else JoinSizes(parameters.sampling, stored)

    def made() -> RowFlow:
        return new_flow(core, plan, statistics, parameters.target, sizes)

    if plan.keys is None or parameters.thinning is None:
        return made()
    thinning, bytes_max = parameters.thinning, core.rows.limits.query_bytes_max
    span_us = max(lookbacks_us(plan.query.plan).values())
    bound = None
    if has_bound(plan.query.plan):
        bound = RowsBound(plan.query.plan, thinning.seed, bytes_max // MEMORY_SHARE)
    return ThinnedFlow(
        made,
        plan.keys,
        thinning,
        stored,
        bound=bound,
        bytes_max=bytes_max,
        span_us=span_us if span_us < HISTORY else None,
        from_us=None if state is None else state.begin.as_of_us,
    )


def _inputs(core: EngineState, plan: StandingPlan, flow: RowFlow | ThinnedFlow) -> list[RowInput]:
    """Return inputs at the present positions."""
    spans, inputs = lookbacks_us(plan.query.plan), list[RowInput]()
    if plan.keys is not None and has_bound(plan.query.plan):  # Panes of counts are whole.
        spans = {alias: us + pane_us(us) for alias, us in spans.items()}
    for alias, source in flow.sources.items():
        stream = core.stream(source.relation)
        columns = tuple(dict.fromkeys((*source.columns, source.time_column)))
        reads_past = spans[alias] > 0
        inputs.append(
            RowInput(
                alias,
                stream.schema.name,
                stream.id,
                source.time_column,
                columns,
                lookback_us=spans[alias],
                reads_past=reads_past,
                watermark=replace(stream.watermark),
                from_position=0 if reads_past else stream.position,
                position=stream.position,
            )
        )
    return inputs


def with_parameters(plan: StandingPlan, parameters: RowParameters) -> StandingPlan:
    """Return the plan with its sample of keys, or with the length of its lists, if it has any."""
    if parameters.kept is not None:
        return with_lists(plan, parameters.kept)
    if parameters.sampling is None:
        return plan
    return with_seed(plan, parameters.sampling)


def new_flow(
    core: EngineState,
    plan: StandingPlan,
    statistics: Mapping[str, StreamStatistics],
    target: RowTarget | None,
    sizes: JoinSizes | None = None,
) -> RowFlow:
    """Return the operators of a query, without tuples.

    target: into which it inserts its rows. sizes: as of `RowFlow`.

    Raises:
      Unimplemented: an operator of the query is not in this version.
    """
    if target is not None:  # A stream takes no rows that leave, of a table either.
        plan = replace(plan, insertions_only=True)
    return RowFlow(
        plan,
        bytes_max=core.rows.limits.query_bytes_max,
        tables={table.schema.name: table.schema for table in tables_in(core, plan).values()},
        names=None if target is None or target.is_view else target.columns,
        statistics=statistics,
        expiry=Expiry(core.settings.row_query_expiry),
        shares=plan.keys is None,
        sizes=sizes,
        seeds={
            scan.relation: core.stream(scan.relation).schema.seed for scan in _stream_scans(plan)
        },
    )


def tables_in(core: EngineState, plan: StandingPlan) -> dict[str, LiveTable]:
    """Return the tables that a query reads, by alias."""
    scans = (it for it in scans_of(plan.query.plan) if it.kind is RelationKind.TABLE)
    return {scan.alias: core.tables[scan.relation] for scan in scans}


def table_rows(core: EngineState, query: RowQuery) -> dict[str, TableRows]:
    """Return the present rows of the tables that a query reads, by alias."""
    return {alias: core.tables[it.name].rows for alias, it in query.tables.by_alias.items()}


def new_writer(
    core: EngineState,
    query: RowQuery,
    target: RowTarget | None,
    *,
    stored: int = 0,
    begins: bool = True,
) -> RowWriter | None:
    """Return what inserts a query's rows into a target; None: it has none.

    stored, begins: as of `RowWriter`.
    """
    if target is None:
        return None
    intake = core.intakes[target.stream]
    names = list(target.columns)

    def convert(rows: pa.Table) -> pa.RecordBatch:
        kept = rows.select([*names, EVENT_TIME] if target.is_view else list(range(len(names))))
        columns = [column.combine_chunks() for column in kept.columns]
        batch = pa.RecordBatch.from_arrays(columns, names=kept.column_names)
        return conform_batch(batch, intake.schema)

    return RowWriter(query, target, intake, convert, core.limits, stored=stored, begins=begins)


def _stream_scans(plan: StandingPlan) -> list[Scan]:
    return [it for it in scans_of(plan.query.plan) if it.kind is RelationKind.STREAM]


def statistics_of(
    core: EngineState, plan: StandingPlan, inputs_min: int = STATISTICS_INPUTS_MIN
) -> dict[str, StreamStatistics]:
    """Return rates and samples of the streams of `inputs_min` and more windows.

    On the apply thread.
    """
    scans = _stream_scans(plan)
    if len(scans) < inputs_min:
        return {}
    found: dict[str, StreamStatistics] = {}
    for scan in scans:
        stream = core.stream(scan.relation)
        view = stream.sample.view()
        times_us = times_of(view.rows, stream.schema.time_column)
        if times_us.size:
            span_s = max(1, int(times_us.max()) - int(times_us.min())) / 1e6
            rate = view.population / span_s * (scan.sample or 1.0)
            found[scan.alias] = StreamStatistics(rate, view.rows)
    return found


def bound_rows(core: EngineState, select: RelationalSelect) -> StandingPlan:
    """Return a query with its plan as it stands.

    Raises:
      BadQuery, UnknownStream, UnknownColumn, TypeMismatch: it cannot be bound, or cannot stand.
      Unimplemented: it has a ROWS window over a stream with RETAIN.
    """
    schemas: dict[str, RelationSchema] = {
        name: core.stream(name).schema for name in streams_in(core, select)
    }
    tables = [core.tables[name].schema for name in select.relations if name not in schemas]
    schemas |= {table.name: table for table in tables}
    found = standing_plan(select, bind_relational(select, schemas))
    spans = lookbacks_us(found.query.plan)
    for scan in scans_of(found.query.plan):
        schema = schemas[scan.relation]
        if not isinstance(schema, StreamSchema):
            continue
        if spans[scan.alias] >= HISTORY and schema.retain_us is not None:
            raise Unimplemented(
                f"a ROWS window in a standing query over {scan.relation}, which has RETAIN: a "
                "restart reads all tuples of the stream to make the window again"
            )
    return found


def rows_of_table(core: EngineState, statement: Kind) -> Kind | RelationalSelect:
    """Return a query of one table as one whose result is rows, and others as they are."""
    if isinstance(statement, Select) and statement.stream in core.tables:
        return relational(statement, is_table=True)
    return statement


def streams_in(core: EngineState, select: RelationalSelect) -> tuple[str, ...]:
    """Return the streams in FROM at any depth."""
    return tuple(name for name in select.relations if name not in core.tables)
