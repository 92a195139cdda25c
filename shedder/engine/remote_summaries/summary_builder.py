"""Summary builder: panes of a stream's tuples, built in another process as the service builds them.

A process that has the plans of a stream's standing queries (`Plans`, from the service) feeds
batches to a `Summariser`, and sends the summaries. The same classes fill the same panes in both
processes. So if a synopsis is deterministic, its bytes are the same.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.binding.bind import bind
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.archive_layout import layout_from_text, layout_text
from shedder.cql.statements.bound_query import BoundQuery, StreamSchema
from shedder.cql.statements.statement import ColumnDefinition
from shedder.engine.panes.pane import Pane
from shedder.engine.panes.pane_slices import slices_of
from shedder.engine.remote_summaries.received_pane import PaneReader, groups_bytes
from shedder.engine.remote_summaries.validation import fold_in
from shedder.engine.remote_summaries.wire_format import PaneSummary, SegmentSummary, Summaries
from shedder.engine.synopsis_plans.stored_query_text import read_stored
from shedder.engine.synopsis_plans.synopsis_plan import opened, plan, sizes_from_json
from shedder.engine.window_state.query_state import QueryState
from shedder.engine.window_state.window_predicate import with_time_range
from shedder.streams.batches import BatchLimits
from shedder.streams.frame import Frame
from shedder.streams.group_keys import OTHERS
from shedder.streams.positions import Positions


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """What one standing query keeps: its text, the sizes of its synopses (JSON), and their levels.

    part_bytes_max: what all groups of one synopsis may hold.
    """

    name: str
    text: str
    sizes: str
    levels: tuple[int, ...]
    part_bytes_max: int


@dataclass(frozen=True, slots=True)
class Plans:
    """All that another process needs to build a stream's summaries.

    future_us_max: event times further ahead of the clock are not believed; us.
    merge_bytes_max: largest message of summaries; more than limits.bytes_max go in several.
    """

    schema: StreamSchema
    queries: tuple[QueryPlan, ...]
    future_us_max: int
    limits: BatchLimits
    merge_bytes_max: int

    def thinned(self, level: int) -> Plans:
        """Return plans that read the share 2^-level of the tuples, or less where these do."""
        queries = tuple(
            replace(query, levels=tuple(max(each, level) for each in query.levels))
            for query in self.queries
        )
        return replace(self, queries=queries)

    def to_json(self) -> str:
        """As text, for the wire and for executors."""
        schema = asdict(self.schema)
        del schema["tenant"]  # Builders need not know it.
        schema["layout"] = layout_text(self.schema.layout)
        del schema["on_overload"]  # What is merged has passed the door.
        del schema["foreign_keys"]  # Of joins alone.
        schema["columns"] = [[c.name, c.type.value, c.nullable] for c in self.schema.columns]
        queries = [asdict(query) for query in self.queries]
        return json.dumps(
            {
                "schema": schema,
                "queries": queries,
                "future_us_max": self.future_us_max,
                "limits": asdict(self.limits),
                "merge_bytes_max": self.merge_bytes_max,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Plans:
        """The inverse of to_json."""
        read = json.loads(text)
        schema = read["schema"]
        schema["layout"] = layout_from_text(schema["layout"])
        schema["columns"] = tuple(
            ColumnDefinition(name, ColumnType(kind), nullable)
            for name, kind, nullable in schema["columns"]
        )
        queries = tuple(
            QueryPlan(**{**query, "levels": tuple(query["levels"])}) for query in read["queries"]
        )
        limits = BatchLimits(**read["limits"])
        # A server from before there were parts does not say, and takes one message.
        merge_bytes_max = read.get("merge_bytes_max", limits.bytes_max)
        schema = StreamSchema(**schema)
        return cls(schema, queries, read["future_us_max"], limits, merge_bytes_max)


class Summariser:
    """Reads batches of a stream into the panes of all its standing queries.

    Positions start at 0 here. A thinned sample is a simple random sample, but not of the same
    tuples as in the service.
    """

    def __init__(self, plans: Plans, first_position: int = 0) -> None:
        """Begin with nothing.

        Args:
          plans: of the service. first_position: of the first tuple; another one for each builder,
            so that no two keep the same ranks.
        """
        self._plans = plans
        self._position = first_position
        self._queries = {each.name: _Building(plans.schema, each) for each in plans.queries}
        self._rows = 0
        self._ends: tuple[int, int] | None = None

    @property
    def schema(self) -> StreamSchema:
        """Of the stream."""
        return self._plans.schema

    def add(self, batch: pa.RecordBatch) -> None:
        """Read a batch, as conformed to the stream's schema, whose event times are believable."""
        if not batch.num_rows:
            return
        schema = self._plans.schema
        frame = Frame(
            batch, schema.time_column, positions=Positions(schema.seed, self._position)
        ).in_time_order()
        self._position += batch.num_rows
        self._rows += batch.num_rows
        first, last = int(frame.times_us[0]), int(frame.times_us[-1])
        low, high = self._ends or (first, last)
        self._ends = (min(low, first), max(high, last))
        for building in self._queries.values():
            building.read(frame)

    def merge(self, summaries: Summaries) -> None:
        """Fold in what another builder with the same plans has built.

        Raises:
          BadBatch: its plans were others.
        """
        if not summaries.rows:
            return
        self._rows += summaries.rows
        low, high = self._ends or (summaries.oldest_us, summaries.newest_us)
        self._ends = (min(low, summaries.oldest_us), max(high, summaries.newest_us))
        limits = self._plans.limits
        readers = {name: it.reader(limits) for name, it in self._queries.items()}
        for pane in summaries.panes:
            self._queries[pane.query].take_in(pane, readers[pane.query])
        for building in self._queries.values():
            building.state.hold_to_the_cap()

    def is_grouped(self, query: str) -> bool:
        """Return whether a query has groups."""
        return self._queries[query].state.keys is not None

    def summaries(self) -> Summaries:
        """All that has been read so far."""
        panes = [pane for each in self._queries.values() for pane in each.summaries()]
        oldest, newest = self._ends or (0, 0)
        return Summaries(self._rows, oldest, newest, tuple(panes))


class _Building:
    """The open panes of one query, and what the ledger wants to know of each."""

    def __init__(self, schema: StreamSchema, plan_of: QueryPlan) -> None:
        query = bound(schema, plan_of)
        sizes, _ = sizes_from_json(query, plan_of.sizes)
        self.query = query
        self._plan = opened(query, plan(query, sizes))
        self.state = QueryState(
            plan_of.name, query, plan(query, sizes), part_bytes_max=plan_of.part_bytes_max
        )
        self.state.set_levels(plan_of.levels)
        self._where = with_time_range(query)
        self._parts = len(self._plan.parts)
        self._tuples: dict[int, int] = defaultdict(int)
        self._matching: dict[int, int] = defaultdict(int)
        self._thinned: dict[int, NDArray[np.int64]] = defaultdict(self._nothing)

    def _nothing(self) -> NDArray[np.int64]:
        return np.zeros(self._parts, np.int64)

    def read(self, frame: Frame) -> None:
        """Read a frame that is in time order."""
        in_panes = self._in_panes(frame)
        _count(self._tuples, in_panes)
        matching = frame.where(self._where)
        _count(self._matching, in_panes if matching is frame else self._in_panes(matching))
        if not any(self.state.levels):
            self.state.apply(frame, watermark_us=None, limit_us=None)
            return
        for pane, first, last in in_panes:
            before = np.array(self.state.thinned)
            self.state.apply(frame.between(first, last), watermark_us=None, limit_us=None)
            self._thinned[pane] += np.array(self.state.thinned) - before

    def _in_panes(self, frame: Frame) -> list[tuple[int, int, int]]:
        """Pane, first row and last row, of a frame in time order."""
        grid = self.state.grid
        return list(slices_of(frame, grid)) if len(frame) else []

    def reader(self, limits: BatchLimits) -> PaneReader:
        """Return a reader of panes that another builder made."""
        return PaneReader(self.query, self._plan, limits)

    def take_in(self, summary: PaneSummary, reader: PaneReader) -> None:
        """Fold in another builder's pane; reader: of all of its panes."""
        fold_in(self.state, summary, reader.read(summary))
        self._tuples[summary.pane] += summary.tuples
        self._matching[summary.pane] += summary.matching
        self._thinned[summary.pane] += np.array(summary.thinned, np.int64)

    def summaries(self) -> Iterable[PaneSummary]:
        """Of each pane that had tuples, also of those that match nothing."""
        for number, tuples in sorted(self._tuples.items()):
            held = self.state.panes.get(number)
            if held is None:
                held = Pane(self._plan, 1 if self.state.keys is None else 0)
            yield replace(
                self._summary(number, held),
                tuples=tuples,
                matching=self._matching[number],
                thinned=tuple(self._thinned[number].tolist()),
            )

    def _summary(self, number: int, held: Pane) -> PaneSummary:
        groups, others = b"", False
        keys = self.state.keys
        if keys is not None:
            ids = held.groups_here
            groups, others = groups_bytes(keys.keys(ids)), bool(len(ids) and ids[0] == OTHERS)
            held = held.select(ids)
        return PaneSummary(
            self.state.name,
            number,
            tuples=0,
            matching=0,
            thinned=(),
            images=tuple(held.to_bytes()),
            segments=tuple(_segments(held)),
            groups=groups,
            others=others,
        )


@lru_cache(maxsize=256)  # Each partition of each micro-batch asks for the same ones.
def bound(schema: StreamSchema, query: QueryPlan) -> BoundQuery:
    """The query of a plan, bound again."""
    return bind(read_stored(query.text), schema)


def built_of(summaries: Sequence[Summaries], plans: Plans) -> Summaries:
    """One for many, of the same plans.

    A pane that one of them alone has is taken as it is, unread: files and partitions often hold
    stretches of time of their own. Not so where there are groups, of which all panes share a cap.

    Raises:
      BadBatch: their plans were others.
    """
    whole = Summariser(plans)
    found = Counter((pane.query, pane.pane) for each in summaries for pane in each.panes)
    alone: list[PaneSummary] = []
    for each in summaries:
        met = list[PaneSummary]()
        for pane in each.panes:
            is_alone = found[pane.query, pane.pane] == 1 and not whole.is_grouped(pane.query)
            (alone if is_alone else met).append(pane)
        whole.merge(replace(each, panes=tuple(met)))
    made = whole.summaries()
    order = {query.name: place for place, query in enumerate(plans.queries)}
    panes = sorted([*made.panes, *alone], key=lambda pane: (order[pane.query], pane.pane))
    return replace(made, panes=tuple(panes))


def _segments(held: Pane) -> Iterable[SegmentSummary]:
    for (part, level), segment in sorted(held.segments.items()):
        shape = b"" if segment.shape is None else segment.shape.to_bytes()
        yield SegmentSummary(part, level, segment.basics, segment.synopsis.to_bytes(), shape)


def _count(counts: dict[int, int], in_panes: Iterable[tuple[int, int, int]]) -> None:
    for pane, first, last in in_panes:
        counts[pane] += last - first
