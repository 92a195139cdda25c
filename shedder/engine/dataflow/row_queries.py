"""The standing row queries of an engine, and the records of the log that they read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa

from shedder.archive.log.records import Batch, Heartbeat
from shedder.archive.log.table_changes import TableChange
from shedder.cql.statements.view_text import text_of_insert
from shedder.dataflow.operator_facts import OperatorFacts
from shedder.dataflow.scheduling.operator_scheduler import SchedulingPolicy
from shedder.engine.dataflow.followed_changes import FollowedChanges
from shedder.engine.dataflow.levels_together import reliefs
from shedder.engine.dataflow.long_steps import StepThread
from shedder.engine.dataflow.row_agreement import are_in_step
from shedder.engine.dataflow.row_input import ReadBatch, holding_up, times_of
from shedder.engine.dataflow.row_limits import RowLimits
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.row_state import RowState
from shedder.engine.dataflow.row_writer import RowWriter
from shedder.engine.dataflow.scheduling.row_schedule import RowSchedule
from shedder.engine.dataflow.store_agreement import stores_agree
from shedder.errors import BudgetExceeded, RowQueryFailed
from shedder.queries.answers.answer import Answer
from shedder.streams.batches import TIME_MIN_US
from shedder.streams.dropped_counts import Dropped


class StandingRowQueries:
    """Row queries by name. Changed by the apply thread, or before it starts; any thread looks."""

    def __init__(self, limits: RowLimits, steps: StepThread, schedule: RowSchedule) -> None:
        """limits: of memory. steps: goes on with long steps. schedule: says what runs next."""
        self.limits = limits
        self.steps = steps
        self.schedule = schedule
        self.queries: dict[str, RowQuery] = {}
        self._stored: dict[str, RowState] = {}
        self._readers: dict[int, tuple[RowQuery, ...]] = {}  # By stream.
        self.writers: dict[str, RowWriter] = {}  # By query.
        self._following: list[FollowedChanges] = []
        self._producers: dict[str, RowWriter] = {}  # The same, by the name of their producer.

    def __contains__(self, name: str) -> bool:
        return name in self.queries

    @property
    def size_bytes(self) -> int:
        """Bytes that all of them hold; what several share is counted once."""
        queries = list(self.queries.values())
        parts = {id(part): part for each in queries for part in each.shared_parts}
        own = sum(each.own_bytes for each in queries)
        return own + sum(part.size_bytes for part in parts.values())

    def sharers(self, part: object) -> list[str]:
        """Return the names of the queries that read a shared part."""
        queries = list(self.queries.values())
        return [each.name for each in queries if any(it is part for it in each.shared_parts)]

    def operators(self, query: RowQuery) -> list[OperatorFacts]:
        """Return facts of a query's operators, with the other queries that read each of them."""
        others = [each for each in list(self.queries.values()) if each is not query]
        return [
            replace(
                each,
                others=tuple(it for it in self.sharers(each.shared) if it != query.name),
                keepers=tuple(it.name for it in others if it.keeps(each.kept)),
            )
            if each.shared is not None
            else each
            for each in query.operators()
        ]

    @property
    def has_long_step(self) -> bool:
        """Return whether a step goes on, for which a checkpoint would wait."""
        return any(each.has_long_step for each in self.queries.values())

    def of_stream(self, stream_id: int) -> tuple[RowQuery, ...]:
        """The row queries that read a stream."""
        return self._readers.get(stream_id, ())

    def into(self, stream: str) -> tuple[RowWriter, ...]:
        """The writers whose target a stream is."""
        return tuple(it for it in list(self.writers.values()) if it.target.stream == stream)

    def view(self, name: str) -> RowWriter | None:
        """The writer of a view; None: there is no view of this name."""
        writer = self.writers.get(name)
        return writer if writer is not None and writer.target.is_view else None

    def how_to_drop(self, names: Iterable[str]) -> str:
        """Say how row queries, of which some may be views, are dropped."""
        views = sorted(name for name in names if self.view(name) is not None)
        return "drop them first" + (f", {', '.join(views)} with DROP VIEW" if views else "")

    def text(self, query: RowQuery) -> str:
        """The text of a query, with the stream into which it inserts."""
        writer = self.writers.get(query.name)
        if writer is None or writer.target.is_view:
            return query.query.text
        return text_of_insert(writer.target.stream, writer.target.columns, query.query.text)

    def add(self, query: RowQuery, writer: RowWriter | None = None) -> None:
        """Read records from now on. writer: inserts the rows."""
        self.queries[query.name] = query
        if writer is not None:
            self.writers[query.name] = self._producers[writer.producer] = writer
        for stream_id in {each.stream_id for each in query.inputs}:
            self._readers[stream_id] = (*self.of_stream(stream_id), query)
        self._share(query)

    def _share(self, query: RowQuery) -> None:
        """Let a query read the operators of others that read a stream of it.

        Queries that share the tuples of a stream share a store of its rows. So a query shares
        nothing with the others of a query in which other tuples were late.
        """
        readers = self._readers_of(query)
        apart = {it.name: it for it in readers if not stores_agree(query, it)}
        parts = {id(part) for each in apart.values() for part in each.shared_parts}
        for other in readers:
            if other.name not in apart and parts.isdisjoint(map(id, other.shared_parts)):
                query.guard(partial(query.share_with, other))

    def _is_shared_out_of_step(self, query: RowQuery) -> bool:
        """Return whether a query of several streams shares state with one that may go on apart."""
        parts = set(map(id, query.shared_parts))
        return len(query.streams) > 1 and any(
            not are_in_step(query.inputs, other.inputs)
            and not parts.isdisjoint(map(id, other.shared_parts))
            for other in self._readers_of(query)
        )

    def _readers_of(self, query: RowQuery) -> list[RowQuery]:
        """Return the other queries that read a stream of a query, each once."""
        ids = dict.fromkeys(each.stream_id for each in query.inputs)
        found = {it.name: it for each in ids for it in self.of_stream(each) if it is not query}
        return list(found.values())

    def remove(self, name: str) -> None:
        """Forget a query."""
        query = self.queries.pop(name)
        query.cancel_step()
        self.schedule.forget(name)
        query.leave()
        writer = self.writers.pop(name, None)
        if writer is not None:
            del self._producers[writer.producer]
            writer.end_waits()
        for stream_id in {each.stream_id for each in query.inputs}:
            others = tuple(each for each in self.of_stream(stream_id) if each is not query)
            self._readers[stream_id] = others
        self._stored.pop(name, None)

    def states(self, retained_from_us: Mapping[int, int]) -> dict[str, RowState]:
        """Return the state of each query for a checkpoint.

        retained_from_us: as of `RowState.of`.
        """
        return {name: self.state(name, retained_from_us) for name in self.queries}

    def state(self, name: str, retained_from_us: Mapping[int, int]) -> RowState:
        """Return the state of one query, as `states`, behind the step that goes on."""
        query = self.queries[name]
        query.guard(query.finish_step)
        return RowState.of(
            query,
            read_bytes_max=self.limits.read_bytes_max,
            retained_from_us=retained_from_us,
        )

    def note_stored(self, states: Mapping[str, RowState]) -> None:
        """These states are durable: a restart begins with them."""
        self._stored |= {name: state for name, state in states.items() if name in self.queries}

    def restarts_from_us(self, name: str) -> int | None:
        """Return the event time from which a restart reads tuples for a query; None: any."""
        state = self._stored.get(name)
        if state is None:
            return None
        needed = [each.needs_from_us(state.begin.as_of_us) for each in self.queries[name].inputs]
        known = [us for us in needed if us is not None]
        return min(known) if known and len(known) == len(needed) else None

    def needs_all_from_us(self, stream_id: int, from_us: int) -> int:
        """Return the event time from which a restart needs a stream's tuples, at most from_us."""
        needed = [from_us]
        for name, state in self._stored.items():
            for each in self.queries[name].inputs:
                if each.stream_id == stream_id and not state.failed:
                    us = each.needs_from_us(state.begin.as_of_us)
                    needed.append(TIME_MIN_US if us is None else us)
        return min(needed)

    def read(
        self,
        header: Batch,
        batch: pa.RecordBatch,
        time_column: str,
        dropped: Dropped | None,
        *,
        more: Collection[int] = (),
    ) -> None:
        """Apply one batch of the log, as it is there: not together with others.

        more: ids of the streams whose batches wait behind it, as `RowSchedule.run`.
        """
        writer = self._producers.get(header.producer)
        if writer is not None and header.push is not None:
            writer.note_stored(header.push.end_row)
        readers = self.of_stream(header.stream)
        if not readers:
            return
        read = ReadBatch(
            header.stream,
            batch,
            times_of(batch, time_column),
            header.end_position - batch.num_rows,
            header.arrival_us,
            dropped,
        )
        for each in readers:
            self.schedule.read(each, read, len(readers))
        self._end_record(dict.fromkeys((*readers, *self.schedule.run(more))))

    def make_steps(self) -> None:
        """Make the steps that wait for the schedule."""
        ran = self.schedule.run()
        if ran:
            self._end_record(ran)

    def set_policy(self, policy: SchedulingPolicy) -> None:
        """Schedule operators by another policy from the next batch on."""
        self.make_steps()
        self.schedule.set_policy(policy)

    def _end_record(self, readers: Iterable[RowQuery]) -> None:
        """End the step of queries that have applied a record, and hold them to their limits."""
        for each in readers:
            each.end_step()
            if each.is_far_behind and each.is_shared:
                each.guard(each.split)
        self._check_all(readers)

    def _check_all(self, readers: Iterable[RowQuery]) -> None:
        """Have queries keep fewer keys, or fail the largest of these, while all hold too much.

        First the queries with ON OVERLOAD SHED keep fewer keys, if that is enough. Then sampled
        joins halve, the largest first, since their answers only get wider. A query that shares its
        state may free little, so the next one fails as well.
        """
        if self.size_bytes > self.limits.all_bytes_max:
            readers = dict.fromkeys((*readers, *self.schedule.run()))
        self._relieve_together()
        self._halve_sampled_joins()
        live = [each for each in readers if not each.failed]
        while live and self.size_bytes > self.limits.all_bytes_max:
            largest = max(live, key=lambda each: each.size_bytes)
            largest.guard(partial(self._refuse, largest))
            live.remove(largest)

    def _relieve_together(self) -> None:
        excess_bytes = self.size_bytes - self.limits.all_bytes_max
        if excess_bytes <= 0:
            return
        free = [it for it in self.queries.values() if it.thinning and not it.has_long_step]
        for query, size_bytes in reliefs(free, excess_bytes):
            query.guard(partial(self._free, query, size_bytes))

    def _halve_sampled_joins(self) -> None:
        joins = [
            (it.sampled_join.size_bytes, name, it)
            for name, it in self.queries.items()
            if it.sampled_join is not None and not it.has_long_step
        ]
        for size_bytes, _, query in sorted(joins, reverse=True):
            excess_bytes = self.size_bytes - self.limits.all_bytes_max
            if excess_bytes <= 0:
                return
            query.guard(partial(self._free, query, min(excess_bytes, size_bytes // 2)))

    def _free(self, query: RowQuery, size_bytes: int) -> None:
        """Have a query keep as many fewer keys as take these bytes; it has them to free."""
        query.relieve(size_bytes)

    def fit(self) -> None:
        """Hold each query to the present limit. On the apply thread, or before it starts."""
        for each in list(self.queries.values()):
            each.guard(each.fit)

    def settle(self, query: RowQuery) -> None:
        """End the step of a query that goes on. On the apply thread.

        Raises:
          RowQueryFailed: the query has failed, perhaps in that step.
        """
        query.guard(query.finish_step)
        if query.failed:
            raise RowQueryFailed(query.failed)

    def of_table(self, table: str) -> list[str]:
        """Return the names of the row queries that read a table, also of those that have failed."""
        return [name for name, it in list(self.queries.items()) if table in it.table_names]

    def follow(self, changes: FollowedChanges) -> None:
        """Keep the changes that come from now on for a query that reads its past."""
        self._following = [*(it for it in self._following if not it.is_ended), changes]

    def change(self, change: TableChange, batch: pa.RecordBatch) -> None:
        """Apply one change of a table."""
        for following in self._following:
            if not following.is_ended:
                following.add(change, batch)
        readers = [it for it in self.queries.values() if it.tables.reads(change.table)]
        for each in readers:
            each.guard(partial(each.change, change, batch))
        self._check_all(readers)

    def promise(self, header: Heartbeat) -> None:
        """Apply one heartbeat of the log."""
        for writer in self.writers.values():
            writer.note_watermark(header.stream, header.watermark_us)
        readers = self.of_stream(header.stream)
        for each in readers:
            each.guard(partial(each.promise, header.stream, header.watermark_us, header.arrival_us))
        self._end_record(readers)

    def count_idle(self, stream_id: int) -> None:
        """Apply one record which says that a stream counts as idle.

        In a query of several streams, its watermark follows the others. So queries that do not
        have the same progress of the same streams go apart.
        """
        readers = self.of_stream(stream_id)
        apart = [each for each in readers if self._is_shared_out_of_step(each)]
        for each in apart:
            each.guard(each.split)
        for each in readers:
            each.guard(partial(each.count_idle, stream_id))
        self._end_record(readers)
        for each in apart:
            self._share(each)

    def holding_up(self) -> set[int]:
        """Return the ids of streams whose watermarks hold up a query of several streams.

        The watermark of a view follows those of its streams, so no query counts it as idle. A view
        that has failed, or that reads tables alone, may be idle.
        """
        live = (each for each in self.queries.values() if not each.failed)
        held = set[int]().union(*(holding_up(each.inputs) for each in live))
        views = (it for it in self.writers.values() if it.target.is_view)
        return held - {it.stream_id for it in views if it.query.inputs and not it.query.failed}

    def noted(self, answer: Answer, streams: Iterable[str]) -> Answer:
        """Return an answer of a query of some streams, with a note for each view that has failed.

        A view that reads a view which has failed lacks rows, too.
        """
        notes = dict[str, None]()
        waiting, seen = list(streams), set[str]()
        while waiting:
            view = self.view(waiting.pop())
            if view is None or view.query.name in seen:
                continue
            seen.add(view.query.name)
            waiting += view.query.streams
            if view.query.failed:
                notes[f"view {view.query.name} gets no more rows: {view.query.failed}"] = None
        if not notes:
            return answer
        return replace(answer, notes=(*answer.notes, *notes), complete=False)

    def send(self) -> None:
        """Insert the rows that are new. On the apply thread, after records were applied."""
        for each in self.writers.values():
            each.query.guard(each.send)
            if each.query.failed:
                each.send_last()

    def check_room(self) -> None:
        """Check that one more query has room.

        Raises:
          BudgetExceeded.
        """
        if self.size_bytes >= self.limits.all_bytes_max:
            raise BudgetExceeded(
                f"row queries hold {self.size_bytes:,} bytes, and may hold "
                f"{self.limits.all_bytes_max:,}, a part of memory_bytes; drop one first"
            )

    def end(self) -> None:
        """End all subscriptions: the engine closes."""
        for each in list(self.queries.values()):
            each.output.end(None)

    def close(self) -> None:
        """Leave long steps: the apply thread has ended. A restart makes them again."""
        for each in self.queries.values():
            each.cancel_step()
        self.steps.close()

    def _refuse(self, query: RowQuery) -> None:
        """Have a query keep fewer keys, or fail it, because all together hold too much."""
        if query.relieve(self.size_bytes - self.limits.all_bytes_max):
            return
        raise BudgetExceeded(
            f"all row queries hold {self.size_bytes:,} bytes, and may hold "
            f"{self.limits.all_bytes_max:,}, a part of memory_bytes; it holds "
            f"{query.size_bytes:,}"
        )
