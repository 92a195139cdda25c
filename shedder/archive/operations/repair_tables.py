"""Repair of tables: an image that the catalog lacks is listed, a damaged one is set aside."""

from __future__ import annotations

from pathlib import Path

from shedder.archive.catalog.catalog import Catalog
from shedder.archive.files.checksum import checksum
from shedder.archive.files.file_system import Files
from shedder.archive.files.unknown_files import keep_unknown
from shedder.archive.metadata.table_entries import TableEntry, TableImage
from shedder.archive.tables.table_images import (
    FOLDER,
    image_bytes,
    image_names,
    read_image,
    rows_of_image,
    table_of,
)
from shedder.errors import CorruptData


def has_damaged_image(files: Files, directory: Path) -> bool:
    """Return whether the image of a table is missing or damaged.

    Raises:
      CorruptData, StorageFailed: the catalog, or a file, cannot be read.
    """
    catalog = Catalog.open(directory / "catalog.sqlite", read_only=True)
    try:
        return any(_damage(files, directory, entry) for entry in catalog.tables.entries())
    finally:
        catalog.close()


def repair_tables(files: Files, directory: Path, catalog: Catalog) -> tuple[list[str], list[str]]:
    """Give each table its newest whole image, in a transaction of the caller.

    The log has the changes after the checkpoint that the catalog knows. Changes that are in the
    image, too, have no effect, so an image may be newer than the checkpoint.

    Returns:
      what was done, and what could not be rebuilt.

    Raises:
      StorageFailed. OSError.
    """
    done: list[str] = []
    lost: list[str] = []
    entries = {entry.id: entry for entry in catalog.tables.entries()}
    named = {entry.image.file for entry in entries.values() if entry.image is not None}
    for name in reversed(image_names(files, directory)):  # The newest image of a table is first.
        if name in named:
            continue
        table_id = table_of(name)
        entry = None if table_id is None else entries.get(table_id)
        try:
            if table_id is None:
                raise CorruptData("its name is not that of an image")
            if entry is None:
                raise CorruptData("its table is not known")
            if entry.image is not None and name < entry.image.file:
                raise CorruptData("the catalog has a newer image")
            image = _found(files, directory, name, entry)
        except CorruptData as error:
            kept = keep_unknown(files, directory, f"{FOLDER}/{name}")
            lost.append(f"{FOLDER}/{name}, which is {kept} now: {error}")
            continue
        catalog.tables.put_image(entry.id, image)
        entries[entry.id] = TableEntry(entry.id, entry.schema, image)
        done.append(f"{FOLDER}/{name} is listed again: {image.rows:,} rows")
    for entry in entries.values():
        damage = _damage(files, directory, entry)
        if damage and entry.image is not None:
            catalog.tables.drop_image(entry.id)
            lost.append(f"table {entry.schema.name!r}, which has only later changes now: {damage}")
            if (directory / FOLDER / entry.image.file).exists():
                keep_unknown(files, directory, f"{FOLDER}/{entry.image.file}")
    return done, lost


def _found(files: Files, directory: Path, name: str, entry: TableEntry) -> TableImage:
    path = directory / FOLDER / name
    data = image_bytes(files, path)
    rows = rows_of_image(entry, data, path)
    return TableImage(name, rows.version, rows.rows, rows.lost, len(data), checksum(data))


def _damage(files: Files, directory: Path, entry: TableEntry) -> str:
    """Say what is wrong with the image of a table; empty: nothing."""
    if entry.image is None:
        return ""
    path = directory / FOLDER / entry.image.file
    try:
        rows_of_image(entry, read_image(files, path, entry.image), path)
    except CorruptData as error:
        return str(error)
    return ""
