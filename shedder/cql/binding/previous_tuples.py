"""PREV(p): the tuple before p in its partition of a window of rows, as an equality of columns."""

from __future__ import annotations

from shedder.cql.binding.relational_scope import NameScope, VisibleRelation
from shedder.cql.binding.typed_expressions import is_previous
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Expression, Op
from shedder.cql.expressions.expression_text import quoted, text_of
from shedder.cql.plans.logical_plan import RowsWindow, Scan, WindowOf, numbers_under
from shedder.cql.plans.plan_words import window_text
from shedder.cql.plans.shared_windows import same_windows
from shedder.errors import BadQuery


def previous_tuple(node: Call, scope: NameScope) -> Expression:
    """Return the equality that `p2 = PREV(p1)` means: p1 has the number of p2 in `previous`.

    Both are windows with the same tuples, so numbers of one mean the same in the other. A tuple has
    one number, so equal partitions need no condition of their own, and NULL is a partition.

    Args:
      node: a PREV, or a call over one.
      scope: has the relations that PREV compares.

    Raises:
      BadQuery: it has another form, or the relations are no equal windows of rows.
    """
    later, earlier = _names(node)
    relations = _relation(later, node, scope), _relation(earlier, node, scope)
    windows = [_window(each, node) for each in relations]
    _check_same(node, relations, windows)
    aliases = [each.input.alias for each in windows if isinstance(each.input, Scan)]
    (_, previous), (number, _) = map(numbers_under, aliases)
    pair = Column(number, ColumnType.BIGINT), Column(previous, ColumnType.BIGINT)
    return Call(Op.EQ, pair, ColumnType.BOOLEAN)


def _names(node: Call) -> tuple[str, str]:
    """Return the relations p1 and p2 of p2 = PREV(p1)."""
    if node.op is Op.EQ:
        for side, other in (node.args, node.args[::-1]):
            match side, other:
                case (
                    Call(op=Op.PREV, args=(Column(name=later, qualifier=None),)),
                    Column(name=earlier, qualifier=None),
                ):
                    return later, earlier
    shown = next((arg for arg in node.args if is_previous(arg)), node)
    raise BadQuery(
        f"{text_of(shown)}: PREV takes the name of a relation in FROM, and stands in an equality "
        "with the name of another: p2 = PREV(p1)"
    )


def _relation(name: str, node: Call, scope: NameScope) -> VisibleRelation:
    for each in scope.visible():
        if each.is_named(name):
            return each
    known = ", ".join(dict.fromkeys(quoted(each.alias) for each in scope.visible()))
    raise BadQuery(f"{text_of(node)}: no relation {quoted(name)} in FROM; there are {known}")


def _window(relation: VisibleRelation, node: Call) -> WindowOf:
    window = relation.window
    if window is None or not isinstance(window.window, RowsWindow):
        found = "has no window" if window is None else f"has {window_text(window.window)}"
        raise BadQuery(
            f"{text_of(node)}: {quoted(relation.alias)} {found}; PREV is of windows of rows, such "
            "as [PARTITION BY k ROWS 2]"
        )
    if not isinstance(window.input, Scan):
        raise BadQuery(
            f"{text_of(node)}: {quoted(relation.alias)} is a subquery; PREV is of windows over "
            "streams"
        )
    return window


def _check_same(
    node: Call, relations: tuple[VisibleRelation, VisibleRelation], windows: list[WindowOf]
) -> None:
    """Refuse a relation that is compared with itself, and windows that hold other tuples."""
    names = [quoted(each.alias) for each in relations]
    if relations[0] is relations[1]:
        raise BadQuery(
            f"{text_of(node)}: a tuple is not the one before itself; write the stream and its "
            "window twice in FROM, with two names"
        )
    if same_windows(*windows):
        return
    streams, shown = [], []
    for each in windows:
        assert isinstance(each.input, Scan)
        assert isinstance(each.window, RowsWindow)
        streams.append(quoted(each.input.relation))
        alias = f"{each.input.alias}."
        shown.append(window_text(each.window).replace(alias, ""))
    if streams[0] != streams[1]:
        raise BadQuery(
            f"{text_of(node)}: {names[0]} is of the stream {streams[0]} and {names[1]} of "
            f"{streams[1]}; PREV is of one stream"
        )
    different = "different WHERE or SAMPLE" if shown[0] == shown[1] else " and ".join(shown)
    raise BadQuery(
        f"{text_of(node)}: the windows of {names[0]} and {names[1]} have {different}; PREV is of "
        "equal windows"
    )
