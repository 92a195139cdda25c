"""A thinned query by groups whose ends of the take-all stratum are set, and its exact answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.binding.bind import bind
from shedder.cql.binding.parse import parse
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import CreateStream, Select
from shedder.engine.allocation.negotiation import negotiate
from shedder.engine.estimates.thinned_window import window_parts
from shedder.engine.synopsis_plans.synopsis_plan import plan
from shedder.engine.window_state.merged_window import Merged, merged_window
from shedder.engine.window_state.query_state import QueryState
from shedder.streams.frame import Frame
from shedder.streams.positions import Positions
from shedder.streams.windows import Span
from synopses.model.estimate import Estimates

BY_GROUP = "SELECT g, COUNT(*) AS n, SUM(x) AS s, AVG(x) AS a, VAR(x) AS v FROM s GROUP BY g"
WARM_ROWS = 1 << 16  # Until ends are set: 29 of them, so that 1,000 values are gathered.
STRETCH_ROWS = 1 << 12
_NORMAL = 1.96
_BYTES = 1 << 20
Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


def schema(seed: int, kind: ColumnType = ColumnType.DOUBLE) -> StreamSchema:
    """Of a stream with groups g and values x."""
    text = f"CREATE STREAM s (ts TIMESTAMP, g BIGINT, x {kind.name}) TIMESTAMP BY ts"
    made = parse(text)
    assert isinstance(made, CreateStream)
    return StreamSchema(
        name="s", columns=made.columns, time_column=made.time_column,
        lateness_us=made.lateness_us, retain_us=None, layout=made.layout, seed=seed,
    )  # fmt: skip


def query_state(
    stream: StreamSchema, sql: str = BY_GROUP, stretch_rows: int = STRETCH_ROWS
) -> QueryState:
    """A query that has read nothing."""
    select = parse(sql)
    assert isinstance(select, Select)
    query = bind(select, stream)
    sizes = negotiate(query, _BYTES, group_bytes_max=_BYTES).sizes
    made = plan(query, sizes)
    return QueryState("q", query, made, part_bytes_max=_BYTES, stretch_rows=stretch_rows)


def batch(
    ids: Ids, values: NDArray[Any] | pa.Array[Any], times: Ids | None = None
) -> pa.RecordBatch:
    """Rows of these groups and values, by default a microsecond apart."""
    times = np.arange(len(ids)) if times is None else times
    columns = [pa.array(times, pa.int64()).cast(pa.timestamp("us")), pa.array(ids)]
    values = values if isinstance(values, pa.Array) else pa.array(values)
    return pa.record_batch([*columns, values], names=["ts", "g", "x"])


def read(state: QueryState, rows: pa.RecordBatch, position: int, cuts: Sequence[int] = ()) -> None:
    """Let a query read rows from this position on, cut into batches."""
    for first, last in zip([0, *cuts], [*cuts, rows.num_rows], strict=True):
        positions = Positions(state.query.schema.seed, position + first)
        frame = Frame(rows.slice(first, last - first), "ts", positions=positions)
        state.apply(frame, watermark_us=None, limit_us=None)


def thinned_to(state: QueryState, level: int) -> None:
    """Thin all synopses of a query to a level."""
    state.set_levels([level] * len(state.levels))


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """Estimates of a window beside the exact answers and the half widths of ideal intervals.

    By name of the aggregate; each array has one value a group that is shown.
    """

    estimates: dict[str, Estimates]
    truths: dict[str, Floats]
    ideals: dict[str, Floats]
    merged: Merged

    def held(self, name: str) -> NDArray[np.bool_]:
        """Return which intervals hold; doubles round what was summed otherwise."""
        found, truth = self.estimates[name], self.truths[name]
        with np.errstate(invalid="ignore"):  # Of infinite values; none of theirs holds.
            slack = 1e-9 * np.abs(truth) + 1e-12
            return np.asarray((found.low <= truth + slack) & (truth - slack <= found.high))

    def widths(self, name: str) -> list[float]:
        """Half widths over the ideal ones, where there are any."""
        half, ideal = (self.estimates[name].high - self.estimates[name].low) / 2, self.ideals[name]
        there = (ideal > 0) & np.isfinite(half)
        return list(half[there] / ideal[there])


def answered(state: QueryState, ids: Ids, values: Floats, unread: Floats) -> Answered:
    """Ask a query that has read these rows. unread: N/n - 1 at the level of each row."""
    merged = merged_window(state, Span(None, None))
    parts = window_parts(state, merged, state.query.aggregates)
    assert state.keys is not None
    assert merged.ids is not None
    [keys] = state.keys.keys(merged.ids)
    shown = np.asarray(keys.to_pylist(), np.int64)
    groups = int(ids.max()) + 1
    counts = np.bincount(ids, minlength=groups)
    totals = np.bincount(ids, values, groups)
    means = totals / np.maximum(counts, 1)
    away = (values - means[ids]) ** 2
    variances = np.bincount(ids, away, groups) / np.maximum(counts, 1)
    fourth = (away - variances[ids]) ** 2
    share = (totals / len(values)) ** 2 * unread.sum()
    spread = np.bincount(ids, unread * values**2, groups) - share
    truths = {"COUNT": counts * 1.0, "SUM": totals, "AVG": means, "VAR": variances}
    ideals = {
        "COUNT": np.sqrt(np.bincount(ids, unread, groups)),
        "SUM": np.sqrt(np.maximum(spread, 0.0)),
        "AVG": np.sqrt(np.bincount(ids, unread * away, groups)) / np.maximum(counts, 1),
        "VAR": np.sqrt(np.bincount(ids, unread * fourth, groups)) / np.maximum(counts, 1),
    }
    return Answered(
        {a.function.name: part.estimate(a, 0.95) for a, part in parts.items()},
        {name: each[shown] for name, each in truths.items()},
        {name: _NORMAL * each[shown] for name, each in ideals.items()},
        merged,
    )
