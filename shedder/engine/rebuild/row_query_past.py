"""Row queries from the archive: a new query with the past of its windows, and a restored one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

import pyarrow as pa

from shedder.archive.metadata.catalog_entries import QueryEntry
from shedder.archive.store.scan import Live
from shedder.archive.tables.table_rows import TableRows
from shedder.cql.binding.relational_binding import bind_relational
from shedder.cql.binding.table_checks import relational
from shedder.cql.plans.logical_plan import RelationKind, scans_of
from shedder.cql.plans.logical_plan import Scan as PlanScan
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.statement import Select, Statement
from shedder.cql.statements.table_schema import RelationSchema
from shedder.dataflow.expiry.expiry_modes import Expiry
from shedder.dataflow.join_order import StreamStatistics
from shedder.engine.dataflow.flow import RowFlow
from shedder.engine.dataflow.lookback import HISTORY, lookbacks_us
from shedder.engine.dataflow.past import restore
from shedder.engine.dataflow.past_replay import PastStretch, replay
from shedder.engine.dataflow.query_tables import QueryTables, ReadTable
from shedder.engine.dataflow.row_input import RowInput, Scan, times_of
from shedder.engine.dataflow.row_output import RowOutput
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.row_state import RowState
from shedder.engine.dataflow.row_target import EVENT_TIME, RowTarget
from shedder.engine.dataflow.row_writer import RowWriter
from shedder.engine.dataflow.standing_plan import StandingPlan, standing_plan, with_seed
from shedder.engine.engine_state import EngineState
from shedder.engine.rebuild.table_pasts import TableMoment, TablePasts
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.tables.live_tables import LiveTable
from shedder.errors import Unimplemented
from shedder.streams.batch_conversion import conform_batch

Kind = TypeVar("Kind", bound=Statement)

LEFT_ROWS = 1 << 18  # What the apply thread may read itself: some hundredths of a second.
STATISTICS_INPUTS_MIN = 3  # The order of fewer inputs makes no difference.
ROUNDS_MAX = 8  # A stream that outruns the reader is not chased for ever.


@dataclass(frozen=True, slots=True)
class RowParameters:
    """Parameters of a row query in the catalog. Queries of aggregates have no "kind" among theirs.

    incarnation: as of `RowOutput`. target: into which the query inserts its rows.
    sampling: seed, and bytes, of the sample of a join's keys; None: the query has none.
    """

    incarnation: str
    target: RowTarget | None = None
    sampling: tuple[int, int] | None = None

    def to_json(self) -> str:
        """Return the JSON that the catalog keeps."""
        into = {} if self.target is None else {"into": self.target.to_json()}
        sampled = {} if self.sampling is None else {"sampling": self.sampling}
        return json.dumps({"kind": "rows", "incarnation": self.incarnation, **into, **sampled})

    @classmethod
    def of(cls, entry: QueryEntry) -> RowParameters | None:
        """Return those of an entry of the catalog; None: it is a query of aggregates."""
        stored = json.loads(entry.parameters)
        if not isinstance(stored, dict) or stored.get("kind") != "rows":
            return None
        into, sampling = stored.get("into"), stored.get("sampling")
        return cls(
            stored["incarnation"],
            None if into is None else RowTarget.from_json(into),
            None if sampling is None else (sampling[0], sampling[1]),
        )


def new_row_query(
    core: EngineState,
    name: str,
    plan: StandingPlan,
    statistics: Mapping[str, StreamStatistics],
    parameters: RowParameters,
) -> RowQuery:
    """Return a query that has read nothing, at the present positions of its streams.

    Raises:
      Unimplemented: an operator of the query is not in this version.
    """
    plan = seeded(plan, parameters)
    limits, incarnation = core.rows.limits, parameters.incarnation
    found = tables_in(core, plan)
    flow = new_flow(core, plan, statistics, parameters.target)
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
        tables=QueryTables(tables),
        steps=core.rows.steps,
    )


def _inputs(core: EngineState, plan: StandingPlan, flow: RowFlow) -> list[RowInput]:
    """Return inputs at the present positions."""
    spans, inputs = lookbacks_us(plan.query.plan), list[RowInput]()
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


def seeded(plan: StandingPlan, parameters: RowParameters) -> StandingPlan:
    """Return the plan with the seed and the bytes of its sample of keys, if it has one."""
    if parameters.sampling is None:
        return plan
    seed, bytes_max = parameters.sampling
    return with_seed(plan, seed=seed, bytes_max=bytes_max)


def new_flow(
    core: EngineState,
    plan: StandingPlan,
    statistics: Mapping[str, StreamStatistics],
    target: RowTarget | None,
) -> RowFlow:
    """Return the operators of a query, without tuples. target: into which it inserts its rows.

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


def needs_statistics(plan: StandingPlan) -> bool:
    """Return whether statistics of streams decide the order of joins and the place of negations."""
    return len(_stream_scans(plan)) >= STATISTICS_INPUTS_MIN


def _stream_scans(plan: StandingPlan) -> list[PlanScan]:
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
            found[scan.alias] = StreamStatistics(view.population / span_s, view.rows)
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


class WindowPast:
    """Tuples of the past that the windows of a new query need, read while its streams go on."""

    def __init__(self, core: EngineState, query: RowQuery) -> None:
        self._core = core
        self._query = query
        self._inputs = [each for each in query.inputs if each.reads_past]
        # A tuple that comes after the watermark was looked at is not older than it, or is late.
        self._closed_us = {it.alias: self._stream(it).watermark_us for it in query.inputs}
        self._read = {each.alias: self._stream(each).position for each in self._inputs}
        self._tables: TablePasts | None = None
        known = [us for us in self._closed_us.values() if us is not None]
        as_of_us = min(known) if known and len(known) == len(query.inputs) else None
        self._from_us = {each.alias: each.needs_from_us(as_of_us) for each in self._inputs}

    def catch_up(self) -> None:
        """Read until little is left, so that the apply thread reads the rest quickly."""
        first_positions = self._core.executor.call(self._begin, urgent=True).result()
        needed = self._first_needed(first_positions)
        self._read, tables = self._core.executor.call(
            lambda: self._moment(needed), urgent=True
        ).result()
        self._load(tables)
        ends, from_us, closed_us = self._read, self._from_us, self._closed_us
        stretches = {it: PastStretch(0, ends[it], from_us[it], closed_us[it]) for it in ends}
        scans = {it.stream_id: scan_of(self._core, it.stream_id) for it in self._inputs}
        replay(self._query, stretches, scans)
        for _ in range(ROUNDS_MAX):
            if self._left_rows() < LEFT_ROWS:
                return
            self._read_to(self._core.executor.call(self._moment, urgent=True).result())

    def read_on(self) -> None:
        """Read what is left: what the streams have applied since. On the apply thread."""
        self._read_to(self._moment())
        self._query.tables.end_past({each.alias: each.newest_us for each in self._query.inputs})

    def _begin(self) -> dict[str, int]:
        """On the apply thread: return the positions from which versions of tables are known."""
        if not self._inputs or not self._query.tables.has_places:
            return {}
        self._tables = tables = TablePasts(self._core, self._query)
        tables.take()
        self._read = {each.alias: self._stream(each).position for each in self._inputs}
        return {each.alias: tables.first_position(each.stream_id) for each in self._inputs}

    def _first_needed(self, first_positions: Mapping[str, int]) -> dict[int, int]:
        """Return the position of the first tuple that is read, by the id of a stream.

        first_positions: by alias; the tuples before them are left out.
        """
        found = dict[int, int]()
        for each in self._inputs if first_positions else ():
            alias, id_, first = each.alias, each.stream_id, first_positions[each.alias]
            scan, from_us, end = scan_of(self._core, id_), self._from_us[alias], self._read[alias]
            each.read_past_from(first, scan, from_us)
            rows = each.past(scan, first, end, from_us, columns=(each.time_column,))
            found[id_] = min(found.get(id_, end), *(int(it[1][0]) for it in islice(rows, 1)), end)
        return found

    def _moment(
        self, needed: Mapping[int, int] | None = None
    ) -> tuple[dict[str, int], TableMoment | None]:
        """On the apply thread: how far the streams are, and the tables as of there.

        needed: as of `TablePasts.forget`.
        """
        ends = {each.alias: self._stream(each).position for each in self._inputs}
        if self._tables is None:
            return ends, None
        if needed is not None:
            self._tables.forget(needed)
        return ends, self._tables.take()

    def _load(self, tables: TableMoment | None) -> None:
        if tables is not None:
            self._query.tables.load_past(tables.rows, tables.versions(), tables.reached)

    def _read_to(self, moment: tuple[dict[str, int], TableMoment | None]) -> None:
        ends, tables = moment
        self._load(tables)
        for each in self._inputs:
            alias, end = each.alias, ends[each.alias]
            scan, from_us = scan_of(self._core, each.stream_id), self._from_us[alias]
            for rows, positions in each.past(scan, self._read[alias], end, from_us):
                timely = each.without_late(rows, positions, self._closed_us[alias])
                self._query.take_past(alias, *timely)
            self._read[alias] = end

    def _left_rows(self) -> int:
        return sum(self._stream(it).position - self._read[it.alias] for it in self._inputs)

    def _stream(self, each: RowInput) -> Stream:
        return self._core.stream(each.stream)


def restored_row_query(
    core: EngineState, entry: QueryEntry, plan: StandingPlan, state: RowState
) -> tuple[RowQuery, RowWriter | None]:
    """Return a query as a checkpoint has it; a query that cannot be restored has failed.

    The tail must have all tuples that the log had at the checkpoint.
    """
    parameters = RowParameters.of(entry)
    assert parameters is not None
    query = new_row_query(core, entry.name, plan, statistics_of(core, plan), parameters)
    scans = {each.stream_id: scan_of(core, each.stream_id) for each in query.inputs}
    writer = new_writer(core, query, parameters.target, stored=state.stored)
    tables = table_rows(core, query)
    query.guard(lambda: restore(query, state, scans, tables))
    return query, writer


def scan_of(core: EngineState, stream_id: int) -> Scan:
    """Return what reads a stream's archive and tail in order of position."""

    def scan(
        from_position: int, from_us: int | None, columns: tuple[str, ...]
    ) -> Iterable[tuple[int, pa.RecordBatch, Live]]:
        return core.store.scan_live(
            stream_id, from_us, columns=columns, from_position=from_position
        )

    return scan
