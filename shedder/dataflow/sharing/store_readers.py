"""Readers of stores: operators of a graph that look up the rows of streams, and change stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from shedder.cql.expressions.conjunctions import names_in
from shedder.cql.expressions.expression import BY_TIME, Column
from shedder.dataflow.graph import Graph, Node
from shedder.dataflow.joins.equi_join import EquiJoin
from shedder.dataflow.joins.window_side import WindowSide
from shedder.dataflow.projection import Projection
from shedder.dataflow.sharing.shared_nodes import SharedNode, SharedReader
from shedder.dataflow.stores.stored_window import StoredWindow
from shedder.dataflow.stores.stream_rows import StreamRows, WindowLength, WindowReader
from shedder.dataflow.sums.grouped_aggregates import GroupedAggregates
from shedder.dataflow.window_lifetimes import WindowLifetimes


@dataclass(frozen=True, slots=True)
class StoreReader:
    """An operator that reads a store. node: of the operator. side: its input. reader: for it."""

    node: Node
    side: int
    reader: WindowSide | StoredWindow


def readers_of(nodes: Iterable[Node]) -> Iterator[StoreReader]:
    """Return the operators among some nodes that read stores."""
    for node in nodes:
        readers: tuple[WindowSide | StoredWindow | None, ...] = ()
        if isinstance(node.operator, EquiJoin):
            readers = node.operator.windows
        elif isinstance(node.operator, GroupedAggregates):
            readers = node.operator.stored
        for side, reader in enumerate(readers):
            if reader is not None:
                yield StoreReader(node, side, reader)


def read_stores(graph: Graph) -> None:
    """Read the stores of the shared nodes that a graph reads now, in place of its own stores.

    A node without a store gets that of the graph: both have come to one instant.
    """
    for each in list(readers_of(graph.nodes)):
        stream = _input(graph, each.node.inputs[each.side]).stream
        if stream is None or stream.node.kept is each.reader.rows:
            continue
        if isinstance(stream.node.kept, StreamRows):
            stream.node.kept.absorb(each.reader.rows)
        else:
            made = each.reader.rows.copied_until(stream.as_of_us)
            stream.node = replace(stream.node, kept=made)
        assert isinstance(stream.node.kept, StreamRows)
        each.reader.read_from(stream.node.kept)


def aggregate_stored(
    graph: Graph, shared_nodes: Iterable[SharedNode], as_of_us: int | None
) -> None:
    """Have aggregates over windows read the rows that leave from stores which have all of them.

    as_of_us: up to which the operators of the graph alone have come.
    """
    for node in graph.nodes:
        if isinstance(node.operator, GroupedAggregates):
            for side, at in enumerate(node.inputs):
                _read_stored(node.operator, side, _input(graph, at), as_of_us)
    for each in shared_nodes:
        if isinstance(each.node.operator, GroupedAggregates):
            for side, reader in enumerate(each.inputs):
                _read_stored(each.node.operator, side, _shared_input(reader), each.as_of_us)


@dataclass(slots=True)
class _Input:
    """Input of an operator. columns: of the input, by those of the stream, without aliases.

    window: None: it is not a window over a shared stream. stream: None: it is of a graph alone.
    """

    columns: dict[str, str]
    schema: pa.Schema
    window: WindowLength | None = None
    stream: SharedNode | None = None


def _input(graph: Graph, at: int) -> _Input:
    """Return what the node at a place of a graph reads."""
    node = graph.nodes[at]
    found = _Input({name: name for name in node.schema.names}, node.schema)
    while not isinstance(node.operator, SharedReader):
        if not _passes(found, node):
            return found
        node = graph.nodes[node.inputs[0]]
    return _below(found, node.operator)


def _shared_input(reader: SharedReader) -> _Input:
    """Return what a reader of a shared node reads."""
    found = _Input({name: name for name in reader.schema.names}, reader.schema)
    return _below(found, reader)


def _below(found: _Input, reader: SharedReader) -> _Input:
    """Follow an input from a shared node down to its stream."""
    while True:
        found.columns = {reader.column_below(it): name for it, name in found.columns.items()}
        shared = reader.shared
        if not _passes(found, shared.node):
            found.stream = shared
            found.columns = {it.partition(".")[2]: name for it, name in found.columns.items()}
            return found
        (reader,) = shared.inputs


def _passes(found: _Input, node: Node) -> bool:
    """Follow an input through a window, or through a choice of columns."""
    match node.operator:
        case Projection(outputs=outputs):
            given = {each.name: each.expression for each in outputs}
            columns = {it: given[it] for it in found.columns}
            plain = {it: each.name for it, each in columns.items() if isinstance(each, Column)}
            if len(plain) < len(columns):
                return False
            found.columns = {plain[it]: name for it, name in found.columns.items()}
            return True
        case WindowLifetimes(window=window) if found.window is None:
            found.window = WindowLength.of(window)
            return found.window is not None
        case _:
            return False


def _read_stored(
    operator: GroupedAggregates, side: int, found: _Input, as_of_us: int | None
) -> None:
    """Have an aggregate read an input from the store of its stream, if that has all of it."""
    spec = operator.spec
    if operator.stored[side] is not None or found.window is None or found.stream is None:
        return
    rows = found.stream.node.kept
    arguments = [each.argument for each in spec.aggregates if each.argument is not None]
    read = frozenset[str]().union(*map(names_in, (*spec.keys[side], *arguments)))
    columns = [it for it, name in found.columns.items() if name in read]
    if not columns or not isinstance(rows, StreamRows):
        return
    if len(columns) < len(read & set(found.schema.names)):
        return  # One column of the stream has two names.
    if not set(columns) <= set(rows.rows.schema.names):
        return
    if any(each.function in BY_TIME for each in spec.aggregates):
        return  # The place of a row among others is not in the store.
    fields = [found.schema.field(found.columns[it]) for it in columns]
    needs_from_us = found.window.needs_from_us(as_of_us)
    if any(rows.complete_from_us(it) > needs_from_us for it in columns):
        return
    reader = WindowReader(rows, found.window, None, columns, as_of_us)
    operator.read_stored(side, StoredWindow(reader, pa.schema(fields)))
