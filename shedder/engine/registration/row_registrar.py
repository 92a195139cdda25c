"""Registrar of row queries: binds a query, reads the past of its windows, and starts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shedder.archive.files.data_directory import (
    FORMAT_ROWS,
    FORMAT_SAMPLED_JOINS,
    FORMAT_SHED_ROWS,
    FORMAT_TABLE_CHANGES,
    FORMAT_TABLE_JOINS,
    FORMAT_VIEWS,
    FORMAT_WAITS,
)
from shedder.archive.metadata.catalog_entries import QueryEntry
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.statement import ColumnDefinition
from shedder.dataflow.estimates.state_bytes import StateBytes
from shedder.dataflow.graph_text import graph_outline
from shedder.dataflow.join_order import StreamStatistics
from shedder.dataflow.joins.arriving_side import Unmatched
from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.checkpoints.query_commit import QueryCommit
from shedder.engine.dataflow.join_sizes import JoinSampling
from shedder.engine.dataflow.row_precision import EXPECTED, PREDICTED, expected_text
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.row_status import relations_of
from shedder.engine.dataflow.row_target import RowTarget
from shedder.engine.dataflow.rows_bound import MEMORY_SHARE, has_bound
from shedder.engine.dataflow.standing_plan import (
    StandingPlan,
    listed_of,
    reads_previous,
    sampling_of,
)
from shedder.engine.dataflow.thinning_levels import KeyThinning
from shedder.engine.engine_state import EngineState
from shedder.engine.rebuild.row_query_factory import (
    RowParameters,
    bound_rows,
    new_flow,
    new_row_query,
    new_writer,
    statistics_of,
    table_rows,
    with_parameters,
)
from shedder.engine.rebuild.row_query_past import WindowPast
from shedder.engine.registration.explain_query import row_plan_facts
from shedder.engine.registration.list_lengths import list_length
from shedder.engine.registration.registration_wait import RegistrationWait
from shedder.engine.synopsis_plans.stored_query_text import parse_stored
from shedder.errors import BudgetExceeded

SEED_BITS = 62  # Of a sample of keys.


class RowRegistrar:
    """Makes row queries standing."""

    def __init__(self, core: EngineState, checkpoints: Checkpoints) -> None:
        self._core = core
        self._checkpoints = checkpoints

    def register(
        self,
        name: str,
        select: RelationalSelect,
        waits: RegistrationWait,
        target: RowTarget | None = None,
    ) -> RowQuery:
        """Read what windows need of the past, then go on with what comes.

        A query without windows reads tuples from the present position on.

        target: into which the query inserts its rows.

        Raises:
          BadQuery, UnknownStream, UnknownColumn, TypeMismatch, Unimplemented: it cannot be bound.
          BudgetExceeded: no memory for it.
          DeadlineExceeded: the records before it were not applied in time.
        """
        core = self._core
        parameters = self._parameters(f"{core.machine.random_bits(48):x}", select, target)
        plan = self._admitted(select, waits)
        parameters = self._with_lists(parameters, plan)
        # Behind the records before it, so that little is left to read when the past is read.
        known = waits.run(lambda: statistics_of(core, plan))
        query = new_row_query(core, name, plan, known, parameters)
        query.load_tables(table_rows(core, query))
        past = WindowPast(core, query)
        try:
            past.catch_up()
            core.store.allow(_format_of(query, target))
            self._checkpoints.end_begun()
            joining = waits.run(lambda: self._begin(query, past, target))
        finally:
            past.end()
        self._checkpoints.end_joining(joining)
        if target is not None:
            begin = core.rows.writers[name].begin
            core.executor.call(lambda: query.guard(begin), urgent=True).result()
        return query

    def columns(self, select: RelationalSelect) -> tuple[ColumnDefinition, ...]:
        """Return the columns of a query.

        Raises:
          As `register`.
        """
        return bound_rows(self._core, select).query.columns

    def preview(self, select: RelationalSelect) -> dict[str, str]:
        """Return what `register` would make; nothing is done.

        Raises:
          As `register`.
        """
        core, waits = self._core, RegistrationWait(self._core, "")
        parameters = self._parameters("", select, None)
        plan = self._admitted(select, waits)
        parameters = self._with_lists(parameters, plan)
        known = waits.run(lambda: statistics_of(core, plan, inputs_min=1))
        query = new_row_query(core, "", plan, known, parameters)
        facts = {"text": query.query.text, **relations_of(query), **row_plan_facts(query)}
        facts.pop(PREDICTED, None)  # Of a query without tuples.
        facts |= self._expected_precision(plan, known)
        outline = graph_outline(query.operators(), self._expected(plan, known, parameters))
        return facts | {f"operator {number}": line for number, line in enumerate(outline, 1)}

    def _expected(
        self,
        plan: StandingPlan,
        known: Mapping[str, StreamStatistics],
        parameters: RowParameters,
    ) -> list[StateBytes]:
        """Return what each operator of a plan is expected to hold, kept rows last."""
        core = self._core
        flow = new_flow(core, with_parameters(plan, parameters), known, None)
        kept = f"at most {core.rows.limits.output_bytes_max:,} bytes"
        return [*flow.estimated_bytes(known), kept]

    def expected_precision(self, query: RowQuery) -> dict[str, str]:
        """Return what a standing query with ON OVERLOAD SHED is expected to get, by name."""
        core = self._core
        if query.thinning is None:
            return {}
        select = parse_stored(query.query.text)
        assert isinstance(select, RelationalSelect)
        plan = bound_rows(core, select)
        known = core.look(lambda: statistics_of(core, plan, inputs_min=1))
        return self._expected_precision(plan, known)

    def _expected_precision(
        self, plan: StandingPlan, known: Mapping[str, StreamStatistics]
    ) -> dict[str, str]:
        """Return the level that full windows are expected to need, and its precision, by name."""
        if plan.keys is None:
            return {}
        flow = new_flow(self._core, plan, known, None)
        bytes_max = self._core.rows.limits.query_bytes_max
        text = expected_text(
            flow.estimated_bytes(known),
            empty_bytes=flow.size_bytes,
            beside_bytes=bytes_max // MEMORY_SHARE if has_bound(plan.query.plan) else 0,
            bytes_max=bytes_max,
        )
        return {EXPECTED: text}

    def _parameters(
        self, incarnation: str, select: RelationalSelect, target: RowTarget | None
    ) -> RowParameters:
        """Return parameters of a new query. Half of its memory is for the counts of a join."""
        if select.sheds:
            thinning = KeyThinning(self._core.machine.random_bits(SEED_BITS))
            return RowParameters(incarnation, target, thinning=thinning)
        if select.confidence is None:
            return RowParameters(incarnation, target)
        bytes_max = self._core.rows.limits.query_bytes_max // 2
        return RowParameters(
            incarnation, target, JoinSampling(self._core.machine.random_bits(SEED_BITS), bytes_max)
        )

    def _with_lists(self, parameters: RowParameters, plan: StandingPlan) -> RowParameters:
        """Return parameters with the length of the lists of TOP over a window of rows."""
        kept = list_length(plan.query.plan, self._core.rows.limits.query_bytes_max)
        return replace(parameters, kept=kept)

    def _admitted(self, select: RelationalSelect, waits: RegistrationWait) -> StandingPlan:
        """Return the plan of a query that one more may be made of now."""
        if self._core.pressure.pressed:
            raise BudgetExceeded(
                "the process is near its limit of memory; a new query can stand when some is free: "
                "drop another one, or raise the limit"
            )
        waits.run(self._core.rows.check_room, urgent=True)
        plan = bound_rows(self._core, select)
        parse_stored(plan.query.text)  # What a restart could not read is refused now.
        return plan

    def _begin(self, query: RowQuery, past: WindowPast, target: RowTarget | None) -> QueryCommit:
        """On the apply thread: read the little that is left of the past, then live."""
        core = self._core
        self._checkpoints.settle()
        self._checkpoints.make_way_for(query.name)
        past.read_on()
        query.load_tables(table_rows(core, query))
        query.tables.begin()
        for each in query.inputs:
            stream = core.stream(each.stream)
            each.begin_at(stream.position, stream.watermark_us)
        query.begin_clock(core.clock_us())
        query.resume(query.frontier)
        query.count_unmatched(query.frontier.as_of_us, Unmatched())
        query.check_size()
        core.rows.add(query, new_writer(core, query, target, begins=False))
        sampling, listed = sampling_of(query.query.plan), listed_of(query.query.plan)
        sampled = None if sampling is None else JoinSampling(sampling.seed, sampling.bytes_max)
        state = core.rows.state(query.name, {})
        entry = QueryEntry(
            query.name,
            query.query.text,
            parameters=RowParameters(
                query.incarnation,
                target,
                sampled,
                query.thinning,
                kept=None if listed is None else listed.kept,
            ).to_json(),
            stream_id=query.stream_id,
            from_position=query.inputs[0].position if query.inputs else 0,
            created_us=core.clock_us(),
        )
        parts = {f"query/{query.name}": state.to_bytes()}

        def leave() -> None:
            core.rows.remove(query.name)

        joining = QueryCommit(entry, parts, None, core.applied_sequence, None, leave)
        self._checkpoints.join(joining)
        core.rows.note_stored({query.name: state})
        return joining


def _format_of(query: RowQuery, target: RowTarget | None) -> int:
    """Return the format of a directory with a query: the least that can read its state."""
    if listed_of(query.query.plan) is not None:
        return FORMAT_WAITS
    if query.thinning is not None:
        return FORMAT_SHED_ROWS
    if sampling_of(query.query.plan) is not None:
        return FORMAT_SAMPLED_JOINS
    tables = query.tables.by_alias.values()
    if any(table.corrects for table in tables):
        return FORMAT_TABLE_CHANGES
    if tables and any(each.holds_rows for each in query.inputs):
        return FORMAT_TABLE_CHANGES
    if reads_previous(query.query.plan):
        return FORMAT_TABLE_CHANGES
    inserts = FORMAT_ROWS if target is None else FORMAT_VIEWS
    return FORMAT_TABLE_JOINS if tables else inserts
