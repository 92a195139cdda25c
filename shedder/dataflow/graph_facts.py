"""Facts of the nodes of a graph, for EXPLAIN and the control table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from shedder.dataflow.graph import Graph, Node, NodeWork
from shedder.dataflow.operator_facts import OperatorFacts, operator_text
from shedder.dataflow.shared_nodes import SharedReader, shared_below
from shedder.dataflow.tables.table_join import TableJoin
from shedder.dataflow.tables.table_versions import TableVersions


class SourceFacts(Protocol):
    """Facts of a source by its alias, and the alias of a shared source."""

    def source_text(self, alias: str, /) -> str:
        """Return the relation with its aliases."""

    def source_bytes(self, alias: str, /) -> int:
        """Return the bytes of what waits."""

    def alias_of(self, source: object, /) -> str | None:
        """Return the alias by which a shared source is read; None: it is no source."""


def graph_facts(
    graph: Graph, versions: Mapping[str, TableVersions], sources: SourceFacts
) -> list[OperatorFacts]:
    """Return what each operator is and did, each after its inputs, the result last.

    Tables come first; a join with versions of a table has the table as its last input. Shared
    nodes follow.

    versions: that tuples join, by alias of the table.
    """
    made = [
        OperatorFacts((), f"table {alias}", None, of.size_bytes, len(of), len(of), 0)
        for alias, of in versions.items()
    ]

    def add(
        node: Node,
        work: NodeWork,
        inputs: tuple[int, ...],
        alias: str | None,
        size_bytes: int,
        shared: object = None,
    ) -> int:
        if alias is not None:
            text = sources.source_text(alias)
        else:
            assert node.operator is not None
            text = operator_text(node.operator)
        pattern, rows = node.label.pattern, (work.rows_in, work.rows_out)
        made.append(OperatorFacts(inputs, text, pattern, size_bytes, *rows, work.ns, alias, shared))
        return len(made) - 1

    places: dict[int, int] = {}
    for shared in shared_below(graph.nodes):
        if isinstance(shared.node.operator, SharedReader):
            places[id(shared)] = places[id(shared.node.operator.shared)]
            continue
        inputs = tuple(places[id(each)] for each in shared.inputs)
        alias = sources.alias_of(shared.source)
        places[id(shared)] = add(shared.node, shared.work, inputs, alias, shared.size_bytes, shared)
    at: list[int] = []
    for node, work in zip(graph.nodes, graph.work, strict=True):
        if isinstance(node.operator, SharedReader):
            at.append(places[id(node.operator.shared)])
            continue
        inputs = tuple(at[each] for each in node.inputs) + _tables_of(node, versions)
        if node.alias is not None:
            size_bytes = sources.source_bytes(node.alias)
        else:
            size_bytes = 0 if node.operator is None else node.operator.size_bytes
        at.append(add(node, work, inputs, node.alias, size_bytes))
    return made


def _tables_of(node: Node, versions: Mapping[str, TableVersions]) -> tuple[int, ...]:
    """The place of the table that a node joins, among all tables."""
    join = node.operator
    if not isinstance(join, TableJoin):
        return ()
    return tuple(at for at, of in enumerate(versions.values()) if of is join.versions)
