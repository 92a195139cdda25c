"""The select list of a query, and the clauses that count its outputs: GROUP BY, ORDER BY, LIMIT."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from shedder.cql.binding.expression_translation import Translator, check_details
from shedder.cql.expressions.expression import Expression
from shedder.cql.expressions.expression_text import name_of
from shedder.cql.statements.relational_tree import Star
from shedder.cql.statements.statement import OrderKey, Output
from shedder.cql.text.source_text import SourceText, start_of
from shedder.cql.text.unsupported import later, stars_alone
from shedder.errors import Unimplemented

Item = Output | Star


def outputs_of(
    nodes: Iterable[exp.Expr], translator: Translator, source: SourceText
) -> tuple[Output, ...]:
    """The outputs of a select list without stars.

    Raises:
      BadQuery: with the place.
    """
    outputs: list[Output] = []
    for item in items_of(nodes, translator, source):
        if isinstance(item, Star):
            raise stars_alone("*" if item.qualifier is None else f"{item.qualifier}.*")
        outputs.append(item)
    return tuple(outputs)


def items_of(
    nodes: Iterable[exp.Expr], translator: Translator, source: SourceText
) -> tuple[Item, ...]:
    """The items of a select list, each output with a name of its own.

    Raises:
      BadQuery: with the place.
    """
    items: list[Item] = []
    taken = {node.alias.lower() for node in nodes if isinstance(node, exp.Alias)}
    said: set[str] = set()
    for node in nodes:
        if isinstance(node, exp.Alias):
            name, inner = node.alias, node.this
            if name.lower() in said:
                raise source.wrong(node, f"two outputs are named {name!r}")
            said.add(name.lower())
            items.append(Output(name, translator.expression(inner)))
            continue
        star = _star(node)
        if star is not None:
            items.append(star)
            continue
        expression = translator.expression(node)
        name = free_name(name_of(expression), taken)
        taken.add(name.lower())
        items.append(Output(name, expression))
    if not items:
        raise source.error("expected something to select", None)
    return tuple(items)


def _star(node: exp.Expr) -> Star | None:
    match node:
        case exp.Star():
            check_details(node)
            return Star()
        case exp.Column(this=exp.Star() as star) if not node.args.get("db"):
            check_details(star)
            return Star(node.table)
    return None


def free_name(name: str, taken: set[str]) -> str:
    """The name, with a number behind it where the name is taken in any case."""
    candidate, number = name, 2
    while candidate.lower() in taken:
        candidate, number = f"{name}_{number}", number + 1
    return candidate


def groups_of(
    group: exp.Group | None, items: tuple[Item, ...], translator: Translator, source: SourceText
) -> tuple[Expression, ...]:
    """The keys of GROUP BY.

    Raises:
      BadQuery: with the place. Unimplemented: GROUPING SETS and the like.
    """
    if group is None:
        return ()
    for key in ("grouping_sets", "cube", "rollup", "totals", "all"):
        if group.args.get(key):
            raise later(f"GROUP BY {key.replace('_', ' ').upper()}")
    found = [_by_number(node, items, translator, source) for node in group.expressions]
    if not found:
        raise source.error("expected something to group by", start_of(group))
    return tuple(dict.fromkeys(found))


def order_of(
    order: exp.Order | None, items: tuple[Item, ...], translator: Translator, source: SourceText
) -> tuple[OrderKey, ...]:
    """The keys of ORDER BY.

    Raises:
      BadQuery: with the place. Unimplemented: NULLS FIRST.
    """
    keys = []
    for node in order.expressions if order else ():
        if node.args.get("nulls_first"):
            raise Unimplemented("NULLS FIRST: NULLs always come last")
        if node.args.get("with_fill"):
            raise Unimplemented("WITH FILL: not in this version")
        expression = _by_number(node.this, items, translator, source)
        keys.append(OrderKey(expression, bool(node.args.get("desc"))))
    return tuple(keys)


def _by_number(
    node: exp.Expr, items: tuple[Item, ...], translator: Translator, source: SourceText
) -> Expression:
    """GROUP BY 1 and ORDER BY 2 mean the outputs of these numbers."""
    if isinstance(node, exp.Literal) and not node.is_string:
        if not node.name.isdigit() or not 1 <= int(node.name) <= len(items):
            raise source.wrong(
                node, f"{node.name} is not the number of an output; there are {len(items)}"
            )
        if any(isinstance(item, Star) for item in items):
            raise source.wrong(node, f"{node.name} counts outputs, and * is many; name the column")
        item = items[int(node.name) - 1]
        assert isinstance(item, Output)
        return item.expression
    return translator.expression(node)


def limit_of(limit: exp.Expr | None, translator: Translator, source: SourceText) -> int | None:
    """The number of LIMIT or OFFSET.

    Raises:
      BadQuery: it is no whole number. Unimplemented: FETCH and the like.
    """
    if limit is None:
        return None
    if limit.args.get("limit_options") or not isinstance(limit, (exp.Limit, exp.Offset)):
        raise later("FETCH and LIMIT ... PERCENT or WITH TIES")
    if limit.args.get("expressions"):
        raise later("LIMIT ... BY")
    value = translator.constant(limit.expression).value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        clause = type(limit).__name__.upper()
        raise source.wrong(limit.expression, f"{clause} takes a whole number, not {value!r}")
    return value
