"""Dataflow of a standing query, with the sinks that the engine reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cql.plans.logical_plan import (
    Filter,
    Plan,
    Project,
    RowsWindow,
    Scan,
    ToStream,
    WindowOf,
)
from shedder.dataflow.dataflow import Dataflow, StreamSource
from shedder.dataflow.relation_to_stream import stream_batch
from shedder.engine.dataflow.standing_plan import StandingPlan, nodes_of

PAST = 8  # The tuples of a window take more memory while they are read again, before they are rows.


class RowFlow:
    """Tuples in; out come the rows of a stream, or the changes of a relation with their signs.

    Rows come in the order of event time, and then of position or, behind operators with several
    inputs, of sign and values. So the sequence depends on the tuples alone: neither on how tuples
    are divided into batches nor on how often watermarks are given. All rows of an instant come
    together, because the watermark has passed the instant then.

    is_stream: the query is a stream; else it is a relation, and `relation` has its content.
    """

    def __init__(self, plan: StandingPlan, *, bytes_max: int) -> None:
        """bytes_max: of the relation; of operators and waiting tuples it is PAST times as much.

        Raises:
          Unimplemented: an operator of the query is not in this version.
        """
        query = plan.query
        self._insertions_only = plan.insertions_only
        self._sorts = not all(map(_keeps_order, nodes_of(query.plan)))
        self._flow = Dataflow(query, state_bytes_max=PAST * bytes_max)
        self.is_stream = self._flow.is_stream
        self._signs = None if self.is_stream else self._flow.signed_changes()
        self._relation = None if self.is_stream else self._flow.current_relation(bytes_max)

    @property
    def sources(self) -> Mapping[str, StreamSource]:
        """The streams that are read, by alias."""
        return self._flow.sources

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows; event time and sign are the last two."""
        fields = [pa.field("_ts", pa.timestamp("us")), pa.field("_sign", pa.int8())]
        return pa.schema([*self._flow.schema, *fields])

    @property
    def size_bytes(self) -> int:
        """Bytes of all state."""
        sinks = [each for each in (self._signs, self._relation) if each is not None]
        return self._flow.size_bytes + sum(each.size_bytes for each in sinks)

    def push(self, alias: str, batch: pa.RecordBatch, positions: NDArray[np.int64]) -> None:
        """Take tuples of an input, none of them before its watermark."""
        late = self._flow.push(alias, batch, positions)
        assert late == 0, (alias, late)

    def advance(self, watermarks: Mapping[str, int]) -> pa.Table:
        """Raise watermarks, by alias, and return the rows that are complete now."""
        changes = self._flow.advance(watermarks)
        as_of_us = self._flow.as_of_us
        if self._signs is not None and self._relation is not None and as_of_us is not None:
            self._relation.add(as_of_us, changes)
            changes = self._signs.apply(as_of_us, changes)
            if self._insertions_only:
                changes = changes.where(changes.weight > 0)
        table = pa.Table.from_batches([stream_batch(changes)])
        return _in_order(table) if self._sorts else table

    def relation(self) -> pa.Table:
        """Return the present content of a query that is a relation."""
        assert self._relation is not None
        as_of_us = self._flow.as_of_us
        return self._relation.table(0 if as_of_us is None else as_of_us)


def _keeps_order(node: Plan) -> bool:
    """Return whether rows of one instant have an order that does not depend on batches."""
    match node:
        case Scan() | Filter() | Project() | ToStream():
            return True
        case WindowOf(window=window):
            return not isinstance(window, RowsWindow)
        case _:
            return False


def _in_order(table: pa.Table) -> pa.Table:
    """Put rows of one event time in the order of sign and values; equal rows are alike."""
    times = table.column("_ts").cast(pa.int64()).to_numpy()
    if not (times[1:] == times[:-1]).any():
        return table
    names = [str(place) for place in range(table.num_columns)]
    *columns, time, sign = names
    keys: list[tuple[str, Literal["ascending", "descending"]]]
    keys = [(name, "ascending") for name in (time, sign, *columns)]
    return table.take(pc.sort_indices(table.rename_columns(names), sort_keys=keys))
