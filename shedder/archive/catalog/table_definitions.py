"""Catalog tables of tables: their definitions, and their newest images."""

from __future__ import annotations

from shedder.archive.catalog.checksummed_tables import CheckedTables
from shedder.archive.metadata.table_entries import (
    TableEntry,
    TableImage,
    table_from_json,
    table_to_json,
)
from shedder.cql.statements.table_schema import TableSchema
from shedder.errors import TableExists

_IMAGE = "table_id, file, version, rows, lost, bytes, crc"


class TableDefinitions:
    """Definitions and images of tables. Errors are those of `CheckedTables`."""

    def __init__(self, tables: CheckedTables) -> None:
        self._tables = tables

    def add(self, schema: TableSchema) -> TableEntry:
        """Give a table its id.

        Raises:
          TableExists: there is one of this name.
        """
        with self._tables.transaction():
            if self._tables.query("SELECT 1 FROM tables WHERE name = ?", schema.name):
                raise TableExists(f"table {schema.name!r} exists")
            number = self._given() + 1
            self._tables.insert("tables", number, schema.name, table_to_json(schema))
        return TableEntry(number, schema)

    def entries(self) -> list[TableEntry]:
        """All tables, by id."""
        images = {
            row[0]: TableImage(*row[1:])
            for row in self._tables.select("table_images", _IMAGE, "ORDER BY table_id")
        }
        rows = self._tables.select("tables", "id, name, definition", "ORDER BY id")
        return [TableEntry(row[0], table_from_json(row[2]), images.get(row[0])) for row in rows]

    def put_image(self, table_id: int, image: TableImage) -> None:
        """Make a file the image of a table, in place of an older one."""
        columns = (image.file, image.version, image.rows, image.lost, image.size_bytes, image.crc)
        self._tables.insert("table_images", table_id, *columns)

    def drop_image(self, table_id: int) -> None:
        """Forget the image of a table; its file becomes an orphan."""
        self._tables.execute("DELETE FROM table_images WHERE table_id = ?", table_id)

    def drop(self, table_id: int) -> None:
        """Forget a table and its image. Its id is not used again."""
        with self._tables.transaction():
            self.drop_image(table_id)
            self._tables.execute("DELETE FROM tables WHERE id = ?", table_id)

    def last_id(self) -> int:
        """The highest id that was given to a table; 0: none was."""
        return max([self._given(), *(entry.id for entry in self.entries())])

    def skip_to(self, table_id: int) -> None:
        """Count on from an id that the catalog has lost."""
        with self._tables.transaction():
            self._tables.execute("DELETE FROM sqlite_sequence WHERE name = 'tables'")
            self._tables.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES ('tables', ?)", table_id
            )

    def _given(self) -> int:
        rows = self._tables.query("SELECT seq FROM sqlite_sequence WHERE name = 'tables'")
        return int(rows[0][0]) if rows else 0
