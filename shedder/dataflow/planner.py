"""Planner: a bound logical plan to a graph of operators with labelled edges."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from shedder.cql.plans.logical_plan import (
    Distinct,
    Filter,
    NowWindow,
    Plan,
    Project,
    RelationKind,
    RowsWindow,
    Scan,
    SetOperation,
    SetOperator,
    StreamOperator,
    ToStream,
    WindowOf,
)
from shedder.cql.statements.statement import RangeWindow, Window
from shedder.dataflow.graph import ChangeOperator, Graph, Node
from shedder.dataflow.multiplicities import Multiplicities
from shedder.dataflow.multiplicity_kernels import Multiplicity
from shedder.dataflow.projection import Projection
from shedder.dataflow.relation_to_stream import RelationToStream
from shedder.dataflow.selection import WhereFilter
from shedder.dataflow.union import UnionAll
from shedder.dataflow.update_patterns import MONOTONIC, STRICT, EdgeLabel, of_union
from shedder.dataflow.window_lifetimes import WindowLifetimes, label_of
from shedder.errors import Unimplemented

_COUNTED = {
    (SetOperator.UNION, False): Multiplicity.DISTINCT,
    (SetOperator.EXCEPT, True): Multiplicity.EXCEPT_ALL,
    (SetOperator.EXCEPT, False): Multiplicity.EXCEPT,
    (SetOperator.INTERSECT, True): Multiplicity.INTERSECT_ALL,
    (SetOperator.INTERSECT, False): Multiplicity.INTERSECT,
}


def graph_of(plan: Plan) -> Graph:
    """The operators of a plan.

    Raises:
      Unimplemented: a node of the plan has no operator in this version; the message names it.
    """
    planner = _Planner()
    planner.add(plan)
    return Graph(tuple(planner.nodes))


def _later(what: str) -> Unimplemented:
    return Unimplemented(f"{what} in a standing query of rows: not in this version")


@dataclass(slots=True)
class _Planner:
    nodes: list[Node] = field(default_factory=list)

    def add(self, plan: Plan) -> int:
        """Add the nodes of a plan; return the index of its result."""
        match plan:
            case Scan():
                return self._scan(plan)
            case WindowOf(input=source, window=window, condition=condition):
                if not _is_stream(source):
                    raise _later("a window over a relation")
                stream = self.add(source)
                if condition is not None:
                    stream = self._copy(WhereFilter(condition), stream)
                return self._window(window, stream)
            case Filter(input=source, condition=condition):
                return self._copy(WhereFilter(condition), self.add(source))
            case Project(input=source, outputs=outputs):
                projection = Projection(outputs)
                return self._copy(projection, self.add(source), projection.schema)
            case Distinct(input=source):
                return self._counted(Multiplicity.DISTINCT, (self.add(source),))
            case SetOperation():
                return self._set_operation(plan)
            case ToStream(operator=operator, input=source):
                return self._to_stream(operator, self.add(source))
            case _:
                raise _later(type(plan).__name__.upper())

    def _node(
        self,
        operator: ChangeOperator | None,
        inputs: tuple[int, ...],
        schema: pa.Schema,
        label: EdgeLabel,
        alias: str | None = None,
    ) -> int:
        self.nodes.append(Node(operator, inputs, schema, label, alias))
        return len(self.nodes) - 1

    def _copy(self, operator: ChangeOperator, source: int, schema: pa.Schema | None = None) -> int:
        """Add a unary operator whose output has the update pattern of its input."""
        node = self.nodes[source]
        return self._node(operator, (source,), schema or node.schema, node.label)

    def _scan(self, scan: Scan) -> int:
        if scan.kind is not RelationKind.STREAM:
            raise _later(f"the table {scan.relation}")
        if scan.sample is not None:
            raise _later("SAMPLE")
        return self._node(None, (), scan_schema(scan), MONOTONIC, scan.alias)

    def _window(self, window: Window | RowsWindow | NowWindow, stream: int) -> int:
        if isinstance(window, RowsWindow):
            raise _later("a ROWS window")
        if isinstance(window, RangeWindow) and window.collapse is not None:
            raise _later("COLLAPSE")
        schema = self.nodes[stream].schema
        return self._node(WindowLifetimes(window), (stream,), schema, label_of(window))

    def _counted(self, kind: Multiplicity, inputs: tuple[int, ...]) -> int:
        schema = self.nodes[inputs[0]].schema
        return self._node(Multiplicities(kind, schema), inputs, schema, STRICT)

    def _set_operation(self, plan: SetOperation) -> int:
        inputs = (self.add(plan.left), self.add(plan.right))
        if (plan.operator, plan.all) in _COUNTED:
            return self._counted(_COUNTED[plan.operator, plan.all], inputs)
        left, right = (self.nodes[each] for each in inputs)
        return self._node(UnionAll(), inputs, left.schema, of_union(left.label, right.label))

    def _to_stream(self, operator: StreamOperator, source: int) -> int:
        if operator is StreamOperator.RSTREAM:
            raise _later("RSTREAM")
        node = self.nodes[source]
        made = RelationToStream(operator, node.schema, node.label)
        return self._node(made, (source,), node.schema, MONOTONIC)


def scan_schema(scan: Scan) -> pa.Schema:
    """Columns of a scan; the event time alone where the plan reads no column."""
    fields = [(column.name, column.type.arrow) for column in scan.columns]
    if not fields:
        assert scan.time_column is not None
        fields = [(scan.time_column, pa.timestamp("us"))]
    return pa.schema(fields)


def _is_stream(plan: Plan) -> bool:
    match plan:
        case Scan(kind=kind):
            return kind is RelationKind.STREAM
        case Filter(input=source) | Project(input=source):
            return _is_stream(source)
        case _:
            return isinstance(plan, ToStream)
