"""Rows that come out of each operator of a graph, expected from samples of its streams.

Values are uniform and independent, and windows are full. So estimates are rough where values are
skewed or depend on each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, inf
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.evaluate import evaluate, true_rows
from shedder.cql.plans.logical_plan import NowWindow, RowsWindow
from shedder.cql.statements.statement import RangeWindow
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.expiry.distinct_rows import DistinctRows
from shedder.dataflow.expiry.negative_tuples import NegativeTuples
from shedder.dataflow.graph import Node
from shedder.dataflow.join_order import StreamStatistics
from shedder.dataflow.joins.equi_join import EquiJoin
from shedder.dataflow.key_directory import KeyDirectory
from shedder.dataflow.multiplicities import Multiplicities
from shedder.dataflow.multiplicity_kernels import Multiplicity
from shedder.dataflow.negations.negation_cost import distinct_values
from shedder.dataflow.projection import Projection
from shedder.dataflow.relation_to_stream import RelationToStream
from shedder.dataflow.rows_window import NewestRows
from shedder.dataflow.selection import WhereFilter
from shedder.dataflow.sums.grouped_aggregates import GroupedAggregates
from shedder.dataflow.tables.table_side import is_position
from shedder.dataflow.union import UnionAll
from shedder.dataflow.window_lifetimes import WindowLifetimes

Columns = list["pa.Array[Any]"]

_SAMPLE_ROWS_MAX = 4096


@dataclass(frozen=True, slots=True, eq=False)
class EdgeRows:
    """Rows on an edge once windows are full.

    rate_per_s: that come. live: in the relation; inf: more and more. held: the same with those
      that are not born. expires: a row has its expiry; else a negative row ends it.
    sample: some of the rows; values of joined rows are drawn side by side.
    """

    rate_per_s: float
    live: float
    held: float
    expires: bool
    sample: pa.RecordBatch

    @property
    def width(self) -> float:
        """Bytes of the values of a row."""
        return self.sample.nbytes / max(1, self.sample.num_rows)

    def times(self, share: float, sample: pa.RecordBatch) -> EdgeRows:
        """Return a share of the rows."""
        rate, live, held = self.rate_per_s * share, self.live * share, self.held * share
        return replace(self, rate_per_s=rate, live=live, held=held, sample=sample)

    def values(self, columns: Columns | None = None) -> float:
        """Return how many different values columns have in the held rows; None: all columns."""
        total = values_of(self.sample.columns if columns is None else columns)
        return total if self.held == inf else total * (1 - exp(-self.held / total))


def values_of(columns: Columns) -> float:
    """Return how many different values columns have, from a sample of them."""
    if not columns:
        return 1.0
    schema = pa.schema([(str(at), column.type) for at, column in enumerate(columns)])
    ids = KeyDirectory(schema).assign(columns)
    return distinct_values(len(set(ids.tolist())), len(ids))


def expected_rows(
    node: Node, inputs: list[EdgeRows], statistics: Mapping[str, StreamStatistics]
) -> EdgeRows | None:
    """Return the rows that come out of a node; None: there is no estimate for it.

    statistics: of streams, by alias.
    """
    operator = node.operator
    match operator:
        case None:
            return _tuples(node, statistics)
        case WindowLifetimes(window=RangeWindow(range_us=range_us, slide_us=slide_us)):
            return _in_window(inputs[0], range_us / 1e6, slide_us / 1e6)
        case WindowLifetimes(window=NowWindow()):
            return _in_window(inputs[0], 1e-6, 0)
        case WindowLifetimes() | RelationToStream():
            return inputs[0]
        case NegativeTuples():
            return replace(inputs[0], expires=False)
        case NewestRows(window=window):
            return _newest(window, inputs[0], node.schema)
        case WhereFilter(condition=condition):
            passing = true_rows(evaluate(condition, inputs[0].sample))
            rows = inputs[0].sample.filter(pa.array(passing))
            return inputs[0].times(max(passing.mean(), 0.5 / len(passing)), rows)
        case Projection():
            none = ChangeBatch.of_tuples(inputs[0].sample, _times(inputs[0].sample))
            return replace(inputs[0], sample=operator.apply(0, none).columns)
        case DistinctRows():
            return _of_values(inputs[0], inputs[0].values())
        case Multiplicities(kind=Multiplicity.DISTINCT):
            both = _union(inputs, negates_right=False) if len(inputs) > 1 else inputs[0]
            return _of_values(both, both.values())
        case Multiplicities():  # EXCEPT and INTERSECT give as many as the left has, or fewer.
            return _of_values(inputs[0], min(inputs[0].values(), inputs[0].held))
        case EquiJoin():
            return _pairs(operator, node, inputs)
        case GroupedAggregates():
            return _groups(operator, node, inputs)
        case UnionAll(negates_right=negates_right):
            return _union(inputs, negates_right=negates_right)
    return None


def _times(sample: pa.RecordBatch) -> NDArray[np.int64]:
    return np.zeros(sample.num_rows, np.int64)


def _tuples(node: Node, statistics: Mapping[str, StreamStatistics]) -> EdgeRows | None:
    known = statistics.get(node.alias or "")
    if known is None or not known.sample.num_rows:
        return None
    prefix = f"{node.alias}."
    zeros = pa.array(_times(known.sample))  # No estimate depends on the positions of tuples.
    columns = [
        zeros if is_position(name) else known.sample.column(name.removeprefix(prefix))
        for name in node.schema.names
    ]
    sample = pa.RecordBatch.from_arrays(columns, schema=node.schema).slice(0, _SAMPLE_ROWS_MAX)
    return EdgeRows(known.rate_per_s, inf, inf, expires=False, sample=sample)


def _in_window(tuples: EdgeRows, range_s: float, slide_s: float) -> EdgeRows:
    live = tuples.rate_per_s * range_s
    held = live + tuples.rate_per_s * slide_s
    return replace(tuples, live=live, held=held, expires=True)


def _newest(window: RowsWindow, tuples: EdgeRows, schema: pa.Schema) -> EdgeRows:
    keys = [tuples.sample.column(name) for name in window.partition]
    rows = window.rows * values_of(keys)
    added = [pa.array(np.arange(tuples.sample.num_rows))] * len(window.added)
    sample = pa.RecordBatch.from_arrays([*tuples.sample.columns, *added], schema=schema)
    return EdgeRows(tuples.rate_per_s, rows, rows, expires=False, sample=sample)


def _of_values(rows: EdgeRows, values: float) -> EdgeRows:
    """Rows that are the different values of others."""
    absent = exp(-rows.held / max(1.0, values_of(rows.sample.columns))) if rows.held < inf else 0
    return EdgeRows(rows.rate_per_s * absent, values, values, expires=False, sample=rows.sample)


def _pairs(join: EquiJoin, node: Node, inputs: list[EdgeRows]) -> EdgeRows:
    left, right = inputs
    values = max(
        values_of([evaluate(keys[side], rows.sample) for keys in join.spec.keys])
        for side, rows in enumerate(inputs)
    )
    rows = min(left.sample.num_rows, right.sample.num_rows)
    columns = [column for each in inputs for column in each.sample.slice(0, rows).columns]
    sample = pa.RecordBatch.from_arrays(columns, schema=node.schema)
    comes = left.rate_per_s * right.live + right.rate_per_s * left.live
    live, held = left.live * right.live, left.held * right.held
    made = EdgeRows(comes, live, held, left.expires or right.expires, sample)
    share = 1 / values
    if join.spec.condition is not None:
        passing = true_rows(evaluate(join.spec.condition, sample))
        share *= max(passing.mean(), 0.5 / max(1, len(passing)))
    return made.times(share, sample)


def _groups(operator: GroupedAggregates, node: Node, inputs: list[EdgeRows]) -> EdgeRows:
    keys = [
        [evaluate(key, rows.sample) for key in of]
        for of, rows in zip(operator.spec.keys, inputs, strict=True)
    ]
    groups = max(rows.values(of) for of, rows in zip(keys, inputs, strict=True))
    groups = groups if operator.spec.groups else 1.0
    rate = 4 * sum(rows.rate_per_s for rows in inputs)  # A row comes and leaves: two changes each.
    given = keys[0] if operator.spec.groups else []
    other = pa.array(np.arange(inputs[0].sample.num_rows))  # Results differ from group to group.
    kinds = node.schema.types[len(given) :]
    columns = [*given, *(other.cast(kind, safe=False) for kind in kinds)]
    sample = pa.RecordBatch.from_arrays(columns, schema=node.schema)
    return EdgeRows(rate, groups, groups, expires=False, sample=sample)


def _union(inputs: list[EdgeRows], *, negates_right: bool) -> EdgeRows:
    left, right = inputs
    sign = -1 if negates_right else 1
    rate = left.rate_per_s + right.rate_per_s
    live, held = (
        max(0.0, a + sign * b) for a, b in ((left.live, right.live), (left.held, right.held))
    )
    return EdgeRows(rate, live, held, left.expires, left.sample)
