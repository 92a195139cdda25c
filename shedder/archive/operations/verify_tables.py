"""Verification of tables: their images, and their changes in the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from shedder.archive.files.file_system import Files
from shedder.archive.log.log_segment import Record
from shedder.archive.log.table_changes import TableChange, batch_of_body
from shedder.archive.metadata.table_entries import TableEntry
from shedder.archive.tables.table_images import FOLDER, image_names, read_image, rows_of_image
from shedder.archive.tasks.progress import ProgressCallback
from shedder.errors import Cancelled, ShedderError


@dataclass(slots=True)
class VerifiedTables:
    """What was found of tables.

    entries: of the catalog, by id.
    last_table: the highest id that was given; None: the catalog could not be read.
    damages: rows or changes that are lost. notes: what a start mends.
    rows: in images.
    """

    entries: Mapping[int, TableEntry]
    last_table: int | None
    damages: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: int = 0
    _versions: dict[int, int] = field(default_factory=dict)

    def check_images(self, files: Files, directory: Path, on_progress: ProgressCallback) -> None:
        """Read every image against its checksum."""
        named = set[str]()
        for entry in self.entries.values():
            if entry.image is None:
                continue
            named.add(entry.image.file)
            if entry.image.lost:
                self.damages.append(
                    f"table {entry.schema.name!r}: {entry.image.lost:,} changes are lost"
                )
            path = directory / FOLDER / entry.image.file
            try:
                data = read_image(files, path, entry.image, on_progress)
                self.rows += rows_of_image(entry, data, path).rows
            except Cancelled:
                raise
            except ShedderError as error:
                self.damages.append(str(error))
        self.notes += [
            f"{directory / FOLDER / name} is an orphan"
            for name in image_names(files, directory)
            if name not in named
        ]

    def check_change(self, record: Record, where: str) -> None:
        """Check that a record of kind TABLE can be read, and that no change before it is missing.

        The log may begin before the checkpoint, so the first change is compared with the image.
        """
        header = TableChange.from_bytes(record.header)
        entry = self.entries.get(header.table)
        if entry is None:
            if self.last_table is not None and header.table > self.last_table:
                self.damages.append(
                    f"{where} is of table {header.table}, which the catalog does not know"
                )
            return
        try:
            batch_of_body(bytes(record.body))
        except (OSError, ValueError, pa.ArrowException) as error:
            self.damages.append(f"{where} holds no Arrow stream: {error}")
        stored = 0 if entry.image is None else entry.image.version
        reached = max(stored, self._versions.get(header.table, 0))
        if header.version > reached + 1:
            self.damages.append(
                f"table {entry.schema.name!r}: changes {reached + 1} to {header.version} "
                "(excluded) are missing"
            )
        self._versions[header.table] = header.version
