"""Wire format of rows that a producer left out of a batch."""

from __future__ import annotations

import math
from itertools import pairwise

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import ColumnDefinition
from shedder.errors import BadBatch
from shedder.streams.basics import ColumnBasics
from shedder.streams.batches import DAY_MAX, DAY_MIN, TIME_MAX_US, TIME_MIN_US
from shedder.streams.dropped_counts import BUCKET_US, Dropped
from shedder.v1.ingest_pb2 import LeftOut

ROWS_MAX = 1 << 40  # As of summaries: counts of many such still fit int64 and are doubles.
SECONDS_MAX = 1 << 15  # As many as are counted apart.

_WHOLE_ENDS = {
    ColumnType.BOOLEAN: (0, 1),
    ColumnType.INTEGER: (-(1 << 31), (1 << 31) - 1),
    ColumnType.BIGINT: (-(1 << 63), (1 << 63) - 1),
    ColumnType.TIMESTAMP: (TIME_MIN_US, TIME_MAX_US),
    ColumnType.DATE: (DAY_MIN, DAY_MAX),
}
_SECOND_ENDS = TIME_MIN_US // BUCKET_US, TIME_MAX_US // BUCKET_US


def left_out_to_wire(dropped: Dropped) -> LeftOut:
    """What was left out, as its message."""
    return LeftOut(
        rows=dropped.rows,
        seconds=[LeftOut.Second(second=second, rows=rows) for second, rows in dropped.times],
        columns=[_column_to_wire(name, basics) for name, basics in dropped.basics.items()],
    )


def left_out_from_wire(message: LeftOut, schema: StreamSchema) -> Dropped:
    """Decode an untrusted message.

    Raises:
      BadBatch: it contradicts itself, or the stream's columns.
    """
    rows = message.rows
    if not 1 <= rows <= ROWS_MAX:
        raise BadBatch(f"{rows:,} rows are left out; it must be 1 to {ROWS_MAX:,}")
    times = _times(message)
    named = [column.name for column in message.columns]
    if sorted(named) != sorted(column.name for column in schema.columns):
        raise BadBatch(
            f"the columns of what is left out are {', '.join(named) or 'none'}; they must be those "
            f"of {schema.name}: {', '.join(column.name for column in schema.columns)}"
        )
    by_name = {column.name: column for column in message.columns}
    basics = {column.name: _basics(by_name[column.name], column, rows) for column in schema.columns}
    _check_times(times, basics[schema.time_column])
    return Dropped(rows, times, basics)


def _column_to_wire(name: str, basics: ColumnBasics) -> LeftOut.Column:
    low, high = basics.low, basics.high
    if low is None or high is None:
        return LeftOut.Column(name=name, nulls=basics.nulls)
    if isinstance(low, float) or isinstance(high, float):
        real = LeftOut.Real(low=low, high=high)
        return LeftOut.Column(name=name, nulls=basics.nulls, real=real)
    whole = LeftOut.Whole(low=low, high=high)
    return LeftOut.Column(name=name, nulls=basics.nulls, whole=whole)


def _times(message: LeftOut) -> tuple[tuple[int, int], ...]:
    times = tuple((each.second, each.rows) for each in message.seconds)
    if not 1 <= len(times) <= SECONDS_MAX:
        raise BadBatch(f"what is left out is of {len(times):,} seconds, not 1 to {SECONDS_MAX:,}")
    if any(later <= earlier for (earlier, _), (later, _) in pairwise(times)):
        raise BadBatch("the seconds of what is left out must ascend")
    if not _SECOND_ENDS[0] <= times[0][0] <= times[-1][0] <= _SECOND_ENDS[1]:
        raise BadBatch("what is left out has seconds outside of the years 1 to 9999")
    if min(count for _, count in times) < 1 or sum(count for _, count in times) != message.rows:
        raise BadBatch(f"the rows of the seconds must be at least 1 and come to {message.rows:,}")
    return times


def _basics(said: LeftOut.Column, column: ColumnDefinition, rows: int) -> ColumnBasics:
    if not 0 <= said.nulls <= (rows if column.nullable else 0):
        raise BadBatch(f"{said.nulls:,} of {rows:,} rows left out have no {column.name}")
    there = rows - said.nulls
    match said.WhichOneof("range"), column.type:
        case None, _ if not there or column.type is ColumnType.VARCHAR:
            return ColumnBasics(there, said.nulls)
        case "real", ColumnType.DOUBLE if there:
            low, high = said.real.low, said.real.high
            if not (math.isnan(low) or math.isnan(high)) and low <= high:
                return ColumnBasics(there, said.nulls, low, high)
        case "whole", kind if there and kind in _WHOLE_ENDS:
            least, most = _WHOLE_ENDS[kind]
            if least <= said.whole.low <= said.whole.high <= most:
                return ColumnBasics(there, said.nulls, said.whole.low, said.whole.high)
    raise BadBatch(
        f"the range of {column.name} in what is left out must be one of {column.type.value} where "
        "there are values, and absent where there are none, and for VARCHAR"
    )


def _check_times(times: tuple[tuple[int, int], ...], of_column: ColumnBasics) -> None:
    first, last = times[0][0], times[-1][0]
    low, high = of_column.low, of_column.high
    if low is None or high is None or (low // BUCKET_US, high // BUCKET_US) != (first, last):
        raise BadBatch("the range of the event time of what is left out is not that of its seconds")
