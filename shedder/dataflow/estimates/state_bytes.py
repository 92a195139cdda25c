"""Bytes that each operator of a graph is expected to hold, before it has read a tuple."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf

from shedder.cql.expressions.evaluate import evaluate
from shedder.dataflow.estimates.expected_rows import (
    Columns,
    EdgeRows,
    expected_rows,
    values_of,
)
from shedder.dataflow.expiry.distinct_rows import DistinctRows
from shedder.dataflow.expiry.negative_tuples import NegativeTuples
from shedder.dataflow.graph import Graph, Node
from shedder.dataflow.item_lists.newest_top import NewestTop
from shedder.dataflow.join_order import StreamStatistics
from shedder.dataflow.joins.equi_join import EquiJoin
from shedder.dataflow.multiplicities import Multiplicities
from shedder.dataflow.projection import Projection
from shedder.dataflow.relation_to_stream import RelationToStream
from shedder.dataflow.rows_window import NewestRows
from shedder.dataflow.selection import WhereFilter
from shedder.dataflow.sums.grouped_aggregates import GroupedAggregates
from shedder.dataflow.union import UnionAll
from shedder.dataflow.whole_relation import WholeRelation
from shedder.dataflow.window_lifetimes import WindowLifetimes

UNKNOWN_RATE = "unknown rate"
NO_ESTIMATE = "no estimate"
GROWS = "grows without end"

_STATELESS = (WindowLifetimes, WhereFilter, Projection, UnionAll)

StateBytes = int | str  # Bytes, or why there is no number.

_CHANGE = 32  # Bytes of the four numbers of a change.
_EVENT = 24  # Of a birth or an expiry that waits.
_COUNTS = 32  # Of the counts of a value on both sides, and of its old result.
_HASH = 100  # Of a key in a hash table; 52 to 131 by how full it is.
_IDS = 32  # Of a key of several columns, beside its hash.
_LINKS = 48  # Of a row of a join in its chain.
_STORED = 21  # Of a row in the store of a stream, beside its values.
_INDEXED = 57  # Of a row in an index of a store.
_LISTED = 16  # Of a value in the list of a pane.
_SUMS = 24  # Of a value in the sums of the lists.
_VALUES_MIN = 1024  # Of sums of lists: fewer are not searched for those that no list has.
_ROOM = 1.4  # Arrays grow by doubling: their room is 1 to 2 times what is in them.
_LEFT = 1.4  # Rows that have left are dropped when they are half of all.
_RELATION_ROWS_MIN = 1024  # Of the current relation: fewer are not searched.
_ROWS_MIN = 4096  # Of a join's side or a directory: fewer are not searched for those that left.


def state_bytes(
    graph: Graph, statistics: Mapping[str, StreamStatistics]
) -> tuple[list[StateBytes], EdgeRows | str]:
    """Return what each node is expected to hold, and the rows of the result, or why not.

    Rates come from `statistics`, by alias. The numbers are within a factor of 2 for uniform values.
    """
    found: list[StateBytes] = []
    made: list[EdgeRows | str] = []
    for node in graph.nodes:
        inputs = [made[at] for at in node.inputs]
        known = [rows for rows in inputs if isinstance(rows, EdgeRows)]
        reason = next((rows for rows in inputs if isinstance(rows, str)), None)
        if node.operator is None:
            reason = NO_ESTIMATE if node.label.is_strict else UNKNOWN_RATE
        if len(known) < len(inputs):
            assert reason is not None
            made.append(reason)
            found.append(0 if isinstance(node.operator, _STATELESS) else reason)
            continue
        rows = expected_rows(node, known, statistics)
        made.append(rows or reason or NO_ESTIMATE)
        if node.operator is None:
            found.append(0 if rows is not None else reason or NO_ESTIMATE)
        else:
            found.append(_rounded(_bytes(node, known, graph)))
    for at, size in _stores(graph, made).items():
        found[at] = _rounded(size)
    return found, made[-1]


def relation_bytes(rows: EdgeRows | str) -> StateBytes:
    """Return what the current relation is expected to hold of a result."""
    if isinstance(rows, str):
        return rows
    held = max(_LEFT * rows.held, _RELATION_ROWS_MIN * 0.75)
    return _rounded(held * (rows.width + _CHANGE))


def counted_bytes(rows: EdgeRows | str) -> StateBytes:
    """Return what counts per row value are expected to hold of a result that may leave."""
    return rows if isinstance(rows, str) else _rounded(_counted([rows]))


def _rounded(size: float | None) -> StateBytes:
    if size is None:
        return NO_ESTIMATE
    return GROWS if size == inf else round(size)


def _bytes(node: Node, inputs: list[EdgeRows], graph: Graph) -> float | None:
    operator = node.operator
    if isinstance(operator, _STATELESS):
        return 0
    match operator:
        case NegativeTuples():
            return inputs[0].held * (inputs[0].width + _CHANGE)
        case NewestRows(window=window):
            width, keys = inputs[0].width, inputs[0].sample.select(list(window.partition)).columns
            partitions = values_of(keys) if keys else 0.0
            rows = max(_ROWS_MIN, _LEFT * window.rows * max(1.0, partitions))
            return rows * _ROOM * (width + len(node.schema) + 21) + partitions * _HASH
        case DistinctRows():
            values = _kept(inputs, None)
            coming = values * 40 if inputs[0].held > inputs[0].live else 0.0
            return _directory(values, inputs[0].width) + _ROOM * values * 25 + coming
        case Multiplicities():
            return _counted(inputs)
        case RelationToStream():
            return _counted(inputs) if operator.size_bytes else 0
        case WholeRelation():
            return _counted(inputs) + inputs[0].live * (inputs[0].width + _CHANGE)
        case GroupedAggregates():
            return _aggregated(operator, inputs)
        case NewestTop():
            return _lists(operator, inputs[0])
        case EquiJoin():
            sides = zip(inputs, node.inputs, operator.windows, strict=True)
            arriving = None if operator.arriving is None else operator.arriving.place
            held = [
                _side(rows, is_strict=graph.nodes[at].label.is_strict)
                for place, (rows, at, window) in enumerate(sides)
                if window is None and place != arriving
            ]
            return _keys(operator, inputs) + sum(held) if held else 0
    return None


def _stores(graph: Graph, made: list[EdgeRows | str]) -> dict[int, float]:
    """Return bytes of the stores of streams whose rows joins read, by the place of the stream.

    made: rows of each node. A store has the rows of its longest window.
    """
    found: dict[int, float] = {}
    for node in graph.nodes:
        if not isinstance(node.operator, EquiJoin):
            continue
        for place, window in zip(node.inputs, node.operator.windows, strict=True):
            at, rows = place, made[place]
            if window is None or isinstance(rows, str):
                continue
            while graph.nodes[at].kept is not window.rows:
                (at,) = graph.nodes[at].inputs
            held = max(_LEFT * rows.held, _ROWS_MIN * min(1.0, rows.held / 512))
            values = _ROOM * (rows.width + rows.sample.num_columns)
            size = held * (values + _STORED + len(window.rows.keys) * _INDEXED)
            found[at] = max(size, found.get(at, 0.0))
    return found


def _kept(inputs: list[EdgeRows], keys: list[Columns] | None) -> float:
    """Return how many values of the inputs a directory has, those that have left among them.

    Values that have left are dropped when they are half of all. keys: of each input; None: rows.
    """
    columns = [rows.sample.columns for rows in inputs] if keys is None else keys
    total = max(map(values_of, columns))
    held = sum(rows.held for rows in inputs)
    present = total if held == inf else total * (1 - exp(-held / total))
    return min(total, (present + max(_ROWS_MIN, 2 * present)) / 2)


def _directory(values: float, width: float) -> float:
    several = _IDS if width > 9 else 0  # Rows of one column are found by their hashes alone.
    return values * (_HASH + several + _ROOM * (width + 1))


def _counted(inputs: list[EdgeRows]) -> float:
    values = _kept(inputs, None)
    events = sum(rows.held * _EVENT for rows in inputs if rows.expires)
    return _directory(values, inputs[0].width) + _ROOM * values * _COUNTS + events


def _aggregated(operator: GroupedAggregates, inputs: list[EdgeRows]) -> float:
    events = sum(rows.held * operator.event_bytes for rows in inputs if rows.expires)
    keys = [
        [evaluate(key, rows.sample) for key in of]
        for of, rows in zip(operator.spec.keys, inputs, strict=True)
    ]
    if not keys[0]:
        return events + operator.group_bytes
    groups = _kept(inputs, keys)
    return _directory(groups, 8.0 * len(keys[0])) + 2 * groups * operator.group_bytes + events


def _lists(top: NewestTop, rows: EdgeRows) -> float:
    """Return bytes of the lists of all panes, their sums, their values, and a pane that waits."""
    values = evaluate(top.value, rows.sample)
    width = values.nbytes / max(1, len(values))
    panes = top.window.rows / top.window.slide_rows
    different = values_of([values])
    entries = panes * min(top.kept, top.window.slide_rows, different)
    kept = min(different, max(_VALUES_MIN, _LEFT * entries))
    sums = _SUMS * max(_VALUES_MIN, _ROOM * kept)
    return entries * _LISTED + sums + _directory(kept, width) + top.window.slide_rows * width / 2


def _keys(join: EquiJoin, inputs: list[EdgeRows]) -> float:
    if not join.spec.keys:
        return 0
    keys = [
        [evaluate(key[side], rows.sample) for key in join.spec.keys]
        for side, rows in enumerate(inputs)
    ]
    values = _kept(inputs, keys)
    return _directory(values, 8.0 * len(join.spec.keys)) + 8 * values


def _side(rows: EdgeRows, *, is_strict: bool) -> float:
    """Bytes of one side of a join."""
    held = max(_LEFT * rows.held, _ROWS_MIN * min(1.0, rows.held / 512))
    strict = _directory(_LEFT * rows.held, rows.width) if is_strict else 0.0
    return 2 * held * _LINKS + _ROOM * held * (rows.width + rows.sample.num_columns) + strict
