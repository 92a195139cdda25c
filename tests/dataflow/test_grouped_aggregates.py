"""All aggregates over relations whose rows leave, against brute force with fractions and lists."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Op,
)
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Filter,
    Join,
    JoinKind,
    RowsWindow,
    StreamOperator,
    ToStream,
    WindowOf,
)
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.sums.grouped_aggregates import (
    AggregateSpec,
    GroupedAggregates,
    output_schema,
)
from shedder.errors import BudgetExceeded, Unimplemented
from tests.dataflow import brute_force as brute
from tests.dataflow.aggregate_world import at_each_instant
from tests.dataflow.worlds import (
    BIGINT,
    DOUBLE,
    END,
    NAME,
    TS,
    D,
    K,
    X,
    batch_of,
    boolean,
    column,
    dataflow,
    equal,
    number,
    rows_of,
    run,
    scan,
    stream,
    windowed,
)

F = AggregateFunction
A, B = stream(201), stream(202)
STREAMS = {"a": A, "b": B}


def as_double(name: str) -> Call:
    return Call(Op.CAST, (column(name),), DOUBLE)


def variance(values: list[Fraction]) -> Fraction:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)


def var(values):
    if len(values) < 2:
        return None
    return float(variance([Fraction(v) for v in values]) / (len(values) - 1))


def root(value):
    return None if value is None else math.sqrt(value)


def moments(pairs):
    """n, and the sums of squares and products about the means."""
    ys, xs = zip(*[(Fraction(y), Fraction(x)) for y, x in pairs], strict=True)
    my, mx = sum(ys) / len(ys), sum(xs) / len(xs)
    products = sum((y - my) * (x - mx) for y, x in zip(ys, xs, strict=True))
    return products, variance(list(ys)), variance(list(xs)), my, mx


def covar(pairs, freedom):
    if len(pairs) <= freedom:
        return None
    return float(moments(pairs)[0] / (len(pairs) - freedom))


def corr(pairs):
    if not pairs:
        return None
    products, ys, xs, *_ = moments(pairs)
    return None if 0 in (ys, xs) else float(products) / math.sqrt(ys) / math.sqrt(xs)


def line(pairs, intercept):
    if not pairs:
        return None
    products, _, xs, my, mx = moments(pairs)
    if xs == 0:
        return None
    slope = products / xs
    return float(my - slope * mx if intercept else slope)


def quantile(values, q):
    if not values:
        return None
    return sorted(values)[max(1, math.ceil(Fraction(str(q)) * len(values))) - 1]


@dataclass(frozen=True)
class Case:
    """An aggregate over alias a, and its value over lists of non-NULL values.

    places: of the columns that it reads.
    """

    aggregate: Aggregate
    places: tuple[int, ...]
    value: object

    def of(self, rows):
        read = [tuple(row[place] for place in self.places) for row in rows]
        read = [each for each in read if None not in each]
        return self.value([each[0] for each in read] if len(self.places) == 1 else read)


def pairs_case(function, value):
    return Case(
        Aggregate(function, column("a.d"), second=as_double("a.x"), type=DOUBLE), (D, X), value
    )


def minimum(values):
    return min(values, default=None)


def maximum(values):
    return max(values, default=None)


LINEAR = (
    Case(Aggregate(F.VAR, column("a.x"), type=DOUBLE), (X,), var),
    Case(Aggregate(F.STDDEV, column("a.d"), type=DOUBLE), (D,), lambda v: root(var(v))),
    pairs_case(F.COVAR_POP, lambda p: covar(p, 0)),
    pairs_case(F.COVAR_SAMP, lambda p: covar(p, 1)),
    pairs_case(F.CORR, corr),
    pairs_case(F.REGR_SLOPE, lambda p: line(p, intercept=False)),
    pairs_case(F.REGR_INTERCEPT, lambda p: line(p, intercept=True)),
    Case(
        Aggregate(F.COVAR_SAMP, as_double("a.k"), second=as_double("a.x"), type=DOUBLE),
        (K, X),
        lambda p: covar(p, 1),
    ),
    Case(Aggregate(F.COUNT, None, type=BIGINT), (), len),
)
ORDERED = (
    Case(Aggregate(F.MIN, column("a.x"), type=ColumnType.INTEGER), (X,), minimum),
    Case(Aggregate(F.MAX, column("a.d"), type=DOUBLE), (D,), maximum),
    Case(Aggregate(F.MIN, column("a.d"), type=DOUBLE), (D,), minimum),
    Case(Aggregate(F.MAX, column("a.ts"), type=ColumnType.TIMESTAMP), (TS,), maximum),
    Case(Aggregate(F.COUNT_DISTINCT, column("a.name"), type=BIGINT), (NAME,), lambda v: len({*v})),
    Case(Aggregate(F.COUNT_DISTINCT, column("a.d"), type=BIGINT), (D,), lambda v: len({*v})),
    Case(Aggregate(F.QUANTILE, column("a.k"), 0.5, BIGINT), (K,), lambda v: quantile(v, 0.5)),
    Case(Aggregate(F.QUANTILE, column("a.d"), 0.9, DOUBLE), (D,), lambda v: quantile(v, 0.9)),
    Case(Aggregate(F.QUANTILE, column("a.k"), 0.0, BIGINT), (K,), lambda v: quantile(v, 0.0)),
)


def set_case(function, value):
    p = boolean(Op.LT, column("a.x"), number(2))
    q = boolean(Op.GT, column("a.x"), number(0))

    def of(pairs):
        left = {name for name, x in pairs if x < 2}
        right = {name for name, x in pairs if x > 0}
        return value(left, right)

    kind = DOUBLE if function is F.JACCARD else BIGINT
    return Case(Aggregate(function, column("a.name"), type=kind, conditions=(p, q)), (NAME, X), of)


def pairs_alike(values):
    return float(sum(n * n for n in Counter(values).values()))


SETS = (
    Case(Aggregate(F.SELF_JOIN_SIZE, column("a.name"), type=DOUBLE), (NAME,), pairs_alike),
    Case(Aggregate(F.SELF_JOIN_SIZE, column("a.d"), type=DOUBLE), (D,), pairs_alike),
    set_case(F.DISTINCT_BOTH, lambda p, q: len(p & q)),
    set_case(F.DISTINCT_ONLY, lambda p, q: len(p - q)),
    set_case(F.JACCARD, lambda p, q: len(p & q) / len(p | q) if p | q else None),
)
BY_TIME = tuple(
    Case(Aggregate(function, column(f"a.{name}"), type=kind), (place,), value)
    for name, kind, place in (("name", ColumnType.VARCHAR, NAME), ("d", DOUBLE, D))
    for function, value in (
        (F.FIRST, lambda v: v[0] if v else None),
        (F.LAST, lambda v: v[-1] if v else None),
    )
)


def grouped(source: brute.At, places: tuple[int, ...], cases) -> brute.At:
    def at(e):
        groups: dict = {} if places else {(): []}
        for row in source(e):
            groups.setdefault(tuple(row[place] for place in places), []).append(row)
        return [(*key, *(case.of(rows) for case in cases)) for key, rows in groups.items()]

    return at


def rounded(row):
    return tuple(float(f"{v:.9g}") if isinstance(v, float) else v for v in row)


def check(source, relation, places, cases, seed, streams=STREAMS, batch_max=20):
    groups = tuple(column(f"a.{('k', 'x', 'name', 'd')[place]}") for place in places)
    plan = Aggregated(source, groups, tuple(case.aggregate for case in cases))
    made = run(plan, streams, seed=seed, batch_max=batch_max)
    expected = grouped(relation, places, cases)
    random = Random(seed + 1)
    for e in sorted({0, END, *(random.randrange(END + 100) for _ in range(100))}):
        found = Counter({rounded(row): n for row, n in made.at(e).items()})
        assert found == Counter(map(rounded, expected(e))), e


@pytest.mark.parametrize("cases", [LINEAR, ORDERED, SETS, BY_TIME], ids=lambda c: str(len(c)))
@pytest.mark.parametrize("places", [(), (K,), (NAME,)])
def test_aggregates_of_a_window_are_those_of_the_brute_force(cases, places):
    window, relation = windowed("a", 60, 10), brute.range_window(A, 60, 10)
    check(window, relation, places, cases, seed=203, streams={"a": A})


@pytest.mark.parametrize("cases", [LINEAR, ORDERED, SETS], ids=lambda c: str(len(c)))
@pytest.mark.parametrize("batch_max", [1, 100])
def test_rows_that_a_newer_row_evicts_leave_all_aggregates(cases, batch_max):
    rows = WindowOf(scan("a"), RowsWindow(4, partition=("a.k",)))
    relation = brute.rows_window(A, 4, lambda row: row[K])
    check(rows, relation, (X,), cases, seed=204, streams={"a": A}, batch_max=batch_max)


def match(a, b):
    return a[K] is not None and a[K] == b[K]


@pytest.mark.parametrize("cases", [LINEAR, ORDERED, SETS], ids=lambda c: str(len(c)))
@pytest.mark.parametrize("places", [(), (K,), (NAME,)])
def test_aggregates_of_a_join_are_those_of_the_brute_force(cases, places):
    join = Join(JoinKind.INNER, windowed("a", 40), windowed("b", 20), equal("a.k", "b.k"))
    relation = brute.join(brute.range_window(A, 40), brute.range_window(B, 20), match)
    check(join, relation, places, cases, seed=205)


@pytest.mark.parametrize("cases", [LINEAR, ORDERED], ids=lambda c: str(len(c)))
def test_aggregates_of_an_anti_join_are_those_of_the_brute_force(cases):
    join = Join(JoinKind.ANTI, windowed("a", 40), windowed("b", 20), equal("a.k", "b.k"))
    ours, theirs = brute.range_window(A, 40), brute.range_window(B, 20)

    def alone(e):
        taken = {row[K] for row in theirs(e)} - {None}
        return [row for row in ours(e) if row[K] not in taken]

    check(join, alone, (), cases, seed=206)


def test_correlation_of_both_sides_of_a_join_is_that_of_the_pairs():
    join = Join(JoinKind.INNER, windowed("a", 60), windowed("b", 60), equal("a.k", "b.k"))
    of = Aggregate(F.CORR, column("a.d"), second=column("b.d"), type=DOUBLE)
    relation = brute.join(brute.range_window(A, 60), brute.range_window(B, 60), match)
    check(join, relation, (), (Case(of, (D, 5 + D), corr),), seed=207)


def test_having_over_a_maximum_is_that_of_the_brute_force():
    rows = WindowOf(scan("a"), RowsWindow(4, partition=("a.k",)))
    case = ORDERED[0], LINEAR[-1]
    kept = Filter(
        Aggregated(rows, (column("a.k"),), tuple(each.aggregate for each in case)),
        boolean(Op.EQ, column("a0", ColumnType.INTEGER), number(0)),
    )
    made = run(kept, {"a": A}, seed=208)
    relation = grouped(brute.rows_window(A, 4, lambda row: row[K]), (K,), case)
    for e in range(0, END, 7):
        assert made.at(e) == Counter(row for row in relation(e) if row[1] == 0)


def test_variance_keeps_digits_that_sums_of_squares_cancel():
    of = Aggregate(F.VAR, column("a.d"), type=DOUBLE)
    values = [1e16, 1e16 + 2, 1e16 + 4, 1.0, 1.0, 1e-160, 3e-160, 1e200, 1e200, math.inf, 1.0, 3.0]
    halves = [var([*pair]) for pair in pairwise(values[:7])]
    found = at_each_instant(values, of)
    assert found[:7] == [None, *halves]
    assert found[7:] == [None, 0.0, None, None, 2.0]
    of = Aggregate(F.VAR, column("a.k"), type=DOUBLE)
    top = 2**63 - 1
    assert at_each_instant([top, top - 2, -(2**63), 0], of, K) == [
        None, 2.0, (2.0**64 - 3) ** 2 / 2, 2.0**125,
    ]  # fmt: skip


def test_first_and_last_of_rows_without_an_order_of_arrival_are_refused():
    rows = WindowOf(scan("a"), RowsWindow(2))
    join = Join(JoinKind.INNER, windowed("a", 10), windowed("b", 10), equal("a.k", "b.k"))
    for source in (rows, join):
        with pytest.raises(Unimplemented, match="FIRST in a standing row query is over a time"):
            dataflow(Aggregated(source, (), (BY_TIME[0].aggregate,)))
    text = Aggregate(F.MIN, column("a.name"), type=ColumnType.VARCHAR)
    with pytest.raises(Unimplemented, match="MIN of VARCHAR"):
        dataflow(Aggregated(rows, (), (text,)))


def test_texts_and_values_that_have_left_take_no_memory():
    cases = (*ORDERED[:5], BY_TIME[0])
    plan = Aggregated(windowed("a", 100), (), tuple(case.aggregate for case in cases))
    flow = dataflow(plan)
    for first in range(0, 40_000, 2_000):
        rows = [(ts, ts, (ts, ts % 7, f"t{ts}", 0.5, ts)) for ts in range(first, first + 2_000)]
        flow.push("a", batch_of(rows), first)
        last = flow.advance({"a": first + 2_000}).columns.to_pylist()[-1]
        assert (last["a4"], last["a5"]) == (100, f"t{first + 1_900}")
        assert flow.size_bytes < 8_000_000


def test_more_copies_of_one_row_than_are_counted_exactly_are_refused():
    join = Join(JoinKind.INNER, windowed("a", 10**6), windowed("b", 10**6), equal("a.k", "b.k"))
    again = Join(JoinKind.INNER, join, windowed("c", 10**6), equal("a.k", "c.k"))
    rows = [(ts, ts, (7, 1, "a", 0.5, ts)) for ts in range(20_000)]
    flow = dataflow(Aggregated(join, (), (LINEAR[-1].aggregate,)), state_bytes_max=1 << 28)
    flow.push("a", batch_of(rows), 0)
    flow.push("b", batch_of(rows), 0)
    made = flow.advance({"a": 10**5, "b": 10**5})
    assert made.columns.to_pylist()[-1] == {"a0": 4 * 10**8}
    flow = dataflow(Aggregated(again, (), (LINEAR[-1].aggregate,)), state_bytes_max=1 << 24)
    for alias in "abc":
        flow.push(alias, batch_of(rows), 0)
    with pytest.raises(BudgetExceeded):
        flow.advance(dict.fromkeys("abc", 10**5))


@pytest.mark.parametrize("cases", [LINEAR, ORDERED], ids=lambda c: str(len(c)))
def test_stream_of_aggregates_does_not_depend_on_batches(cases):
    join = Join(JoinKind.INNER, windowed("a", 60), windowed("b", 40), equal("a.k", "b.k"))
    aggregates = tuple(case.aggregate for case in cases)
    plan = ToStream(StreamOperator.ISTREAM, Aggregated(join, (column("a.k"),), aggregates))
    runs = [run(plan, STREAMS, seed=210 + size, batch_max=size).changes for size in (1, 100)]
    found = [list(zip(each.ts_us.tolist(), rows_of(each.columns), strict=True)) for each in runs]
    assert found[0] == found[1]
    assert len(found[0]) > 100


def test_few_rows_do_not_hold_the_room_of_all_events():
    count = Aggregate(F.COUNT, None, type=BIGINT)
    schema = output_schema((), (count,))
    totals = GroupedAggregates(AggregateSpec.of_rows((), (count,)), schema)
    times = np.zeros(1_000, np.int64)
    tuples = pa.RecordBatch.from_arrays([pa.array(times)], names=["v"])
    made = [totals.apply(at, ChangeBatch.of_tuples(tuples, times + at)) for at in (1, 2, 3)]
    for changes in made[1:]:
        assert len(changes) == 2
        for array in (changes.weight, changes.born_us, changes.columns.column(0).to_numpy()):
            held = array if array.base is None else array.base
            assert not isinstance(held, np.ndarray) or held.nbytes < 1_000


@pytest.mark.parametrize("kind", [ColumnType.BIGINT, ColumnType.DOUBLE, ColumnType.TIMESTAMP])
def test_keys_of_one_column_are_those_of_the_rows_before_and_behind_the_first_null(kind):
    """Keys of 64 bits without NULL are written by the kernel, others are looked up."""
    count = Aggregate(F.COUNT, None, type=BIGINT)
    key = Column("k", kind)
    totals = GroupedAggregates(
        AggregateSpec.of_rows((key,), (count,)), output_schema((key,), (count,))
    )
    rows, held = [], Counter()
    for at, numbers in enumerate([[7, -3, 7], [0, 7], [None, 7], [-3, None, 5]], start=1):
        keys = pa.array(numbers, pa.int64()).cast(kind.arrow)
        tuples = pa.RecordBatch.from_arrays([keys], names=["k"])
        made = totals.apply(at, ChangeBatch.of_tuples(tuples, np.full(len(numbers), at - 1)))
        rows += keys.to_pylist()
        for weight, row in zip(made.weight.tolist(), made.columns.to_pylist(), strict=True):
            held[tuple(row.values())] += weight
        assert +held == Counter(Counter(rows).items())
