"""Row queries from the archive: a new query with the past of its windows, and a restored one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.metadata.catalog_entries import QueryEntry
from shedder.archive.store.scan import Live
from shedder.cql.binding.relational_binding import bind_relational
from shedder.cql.plans.logical_plan import BoundRelational
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.engine.dataflow.flow import RowFlow
from shedder.engine.dataflow.lookback import lookbacks_us
from shedder.engine.dataflow.past import restore
from shedder.engine.dataflow.row_input import RowInput, Scan
from shedder.engine.dataflow.row_output import RowOutput
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.row_state import RowState
from shedder.engine.dataflow.standing_plan import standing_plan
from shedder.engine.engine_state import EngineState

LEFT_ROWS = 1 << 18  # What the apply thread may read itself: some hundredths of a second.
ROUNDS_MAX = 8  # A stream that outruns the reader is not chased for ever.


@dataclass(frozen=True, slots=True)
class RowParameters:
    """Parameters of a row query in the catalog. Queries of aggregates have no "kind" among theirs.

    incarnation: as of `RowOutput`.
    """

    incarnation: str

    def to_json(self) -> str:
        """Return the JSON that the catalog keeps."""
        return json.dumps({"kind": "rows", "incarnation": self.incarnation})

    @classmethod
    def of(cls, entry: QueryEntry) -> RowParameters | None:
        """Return those of an entry of the catalog; None: it is a query of aggregates."""
        stored = json.loads(entry.parameters)
        if not isinstance(stored, dict) or stored.get("kind") != "rows":
            return None
        return cls(stored["incarnation"])


def new_row_query(
    core: EngineState, name: str, bound: BoundRelational, *, incarnation: str
) -> RowQuery:
    """Return a query that has read nothing, at the present positions of its streams.

    Raises:
      Unimplemented: an operator of the query is not in this version.
    """
    limits = core.rows.limits
    flow = RowFlow(bound, bytes_max=limits.query_bytes_max)
    spans = lookbacks_us(bound.plan)
    inputs = []
    for alias, source in flow.sources.items():
        stream = core.stream(source.relation)
        columns = tuple(dict.fromkeys((*source.columns, source.time_column)))
        inputs.append(
            RowInput(
                alias,
                stream.schema.name,
                stream.id,
                source.time_column,
                columns,
                lookback_us=spans[alias],
                watermark=replace(stream.watermark),
                from_position=0 if spans[alias] else stream.position,
                position=stream.position,
            )
        )
    output = RowOutput(name, incarnation, flow.schema, bytes_max=limits.output_bytes_max)
    return RowQuery(name, bound, flow, inputs, output, limits, incarnation=incarnation)


def bound_rows(core: EngineState, select: RelationalSelect) -> BoundRelational:
    """Return a query with its plan as it stands.

    Raises:
      BadQuery, UnknownStream, UnknownColumn, TypeMismatch: it cannot be bound, or cannot stand.
    """
    schemas = {name: core.stream(name).schema for name in select.relations}
    return standing_plan(bind_relational(select, schemas))


class WindowPast:
    """Tuples of the past that the windows of a new query need, read while its streams go on."""

    def __init__(self, core: EngineState, query: RowQuery) -> None:
        self._core = core
        self._query = query
        self._inputs = [each for each in query.inputs if each.lookback_us]
        as_of_us = query.frontier.as_of_us
        self._from_us = {each.alias: each.needs_from_us(as_of_us) for each in self._inputs}
        self._read = {each.alias: each.from_position for each in self._inputs}

    def catch_up(self) -> None:
        """Read until little is left, so that the apply thread reads the rest quickly."""
        for _ in range(ROUNDS_MAX):
            if self._left_rows() < LEFT_ROWS:
                return
            self.read_on()

    def read_on(self) -> None:
        """Read what the streams have applied since the last time."""
        self._query.take_past(self._parts())

    def _left_rows(self) -> int:
        return sum(self._end(each) - self._read[each.alias] for each in self._inputs)

    def _end(self, each: RowInput) -> int:
        return self._core.stream(each.stream).position

    def _parts(self) -> Iterator[tuple[str, pa.RecordBatch, NDArray[np.int64]]]:
        for each in self._inputs:
            alias, end = each.alias, self._end(each)
            scan = scan_of(self._core, each.stream_id)
            for rows, positions in each.past(scan, self._read[alias], end, self._from_us[alias]):
                yield alias, rows, positions
            self._read[alias] = end


def restored_row_query(
    core: EngineState, entry: QueryEntry, bound: BoundRelational, data: bytes
) -> RowQuery:
    """Return a query as a checkpoint has it; a query that cannot be restored has failed.

    The tail must have all tuples that the log had at the checkpoint.
    """
    parameters = RowParameters.of(entry)
    assert parameters is not None
    query = new_row_query(core, entry.name, bound, incarnation=parameters.incarnation)
    scans = {each.stream_id: scan_of(core, each.stream_id) for each in query.inputs}
    query.guard(lambda: restore(query, RowState.from_bytes(data), scans))
    return query


def scan_of(core: EngineState, stream_id: int) -> Scan:
    """Return what reads a stream's archive and tail in order of position."""

    def scan(
        from_position: int, from_us: int | None, columns: tuple[str, ...]
    ) -> Iterable[tuple[int, pa.RecordBatch, Live]]:
        return core.store.scan_live(
            stream_id, from_us, columns=columns, from_position=from_position
        )

    return scan
