"""Facts of the operators of a graph, for EXPLAIN and for the control table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from shedder.cql.expressions.expression import Column, Expression
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.plans.plan_words import window_text, with_plain_names
from shedder.cql.statements.statement import Output
from shedder.dataflow.expiry.distinct_rows import DistinctRows
from shedder.dataflow.graph import ChangeOperator, Graph, Node, NodeWork
from shedder.dataflow.item_lists.newest_top import NewestTop
from shedder.dataflow.joins.equi_join import EquiJoin
from shedder.dataflow.multiplicities import Multiplicities
from shedder.dataflow.projection import Projection
from shedder.dataflow.relation_to_stream import RelationToStream
from shedder.dataflow.rows_window import NewestRows
from shedder.dataflow.sampled_joins.sampled_join_aggregates import SampledJoinAggregates
from shedder.dataflow.selection import WhereFilter
from shedder.dataflow.sharing.shared_nodes import SharedReader, shared_below
from shedder.dataflow.stores.stream_rows import StreamRows
from shedder.dataflow.sums.grouped_aggregates import AggregateSpec, GroupedAggregates
from shedder.dataflow.tables.table_join import TableJoin
from shedder.dataflow.tables.table_versions import TableVersions
from shedder.dataflow.union import UnionAll
from shedder.dataflow.update_patterns import UpdatePattern
from shedder.dataflow.whole_relation import WholeRelation
from shedder.dataflow.window_lifetimes import WindowLifetimes


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """What one operator is, holds and did since its graph was made.

    inputs: places of operators before it. text: for people; its class and what it computes.
    alias: of a stream that is read, else None. pattern: of the output; None: of no relation.
    size_bytes: of its state; of a stream, of the tuples that wait for the watermark.
    rows_in: of all inputs; of a stream, tuples that were pushed. rows_out: of the output.
    ns: CPU time.
    searched_rows: those of the state that were looked at in searches for rows that have left, or
      that a negative weight deletes.
    shared: the state, if several queries may read it. others: names of the others that read it.
    kept: rows that operators above look up; None: there are none. keepers: names of the other
      queries whose operators do so. kept_text: keys by which they are looked up, for people.
    """

    inputs: tuple[int, ...]
    text: str
    pattern: UpdatePattern | None
    size_bytes: int
    rows_in: int
    rows_out: int
    ns: int
    alias: str | None = None
    shared: object = None
    others: tuple[str, ...] = ()
    searched_rows: int = 0
    kept: object = None
    keepers: tuple[str, ...] = ()
    kept_text: str = ""

    @property
    def ns_per_row(self) -> float | None:
        """CPU time for each row of the inputs; None: no row has come, or it was not measured."""
        return self.ns / self.rows_in if self.ns and self.rows_in else None


def operator_text(operator: ChangeOperator) -> str:
    """Return what an operator is and computes, on one line."""
    return with_plain_names(_text(operator))


def _text(operator: ChangeOperator) -> str:
    match operator:
        case WindowLifetimes(window=window) | NewestRows(window=window):
            return f"Window {window_text(window)}"
        case WhereFilter(condition=condition):
            return f"Filter {text_of(condition)}"
        case Projection(outputs=outputs):
            return f"Project {', '.join(map(_output, outputs))}"
        case EquiJoin(spec=spec, arriving=arriving):
            on = [_equality(*key) for key in spec.keys]
            if spec.condition is not None:
                on.append(text_of(spec.condition))
            joined = f"Join {' AND '.join(on)}" if on else "Join of all pairs"
            return joined if arriving is None else f"{joined}; {arriving.text}"
        case GroupedAggregates(spec=spec):
            return _aggregates(spec)
        case NewestTop(value=value, length=length, window=window, kept=kept):
            top = f"TOP({text_of(value)}, {length}) of {window_text(window)}"
            return f"{top}, a list of {kept} values per slide"
        case DistinctRows():
            return "DISTINCT"
        case SampledJoinAggregates(spec=sampled):
            computed = ", ".join(text_of(each.aggregate) for each in sampled.aggregates)
            on = [" = ".join(map(text_of, keys)) for keys in zip(*sampled.keys, strict=True)]
            share = f"1/{1 << operator.level}" if operator.level else "all"
            groups = "" if sampled.group is None else f" GROUP BY {text_of(sampled.group)}"
            return (
                f"Aggregate {computed} per key {' AND '.join(on)}{groups}, without pairs, in at "
                f"most {operator.bytes_max:,} bytes; keys sampled: {share}"
                f"{operator.hidden_text}"
            )
        case Multiplicities(kind=kind):
            return kind.name.replace("_", " ")
        case TableJoin(spec=spec):
            on = [_equality(*key) for key in spec.keys]
            on += [text_of(each) for each in (spec.left, spec.rest) if each is not None]
            where = f" ON {' AND '.join(on)}" if on else ""
            return f"Table join {spec.kind.value}{where}"
        case UnionAll(negates_right=negates_right):
            return "Difference" if negates_right else "UNION ALL"
        case RelationToStream():
            made = operator.operator
            return "Insertions and deletions" if made is None else made.value
        case WholeRelation():
            return "RSTREAM"
        case _:
            words = re.findall(r"[A-Z][a-z0-9]*", type(operator).__name__)
            return " ".join(words).capitalize()


def _aggregates(spec: AggregateSpec) -> str:
    computed = f"Aggregate {', '.join(map(text_of, spec.aggregates))}"
    if len(spec.keys) > 1:
        on = " AND ".join(_equality(*key) for key in zip(*spec.keys, strict=True))
        return f"{computed} per key {on}, without pairs"
    groups = [text_of(spec.keys[0][place]) for place in spec.groups]
    return f"{computed} GROUP BY {', '.join(groups)}" if groups else computed


def _equality(left: Expression, right: Expression) -> str:
    return f"{text_of(left)} = {text_of(right)}"


def _output(output: Output) -> str:
    text = with_plain_names(text_of(output.expression))
    is_plain = isinstance(output.expression, Column) and text.endswith(f".{output.name}")
    return text if is_plain or text == output.name else f"{text} AS {output.name}"


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
    made = _FactsList(sources)
    for table, of in versions.items():
        text, rows = f"table {table}", len(of)
        made.facts.append(OperatorFacts((), text, None, of.size_bytes, rows, rows, 0))
    places: dict[int, int] = {}
    for shared in shared_below(graph.nodes):
        inputs = tuple(places[id(each.shared)] for each in shared.inputs)
        alias = sources.alias_of(shared.source)
        size_bytes = shared.size_bytes
        places[id(shared)] = made.add(shared.node, shared.work, inputs, alias, size_bytes, shared)
    at: list[int] = []
    for node, work in zip(graph.nodes, graph.work, strict=True):
        if isinstance(node.operator, SharedReader):
            at.append(places[id(node.operator.shared)])
            continue
        inputs = tuple(at[each] for each in node.inputs) + _tables_of(node, versions)
        size_bytes = node.size_bytes
        if node.alias is not None:
            size_bytes += sources.source_bytes(node.alias)
        at.append(made.add(node, work, inputs, node.alias, size_bytes))
    return made.facts


class _FactsList:
    """Facts of nodes, each after its inputs."""

    def __init__(self, sources: SourceFacts) -> None:
        self.facts: list[OperatorFacts] = []
        self._sources = sources

    def add(
        self,
        node: Node,
        work: NodeWork,
        inputs: tuple[int, ...],
        alias: str | None,
        size_bytes: int,
        shared: object = None,
    ) -> int:
        """Add the facts of a node; return its place. alias: of a source."""
        operator = node.operator
        if alias is not None:
            text = self._sources.source_text(alias)
        else:
            assert operator is not None
            text = operator_text(operator)
        facts = OperatorFacts(
            inputs,
            text,
            node.label.pattern,
            size_bytes,
            work.rows_in,
            work.rows_out,
            work.ns,
            alias,
            shared,
            searched_rows=operator.searched_rows if isinstance(operator, EquiJoin) else 0,
            kept=node.kept,
            kept_text=_kept_text(node.kept) if isinstance(node.kept, StreamRows) else "",
        )
        self.facts.append(facts)
        return len(self.facts) - 1


def _kept_text(rows: StreamRows) -> str:
    """Return by which keys rows are looked up: "k", or "k, and by v, w"."""
    keys = (", ".join(map(text_of, each)) for each in rows.keys)
    return ", and by ".join(filter(None, keys)) or "window"


def _tables_of(node: Node, versions: Mapping[str, TableVersions]) -> tuple[int, ...]:
    """Return the place of the table that a node joins, among all tables."""
    join = node.operator
    if not isinstance(join, TableJoin):
        return ()
    return tuple(at for at, of in enumerate(versions.values()) if of is join.versions)
