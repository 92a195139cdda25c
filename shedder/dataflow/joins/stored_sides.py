"""Sides of a join that are time windows over a stream, and the store that its node gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from shedder.cql.expressions.conjunctions import with_columns
from shedder.cql.expressions.expression import Column, Expression, parts_of
from shedder.dataflow.expiry.expiry_modes import Expiry
from shedder.dataflow.graph import Node
from shedder.dataflow.joins.equi_join import EquiJoinSpec
from shedder.dataflow.joins.window_side import WindowSide
from shedder.dataflow.projection import Projection
from shedder.dataflow.selection import WhereFilter
from shedder.dataflow.stores.stream_rows import StreamRows, WindowLength, WindowReader
from shedder.dataflow.window_lifetimes import WindowLifetimes


def window_sides(
    nodes: list[Node],
    inputs: tuple[int, int],
    spec: EquiJoinSpec,
    expiry: Expiry,
    skipped: int | None = None,
) -> tuple[WindowSide | None, WindowSide | None]:
    """Return the sides of a join whose inputs are time windows over streams; None: they are not.

    The node of such a stream gets a store, if it has none.

    nodes: of a graph. inputs: places of the left and the right one.
    skipped: a side that needs no store, 0 or 1.
    """
    if expiry is not Expiry.PATTERN or spec.nulls_are_equal:
        return None, None

    def side(place: int) -> WindowSide | None:
        if place == skipped:
            return None
        return _window_side(nodes, inputs[place], [key[place] for key in spec.keys])

    return side(0), side(1)


def _window_side(nodes: list[Node], at: int, keys: Sequence[Expression]) -> WindowSide | None:
    """at: place of the input. keys: over its columns."""
    node = nodes[at]
    below = {name: name for name in node.schema.names}
    while isinstance(node.operator, Projection):
        given = {each.name: each.expression for each in node.operator.outputs}
        columns = {name: given[before] for name, before in below.items()}
        if not all(isinstance(each, Column) for each in columns.values()):
            return None
        below = {name: each.name for name, each in columns.items() if isinstance(each, Column)}
        node = nodes[node.inputs[0]]
    if not isinstance(node.operator, WindowLifetimes):
        return None
    length, (stream,) = WindowLength.of(node.operator.window), node.inputs
    if length is None or not _is_stream(nodes, stream):
        return None
    source = nodes[stream]
    rows = source.kept if isinstance(source.kept, StreamRows) else StreamRows()
    nodes[stream] = replace(source, kept=rows)
    bare = {name: before.partition(".")[2] for name, before in below.items()}
    schema = nodes[at].schema
    fields = {bare[field.name]: field.with_name(bare[field.name]) for field in schema}
    stored = tuple(_stored(key, bare) for key in keys)
    rows.include(pa.schema(list(fields.values())), stored)
    reader = WindowReader(rows, length, stored, [bare[name] for name in schema.names])
    return WindowSide(reader, schema)


def _is_stream(nodes: list[Node], at: int) -> bool:
    """Return whether a node gives tuples of one stream, below conditions, with no other column."""
    node = nodes[at]
    while isinstance(node.operator, WhereFilter):
        node = nodes[node.inputs[0]]
    if node.alias is None or node.label.is_strict:
        return False
    return all(name.startswith(f"{node.alias}.") for name in node.schema.names)


def _stored(key: Expression, bare: Mapping[str, str]) -> Expression:
    """Return a key over the store's columns."""
    columns = (part for part in parts_of(key) if isinstance(part, Column))
    return with_columns(key, {it.name: Column(bare[it.name], it.type) for it in columns})
