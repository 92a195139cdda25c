"""Rows of a table against a dict of the same rows, keyed by the same keys."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from shedder.archive.log.table_changes import ChangeKind, TableChange, batch_of_body, body_of
from shedder.archive.tables.table_rows import PIECE_ROWS_MAX, TableRows, arrow_columns
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.statement import ColumnDefinition
from shedder.cql.statements.table_schema import TableSchema
from tests.scale import scaled
from tests.seeds import seed

VALUE = ColumnDefinition("v", ColumnType.DOUBLE, True)
# Texts whose lengths and separators could be confused in a key of several columns.
TEXTS = ["", " ", "1", "1:", "a", "a b", "b", "1:a", "3:a b", "ä", "\0"]
VALUES = {
    ColumnType.BOOLEAN: [False, True],
    ColumnType.INTEGER: [-1, 0, 1, 11, 2**31 - 1],
    ColumnType.BIGINT: [-(2**63), -1, 0, 1, 11, 2**63 - 1],
    ColumnType.VARCHAR: TEXTS,
    ColumnType.TIMESTAMP: [-1, 0, 1_000_000, 1_700_000_000_000_001],
    ColumnType.DATE: [-1, 0, 19_000],
}
KEYS = [
    *[(kind,) for kind in VALUES],
    (ColumnType.VARCHAR, ColumnType.VARCHAR),
    (ColumnType.BIGINT, ColumnType.VARCHAR, ColumnType.INTEGER),
    (ColumnType.DATE, ColumnType.TIMESTAMP, ColumnType.BOOLEAN),
]


def schema_of(kinds: tuple[ColumnType, ...]) -> TableSchema:
    key = tuple(ColumnDefinition(f"k{at}", kind, False) for at, kind in enumerate(kinds))
    return TableSchema("t", (VALUE, *key), tuple(column.name for column in key))


def batch_of(schema: TableSchema, rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    """Rows of (v, *key), with moments and days as numbers."""
    plain = {ColumnType.TIMESTAMP: pa.int64(), ColumnType.DATE: pa.int32()}
    columns = [
        pa.array([row[at] for row in rows], plain.get(column.type, column.type.arrow)).cast(
            column.type.arrow
        )
        for at, column in enumerate(schema.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_columns(schema.columns))


def keyed(
    batch: pa.RecordBatch | pa.Table, schema: TableSchema
) -> dict[tuple[object, ...], object]:
    """The values of a batch by key; a later row replaces an earlier one."""
    rows = batch.to_pylist()
    return {tuple(row[name] for name in schema.key): row["v"] for row in rows}


@pytest.mark.parametrize("kinds", KEYS, ids=lambda kinds: "-".join(k.value for k in kinds))
def test_any_changes_leave_the_rows_that_a_dict_has(kinds: tuple[ColumnType, ...]) -> None:
    schema, chance = schema_of(kinds), random.Random(seed("table rows", str(kinds)))
    rows, truth = TableRows(schema), {}
    for version in range(1, scaled(40, 200)):
        made = [
            (chance.choice([None, 1.5, -0.0]), *(chance.choice(VALUES[kind]) for kind in kinds))
            for _ in range(chance.choice([1, 1, 2, 30]))
        ]
        batch = batch_of(schema, made)
        keys = keyed(batch, schema)
        there = rows.first_existing(batch)
        assert (there is None) == truth.keys().isdisjoint(keys)
        assert (rows.first_repeated(batch) is None) == (len(keys) == len(made))
        if chance.random() < 0.6:
            last = rows.last_of_each_key(batch)
            assert keyed(last, schema) == keys
            assert last.num_rows == len(keys)
            rows = rows.changed(ChangeKind.UPSERT, last, version=version)
            truth |= keys
        else:
            gone = batch.select(list(schema.key))
            rows = rows.changed(ChangeKind.DELETE, gone, version=version)
            truth = {key: value for key, value in truth.items() if key not in keys}
        assert keyed(rows.table(), schema) == truth
        assert rows.rows == len(truth)
        assert (rows.version, rows.lost) == (version, 0)


@pytest.mark.parametrize("kinds", KEYS, ids=lambda kinds: "-".join(k.value for k in kinds))
def test_changes_together_leave_the_rows_that_they_leave_one_by_one(
    kinds: tuple[ColumnType, ...],
) -> None:
    schema, chance = schema_of(kinds), random.Random(seed("changes together", str(kinds)))
    one_by_one = together = TableRows(schema)
    for _ in range(scaled(10, 100)):
        changes, version = [], together.version
        for _ in range(chance.choice([0, 1, 2, 20])):
            kind = chance.choice([ChangeKind.UPSERT, ChangeKind.UPSERT, ChangeKind.DELETE])
            keys = tuple(chance.choice(VALUES[each]) for each in kinds)
            batch = batch_of(schema, [(chance.choice([None, 1.5, -0.0]), *keys)])
            if kind is ChangeKind.DELETE:
                batch = batch.select(list(schema.key))
            version += chance.choice([1, 1, 1, 4])  # Those between are lost.
            changes.append((kind, batch, version))
            one_by_one = one_by_one.changed(kind, batch, version=version)
        together = together.changed_by(changes)
        assert keyed(together.table(), schema) == keyed(one_by_one.table(), schema)
        assert (together.rows, together.version) == (one_by_one.rows, one_by_one.version)
        assert together.lost == one_by_one.lost


def test_a_table_without_rows_has_its_columns() -> None:
    schema = schema_of((ColumnType.VARCHAR,))
    rows = TableRows(schema)
    assert rows.table().schema == arrow_columns(schema.columns)
    assert (rows.rows, rows.size_bytes) == (0, 0)
    assert rows.first_existing(batch_of(schema, [(1.0, "a")])) is None
    assert rows.changed(ChangeKind.DELETE, batch_of(schema, [(1.0, "a")]), version=1).rows == 0


def test_pieces_are_few_and_a_change_shares_those_that_it_does_not_touch() -> None:
    schema, size = schema_of((ColumnType.BIGINT,)), 3 * PIECE_ROWS_MAX
    rows = TableRows(schema)
    for part in range(3):
        first = part * PIECE_ROWS_MAX
        made = pa.RecordBatch.from_arrays(
            [pa.array([0.0] * PIECE_ROWS_MAX), pa.array(range(first, first + PIECE_ROWS_MAX))],
            schema=arrow_columns(schema.columns),
        )
        rows = rows.changed(ChangeKind.UPSERT, made, version=part + 1)
    for number in range(100):
        rows = rows.changed(
            ChangeKind.UPSERT, batch_of(schema, [(1.0, size + number)]), version=4 + number
        )
    assert rows.rows == size + 100
    assert len(rows.pieces) <= 3 + 7
    after = rows.changed(ChangeKind.UPSERT, batch_of(schema, [(2.0, 5)]), version=rows.version + 1)
    assert after.pieces[1] is rows.pieces[1]
    assert after.rows == rows.rows


def test_a_missing_number_of_a_change_is_counted_as_lost() -> None:
    schema = schema_of((ColumnType.BIGINT,))
    rows = TableRows(schema).changed(ChangeKind.UPSERT, batch_of(schema, [(1.0, 1)]), version=1)
    assert rows.changed(ChangeKind.UPSERT, batch_of(schema, [(1.0, 2)]), version=5).lost == 3


def test_a_change_is_read_from_the_bytes_that_were_written() -> None:
    schema = schema_of((ColumnType.VARCHAR,))
    batch = batch_of(schema, [(None, "ä"), (2.5, "")])
    header = TableChange(2**32 - 1, ChangeKind.DELETE, 2**64 - 1, -5)
    assert TableChange.from_bytes(header.to_bytes()) == header
    assert batch_of_body(body_of(batch).to_pybytes()).equals(batch)


@pytest.mark.parametrize("rows", [PIECE_ROWS_MAX, PIECE_ROWS_MAX + 1, 3 * PIECE_ROWS_MAX])
def test_a_large_change_is_in_pieces_that_later_changes_copy_one_by_one(rows: int) -> None:
    schema = TableSchema("t", (ColumnDefinition("k", ColumnType.BIGINT, False),), ("k",))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(rows))], schema=arrow_columns(schema.columns)
    )
    table = TableRows(schema).changed(ChangeKind.UPSERT, batch, version=1)
    assert max(piece.num_rows for piece in table.pieces) == PIECE_ROWS_MAX
    after = table.changed(ChangeKind.DELETE, batch.slice(0, 1), version=2)
    assert [
        piece is old for piece, old in zip(after.pieces[1:], table.pieces[1:], strict=True)
    ] == [True] * (len(table.pieces) - 1)
    assert after.table()["k"].to_pylist() == list(range(1, rows))
