"""Nodes of a graph of operators, with the labels of their edges."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Column, Expression, Literal
from shedder.cql.statements.statement import Output
from shedder.dataflow.expiry.distinct_rows import DistinctRows
from shedder.dataflow.expiry.expiry_modes import Expiry
from shedder.dataflow.graph import ChangeOperator, Node
from shedder.dataflow.joins.arriving_side import ArrivingSide
from shedder.dataflow.joins.equi_join import EquiJoin, EquiJoinSpec
from shedder.dataflow.joins.stored_sides import window_sides
from shedder.dataflow.multiplicities import Multiplicities
from shedder.dataflow.multiplicity_kernels import Multiplicity
from shedder.dataflow.projection import Projection
from shedder.dataflow.relation_to_stream import RelationToStream
from shedder.dataflow.selection import WhereFilter
from shedder.dataflow.tables.table_join import TableJoin
from shedder.dataflow.union import UnionAll
from shedder.dataflow.update_patterns import STRICT, EdgeLabel, of_join, of_union
from shedder.dataflow.whole_relation import WholeRelation


@dataclass(slots=True)
class GraphNodes:
    """Nodes so far; each `add` returns the index of a new one.

    bytes_max: of the rows that one operator makes in one step.
    expiry: of rows in time windows.
    """

    bytes_max: int
    expiry: Expiry
    nodes: list[Node] = field(default_factory=list)

    def __getitem__(self, at: int) -> Node:
        """The node with an index."""
        return self.nodes[at]

    def add(
        self,
        operator: ChangeOperator | None,
        inputs: tuple[int, ...],
        schema: pa.Schema,
        label: EdgeLabel,
        alias: str | None = None,
    ) -> int:
        """Add a node; its rows come in order if those of all inputs do and the operator keeps it.

        operator: None: a source. alias: of a source.
        """
        keeps = not isinstance(operator, EquiJoin | TableJoin) or (
            isinstance(operator, TableJoin) and operator.keeps_order
        )
        in_order = isinstance(operator, RelationToStream | WholeRelation) or (
            keeps and all(self.nodes[at].in_order for at in inputs)
        )
        return self.add_node(Node(operator, inputs, schema, label, in_order, alias))

    def add_node(self, node: Node) -> int:
        """Add a node as it is."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def copy(self, operator: ChangeOperator, source: int, schema: pa.Schema | None = None) -> int:
        """Add a unary operator whose output has the update pattern of its input."""
        node = self.nodes[source]
        return self.add(operator, (source,), schema or node.schema, node.label)

    def filtered(self, condition: Expression | None, source: int) -> int:
        """Add a filter; None: there is nothing to filter."""
        return source if condition is None else self.copy(WhereFilter(condition), source)

    def projected(self, outputs: tuple[Output, ...], source: int) -> int:
        """Add a projection."""
        projection = Projection(outputs)
        return self.copy(projection, source, projection.schema)

    def padded(self, source: int, schema: pa.Schema) -> int:
        """Add rows with NULL in the columns of `schema` that the source does not have."""
        own = self.nodes[source].schema.names
        outputs = tuple(
            output
            if output.name in own
            else Output(output.name, Literal(None, output.expression.type))
            for output in columns_of(schema)
        )
        return self.projected(outputs, source)

    def counted(self, kind: Multiplicity, inputs: tuple[int, ...]) -> int:
        """Add an operator that counts equal rows."""
        schema = self.nodes[inputs[0]].schema
        if inputs[1:] == () and not self.nodes[inputs[0]].label.is_strict:
            return self.add(DistinctRows(schema), inputs, schema, STRICT)
        return self.add(Multiplicities(kind, schema), inputs, schema, STRICT)

    def equi_join(
        self, spec: EquiJoinSpec, left: int, right: int, arriving: ArrivingSide | None = None
    ) -> int:
        """Add a join of equal keys. arriving: as of `EquiJoin`."""
        ours, theirs = self.nodes[left], self.nodes[right]
        schemas, labels = (ours.schema, theirs.schema), (ours.label, theirs.label)
        eager = self.expiry is Expiry.DIRECT
        skipped = None if arriving is None else arriving.place
        windows = window_sides(self.nodes, (left, right), spec, self.expiry, skipped)
        join = EquiJoin(
            spec, schemas, labels, self.bytes_max, eager=eager, windows=windows, arriving=arriving
        )
        schema = pa.schema([*schemas[0], *schemas[1]])
        return self.add(join, (left, right), schema, of_join(*labels))

    def union(self, left: int, right: int) -> int:
        """Add the rows of both."""
        ours, theirs = self.nodes[left], self.nodes[right]
        label = of_union(ours.label, theirs.label)
        return self.add(UnionAll(), (left, right), ours.schema, label)

    def without(self, whole: int, part: int) -> int:
        """Add the rows of `whole` less those of `part`, which is contained in it as a bag."""
        node = self.nodes[whole]
        return self.add(UnionAll(negates_right=True), (whole, part), node.schema, STRICT)


def columns_of(schema: pa.Schema) -> tuple[Output, ...]:
    """Each column of a schema as an output with its own name."""
    kinds = {kind.arrow: kind for kind in ColumnType}
    return tuple(Output(each.name, Column(each.name, kinds[each.type])) for each in schema)
