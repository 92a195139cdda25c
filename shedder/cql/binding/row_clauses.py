"""Groups of a SELECT as columns of its plan; DISTINCT, ORDER BY and LIMIT over its outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from shedder.cql.binding.new_names import check_new_name
from shedder.cql.binding.select_list import free_name
from shedder.cql.binding.typed_expressions import check_order
from shedder.cql.expressions.expression import Aggregate, Call, Column, Expression, Literal
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.plans.logical_plan import Distinct, Ordered, Plan, Project
from shedder.cql.statements.relational_tree import SelectQuery
from shedder.cql.statements.statement import OrderKey, Output
from shedder.errors import BadQuery, TypeMismatch


def over_groups(
    groups: Sequence[Expression], aggregates: Sequence[Aggregate], others: Collection[str]
) -> Callable[[Expression], Expression]:
    """A function from expressions over rows to expressions over groups.

    Args:
      groups, aggregates: columns g0.. and a0.. of the groups.
      others: names of columns that stand beside the groups: those of subqueries.

    Returns:
      A function that raises BadQuery for a column that is neither grouped nor aggregated.
    """
    columns: dict[Expression, Column] = {
        **{each: Column(f"a{at}", each.type) for at, each in enumerate(aggregates)},
        **{each: Column(f"g{at}", each.type) for at, each in enumerate(groups)},
    }
    done: dict[int, tuple[Expression, Expression]] = {}  # By identity, with the node.

    def over(node: Expression) -> Expression:
        if node in columns:
            return columns[node]
        match node:
            case Column(name=name) if name not in others:
                raise BadQuery(
                    f"column {text_of(node)} is neither in GROUP BY nor inside an aggregate; add "
                    f"it to GROUP BY, or ask for MIN({text_of(node)})"
                )
            case Call():
                if id(node) not in done:
                    args = tuple(map(over, node.args))
                    done[id(node)] = (node, Call(node.op, args, node.type))
                return done[id(node)][1]
            case _:
                return node

    return over


def check_rows(outputs: Sequence[Output], keys: Sequence[OrderKey]) -> None:
    """Check the outputs of rows and the keys of their order, as the query says them.

    Raises:
      TypeMismatch: one is a list. BadQuery: an output has an empty name.
    """
    check_order(keys)
    for item in outputs:
        check_new_name("output", item.name)
        if item.expression.type is None:
            raise TypeMismatch(
                f"{text_of(item.expression)} is a list (TOP, FREQUENT or HISTOGRAM), and rows have "
                "no lists; ask for it over one stream, without a join, a subquery or a window of "
                "rows; TOP alone may have a window such as [ROWS 100000 SLIDE 500]"
            )


def finished(
    plan: Plan,
    outputs: Sequence[Output],
    keys: Sequence[OrderKey],
    query: SelectQuery,
    prefix: str,
) -> Plan:
    """The projection, DISTINCT, ORDER BY and LIMIT of a SELECT over its rows.

    prefix: of the names of columns.

    Raises:
      BadQuery: ORDER BY of DISTINCT rows is no output.
    """
    taken = {item.name.lower() for item in outputs}
    columns = {
        item.expression: Column(prefix + item.name, item.expression.type)
        for item in reversed(outputs)
    }
    hidden: list[Output] = []
    ordered: list[OrderKey] = []
    for key in keys:
        expression = key.expression
        if isinstance(expression, Literal):
            continue  # The same for all rows.
        if expression not in columns:
            if query.distinct:
                raise BadQuery(
                    f"ORDER BY {text_of(expression)}: rows of SELECT DISTINCT are in the order of "
                    "their outputs; add it to the select list"
                )
            name = free_name("order_key", taken)
            taken.add(name.lower())
            hidden.append(Output(prefix + name, expression))
            columns[expression] = Column(prefix + name, expression.type)
        ordered.append(OrderKey(columns[expression], key.descending))
    named = tuple(Output(prefix + item.name, item.expression) for item in outputs)
    plan = Project(plan, (*named, *hidden))
    if query.distinct:
        plan = Distinct(plan)
    plan = cut(plan, ordered, query.limit, query.offset)
    if hidden:
        kept = (Output(item.name, Column(item.name, item.expression.type)) for item in named)
        plan = Project(plan, tuple(kept))
    return plan


def cut(plan: Plan, keys: Sequence[OrderKey], limit: int | None, offset: int) -> Plan:
    """The rows in order, and a stretch of them."""
    if keys or limit is not None or offset:
        return Ordered(plan, tuple(keys), limit, offset)
    return plan
