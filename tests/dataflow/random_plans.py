"""Random plans over windows, each with its relation by brute force.

The brute force of a plan is composed of plain Python functions beside the plan; it never reads the
plan. Each scan has an alias and a stream of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Expression,
    Literal,
    Op,
)
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Plan,
    Project,
    RowsWindow,
    SetOperation,
    SetOperator,
    WindowOf,
)
from shedder.cql.statements.statement import Output, RangeWindow
from tests.dataflow import brute_force as brute
from tests.dataflow.brute_force import At, Row, Tuple
from tests.dataflow.worlds import KINDS, boolean, scan, stream

_SIZES = ((60, 1), (30, 1), (40, 10))  # RANGE and SLIDE of windows.
_SHORT = ((12, 1), (10, 5))  # Of the right side of joins, so that nested joins stay small.

Test = Callable[[Row], bool | None]

_CONSTANTS: dict[ColumnType, list[object]] = {
    ColumnType.BIGINT: [0, 1, 2, 3],
    ColumnType.INTEGER: [0, 1, 2, 3],
    ColumnType.VARCHAR: ["", "a", "bb"],
    ColumnType.DOUBLE: [0.0, 1.5],
    ColumnType.TIMESTAMP: [90, 200],
}
_COMPARISONS: list[tuple[Op, Callable[[object, object], bool]]] = [
    (Op.NE, lambda x, y: x != y),
    (Op.LE, lambda x, y: x <= y),  # type: ignore[operator]
    (Op.GE, lambda x, y: x >= y),  # type: ignore[operator]
]
_SETS = {
    (SetOperator.UNION, True): lambda v1, v2: v1 + v2,
    (SetOperator.UNION, False): lambda v1, v2: int(v1 + v2 > 0),
    (SetOperator.EXCEPT, True): lambda v1, v2: max(0, v1 - v2),
    (SetOperator.EXCEPT, False): lambda v1, v2: int(v1 > 0 and v2 == 0),
    (SetOperator.INTERSECT, True): min,
    (SetOperator.INTERSECT, False): lambda v1, v2: int(v1 > 0 and v2 > 0),
}


@dataclass(frozen=True)
class Relation:
    """A plan, its columns in order, and its rows as of an instant by brute force."""

    plan: Plan
    columns: tuple[tuple[str, ColumnType], ...]
    at: At


@dataclass
class RandomPlans:
    """Draws relations from a seed. streams: by alias; filled while plans are drawn."""

    seed: int
    streams: dict[str, list[Tuple]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)

    def relation(self, depth: int) -> Relation:
        """A random relation whose conditions stand above other operators."""
        if depth == 0:
            return self._window()
        draw = self._random.choice(
            [
                self._filter,
                self._inner,
                self._inner,
                self._outer,
                self._project,
                self._distinct,
                self._set_operation,
                self._groups,
            ]
        )
        made = draw(depth - 1)
        return self._filter_of(made) if self._random.random() < 0.5 else made

    def inner_on_k(self, inputs: int, rest: Expression) -> Relation:
        """Inner joins of RANGE windows on the column k, left-deep, and a condition beside them.

        rest: over s0.x; not true of NULL, and true of all values.
        """
        made = self._range_window()
        for _ in range(inputs - 1):
            before = self._random.choice(list(self.streams))
            right = self._range_window()
            name, other = f"{before}.k", right.columns[0][0]
            place = [each for each, _ in made.columns].index(name)
            wide = len(made.columns)
            kind = ColumnType.BIGINT
            on = boolean(Op.EQ, Column(name, kind), Column(other, kind))
            plan = Join(JoinKind.INNER, made.plan, right.plan, on)
            at = brute.select(
                _pairs(made, right),
                lambda row, place=place, wide=wide: (
                    row[place] is not None and row[place] == row[wide]
                ),
            )
            made = Relation(plan, made.columns + right.columns, at)
        known = brute.select(made.at, lambda row: row[1] is not None)
        return Relation(Filter(made.plan, rest), made.columns, known)

    def _range_window(self) -> Relation:
        while isinstance((made := self._window()).plan, WindowOf):
            if isinstance(made.plan.window, RangeWindow):
                return made
            del self.streams[made.columns[0][0].partition(".")[0]]
        raise AssertionError(made)

    def _window(self, sizes: tuple[tuple[int, int], ...] = _SIZES) -> Relation:
        alias = f"s{len(self.streams)}"
        size, slide = self._random.choice(sizes)
        log = stream(self._random.randrange(1 << 30), size=100, keys=4)
        self.streams[alias] = log
        columns = tuple((f"{alias}.{name}", kind) for name, kind in KINDS.items())
        source = scan(alias)
        if self._random.random() < 0.25:
            window = WindowOf(source, RowsWindow(5, partition=(f"{alias}.k",)))
            return Relation(window, columns, brute.rows_window(log, 5, lambda row: row[0]))
        plan = WindowOf(source, RangeWindow(size, slide))
        return Relation(plan, columns, brute.range_window(log, size, slide))

    def _filter(self, depth: int) -> Relation:
        return self._filter_of(self.relation(depth))

    def _filter_of(self, source: Relation) -> Relation:
        condition, test = self._condition(source)
        plan = Filter(source.plan, condition)
        return Relation(plan, source.columns, brute.select(source.at, test))

    def _condition(self, source: Relation) -> tuple[Expression, Test]:
        place = self._random.randrange(len(source.columns))
        name, kind = source.columns[place]
        if self._random.random() < 0.15:
            condition = boolean(Op.IS_NULL, Column(name, kind))
            return condition, lambda row: row[place] is None
        op, compare = self._random.choice(_COMPARISONS)
        value = self._random.choice(_CONSTANTS[kind])
        condition = boolean(op, Column(name, kind), Literal(value, kind))
        test: Test = lambda row: row[place] is not None and compare(row[place], value)  # noqa: E731
        if self._random.random() < 0.3:
            other, passes = self._condition(source)
            return boolean(Op.AND, condition, other), lambda row: test(row) and passes(row)
        return condition, test

    def _equality(self, left: Relation, right: Relation) -> tuple[Expression, Test]:
        """An equality of two columns with one type, over the columns of a pair."""
        pairs = [
            (ours, theirs)
            for ours, (_, kind) in enumerate(left.columns)
            for theirs, (_, other) in enumerate(right.columns)
            if kind is other and kind is not ColumnType.TIMESTAMP
        ] or [(0, 0)]
        ours, theirs = self._random.choice(pairs)
        (name, kind), (other, other_kind) = left.columns[ours], right.columns[theirs]
        if kind is not other_kind:
            truth = boolean(Op.IS_NULL, Column(name, kind))
            return truth, lambda row: row[ours] is None
        place = len(left.columns) + theirs
        condition = boolean(Op.EQ, Column(name, kind), Column(other, kind))
        return condition, lambda row: row[ours] is not None and row[ours] == row[place]

    def _inner(self, depth: int) -> Relation:
        left, right = self.relation(depth), self._window(_SHORT)
        condition, test = self._equality(left, right)
        plan = Join(JoinKind.INNER, left.plan, right.plan, condition)
        return Relation(plan, left.columns + right.columns, brute.select(_pairs(left, right), test))

    def _outer(self, depth: int) -> Relation:
        left, right = self.relation(depth), self._window(_SHORT)
        on, test = self._equality(left, right)
        mine, of_right = self._condition(right)
        on = boolean(Op.AND, on, mine)
        wide = len(left.columns)
        kind = self._random.choice([JoinKind.LEFT, JoinKind.FULL, JoinKind.SEMI, JoinKind.ANTI])

        def at(e: int) -> list[Row]:
            ours, theirs = left.at(e), right.at(e)
            matched = [(a, b) for a in ours for b in theirs if test(a + b) and of_right(b)]
            found = {a for a, _ in matched}
            alone = [a for a in ours if a not in found]
            if kind is JoinKind.SEMI:
                return [a for a in ours if a in found]
            if kind is JoinKind.ANTI:
                return alone
            rows = [a + b for a, b in matched]
            rows += [a + (None,) * len(right.columns) for a in alone]
            if kind is JoinKind.FULL:
                partners = {b for _, b in matched}
                rows += [(None,) * wide + b for b in theirs if b not in partners]
            return rows

        columns = left.columns
        if kind in (JoinKind.LEFT, JoinKind.FULL):
            columns += right.columns
        return Relation(Join(kind, left.plan, right.plan, on), columns, at)

    def _project(self, depth: int) -> Relation:
        source = self.relation(depth)
        places = self._random.sample(range(len(source.columns)), min(2, len(source.columns)))
        outputs: list[Output] = []
        columns: list[tuple[str, ColumnType]] = []
        added = self._random.random() < 0.5
        for at, place in enumerate(places):
            name, kind = source.columns[place]
            expression: Expression = Column(name, kind)
            if added and kind is ColumnType.BIGINT:
                expression = Call(Op.ADD, (expression, Literal(1, kind)), kind)
            outputs.append(Output(f"p{depth}{at}", expression))
            columns.append((f"p{depth}{at}", kind))

        def value(row: Row, place: int) -> object:
            is_sum = added and source.columns[place][1] is ColumnType.BIGINT
            return row[place] + 1 if is_sum and row[place] is not None else row[place]

        plan = Project(source.plan, tuple(outputs))
        made = brute.project(source.at, lambda row: tuple(value(row, place) for place in places))
        return Relation(plan, tuple(columns), made)

    def _distinct(self, depth: int) -> Relation:
        source = self._project(depth)
        return Relation(Distinct(source.plan), source.columns, brute.distinct(source.at))

    def _set_operation(self, depth: int) -> Relation:
        left = self._project(depth)
        other = self._window()
        outputs, places = [], []
        for at, (_, kind) in enumerate(left.columns):
            fitting = [place for place, (_, its) in enumerate(other.columns) if its is kind]
            places.append(fitting[0])
            outputs.append(Output(f"q{depth}{at}", Column(*other.columns[fitting[0]])))
        right = brute.project(other.at, lambda row: tuple(row[place] for place in places))
        (operator, all_), result = self._random.choice(list(_SETS.items()))
        plan = SetOperation(operator, all_, left.plan, Project(other.plan, tuple(outputs)))
        return Relation(plan, left.columns, brute.by_counts(left.at, right, result))

    def _groups(self, depth: int) -> Relation:
        source = self.relation(depth)
        place = self._random.randrange(len(source.columns))
        name, kind = source.columns[place]
        count = Aggregate(AggregateFunction.COUNT, None, type=ColumnType.BIGINT)
        plan = Project(
            Aggregated(source.plan, (Column(name, kind),), (count,)),
            (
                Output(f"g{depth}", Column("g0", kind)),
                Output(f"n{depth}", Column("a0", ColumnType.BIGINT)),
            ),
        )

        def at(e: int) -> list[Row]:
            counts: dict[object, int] = {}
            for row in source.at(e):
                counts[row[place]] = counts.get(row[place], 0) + 1
            return list(counts.items())

        return Relation(plan, ((f"g{depth}", kind), (f"n{depth}", ColumnType.BIGINT)), at)


def _pairs(left: Relation, right: Relation) -> At:
    return lambda e: [a + b for a in left.at(e) for b in right.at(e)]
