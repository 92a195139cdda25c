"""Order of joins: three and more windows on one attribute are joined in the cheapest order.

The joins form a left-deep tree: each holds the pairs of the joins below it. Equal rows come out in
any order of joins; a projection above gives the columns their order back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.conjunctions import conjunction, conjuncts, names_in
from shedder.cql.expressions.evaluate import evaluate, true_rows
from shedder.cql.expressions.expression import Call, Column, Expression, Op
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Filter,
    Join,
    JoinKind,
    NowWindow,
    Plan,
    Project,
    RowsWindow,
    Scan,
    WindowOf,
    scans_of,
    with_inputs,
)
from shedder.cql.plans.plan_columns import columns_of
from shedder.cql.statements.statement import Output, RangeWindow
from shedder.dataflow.join_cost import JoinInput, cheapest_order, join_cost

_INPUTS_MIN = 3  # Two inputs cost the same in both orders.


@dataclass(frozen=True, slots=True, eq=False)
class StreamStatistics:
    """Statistics of a stream for the order of joins.

    rate_per_s: tuples per second of event time.
    sample: a uniform sample of its tuples, by the stream's own names of columns.
    """

    rate_per_s: float
    sample: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class JoinChoice:
    """A chosen order.

    aliases: of the inputs, in the order. cost, written_cost: comparisons per second of this order
    and of that in which the query names them.
    """

    aliases: tuple[str, ...]
    cost: float
    written_cost: float

    @property
    def fact(self) -> tuple[str, str]:
        """The name of the choice and its text, for EXPLAIN."""
        costs = f"{self.cost:,.0f} comparisons/s, {self.written_cost:,.0f} as written"
        return "join order", f"{', '.join(self.aliases)}; {costs}"


def ordered_joins(
    plan: Plan, statistics: Mapping[str, StreamStatistics]
) -> tuple[Plan, list[JoinChoice]]:
    """Return a plan with the same rows whose joins are in the cheapest order, and the orders.

    Joins below an aggregate keep their order: the last one decides if pairs are needed. So do joins
    on several attributes, and joins of inputs without statistics.

    statistics: by alias.
    """
    choices: list[JoinChoice] = []
    return _ordered(plan, statistics, choices), choices


def _ordered(
    plan: Plan, statistics: Mapping[str, StreamStatistics], choices: list[JoinChoice]
) -> Plan:
    if isinstance(plan, Join) and plan.kind is JoinKind.INNER:
        found = _chosen(plan, statistics)
        if found is not None:
            made, choice = found
            choices.append(choice)
            return made
    if isinstance(plan, Aggregated) and isinstance(plan.input, Join):
        return plan
    return with_inputs(plan, lambda each: _ordered(each, statistics, choices))


def _chosen(
    plan: Join, statistics: Mapping[str, StreamStatistics]
) -> tuple[Plan, JoinChoice] | None:
    inputs: list[Plan] = []
    terms: list[Expression] = []
    _collect(plan, inputs, terms)
    if len(inputs) < _INPUTS_MIN:
        return None
    attribute = _attribute(inputs, terms)
    if attribute is None:
        return None
    keys, others = attribute
    known = [_join_input(each, key, statistics) for each, key in zip(inputs, keys, strict=True)]
    found = [each for each in known if each is not None]
    if len(found) < len(known):
        return None
    written = tuple(range(len(found)))
    order = cheapest_order(found)
    aliases = tuple(next(scans_of(inputs[place])).alias for place in order)
    choice = JoinChoice(aliases, join_cost(found, order), join_cost(found, written))
    if order == written:
        return plan, choice
    made = _left_deep([inputs[place] for place in order], [keys[place] for place in order], others)
    outputs = (Output(each.name, Column(each.name, each.type)) for each in columns_of(plan))
    return Project(made, tuple(outputs)), choice


def _collect(plan: Plan, inputs: list[Plan], terms: list[Expression]) -> None:
    """The inputs of nested inner joins, left to right, and all of their conditions."""
    if isinstance(plan, Join) and plan.kind is JoinKind.INNER:
        _collect(plan.left, inputs, terms)
        _collect(plan.right, inputs, terms)
        terms += conjuncts(plan.condition)
    else:
        inputs.append(plan)


def _attribute(
    inputs: Sequence[Plan], terms: Sequence[Expression]
) -> tuple[list[Column], list[Expression]] | None:
    """The column of each input that all others equal, and the other conditions.

    None: not every input has one, or an input has two. Columns have one type and are not DOUBLE,
    so equality is transitive.
    """
    owner = {each.name: place for place, of in enumerate(inputs) for each in columns_of(of)}
    equal = [term for term in terms if _is_equality(term)]
    joined: dict[int, Column] = {}
    waiting = list(equal)
    while waiting:
        near = [term for term in waiting if not joined or _touches(term, joined)]
        if not near:
            return None
        waiting.remove(near[0])
        for column in _columns(near[0]):
            if joined.setdefault(owner[column.name], column) != column:
                return None
    if len(joined) < len(inputs):
        return None
    others = [term for term in terms if term not in equal]
    return [joined[place] for place in range(len(inputs))], others


def _is_equality(term: Expression) -> bool:
    if not isinstance(term, Call) or term.op is not Op.EQ:
        return False
    left, right = term.args
    both = isinstance(left, Column) and isinstance(right, Column)
    return both and left.type is right.type and left.type is not ColumnType.DOUBLE


def _touches(term: Expression, joined: Mapping[int, Column]) -> bool:
    return any(column in joined.values() for column in _columns(term))


def _columns(term: Expression) -> Iterator[Column]:
    assert isinstance(term, Call)
    for each in term.args:
        assert isinstance(each, Column)
        yield each


def _left_deep(
    inputs: Sequence[Plan], keys: Sequence[Column], others: Sequence[Expression]
) -> Plan:
    """The joins in an order; each condition stands at the first join that has its columns."""
    made, waiting = inputs[0], list(others)
    for each, key in zip(inputs[1:], keys[1:], strict=True):
        equality = Call(Op.EQ, (keys[0], key), ColumnType.BOOLEAN)
        names = frozenset(column.name for side in (made, each) for column in columns_of(side))
        ready = [term for term in waiting if names_in(term) <= names]
        waiting = [term for term in waiting if term not in ready]
        made = Join(JoinKind.INNER, made, each, conjunction([equality, *ready]))
    return made


def _join_input(
    plan: Plan, key: Column, statistics: Mapping[str, StreamStatistics]
) -> JoinInput | None:
    """A window as the cost model of orders knows it; None: another plan."""
    known = window_sample(plan, statistics)
    if known is None:
        return None
    values = evaluate(key, known.tuples).filter(pa.array(known.passing))
    distinct = max(1.0, min(float(pc.count_distinct(values).as_py()), known.rows))
    return JoinInput(known.rate_per_s, known.rows, distinct, buckets=distinct)


@dataclass(frozen=True, slots=True, eq=False)
class WindowSample:
    """A window over conditions over a stream.

    rate_per_s: tuples that meet the conditions. rows: of these, in the window.
    tuples: a sample of the stream, under the plan's names. passing: which meet the conditions.
    """

    rate_per_s: float
    rows: float
    tuples: pa.RecordBatch
    passing: NDArray[np.bool_]


def window_sample(plan: Plan, statistics: Mapping[str, StreamStatistics]) -> WindowSample | None:
    """Return what is known of a window over a stream; None: another plan, or no tuple passes."""
    if not isinstance(plan, WindowOf):
        return None
    conditions = [] if plan.condition is None else [plan.condition]
    source = plan.input
    while isinstance(source, Filter):
        conditions.append(source.condition)
        source = source.input
    if not isinstance(source, Scan) or source.alias not in statistics:
        return None
    known = statistics[source.alias]
    tuples = known.sample.rename_columns([f"{source.alias}.{n}" for n in known.sample.schema.names])
    passing = np.ones(tuples.num_rows, np.bool_)
    for condition in conditions:
        passing &= true_rows(evaluate(condition, tuples))
    if not passing.any():
        return None
    rate = known.rate_per_s * float(passing.mean())
    rows = _rows_of(plan, rate)
    return None if rows is None else WindowSample(rate, rows, tuples, passing)


def _rows_of(plan: WindowOf, rate_per_s: float) -> float | None:
    """Rows in a window; None: it grows for ever, or by partitions."""
    match plan.window:
        case RangeWindow(range_us=range_us) if range_us is not None:
            return rate_per_s * range_us / 1e6
        case NowWindow():
            return rate_per_s / 1e6
        case RowsWindow(rows=rows, partition=()):
            return float(rows)
        case _:
            return None
