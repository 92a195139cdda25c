"""Planner: a bound logical plan to a graph of operators with labelled edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import pyarrow as pa

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import BY_TIME, Column, Expression
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Distinct,
    Filter,
    Join,
    JoinKind,
    NowWindow,
    Plan,
    Project,
    RelationKind,
    RowsWindow,
    Scan,
    SetOperation,
    StreamOperator,
    ToStream,
    WindowOf,
)
from shedder.cql.plans.plan_columns import column_names
from shedder.cql.plans.plan_words import clause_of
from shedder.cql.statements.statement import Output, RangeWindow, Window
from shedder.cql.statements.table_schema import TableSchema
from shedder.dataflow.expiry.expiry_modes import Expiry, time_window
from shedder.dataflow.graph import ChangeOperator, Graph, Node
from shedder.dataflow.item_lists.newest_top import newest_top
from shedder.dataflow.joins.arriving_side import ArrivingSide
from shedder.dataflow.joins.equi_join import EquiJoin
from shedder.dataflow.joins.join_conditions import filtered_join, split_join, with_condition
from shedder.dataflow.joins.match_condition import MatchCondition
from shedder.dataflow.joins.pair_sums import pair_sums
from shedder.dataflow.multiplicities import COUNTED
from shedder.dataflow.multiplicity_kernels import Multiplicity
from shedder.dataflow.plan_properties import (
    common_slide_us,
    is_ordered,
    reads_panes_or_arrival,
    scan_schema,
)
from shedder.dataflow.planning.foreign_keys import arriving_side
from shedder.dataflow.planning.graph_nodes import GraphNodes
from shedder.dataflow.planning.join_nodes import add_join, add_pairs
from shedder.dataflow.relation_to_stream import RelationToStream
from shedder.dataflow.rows_window import NewestRows
from shedder.dataflow.sampled_joins.sampled_join_aggregates import sampled_inputs, sampled_join
from shedder.dataflow.selection import WhereFilter
from shedder.dataflow.sums.grouped_aggregates import (
    AggregateSpec,
    GroupedAggregates,
    output_schema,
)
from shedder.dataflow.tables.table_changes import TableChanges
from shedder.dataflow.tables.table_join import TableJoin, TableJoinSpec
from shedder.dataflow.tables.table_places import TablePlaces
from shedder.dataflow.tables.table_side import (
    PlacingStreams,
    Steps,
    columns_of_steps,
    is_position,
    not_in_tests,
    placing,
    position_name,
    reads_versions,
    table_side,
)
from shedder.dataflow.tables.table_versions import TableVersions
from shedder.dataflow.update_patterns import MONOTONIC, STRICT
from shedder.dataflow.whole_relation import WholeRelation
from shedder.errors import Unimplemented


def graph_of(
    plan: Plan,
    bytes_max: int,
    clock_ns: Callable[[], int],
    tables: Mapping[str, TableSchema] = MappingProxyType({}),
    expiry: Expiry = Expiry.PATTERN,
    places: TablePlaces | None = None,
) -> Graph:
    """The operators of a plan.

    Args:
      plan: of the query.
      bytes_max: of the rows that one operator makes in one step.
      clock_ns: measures operators.
      tables: that it reads, by name.
      places: of the changes of tables; None: the plan reads none.
      expiry: of rows in time windows. Plans with tables, FIRST, LAST or CONFIDENCE have PATTERN.

    Raises:
      Unimplemented: a node of the plan has no operator in this version; the message names it.
    """
    if tables or reads_panes_or_arrival(plan):
        expiry = Expiry.PATTERN
    nodes = GraphNodes(bytes_max, expiry)
    arriving = arriving_side(plan) if expiry is Expiry.PATTERN else None
    planner = _Planner(nodes, tables, places or TablePlaces(), expiry, arriving)
    planner.add(plan)
    plans = planner.plans
    if arriving is not None:  # Its counts are of this query alone.
        (joined,) = (
            at for at, node in enumerate(nodes.nodes) if isinstance(node.operator, EquiJoin)
        )
        plans = {at: each for at, each in plans.items() if at < joined}
    return Graph(tuple(nodes.nodes), clock_ns, planner.versions, planner.changes, plans)


def _later(what: str) -> Unimplemented:
    return Unimplemented(f"{what} in a standing row query: not in this version")


@dataclass(slots=True)
class _Planner:
    """Adds nodes for the nodes of a plan.

    expiry: of rows in time windows. arriving: of the plan's only join, as of `EquiJoin`.
    placed: aliases of streams whose tuples have their positions in a column. plans: as of `Graph`.
    places: of the changes of tables.
    """

    nodes: GraphNodes
    tables: Mapping[str, TableSchema]
    places: TablePlaces
    expiry: Expiry
    arriving: ArrivingSide | None = None
    versions: dict[str, TableVersions] = field(default_factory=dict)
    changes: dict[str, TableChanges] = field(default_factory=dict)
    placed: frozenset[str] = frozenset()
    windows: dict[Plan, int] = field(default_factory=dict)
    plans: dict[int, Plan] = field(default_factory=dict)

    def add(self, plan: Plan) -> int:
        """Add the nodes of a plan; return the index of its result.

        Equal windows and streams are added once. They have one alias, so they are of one stream.
        """
        if plan in self.windows:
            return self.windows[plan]
        at = self._added(plan)
        self.plans[at] = plan
        if isinstance(plan, WindowOf) or is_ordered(plan):
            self.windows[plan] = at
        return at

    def _added(self, plan: Plan) -> int:
        match plan:
            case Scan():
                return self._scan(plan)
            case WindowOf(input=source, window=window, condition=condition):
                if isinstance(window, RowsWindow) and not is_ordered(source):
                    raise _later("a ROWS window over the stream of a subquery")
                stream = self.add(source)
                if self.nodes[stream].label != MONOTONIC:
                    raise _later("a window over a relation whose rows leave")
                return self._window(window, self.nodes.filtered(condition, stream))
            case Join():
                return self._join(plan)
            case Filter(input=Join(kind=JoinKind.INNER) as join, condition=condition):
                return self._inner(with_condition(join, condition))
            case Filter(input=source, condition=condition):
                return self.nodes.filtered(condition, self.add(source))
            case Project(input=source, outputs=outputs):
                at = self.add(source)
                hidden = [name for name in self.nodes[at].schema.names if is_position(name)]
                positions = tuple(Output(name, Column(name, ColumnType.BIGINT)) for name in hidden)
                return self.nodes.projected(outputs + positions, at)
            case Aggregated() | Distinct() | SetOperation() | ToStream() if self.placed:
                raise _later("a table joined with rows of GROUP BY, DISTINCT or a set operation")
            case Aggregated():
                return self._aggregated(plan)
            case Distinct(input=source):
                return self.nodes.counted(Multiplicity.DISTINCT, (self.add(source),))
            case SetOperation():
                return self._set_operation(plan)
            case ToStream(operator=operator, input=source):
                return self._to_stream(operator, source)
            case _:
                raise _later(clause_of(plan))

    def _scan(self, scan: Scan) -> int:
        if scan.retroactive:
            return self._changing(scan)
        if scan.kind is not RelationKind.STREAM:
            raise _later(f"rows of the table {scan.relation}, which is not RETROACTIVE, alone")
        schema = scan_schema(scan)
        if scan.alias in self.placed:
            schema = schema.append(pa.field(position_name(scan.alias), pa.int64()))
        return self.nodes.add(None, (), schema, MONOTONIC, scan.alias)

    def _changing(self, scan: Scan) -> int:
        """Add a table whose changes correct earlier rows; its rows come in any order."""
        table = self.tables[scan.relation]
        if not scan.columns:  # Rows are counted alone.
            key = replace(table.key_columns[0], name=f"{scan.alias}.{table.key[0]}")
            scan = replace(scan, columns=(key,))
        versions = self.versions[scan.alias] = TableVersions(scan, table)
        self.changes[scan.alias] = TableChanges(versions)
        return self.nodes.add_node(Node(None, (), versions.schema, STRICT, False, scan.alias))

    def _window(self, window: Window | RowsWindow | NowWindow, stream: int) -> int:
        schema = self.nodes[stream].schema
        if isinstance(window, RowsWindow):
            newest = NewestRows(window, schema)
            return self.nodes.add(newest, (stream,), newest.schema, STRICT)
        if isinstance(window, RangeWindow) and window.collapse is not None:
            raise _later("COLLAPSE")
        for operator, label in time_window(window, self.expiry):
            stream = self.nodes.add(operator, (stream,), schema, label)
        return stream

    def _set_operation(self, plan: SetOperation) -> int:
        inputs = (self.add(plan.left), self.add(plan.right))
        if (plan.operator, plan.all) in COUNTED:
            return self.nodes.counted(COUNTED[plan.operator, plan.all], inputs)
        return self.nodes.union(*inputs)

    def _join(self, join: Join) -> int:
        """Add the nodes of a join of streams, or of a stream with a table."""
        if any(map(reads_versions, (join.left, join.right))):
            return self._table_join(join)
        if join.kind is JoinKind.INNER:
            return self._inner(join)
        left, right = self.add(join.left), self.add(join.right)
        return add_join(self.nodes, join.kind, join.condition, left, right)

    def _inner(self, join: Join) -> int:
        """Conditions on one side are applied below the join, and so reach the join below it."""
        if any(map(reads_versions, (join.left, join.right))):
            return self._table_join(join)
        matches, left, right = split_join(join)
        return add_pairs(self.nodes, matches, self.add(left), self.add(right), self.arriving)

    def _table_join(self, join: Join) -> int:
        """Add a join of a stream with a table, by the versions at the places of its tuples."""
        kind, stream, table = join.kind, join.left, join.right
        if reads_versions(stream):
            if kind not in (JoinKind.INNER, JoinKind.FULL) or reads_versions(table):
                raise _later("a join that keeps the rows of a table without a match")
            stream, table = table, stream
        if kind is JoinKind.FULL:
            raise _later("a join that keeps the rows of a table without a match")
        scan, steps = table_side(table)
        matches = MatchCondition.of(join.condition, column_names(stream), column_names(table))
        if kind is JoinKind.INNER and matches.left is not None:
            stream, matches = Filter(stream, matches.left), replace(matches, left=None)
        streams = placing(stream, matches)
        outer, self.placed = self.placed, self.placed | streams.every
        left = self.add(stream)
        self.placed = outer
        versions = self.versions[scan.alias] = TableVersions(scan, self.tables[scan.relation])
        if kind is JoinKind.ANTI_NULL_AWARE:
            return self._not_in_table(join.condition, matches, left, streams, versions, steps)
        return self._versioned(kind, matches, left, streams, versions, steps)

    def _versioned(
        self,
        kind: JoinKind,
        matches: MatchCondition,
        left: int,
        streams: PlacingStreams,
        versions: TableVersions,
        steps: Steps,
    ) -> int:
        node = self.nodes[left]
        if matches.right is not None:
            steps = (*steps, WhereFilter(matches.right))
        hidden = set(map(position_name, streams.every - self.placed))
        kept = tuple(name for name in node.schema.names if name not in hidden)
        named, every = (
            tuple(map(position_name, sorted(aliases))) for aliases in (streams.named, streams.every)
        )
        spec = TableJoinSpec(
            kind, matches.keys, matches.left, matches.rest, named, every, kept, steps
        )
        operator = TableJoin(spec, node.schema, versions, self.places, self.nodes.bytes_max)
        return self.nodes.add(operator, (left,), operator.schema, node.label)

    def _not_in_table(
        self,
        condition: Expression | None,
        matches: MatchCondition,
        left: int,
        streams: PlacingStreams,
        versions: TableVersions,
        steps: Steps,
    ) -> int:
        """Add the rows for which the condition is false of every row of a table, as `_not_in`."""
        names = frozenset(self.nodes[left].schema.names)
        tests = not_in_tests(condition, matches, names, columns_of_steps(versions.schema, steps))
        outer, self.placed = self.placed, self.placed | streams.every
        for each in tests[:-1]:
            left = self._versioned(JoinKind.ANTI, each, left, streams, versions, steps)
        self.placed = outer
        return self._versioned(JoinKind.ANTI, tests[-1], left, streams, versions, steps)

    def _aggregated(self, plan: Aggregated) -> int:
        """Add a GROUP BY; over an inner join without the pairs where they are not needed."""
        join = filtered_join(plan.input)
        if plan.sampling is not None:
            parts = sampled_inputs(join)
            inputs = tuple(self.add(each.plan) for each in parts)
            sampled = sampled_join(plan, parts, [self.nodes[at].label for at in inputs])
            return self.nodes.add(sampled, inputs, sampled.schema, STRICT)
        if plan.listed is not None:
            return self._listed(plan)
        schema = output_schema(plan.groups, plan.aggregates)
        if join is not None and not any(map(reads_versions, (join.left, join.right))):
            matches, left, right = split_join(join)
            names = (column_names(left), column_names(right))
            spec = pair_sums(matches.keys, plan.groups, plan.aggregates, names)
            if spec is not None and matches.rest is None:
                inputs = (self.add(left), self.add(right))
                return self.nodes.add(GroupedAggregates(spec, schema), inputs, schema, STRICT)
        source = self.add(plan.input)
        for each in plan.aggregates:
            if each.function in BY_TIME and not self._has_sequence(source):
                raise Unimplemented(
                    f"{each.function.value} in a standing row query is over a time window of one "
                    "stream; rows of other relations have no order of arrival; write MIN or MAX"
                )
        in_order = self.nodes[source].label.leaves_in_order
        spec = AggregateSpec.of_rows(plan.groups, plan.aggregates, in_order=in_order)
        return self.nodes.add(GroupedAggregates(spec, schema), (source,), schema, STRICT)

    def _listed(self, plan: Aggregated) -> int:
        """Add TOP over a window of rows, which are not kept."""
        rows = plan.input
        assert isinstance(rows, WindowOf)
        assert isinstance(rows.window, RowsWindow)
        stream = self.nodes.filtered(rows.condition, self.add(rows.input))
        top = newest_top(plan, rows.window)
        return self.nodes.add(top, (stream,), top.schema, STRICT)

    def _has_sequence(self, source: int) -> bool:
        """Return whether rows come by event time and position, and leave as they came."""
        node = self.nodes[source]
        return node.in_order and not node.label.is_strict

    def _to_stream(self, operator: StreamOperator, plan: Plan) -> int:
        source = self.add(plan)
        node = self.nodes[source]
        made: ChangeOperator
        if operator is StreamOperator.RSTREAM:
            slide_us = common_slide_us(plan)
            made = WholeRelation(node.schema, slide_us, self.nodes.bytes_max)
        else:
            made = RelationToStream(operator, node.schema, node.label, by_value=not node.in_order)
        return self.nodes.add(made, (source,), node.schema, MONOTONIC)
