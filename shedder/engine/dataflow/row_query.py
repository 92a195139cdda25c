"""A standing row query: reads tuples of its inputs in the order of the log, and makes rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import structlog
from numpy.typing import NDArray

from shedder.archive.log.table_changes import TableChange
from shedder.archive.tables.table_rows import TableRows
from shedder.cql.plans.logical_plan import BoundRelational
from shedder.dataflow.joins.arriving_side import Unmatched
from shedder.dataflow.operator_facts import OperatorFacts
from shedder.dataflow.sampled_joins.sampled_join_aggregates import SampledJoinAggregates
from shedder.dataflow.tables.table_places import Reached
from shedder.engine.dataflow.flow import RowFlow, SharedPart
from shedder.engine.dataflow.held_places import HeldPlaces
from shedder.engine.dataflow.long_steps import QueryStep, ReadWaits, StepThread, TakenStep
from shedder.engine.dataflow.query_flow import QueryFlow
from shedder.engine.dataflow.query_tables import QueryTables
from shedder.engine.dataflow.row_agreement import agreement
from shedder.engine.dataflow.row_answers import RowAnswers
from shedder.engine.dataflow.row_input import ReadBatch, RowInput, follow_others
from shedder.engine.dataflow.row_limits import RowLimits
from shedder.engine.dataflow.row_output import BEGINNING_US, Frontier, InputFrontier, RowOutput
from shedder.engine.dataflow.thinned_flow import ThinnedFlow
from shedder.engine.dataflow.thinning_levels import KeyThinning
from shedder.errors import RowQueryFailed, ShedderError
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.completeness import Completeness

ANSWER_BYTES_MAX = 1 << 20  # Of the newest rows, in the present answer of a stream of rows.
BACKLOG_SHARE = 4  # Of a query's memory; with more in its backlog, the query shares no more.
CLOCK = ""  # Among the inputs of a frontier, the newest change of a query that reads no stream.

_log = structlog.get_logger("shedder.engine")


class RowQuery:
    """One standing row query. Used by the apply thread, except for its output.

    failed: why it makes no more rows; "": it does.
    answers: what answers say beside the rows.
    weight: of its rows beside those of other queries with ON OVERLOAD SHED.
    """

    def __init__(
        self,
        name: str,
        query: BoundRelational,
        flow: QueryFlow,
        inputs: Sequence[RowInput],
        output: RowOutput,
        limits: RowLimits,
        *,
        incarnation: str,
        tables: QueryTables,
        steps: StepThread,
        weight: float = 1.0,
    ) -> None:
        self.name = name
        self.weight = weight
        self.query = query
        self.inputs = tuple(inputs)
        self.output = output
        self.incarnation = incarnation
        self.tables = tables
        self.table_names = frozenset(each.name for each in tables.by_alias.values())
        read = tuple(f"table {name}" for name in sorted(self.table_names))
        self.answers = RowAnswers(
            query, self.inputs, output, read, self._completeness, lambda: self.unmatched
        )
        self.failed = ""
        self._flow: QueryFlow | None = flow  # None: the query has failed.
        self._limits = limits
        self._taken = TakenStep[Any](steps)
        self._before: Frontier | None = None  # Of tuples whose step waits; None: there are none.
        self._facts: list[OperatorFacts] = []  # Of the operators before that step.
        self._waits = ReadWaits()
        self.read_bytes = 0
        self._changed_us: int | None = None
        self._held_from = HeldPlaces()
        self._tell(None, self.frontier)

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams that it reads, each once."""
        return tuple(dict.fromkeys(each.stream for each in self.inputs))

    @property
    def stream_id(self) -> int:
        """Id of its first stream, for the catalog; 0: it reads tables alone."""
        return self.inputs[0].stream_id if self.inputs else 0

    @property
    def frontier(self) -> Frontier:
        """Its progress behind the last step that has ended."""
        step = self._taken.step
        before = self._before if step is None else step.before
        return self._reached() if before is None else before

    def _reached(self) -> Frontier:
        """Return its progress behind the step that the tuples which were read lead to."""
        inputs = {each.alias: each.frontier for each in self.inputs}
        if not inputs:
            inputs[CLOCK] = InputFrontier(0, self._changed_us)
        return Frontier(self.output.rows, inputs, self.read_bytes)

    @property
    def state_bytes(self) -> int:
        """Bytes of operators, of what waits, and of late tuples that a restart must know."""
        waiting = sum(each.late_bytes for each in self.inputs) + self.tables.waiting_bytes
        return waiting + (0 if self._flow is None else self._flow.size_bytes)

    @property
    def size_bytes(self) -> int:
        """Bytes that it holds, kept rows included."""
        return self.state_bytes + self.output.counted_bytes

    @property
    def own_bytes(self) -> int:
        """Bytes that it holds, without the parts that other queries may read."""
        return self.size_bytes - sum(each.size_bytes for each in self.shared_parts)

    @property
    def shared_parts(self) -> tuple[SharedPart, ...]:
        """State that other queries may read, too."""
        return () if self._flow is None else self._flow.shared_parts

    def keeps(self, rows: object) -> bool:
        """Return whether an operator reads a store of rows, as `Dataflow.keeps`."""
        return self._flow is not None and self._flow.keeps(rows)

    @property
    def unmatched(self) -> Unmatched | None:
        """As `QueryFlow.unmatched`; of a failed query None."""
        return None if self._flow is None else self._flow.unmatched

    def count_unmatched(self, from_us: int | None, unmatched: Unmatched) -> None:
        """As `QueryFlow.count_unmatched`."""
        self.live.count_unmatched(from_us, unmatched)

    @property
    def has_long_step(self) -> bool:
        """Return whether another thread goes on with a step."""
        return self._taken.step is not None

    @property
    def plan_choices(self) -> Sequence[tuple[str, str]]:
        """What statistics decided of the plan, as of `RowFlow`; of a failed query nothing."""
        return () if self._flow is None else self._flow.plan_choices

    @property
    def thinning(self) -> KeyThinning | None:
        """The sample of keys that it keeps; None: it keeps all."""
        return None if self._flow is None else self._flow.thinning

    @property
    def sampled_join(self) -> SampledJoinAggregates | None:
        """As `RowFlow.sampled_join`; None: there is none, or the query has failed."""
        return self._flow.sampled_join if isinstance(self._flow, RowFlow) else None

    def operators(self) -> list[OperatorFacts]:
        """As `QueryFlow.operators`, kept rows last; of a failed query none. On the apply thread."""
        if self._flow is None:
            return []
        made = self._facts if self.has_long_step else self._flow.operators()
        rows = self.output.rows
        kept = OperatorFacts(
            (len(made) - 1,), "Kept rows", None, self.output.size_bytes, rows, rows, 0
        )
        return [*made, kept]

    def answer(self) -> Answer:
        """Return the newest rows of a stream, or the content of a relation. On the apply thread.

        Raises:
          RowQueryFailed: the message says why.
        """
        if self._flow is None:
            raise RowQueryFailed(self.failed)
        table, rows, inputs = self.output.newest(ANSWER_BYTES_MAX)
        if not self._flow.is_stream:
            return self.answers.of_relation(self._flow.relation(), rows, inputs)
        return self.answers.of_rows(table, rows, inputs)

    def missing_notes(self) -> tuple[str, ...]:
        """Say which tuples its rows lack, and why it makes no more. On the apply thread."""
        return (*self.answers.missing_notes(), *filter(None, [self.failed]))

    def share_with(self, other: RowQuery) -> None:
        """Read the operators of another query where their state is the same."""
        for each in (self, other):
            each.guard(each.finish_step)
        if self._flow is None or other._flow is None:
            return
        instants = (self._flow.as_of_us, other._flow.as_of_us)
        self._flow.share_with(other._flow, agreement(self.inputs, other.inputs, instants))
        for query in (self, other):
            query.guard(query.read_columns)

    def read_columns(self) -> None:
        """Give the dataflow the columns that it needs now."""
        for each in self.inputs:
            source = self.live.sources[each.alias]
            each.read_columns(tuple(dict.fromkeys((*source.columns, source.time_column))))

    @property
    def is_shared(self) -> bool:
        """Return whether another query reads some of the state now."""
        return self._flow is not None and self._flow.is_shared

    @property
    def backlog_bytes(self) -> int:
        """Bytes that wait for this query, behind operators that have gone ahead."""
        return 0 if self._flow is None else self._flow.backlog_bytes

    @property
    def is_far_behind(self) -> bool:
        """Return whether what faster queries have made for this one takes much of its memory."""
        return self.backlog_bytes > self._limits.query_bytes_max // BACKLOG_SHARE

    def split(self) -> None:
        """Go on with copies of what is shared, apart from other queries."""
        self.finish_step()
        self.live.split()

    def leave(self) -> None:
        """Share nothing any more: the query ends."""
        if self._flow is not None:
            self._flow.leave()

    def end_step(self) -> None:
        """Forget shared changes: all queries of its streams have read the last record."""
        if self._flow is not None and not self.has_long_step:
            self._flow.end_step()

    def guard(self, work: Callable[[], None]) -> None:
        """Do this query's own work: what goes wrong there ends this query, not the engine."""
        if self.failed:
            return
        try:
            work()
        except Exception as error:
            _log.error("query_failed", query=self.name, exc_info=error)
            cause = str(error) if isinstance(error, ShedderError) else type(error).__name__
            self.fail(
                f"query {self.name!r} failed ({cause}) and has missed tuples since; drop it and "
                "register it again"
            )

    def fail(self, reason: str) -> None:
        """From now on, every answer is this error."""
        self.failed, self._before = reason, None
        self.cancel_step()
        self.leave()
        self._flow, self.tables = None, QueryTables({})  # Release their memory.
        self.output.end(RowQueryFailed(self.failed))

    def read(self, batch: ReadBatch, *, waits: bool) -> None:
        """Read one batch of a stream. waits: its step is made by `go_on`."""
        before = self.frontier
        for each in self.inputs:
            if each.stream_id == batch.stream_id:
                rows, positions = each.take(batch)
                if rows.num_rows:
                    self.read_bytes += rows.nbytes
                    self.take_past(each.alias, rows, positions)
        follow_others(self.inputs)
        self._before = before
        if not waits:
            self.go_on()

    def go_on(self) -> None:
        """Make the step of the tuples that were read, if it waits."""
        if self._before is not None:
            self._advance(self._before)

    @property
    def waits(self) -> bool:
        """Return whether a step of tuples that were read waits."""
        return self._before is not None

    @property
    def may_wait(self) -> bool:
        """Return whether the step of the next tuples may wait."""
        return self._flow is not None and not self.has_long_step and self._flow.may_wait

    @property
    def watermarks(self) -> dict[str, int]:
        """Present watermarks of its inputs by alias, as far as they are known."""
        marks = {alias: each.watermark_us for alias, each in self._reached().inputs.items()}
        return {alias: us for alias, us in marks.items() if us is not None}

    def load_tables(self, rows: Mapping[str, TableRows]) -> None:
        """Begin with rows of its tables, as `QueryTables.load`."""
        self.tables.load(rows, self._next_instant_us)

    def change(self, header: TableChange, batch: pa.RecordBatch) -> None:
        """Apply a change of a table; instants that come after it have the new rows.

        The instants of a query of tables alone are those of the changes. A step that goes on reads
        the versions of the table, so the change waits for its end.
        """
        self.go_on()
        before, instant_us = self.frontier, self._next_instant_us
        if not self.inputs:
            instant_us = self._changed_us = max(instant_us, header.arrival_us)
        reached = {each.alias: Reached(each.position, each.newest_us) for each in self.inputs}
        waits = self.has_long_step
        self.tables.change(header, batch, reached, instant_us, waits=waits)
        if waits or not self.inputs:
            self._advance(before)
        else:
            self.check_size()

    def begin_clock(self, as_of_us: int | None) -> None:
        """Count instants from one on, if changes of tables alone make them."""
        if not self.inputs:
            self._changed_us = as_of_us

    @property
    def _next_instant_us(self) -> int:
        """The first instant without rows yet, behind the step that goes on and the next one."""
        as_of_us = (self._reached() if self.has_long_step else self.live).as_of_us
        return BEGINNING_US if as_of_us is None else as_of_us + 1

    def needs_from_place(self, begin: Frontier) -> int | None:
        """Return the least place of the tuples that ROWS windows need from a frontier on.

        The least place of what windows hold never falls. So that of the newest checkpoint before
        the frontier bounds it. None: no window needs places.
        """
        held = [each.alias for each in self.inputs if each.holds_rows]
        if not held or self._flow is None or not self.tables.has_places:
            return None
        found = [self._flow.least_place(alias) for alias in held]
        known = [place for place in found if place is not None]
        self._held_from.note(self.frontier, min(known, default=self.tables.newest_place))
        return self._held_from.least_from(begin)

    def promise(self, stream_id: int, watermark_us: int, arrival_us: int) -> None:
        """Apply a heartbeat of a stream."""
        before = self.frontier
        for each in self.inputs:
            if each.stream_id == stream_id:
                each.promise(watermark_us, arrival_us)
        self._advance(before)

    def count_idle(self, stream_id: int) -> None:
        """Go on without a stream until its next record."""
        before = self.frontier
        for each in self.inputs:
            if each.stream_id == stream_id:
                each.count_idle()
        self._advance(before)

    def _advance(self, before: Frontier, *, is_whole: bool = False) -> None:
        """Make a step of the tuples that were read; they wait while another step goes on.

        before: the frontier before the step. is_whole: end it on this thread.
        """
        self._before = None
        follow_others(self.inputs)
        if self.has_long_step:
            if self.state_bytes > self._limits.query_bytes_max // 2:  # Its senders wait, too.
                self.finish_step()
            return
        progress = tuple(each.progress for each in self.inputs)
        step = QueryStep(self.live.parts(self.watermarks), before, self._reached(), progress)
        self._waits.begin_step()
        if is_whole:
            step.finish()
        if step.made is not None or not step.go_on():
            self._end(step)
            return
        self._facts = self.live.operators()
        self._taken.take(step, lambda: self.guard(lambda: self._end_taken(step)))

    def finish_step(self) -> None:
        """Make the step that waits, and wait for the end of one that goes on."""
        self.go_on()
        while (step := self._taken.finish()) is not None:
            self._end_taken(step)

    def cancel_step(self) -> None:
        """Leave a step that another thread goes on with: the query makes no more rows."""
        self._taken.cancel()
        self._waits.end()

    def when_read(self) -> Future[None]:
        """Return a future that is done when all tuples that were read are in the rows."""
        self.guard(self.go_on)
        if self.has_long_step:
            return self._waits.add()
        done = Future[None]()
        done.set_result(None)
        return done

    def _end_taken(self, step: QueryStep[Any]) -> None:
        """End a step that the other thread has made, and begin that of what came meanwhile."""
        if not self._taken.leave(step):
            return  # It was ended, or left.
        self._end(step)
        self.end_step()
        self.tables.go_on()
        self._advance(replace(step.after, rows=self.output.rows))

    def _end(self, step: QueryStep[Any]) -> None:
        assert step.made is not None
        self.output.publish(self.live.end(step.made), step.before, step.progress)
        self._waits.end_step()
        self.check_size()

    def check_size(self) -> None:
        """Keep fewer keys above the query's limit, or raise BudgetExceeded."""
        excess_bytes = self.state_bytes - self._limits.query_bytes_max
        if excess_bytes > 0 and not self.live.relieve(excess_bytes):
            raise self._limits.refusal(self.state_bytes)

    def fit(self) -> None:
        """Keep to the present limit of a query, or raise BudgetExceeded, as `check_size`."""
        self.finish_step()
        self.live.set_bytes_max(self._limits.query_bytes_max)
        self.check_size()

    def _completeness(self, table: pa.Table) -> Completeness | None:
        return None if self._flow is None else self._flow.completeness(table)

    def relieve(self, excess_bytes: int) -> bool:
        """Keep fewer keys, as `QueryFlow.relieve`; return False if that frees too little."""
        self.finish_step()
        return self._flow is not None and self._flow.relieve(excess_bytes)

    def set_weight(self, weight: float) -> None:
        """Set the weight of its rows, which is stored."""
        self.weight = weight

    @property
    def thinned(self) -> ThinnedFlow:
        """The dataflow of a query that has `thinning`."""
        assert isinstance(self._flow, ThinnedFlow)
        return self._flow

    def resize_join(self, bytes_max: int) -> None:
        """As `RowFlow.resize_join`, of a query that has a `sampled_join`."""
        self.finish_step()
        assert isinstance(self._flow, RowFlow)
        self._flow.resize_join(bytes_max)

    @property
    def live(self) -> QueryFlow:
        """The dataflow of a query that has not failed."""
        assert self._flow is not None, self.failed
        return self._flow

    def _tell(self, table: pa.Table | None, before: Frontier) -> None:
        self.output.publish(table, before, tuple(each.progress for each in self.inputs))

    def take_past(self, alias: str, batch: pa.RecordBatch, positions: NDArray[np.int64]) -> None:
        """Read tuples; of those that came before, `resume` brings the state to a frontier."""
        self.live.push(alias, batch, positions)

    def pass_by(self, watermarks: Mapping[str, int | None]) -> None:
        """Raise watermarks, by alias, as far as they are known; forget the rows that this makes."""
        self.live.advance({alias: us for alias, us in watermarks.items() if us is not None})

    def resume(self, frontier: Frontier) -> None:
        """All tuples before a frontier are read: forget the rows that were made before it."""
        self.pass_by({alias: each.watermark_us for alias, each in frontier.inputs.items()})
        if frontier.rows:
            self.live.go_on()
        self.output.begin_at(frontier.rows)
        self._tell(None, frontier)

    def catch_up(self, before: Frontier, read_bytes: int) -> None:
        """Make the rows between a frontier and the present progress of the inputs again.

        read_bytes: of tuples, as of `Frontier`, now.
        """
        self.read_bytes = read_bytes
        self._advance(before, is_whole=True)
