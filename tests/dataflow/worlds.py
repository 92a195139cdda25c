"""Random streams, pushed in random batches with disorder, and the relations that come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    AggregateFunction,
    Call,
    Column,
    Expression,
    Literal,
    Op,
)
from shedder.cql.plans.logical_plan import BoundRelational, Plan, RelationKind, Scan, WindowOf
from shedder.cql.statements.statement import ColumnDefinition, RangeWindow
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.dataflow import Dataflow
from shedder.dataflow.join_order import StreamStatistics
from tests.dataflow.brute_force import At, Row, Tuple

END = 400  # Event times of a world are in [0, END).
K, X, NAME, D, TS = range(5)  # Places in a row; those of the right side of a join are 5 more.
COUNT, SUM, AVG = AggregateFunction.COUNT, AggregateFunction.SUM, AggregateFunction.AVG
BIGINT, DOUBLE = ColumnType.BIGINT, ColumnType.DOUBLE
COLUMNS = {
    "k": ColumnType.BIGINT,
    "x": ColumnType.INTEGER,
    "name": ColumnType.VARCHAR,
    "d": ColumnType.DOUBLE,
}
KINDS = {**COLUMNS, "ts": ColumnType.TIMESTAMP}
SCHEMA = pa.schema([(name, kind.arrow) for name, kind in KINDS.items()])


def stream(seed: int, size: int = 120, keys: int = 6) -> list[Tuple]:
    """Tuples (k, x, name, d, ts) with ties and NULLs, in the order of their positions."""
    random = Random(seed)
    times = sorted(random.randrange(END) for _ in range(size))

    def some(value: Any) -> Any:
        return None if random.random() < 0.1 else value

    return [
        (
            ts,
            position,
            (
                some(random.randrange(keys)),
                some(random.randrange(4)),
                some(random.choice(["", "a", "bb", "é" * 20])),
                some(random.choice([0.0, 1.5, -2.25])),
                ts,
            ),
        )
        for position, ts in enumerate(times)
    ]


def column(name: str, kind: ColumnType | None = None) -> Column:
    """A bound column `alias.name`."""
    return Column(name, kind or KINDS[name.partition(".")[2]])


def number(value: int) -> Literal:
    return Literal(value, ColumnType.BIGINT)


def boolean(op: Op, *args: Expression) -> Call:
    return Call(op, args, ColumnType.BOOLEAN)


def equal(left: str, right: str) -> Call:
    return boolean(Op.EQ, column(left), column(right))


def scan(alias: str, relation: str | None = None) -> Scan:
    """All columns of a stream; the event time is `alias.ts`."""
    columns = tuple(
        ColumnDefinition(f"{alias}.{name}", kind, nullable=name != "ts")
        for name, kind in KINDS.items()
    )
    return Scan(relation or alias, alias, RelationKind.STREAM, columns, f"{alias}.ts")


def windowed(alias: str, size: int, slide: int = 1, relation: str | None = None) -> WindowOf:
    return WindowOf(scan(alias, relation), RangeWindow(size, slide))


def dataflow(
    plan: Plan,
    state_bytes_max: int = 1 << 26,
    statistics: Mapping[str, StreamStatistics] | None = None,
) -> Dataflow:
    bound = BoundRelational("", plan, ())
    return Dataflow(bound, state_bytes_max=state_bytes_max, statistics=statistics)


def batch_of(rows: Sequence[Tuple]) -> pa.RecordBatch:
    columns = list(zip(*(row for _, _, row in rows), strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(list(v), f.type) for v, f in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@dataclass
class Run:
    """ChangeBatch of one run. steps: (as_of_us, changes), in order."""

    flow: Dataflow
    steps: list[tuple[int, ChangeBatch]]

    @cached_property
    def changes(self) -> ChangeBatch:
        return ChangeBatch.concat([changes for _, changes in self.steps])

    @cached_property
    def rows(self) -> list[Row]:
        """The values of all changes; read once all steps are made."""
        return rows_of(self.changes.columns)

    def at(self, e: int) -> Counter[Row]:
        """The relation as of e, by the definition of changes."""
        changes = self.changes
        live = np.flatnonzero((changes.born_us <= e) & (e <= changes.expires_us))
        bag: Counter[Row] = Counter()
        for at, weight in zip(live.tolist(), changes.weight[live].tolist(), strict=True):
            bag[self.rows[at]] += weight
        assert all(count >= 0 for count in bag.values()), bag
        return +bag


def rows_of(batch: pa.RecordBatch | pa.Table) -> list[Row]:
    plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns]
    return list(zip(*(c.to_pylist() for c in plain), strict=True))


def run(
    plan: Plan,
    streams: Mapping[str, Sequence[Tuple]],
    seed: int,
    lateness: int = 15,
    batch_max: int = 20,
    statistics: Mapping[str, StreamStatistics] | None = None,
) -> Run:
    """Push streams by alias in random batches, disordered within the lateness."""
    random = Random(seed)
    made = Run(dataflow(plan, statistics=statistics), [])
    left = {
        alias: sorted(rows, key=lambda each: each[0] + random.random() * lateness * 0.99)
        for alias, rows in streams.items()
    }
    newest = dict.fromkeys(streams, 0)
    while any(left.values()):
        alias = random.choice([name for name, rows in left.items() if rows])
        size = random.randint(1, batch_max)
        rows, left[alias] = left[alias][:size], left[alias][size:]
        places = np.array([position for _, position, _ in rows])
        assert made.flow.push(alias, batch_of(rows), places) == 0
        newest[alias] = max(newest[alias], *(ts for ts, _, _ in rows))
        _advance(made, {alias: newest[alias] - lateness})
    end = max(newest.values()) + 2 * END
    _advance(made, dict.fromkeys(streams, end))
    return made


def _advance(made: Run, watermarks: dict[str, int]) -> None:
    before_us = made.flow.as_of_us
    changes = made.flow.advance(watermarks)
    if made.flow.as_of_us is not None and made.flow.as_of_us != before_us:
        made.steps.append((made.flow.as_of_us, changes))


def instants(seed: int) -> list[int]:
    """Return instants of a world, and some behind its end."""
    dice = Random(seed)
    return [dice.randrange(END + 100) for _ in range(200)]


def check(plan: Plan, streams: Mapping[str, list[Tuple]], expected: At, seed: int) -> None:
    """Check that a plan's relation is the expected one at many instants."""
    made = run(plan, streams, seed=seed)
    for e in instants(seed + 1):
        assert made.at(e) == Counter(expected(e)), e


def matches(place: int, other: int | None = None) -> Callable[[Row, Row], bool]:
    """Return the equality of two columns, as in SQL: NULL equals nothing."""
    at = place if other is None else other
    return lambda a, b: a[place] is not None and a[place] == b[at]


def folded(function: AggregateFunction, place: int | None, rows: list[Row]) -> Any:
    """Return COUNT, SUM or AVG of a column of rows; place None: COUNT(*)."""
    if place is None:
        return len(rows)
    values = [row[place] for row in rows if row[place] is not None]
    if function is AggregateFunction.COUNT:
        return len(values)
    if not values:
        return None
    total = sum(map(Fraction, values))
    return total if function is AggregateFunction.SUM else float(total) / len(values)


def grouped(
    source: At,
    places: tuple[int, ...],
    aggregates: Sequence[tuple[AggregateFunction, int | None]],
) -> At:
    """Return a relation's groups by some places, each with its aggregates."""

    def at(e: int) -> list[Row]:
        groups: dict[Row, list[Row]] = {} if places else {(): []}
        for row in source(e):
            groups.setdefault(tuple(row[place] for place in places), []).append(row)
        return [
            (*key, *(folded(function, place, rows) for function, place in aggregates))
            for key, rows in groups.items()
        ]

    return at
