"""A query and its stream's schema to a bound query: names found, types known, rules kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shedder.cql.binding.typed_expressions import (
    Typer,
    aggregates_in,
    check_grouped,
    check_order,
    forbid_aggregates,
    not_too_large,
    replaced_columns,
)
from shedder.cql.expressions.expression import (
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Expression,
    parts_of,
)
from shedder.cql.statements.bound_query import BoundQuery, StreamSchema
from shedder.cql.statements.statement import OrderKey, Output, Select, TargetKind
from shedder.cql.statements.table_schema import RelationSchema
from shedder.errors import BadQuery, UnknownColumn

# What an answer adds beside an approximate output column.
SUFFIXES = ("_low", "_high", "_bound", "_met")
RESERVED_OUTPUTS = ("certain",)


def bind(select: Select, schema: StreamSchema) -> BoundQuery:
    """Find the names, give everything a type, and check what may stand where.

    Aliases of outputs may be used in GROUP BY and WHERE (where no column has the name), HAVING
    (where no group has it) and ORDER BY (first of all).

    Raises:
      UnknownColumn, TypeMismatch, BadQuery: what is wrong and what would be right.
    """
    binder = _Binder(schema, select.outputs)
    outputs = tuple(Output(item.name, binder.value(item.expression)) for item in select.outputs)
    groups = tuple(
        dict.fromkeys(binder.value(binder.with_aliases(group)) for group in select.groups)
    )
    named = [group for group in groups if isinstance(group, Column)]
    where = having = None
    if select.where is not None:
        where = binder.condition("WHERE", binder.with_aliases(select.where))
    if select.having is not None:
        having = binder.condition("HAVING", binder.after_groups(select.having, named))
    order = tuple(
        OrderKey(binder.value(binder.order_key(key.expression, named)), key.descending)
        for key in select.order
    )
    for group in groups:
        forbid_aggregates("GROUP BY", group)
    if where is not None:
        forbid_aggregates("WHERE", where)
    everything = [item.expression for item in outputs]
    everything += [having] if having is not None else []
    everything += [key.expression for key in order]
    aggregates = aggregates_in(everything)
    if not aggregates and not groups:
        raise BadQuery(
            f"{select.text} asks for rows, and this must be a query of aggregates: select "
            "COUNT(*), AVG(x), ... or add GROUP BY"
        )
    for expression in everything:
        check_grouped(expression, groups)
    check_order(order)
    _check_names(outputs)
    _check_target(select, aggregates)
    read = [*everything, *groups, *([where] if where is not None else [])]
    return BoundQuery(
        text=select.text,
        schema=schema,
        window=select.window,
        where=where,
        groups=groups,
        aggregates=aggregates,
        outputs=outputs,
        having=having,
        order=order,
        limit=select.limit,
        target=select.target,
        confidence=select.confidence,
        contract=select.contract,
        weight=select.weight,
        reduction=select.reduction,
        columns=_columns(read, schema),
        thinning=select.thinning,
        costing=select.costing,
    )


class _Binder:
    """Finds names in one schema and one select list."""

    def __init__(self, schema: RelationSchema, outputs: Sequence[Output]) -> None:
        self._columns = {column.name: column for column in schema.columns}
        self._folded: dict[str, list[str]] = {}
        for column in schema.columns:
            self._folded.setdefault(column.name.lower(), []).append(column.name)
        self._aliases = {item.name.lower(): item.expression for item in outputs}
        self._typer = Typer(self._column, _no_subquery)
        self.value = self._typer.value
        self.condition = self._typer.condition

    def with_aliases(self, node: Expression) -> Expression:
        """Aliases put in where no column of the stream has the name."""
        found = replaced_columns(node, lambda column: not self._known(column.name), self._aliases)
        return not_too_large(found)

    def after_groups(self, node: Expression, groups: Sequence[Column]) -> Expression:
        """Aliases put in where no group is a column of the name."""
        grouped = {group.name.lower() for group in groups}
        found = replaced_columns(
            node, lambda column: column.name.lower() not in grouped, self._aliases
        )
        return not_too_large(found)

    def order_key(self, node: Expression, groups: Sequence[Column]) -> Expression:
        """An alias alone is the output; inside an expression groups come first."""
        if isinstance(node, Column):
            return self._aliases.get(node.name.lower(), node)
        return self.after_groups(node, groups)

    def _known(self, name: str) -> bool:
        return name.lower() in self._folded

    def _column(self, node: Column) -> Column:
        name = node.name
        if name not in self._columns:
            matches = self._folded.get(name.lower(), [])
            if len(matches) > 1:
                raise BadQuery(f"the name {name!r} could be {' or '.join(matches)}")
            if not matches:
                raise UnknownColumn(name, list(self._columns))
            [name] = matches
        return Column(name, self._columns[name].type)


def _no_subquery(node: Call) -> Expression:
    raise AssertionError(node)  # A query of one stream is not read with subqueries.


class RowBinder:
    """Binding without aggregates: a condition and outputs of single rows."""

    @staticmethod
    def has_aggregates(select: Select) -> bool:
        """Return whether any output is made of many rows."""
        return bool(aggregates_in(item.expression for item in select.outputs))

    @staticmethod
    def bound(
        where: Expression | None, outputs: Sequence[Output], schema: RelationSchema
    ) -> tuple[Expression | None, tuple[Output, ...], tuple[str, ...]]:
        """The condition and outputs with all types, and the columns that they read.

        Raises:
          UnknownColumn, TypeMismatch, BadQuery.
        """
        binder = _Binder(schema, outputs)
        bound = tuple(Output(item.name, binder.value(item.expression)) for item in outputs)
        condition = None
        if where is not None:
            condition = binder.condition("WHERE", binder.with_aliases(where))
            forbid_aggregates("WHERE", condition)
        read = [item.expression for item in bound] + ([] if condition is None else [condition])
        return condition, bound, _columns(read, schema)


def _check_names(outputs: Sequence[Output]) -> None:
    names = {item.name.lower() for item in outputs}
    for item in outputs:
        if item.name.lower() in RESERVED_OUTPUTS:
            raise BadQuery(f"an output cannot be named {item.name!r}; answers have that column")
        for suffix in SUFFIXES:
            if f"{item.name}{suffix}".lower() in names:
                raise BadQuery(
                    f"an output cannot be named {item.name}{suffix}: the answer has that column "
                    f"beside {item.name}"
                )


def _check_target(select: Select, aggregates: Sequence[Aggregate]) -> None:
    quantiles = any(part.function is AggregateFunction.QUANTILE for part in aggregates)
    if select.target is not None and select.target.kind is TargetKind.RANK and not quantiles:
        raise BadQuery("WITHIN ... RANK is for quantiles; this query has none")


def _columns(nodes: Iterable[Expression], schema: RelationSchema) -> tuple[str, ...]:
    """Names of the columns that are read, in the schema's order."""
    read = {part.name for node in nodes for part in parts_of(node) if isinstance(part, Column)}
    return tuple(column.name for column in schema.columns if column.name in read)
