"""Match condition: the condition of a join as keys, conditions on one side, and the rest."""

from __future__ import annotations

from dataclasses import dataclass

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.conjunctions import conjunction, conjuncts, names_in
from shedder.cql.expressions.expression import Call, Expression, Op

Keys = tuple[tuple[Expression, Expression], ...]

_WHOLE = (ColumnType.INTEGER, ColumnType.BIGINT)


@dataclass(frozen=True, slots=True)
class MatchCondition:
    """The conjuncts of a condition by what they need.

    keys: (left, right) of equal values, cast to one type.
    left, right: conditions on one side. rest: on both. None: none.
    """

    keys: Keys
    left: Expression | None
    right: Expression | None
    rest: Expression | None

    @classmethod
    def of(
        cls, condition: Expression | None, left: frozenset[str], right: frozenset[str]
    ) -> MatchCondition:
        """Split a condition. left, right: names of the columns of each side."""
        keys: list[tuple[Expression, Expression]] = []
        ours: list[Expression] = []
        theirs: list[Expression] = []
        rest: list[Expression] = []
        for part in conjuncts(condition):
            names = names_in(part)
            key = _key(part, left, right)
            if key is not None:
                keys.append(key)
            elif names <= left:
                ours.append(part)
            elif names <= right:
                theirs.append(part)
            else:
                rest.append(part)
        return cls(tuple(keys), conjunction(ours), conjunction(theirs), conjunction(rest))

    def mirrored(self) -> MatchCondition:
        """The same with the sides exchanged."""
        keys = tuple((right, left) for left, right in self.keys)
        return MatchCondition(keys, self.right, self.left, self.rest)


def _key(
    part: Expression, left: frozenset[str], right: frozenset[str]
) -> tuple[Expression, Expression] | None:
    """Both sides of an equality between the sides; None: it is another condition."""
    if not isinstance(part, Call) or part.op is not Op.EQ:
        return None
    first, second = part.args
    names = names_in(first), names_in(second)
    if not (names[0] and names[1]):
        return None
    if names[0] <= right and names[1] <= left:
        first, second = second, first
    elif not (names[0] <= left and names[1] <= right):
        return None
    kind = _common_type(first.type, second.type)
    return None if kind is None else (_cast(first, kind), _cast(second, kind))


def _common_type(left: ColumnType | None, right: ColumnType | None) -> ColumnType | None:
    """The type in which a comparison compares; None: it is not known to be one type."""
    if left is right:
        return left
    if left in _WHOLE and right in _WHOLE:
        return ColumnType.BIGINT
    numbers = (*_WHOLE, ColumnType.DOUBLE)
    return ColumnType.DOUBLE if left in numbers and right in numbers else None


def _cast(expression: Expression, kind: ColumnType) -> Expression:
    return expression if expression.type is kind else Call(Op.CAST, (expression,), kind)
