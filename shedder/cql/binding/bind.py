"""A query and its stream's schema to a bound query: names found, types known, rules kept."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    LISTS,
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Expression,
    Literal,
    parts_of,
    size_of,
)
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.expressions.histograms import is_histogram
from shedder.cql.expressions.type_inference import typed_aggregate, typed_call, with_type
from shedder.cql.statements.bound_query import BoundQuery, StreamSchema
from shedder.cql.statements.statement import OrderKey, Output, Select, TargetKind
from shedder.cql.text.unsupported import rows_later
from shedder.errors import BadQuery, TypeMismatch, UnknownColumn

# What an answer adds beside an approximate output column.
SUFFIXES = ("_low", "_high", "_bound", "_met")
RESERVED_OUTPUTS = ("certain",)
_PARTS_MAX = 100_000


def bind(select: Select, schema: StreamSchema) -> BoundQuery:
    """Find the names, give everything a type, and check what may stand where.

    Aliases of outputs may be used in GROUP BY and WHERE (where no column has the name), HAVING
    (where no group has it) and ORDER BY (first of all).

    Raises:
      UnknownColumn, TypeMismatch, BadQuery: what is wrong and what would be right.
      Unimplemented: a query without aggregates or groups asks for rows.
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
        _forbid_aggregates("GROUP BY", group)
    if where is not None:
        _forbid_aggregates("WHERE", where)
    everything = [item.expression for item in outputs]
    everything += [having] if having is not None else []
    everything += [key.expression for key in order]
    aggregates = _aggregates(everything)
    if not aggregates and not groups:
        raise rows_later("a query without aggregates")
    for expression in everything:
        _check_grouped(expression, groups)
    _check_order(order)
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

    def __init__(self, schema: StreamSchema, outputs: Sequence[Output]) -> None:
        self._columns = {column.name: column for column in schema.columns}
        self._folded: dict[str, list[str]] = {}
        for column in schema.columns:
            self._folded.setdefault(column.name.lower(), []).append(column.name)
        self._aliases = {item.name.lower(): item.expression for item in outputs}
        # By identity, with the node: a node that a tree has twice is bound once.
        self._bound: dict[int, tuple[Expression, Expression]] = {}

    def bound(self, node: Expression) -> Expression:
        """The expression with all types."""
        known = self._bound.get(id(node))
        if known is None:
            known = self._bound[id(node)] = (node, self._typed(node))
        return known[1]

    def _typed(self, node: Expression) -> Expression:
        match node:
            case Column():
                return self._column(node)
            case Literal():
                return node
            case Aggregate():
                argument = None if node.argument is None else self._part(node.argument)
                second = None if node.second is None else self._part(node.second)
                conditions = tuple(map(self._part, node.conditions))
                return typed_aggregate(node, argument, second, conditions)
            case Call():
                return typed_call(node, tuple(self._part(arg) for arg in node.args))

    def value(self, node: Expression) -> Expression:
        """The expression with all types; a bare NULL is a BIGINT."""
        return with_type(self.bound(node), ColumnType.BIGINT)

    def condition(self, where: str, node: Expression) -> Expression:
        """The expression with all types, if it is a BOOLEAN."""
        found = with_type(self.bound(node), ColumnType.BOOLEAN)
        if found.type is not ColumnType.BOOLEAN:
            kind = found.type.value if found.type is not None else "a list"
            raise TypeMismatch(f"{where} takes a condition, not {text_of(found)}, which is {kind}")
        return found

    def with_aliases(self, node: Expression) -> Expression:
        """Aliases put in where no column of the stream has the name."""
        found = _replaced(node, lambda column: not self._known(column.name), self._aliases)
        return _not_too_large(found)

    def after_groups(self, node: Expression, groups: Sequence[Column]) -> Expression:
        """Aliases put in where no group is a column of the name."""
        grouped = {group.name.lower() for group in groups}
        found = _replaced(node, lambda column: column.name.lower() not in grouped, self._aliases)
        return _not_too_large(found)

    def order_key(self, node: Expression, groups: Sequence[Column]) -> Expression:
        """An alias alone is the output; inside an expression groups come first."""
        if isinstance(node, Column):
            return self._aliases.get(node.name.lower(), node)
        return self.after_groups(node, groups)

    def _part(self, node: Expression) -> Expression:
        listed = isinstance(node, Aggregate) and node.function in LISTS
        if listed or is_histogram(node):
            raise TypeMismatch(f"{text_of(node)} is a list; it stands alone in the select list")
        return self.bound(node)

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


class RowBinder:
    """Binding without aggregates: a condition and outputs of single rows."""

    @staticmethod
    def has_aggregates(select: Select) -> bool:
        """Return whether any output is made of many rows."""
        return bool(_aggregates(item.expression for item in select.outputs))

    @staticmethod
    def bound(
        where: Expression | None, outputs: Sequence[Output], schema: StreamSchema
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
            _forbid_aggregates("WHERE", condition)
        read = [item.expression for item in bound] + ([] if condition is None else [condition])
        return condition, bound, _columns(read, schema)


def _replaced(
    node: Expression, wanted: Callable[[Column], bool], by: dict[str, Expression]
) -> Expression:
    done: dict[int, Expression] = {}  # By identity: a node that a tree has twice is replaced once.

    def replaced(node: Expression) -> Expression:
        match node:
            case Column(name=name) if name.lower() in by and wanted(node):
                return by[name.lower()]
            case Call(args=args):
                if id(node) not in done:
                    new = tuple(map(replaced, args))
                    is_same = all(map(operator.is_, new, args))
                    done[id(node)] = node if is_same else replace(node, args=new)
                return done[id(node)]
            case _:
                return node  # An aggregate's argument is of the stream, never an alias.

    return replaced(node)


def _not_too_large(node: Expression) -> Expression:
    """The expression, unless a large output stands in it many times."""
    if size_of(node) > _PARTS_MAX:
        raise BadQuery(
            f"with the outputs it names, an expression has more than {_PARTS_MAX:,} parts"
        )
    return node


def _forbid_aggregates(where: str, node: Expression) -> None:
    for part in parts_of(node):
        if isinstance(part, Aggregate):
            hint = "; use HAVING" if where == "WHERE" else ""
            raise BadQuery(f"{text_of(part)} is an aggregate and cannot stand in {where}{hint}")


def _aggregates(nodes: Iterable[Expression]) -> tuple[Aggregate, ...]:
    found: dict[Aggregate, None] = {}
    for node in nodes:
        for part in parts_of(node):
            if not isinstance(part, Aggregate):
                continue
            found[part] = None
            if any(isinstance(below, Aggregate) for below in parts_of(part) if below is not part):
                raise BadQuery(f"{text_of(part)}: an aggregate cannot stand inside another")
    return tuple(found)


def _check_grouped(node: Expression, groups: Sequence[Expression]) -> None:
    seen: set[int] = set()  # A node that a tree has twice is checked once.

    def check(node: Expression) -> None:
        if id(node) in seen or node in groups:
            return
        seen.add(id(node))
        match node:
            case Column(name=name):
                raise BadQuery(
                    f"column {name!r} is neither in GROUP BY nor inside an aggregate; "
                    f"add GROUP BY {text_of(node)}, or ask for MIN({text_of(node)})"
                )
            case Call(args=args):
                for arg in args:
                    check(arg)

    check(node)


def _check_order(order: Sequence[OrderKey]) -> None:
    for key in order:
        if isinstance(key.expression, (Aggregate, Call)) and key.expression.type is None:
            raise TypeMismatch(f"{text_of(key.expression)} is a list and has no order")


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


def _columns(nodes: Iterable[Expression], schema: StreamSchema) -> tuple[str, ...]:
    """Names of the columns that are read, in the schema's order."""
    read = {part.name for node in nodes for part in parts_of(node) if isinstance(part, Column)}
    return tuple(column.name for column in schema.columns if column.name in read)
