"""Facts of the operators of a graph, for EXPLAIN and for the control table."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shedder.cql.expressions.expression import Column, Expression
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.plans.plan_words import window_text, with_plain_names
from shedder.cql.statements.statement import Output
from shedder.dataflow.graph import ChangeOperator
from shedder.dataflow.joins.equi_join import EquiJoin
from shedder.dataflow.multiplicities import Multiplicities
from shedder.dataflow.projection import Projection
from shedder.dataflow.relation_to_stream import RelationToStream
from shedder.dataflow.rows_window import NewestRows
from shedder.dataflow.selection import WhereFilter
from shedder.dataflow.sums.grouped_aggregates import AggregateSpec, GroupedAggregates
from shedder.dataflow.tables.table_join import TableJoin
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
    shared: the state, if several queries may read it. others: names of the others that read it.
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
        case EquiJoin(spec=spec):
            on = [_equality(*key) for key in spec.keys]
            if spec.condition is not None:
                on.append(text_of(spec.condition))
            return f"Join {' AND '.join(on)}" if on else "Join of all pairs"
        case GroupedAggregates(spec=spec):
            return _aggregates(spec)
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
