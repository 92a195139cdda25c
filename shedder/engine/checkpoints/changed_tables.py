"""Tables in a checkpoint: an image of each table that changed since its last image."""

from __future__ import annotations

from dataclasses import dataclass, field

from shedder.archive.catalog.catalog import Catalog
from shedder.archive.metadata.table_entries import TableImage
from shedder.archive.tables.table_images import TableImages
from shedder.archive.tables.table_rows import TableRows
from shedder.engine.tables.change_places import ChangePlaces
from shedder.engine.tables.live_tables import LiveTable, LiveTables
from shedder.engine.tables.stored_history import StoredHistories


@dataclass(frozen=True, slots=True, eq=False)
class ChangedTables:
    """Rows of tables at one moment. Call `write`, `put`, and `stored` once `put` is committed.

    files: of the data directory.
    tables: each table whose image lacks changes, and its rows.
    histories: of all tables.
    """

    files: TableImages
    tables: tuple[tuple[LiveTable, TableRows], ...]
    histories: StoredHistories
    _written: dict[int, TableImage] = field(default_factory=dict, init=False)
    _replaced: list[str] = field(default_factory=list, init=False)

    @classmethod
    def of(cls, files: TableImages, tables: LiveTables, places: ChangePlaces) -> ChangedTables:
        """Take the rows of every table that changed since its image. On the apply thread.

        places: of the changes of all tables.
        """
        found = ((table, table.rows) for table in tables.values())
        changed = tuple(it for it in found if it[1].version > max(0, it[0].stored_version))
        return cls(files, changed, StoredHistories.of(tables, places))

    def write(self) -> None:
        """Write the files, which are durable then; the catalog does not name them yet.

        Raises:
          DiskFull, StorageFailed.
        """
        for table, rows in self.tables:
            self._written[table.id] = self.files.write(table.id, rows)

    def discard(self) -> None:
        """Remove the files, which no commit has named: they would keep the disk full."""
        self.files.discard(image.file for image in self._written.values())
        self._written.clear()

    def put(self, catalog: Catalog) -> None:
        """Name the files in the catalog, in a transaction of the caller."""
        before = {entry.id: entry.image for entry in catalog.tables.entries()}
        for table_id, image in self._written.items():
            replaced = before[table_id]
            if replaced is not None and replaced.file != image.file:
                self._replaced.append(replaced.file)
            catalog.tables.put_image(table_id, image)

    def stored(self) -> int:
        """Note that the images are in the catalog; returns their bytes. On the apply thread."""
        for table, rows in self.tables:
            table.note_stored(rows.version)
        self.histories.stored()
        self.files.retire(self._replaced)
        self.files.remove_retired()
        return sum(image.size_bytes for image in self._written.values())
