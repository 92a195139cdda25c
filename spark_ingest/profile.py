"""Profile of a stream's data, from which questions with non-empty answers are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.bound_query import StreamSchema

GROUP_VALUES_MAX = 512
"""A column with more distinct values than this is not grouped by."""

_FEW = 32  # distinct values
_SKEWED = 10  # times as many tuples with the most frequent value as each would have
_HEAVY = 6.0  # quartile ranges from the median to the 0.1 % end; a normal has 2.3, a Laplace 4.5
_KNOTS = 65  # quantiles kept of a number: predicates cut at them


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """One column as a sample of rows shows it.

    values: what predicates compare with, as literals hold them (timestamps in microseconds, dates
      in days): quantiles of numbers, ascending and without repetition; of other types the most
      frequent values first.
    distinct: how many values the sample has. null_share: of the sample's rows.
    shape: how its values are spread, in words.
    """

    name: str
    type: ColumnType
    values: tuple[Any, ...]
    distinct: int
    null_share: float
    shape: str = ""


@dataclass(frozen=True, slots=True)
class StreamProfile:
    """A stream's columns (its event time apart) and the stretch of event time it covers.

    start_us, end_us: half open.
    """

    stream: str
    columns: tuple[ColumnProfile, ...]
    start_us: int
    end_us: int

    @property
    def shapes(self) -> dict[str, str]:
        """By column, how its values are spread."""
        return {column.name: column.shape for column in self.columns}

    @property
    def numbers(self) -> tuple[ColumnProfile, ...]:
        """Columns that can be summed and that vary."""
        return tuple(c for c in self.columns if c.type.is_number and len(c.values) > 1)

    @property
    def keys(self) -> tuple[ColumnProfile, ...]:
        """Columns with few enough values to be grouped by."""
        return tuple(
            c
            for c in self.columns
            if c.type is not ColumnType.DOUBLE and 1 < c.distinct <= GROUP_VALUES_MAX
        )


def profile(schema: StreamSchema, rows: pa.Table, *, start_us: int, end_us: int) -> StreamProfile:
    """Describe the columns of `rows`, a sample of the stream's tuples (at least one row).

    Args:
      schema: the stream's.
      rows: columns as the schema names them.
      start_us: the first event time of the whole stream.
      end_us: just after its last one.
    """
    columns = tuple(
        _column(definition.name, definition.type, rows[definition.name])
        for definition in schema.columns
        if definition.name != schema.time_column and len(rows[definition.name].drop_null())
    )
    return StreamProfile(schema.name, columns, start_us, end_us)


def _column(name: str, kind: ColumnType, cells: pa.ChunkedArray[Any]) -> ColumnProfile:
    known = cells.drop_null()
    if kind is ColumnType.DOUBLE:
        known = known.filter(pc.is_finite(known))
    counts = pc.value_counts(known)
    if kind.is_number:
        ordered = np.sort(known.to_numpy())
        at = np.linspace(0, max(len(ordered) - 1, 0), _KNOTS if len(ordered) else 0).astype(
            np.int64
        )
        values = tuple(np.unique(ordered[at]).tolist())
    else:
        by_count = np.argsort(-counts.field("counts").to_numpy(), kind="stable")
        frequent = counts.field("values").take(by_count[:GROUP_VALUES_MAX])
        values = tuple(_as_literals(frequent).to_pylist())
    null_share = cells.null_count / max(len(cells), 1)
    return ColumnProfile(name, kind, values, len(counts), null_share, _shape(kind, known, counts))


def _shape(kind: ColumnType, known: pa.ChunkedArray[Any], counts: pa.StructArray) -> str:
    """Few values, a heavy tail, or none of it."""
    if len(counts) <= _FEW:
        return "few values"
    if not kind.is_number:
        most = int(pc.max(counts.field("counts")).as_py()) / max(len(known), 1)
        return "skewed values" if most > _SKEWED / len(counts) else "many values"
    low, middle, high, least, most = np.quantile(known.to_numpy(), [0.25, 0.5, 0.75, 0.001, 0.999])
    spread = max(high - low, np.finfo(np.float64).tiny)
    tails = (most - middle) / spread, (middle - least) / spread
    if min(tails) > _HEAVY:
        return "two heavy tails"
    return "heavy tail" if max(tails) > _HEAVY else "light tails"


def _as_literals(values: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    return values.cast(pa.int32()) if pa.types.is_date(values.type) else values
