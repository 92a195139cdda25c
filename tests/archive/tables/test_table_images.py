"""Images of tables: what is written is read, by others too, and damage is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from shedder.archive.files.durable_marks import DurableMarks
from shedder.archive.files.file_system import OsFiles
from shedder.archive.log.table_changes import ChangeKind
from shedder.archive.metadata.table_entries import TableEntry, table_from_json, table_to_json
from shedder.archive.tables.table_images import FOLDER, TableImages
from shedder.archive.tables.table_rows import TableRows, arrow_columns
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.statement import ColumnDefinition
from shedder.cql.statements.table_schema import TableSchema
from shedder.errors import CorruptData

SCHEMA = TableSchema(
    "t",
    tuple(
        ColumnDefinition(kind.value.lower(), kind, kind is not ColumnType.BIGINT)
        for kind in ColumnType
    ),
    ("bigint",),
    tenant="acme",
    retroactive=True,
)


def rows_of(size: int) -> TableRows:
    plain = [
        pa.array([None if at % 3 else at for at in range(size)], pa.int32()),
        pa.array(range(size), pa.int64()),
    ]
    columns = [
        plain[1]
        if column.type is ColumnType.BIGINT
        else plain[0].cast(pa.int64()).cast(pa.timestamp("us"))
        if column.type is ColumnType.TIMESTAMP
        else plain[0].cast(column.type.arrow)
        for column in SCHEMA.columns
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow_columns(SCHEMA.columns))
    rows = TableRows(SCHEMA, version=3)
    return rows.changed(ChangeKind.UPSERT, batch, version=6) if size else replace(rows, lost=2)


@pytest.fixture
def images(tmp_path: Path) -> TableImages:
    (tmp_path / "tmp").mkdir()
    return TableImages(OsFiles(), tmp_path, DurableMarks.open(OsFiles(), tmp_path))


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_rows_are_read_as_they_were_written(images: TableImages, tmp_path: Path, size: int) -> None:
    rows = rows_of(size)
    image = images.write(7, rows)
    found = images.read(TableEntry(7, SCHEMA, image))
    assert found.table().equals(rows.table())
    assert (found.version, found.lost) == (rows.version, 2)
    assert (image.rows, image.version, image.lost) == (size, rows.version, 2)
    path = tmp_path / FOLDER / image.file
    with duckdb.connect() as connection:
        sql = f"SELECT COUNT(*), SUM(bigint) FROM '{path}'"
        [(count, total)] = connection.execute(sql).fetchall()
    assert (count, total) == (size, sum(range(size)) if size else None)


def test_a_table_without_an_image_has_no_rows(images: TableImages) -> None:
    assert images.read(TableEntry(7, SCHEMA)).rows == 0


@pytest.mark.parametrize("damage", ["missing", "short", "flipped"])
def test_a_damaged_image_is_refused_by_name(
    images: TableImages, tmp_path: Path, damage: str
) -> None:
    image = images.write(7, rows_of(100))
    path = tmp_path / FOLDER / image.file
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "short":
        path.write_bytes(data[:-1])
    elif damage == "flipped":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    with pytest.raises(CorruptData, match=r"7/0+6\.parquet .*100 rows of a table, as of change 6"):
        images.read(TableEntry(7, SCHEMA, image))


def test_files_that_no_table_names_are_removed_only_if_the_catalog_is_proven(
    images: TableImages, tmp_path: Path
) -> None:
    old, new = images.write(7, rows_of(0)), images.write(7, rows_of(1))
    entries = [TableEntry(7, SCHEMA, new)]
    assert images.recover(entries, last_table=7, proven=False) == (
        [],
        [tmp_path / "quarantine" / f"unknown-tables-{old.file.replace('/', '-')}"],
    )
    images.write(7, rows_of(0))
    assert images.recover(entries, last_table=7, proven=True) == ([old.file], [])
    assert images.read(entries[0]).rows == 1


@pytest.mark.parametrize(
    "name", ["7/copy.parquet", "t/x.txt", f"8/{1:020}.parquet", f"07/{1:020}.parquet"]
)
def test_files_that_no_version_wrote_are_kept(
    images: TableImages, tmp_path: Path, name: str
) -> None:
    path = tmp_path / FOLDER / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"of others")
    removed, [kept] = images.recover([], last_table=7, proven=True)
    assert (removed, kept.read_bytes()) == ([], b"of others")


def test_a_retired_image_stays_while_files_are_kept(images: TableImages, tmp_path: Path) -> None:
    image = images.write(7, rows_of(1))
    path = tmp_path / FOLDER / image.file
    images.retire([image.file])
    with images.kept():
        images.remove_retired()
        assert path.exists()
    images.remove_retired()
    assert not path.exists()


def test_a_definition_is_read_from_its_json() -> None:
    assert table_from_json(table_to_json(SCHEMA)) == SCHEMA
