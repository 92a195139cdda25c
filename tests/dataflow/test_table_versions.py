"""Versions of tables and their joins, against a dict of rows for each place."""

from __future__ import annotations

from collections import Counter, deque
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Op
from shedder.cql.plans.logical_plan import BoundRelational, Join, JoinKind, RelationKind, Scan
from shedder.cql.statements.statement import ColumnDefinition
from shedder.cql.statements.table_schema import TableSchema
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.dataflow import Dataflow
from shedder.dataflow.tables.table_changes import TableChanges
from shedder.dataflow.tables.table_places import Reached
from shedder.dataflow.tables.table_versions import TableVersions
from tests.dataflow.worlds import batch_of, equal, rows_of, scan

SCHEMA = TableSchema(
    "t",
    (
        ColumnDefinition("name", ColumnType.VARCHAR, True),
        ColumnDefinition("k", ColumnType.BIGINT, False),
    ),
    ("k",),
)
TABLE = Scan(
    "t",
    "t",
    RelationKind.TABLE,
    tuple(ColumnDefinition(f"t.{each.name}", each.type, True) for each in SCHEMA.columns),
    None,
)
Rows = dict[int, str]


def upserted(rows: Rows) -> pa.RecordBatch:
    columns = [pa.array(list(rows.values()), pa.string()), pa.array(list(rows), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=["name", "k"])


def joined(kind: JoinKind, *, by_name: bool = False) -> Dataflow:
    condition = equal_keys()
    if by_name:
        names = Column("a.name", ColumnType.VARCHAR), Column("t.name", ColumnType.VARCHAR)
        also = Call(Op.EQ, names, ColumnType.BOOLEAN)
        condition = Call(Op.AND, (condition, also), ColumnType.BOOLEAN)
    plan = Join(kind, scan("a"), TABLE, condition)
    return Dataflow(BoundRelational("", plan, ()), state_bytes_max=1 << 26, tables={"t": SCHEMA})


def equal_keys():
    condition = equal("a.k", "a.x")
    left, _ = condition.args
    right = type(left)("t.k", ColumnType.BIGINT)
    return type(condition)(condition.op, (left, right), ColumnType.BOOLEAN)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.LEFT])
def test_tuples_that_wait_join_old_versions_while_others_are_forgotten(kind):
    """The watermark is 4 tuples behind, so a tuple joins up to 60 changes after it came."""
    random = Random(81)
    flow, now = joined(kind), dict[int, str]()
    expected: list[tuple[object, ...]] = []
    places: list[int] = []
    got: list[tuple[object, ...]] = []
    changes = sizes = 0
    for ts in range(160):
        for _ in range(15):
            changes += 1
            place = flow.places.next({"a": Reached(ts, None)})
            keys = random.sample(range(6), 3)
            if random.random() < 0.2:
                now = {key: name for key, name in now.items() if key not in keys}
                flow.versions["t"].delete(upserted(dict.fromkeys(keys, "")), place)
            else:
                rows = dict.fromkeys(keys, f"{place}")
                now = {**now, **rows}
                flow.versions["t"].upsert(upserted(rows), place)
        key = random.choice([None, *range(6)])
        flow.push("a", batch_of([(ts, ts, (key, 1, "", 0.0, ts))]), ts)
        places.append(place)
        if key in now or kind is JoinKind.LEFT:
            name = now.get(key)
            expected.append((ts, name, None if name is None else key))
        made = flow.advance({"a": ts - 3}).columns.select(["a.ts", "t.name", "t.k"])
        got += rows_of(made)
        sizes = max(sizes, len(flow.versions["t"]))
        flow.versions["t"].forget(places[max(0, ts - 3)])
    got += rows_of(flow.advance({"a": 1_000}).columns.select(["a.ts", "t.name", "t.k"]))
    assert got == expected
    assert flow.versions["t"].generation > 3
    assert sizes < 3_000 < 3 * changes


@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI])
@pytest.mark.parametrize("by_name", [False, True])
def test_joins_by_the_primary_key_find_the_version_of_each_place(kind, by_name):
    """Some steps have tuples between changes, some behind all of them; keys are deleted, too.

    by_name: the name is a second key of the join, so older versions are first in their chains.
    """
    random = Random(83)
    flow, now, pushed = joined(kind, by_name=by_name), dict[int, str](), 0
    for step in range(120):
        tuples, expected = [], []
        for _ in range(random.choice([1, 4])):
            place = flow.places.next({"a": Reached(pushed + len(tuples), None)})
            keys = random.sample(range(8), 3)
            if step % 40 > 30 and random.random() < 0.3:
                now = {key: name for key, name in now.items() if key not in keys}
                flow.versions["t"].delete(upserted(dict.fromkeys(keys, "")), place)
            else:
                rows = dict.fromkeys(keys, random.choice("xy"))
                now = {**now, **rows}
                flow.versions["t"].upsert(upserted(rows), place)
            for _ in range(random.choice([0, 2, 9])):
                key, name = random.choice([None, *range(9)]), random.choice("xy")
                tuples.append((step, len(tuples), (key, 1, name, 0.0, step)))
                found = key in now and (not by_name or now[key] == name)
                pair = (key, key, now[key]) if found else (key, None, None)
                if kind in (JoinKind.SEMI, JoinKind.ANTI):
                    expected += [(key,)] if found == (kind is JoinKind.SEMI) else []
                elif found or kind is JoinKind.LEFT:
                    expected.append(pair)
        if tuples:
            flow.push("a", batch_of(tuples), pushed)
            pushed += len(tuples)
        made = flow.advance({"a": step + 1}).columns
        names = [name for name in ("a.k", "t.k", "t.name") if name in made.schema.names]
        assert rows_of(made.select(names)) == expected
        if step % 10 == 9:
            flow.versions["t"].forget(place)


def test_history_restores_the_versions_behind_a_place():
    random = Random(82)
    versions, at = TableVersions(TABLE, SCHEMA), list[Rows]([{}])
    for place in range(1, 40):
        rows = dict.fromkeys(random.sample(range(9), 2), f"{place}")
        now = {**at[-1], **rows}
        versions.upsert(upserted(rows), place)
        if place % 3 == 0:
            gone = random.choice(list(now))
            versions.delete(upserted({gone: ""}), place)
            del now[gone]
        at.append(now)
    for base in (0, 17, 39):
        again = TableVersions(TABLE, SCHEMA)
        again.upsert(upserted(at[-1]), 0)
        again.restore(versions.history(base))
        spans, rows = again.spans, rows_of(again.take(np.arange(len(again))))
        for place in range(base, 40):
            valid = (spans[:, 0] <= place - base) & (place - base < spans[:, 1])
            found = [(key, name) for name, key in np.array(rows, object)[valid].tolist()]
            assert sorted(found) == sorted(at[place].items()), (base, place)


@pytest.mark.parametrize("world", range(2))
def test_changes_of_a_table_give_its_rows_as_of_each_instant(world):
    """Versions of the past are forgotten, and a new relation goes on from a stored history."""
    random = Random(83 + world)
    versions = TableVersions(TABLE, SCHEMA)
    relation, made = TableChanges(versions), list[ChangeBatch]()
    at, instant, generations = {0: Rows()}, 0, 0
    for step in range(1, 300):
        instant += random.choice([0, 1, 1, 5])
        now = at[max(at)]
        keys = random.sample(range(60), 12)
        if random.random() < 0.3:
            now = {key: name for key, name in now.items() if key not in keys}
            versions.delete(upserted(dict.fromkeys(keys, "")), instant)
        else:
            rows = dict.fromkeys(keys, f"{step}")
            now = {**now, **rows}
            versions.upsert(upserted(rows), instant)
        at[instant] = now
        if random.random() < 0.5:
            made.append(relation.release(instant))
            instant += 1
            if random.random() < 0.2:
                versions.forget(instant - 1)
                generations = max(generations, versions.generation)
        if step == 250:
            released, history = instant - 1, versions.history(instant - 1)
            made.append(relation.release(released))
            versions = TableVersions(TABLE, SCHEMA)
            versions.upsert(upserted(now), released)
            versions.restore(history, released)
            relation = TableChanges(versions)
            before = relation.release(released)
            assert sorted(rows_of(before.columns)) == sorted(
                (name, key) for key, name in at[max(it for it in at if it <= released)].items()
            )
    made.append(relation.release(instant))
    changes = ChangeBatch.concat(made)
    assert generations
    left = deque(
        sorted(zip(changes.born_us, rows_of(changes.columns), changes.weight, strict=True))
    )
    bag: Counter[tuple[object, ...]] = Counter()
    for e in range(instant + 1):
        while left and left[0][0] <= e:
            _, row, weight = left.popleft()
            bag[row] += int(weight)
        expected = at[max(it for it in at if it <= e)]
        assert {row for row, count in bag.items() if count == 1} == {
            (name, key) for key, name in expected.items()
        }, e
        assert set(bag.values()) <= {0, 1}, e
