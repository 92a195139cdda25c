"""Source of rows: a table as one scan of a plan reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from shedder.archive.exact.relation import ExactRelation
from shedder.archive.tables.table_rows import TableRows
from shedder.cql.plans.logical_plan import Scan


@dataclass(frozen=True, slots=True, eq=False)
class TableSource:
    """A table as one scan reads it. rows: of the table at the moment of the question."""

    scan: Scan
    rows: TableRows

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the scan reads, by the table's own names."""
        return tuple(c.name.removeprefix(f"{self.scan.alias}.") for c in self.scan.columns)

    def relation(
        self, name: str, columns: Sequence[str], needed: int | None = None
    ) -> ExactRelation:
        """All rows as a relation of some columns; or some rows, if so many are needed."""
        stored = self.rows.table().schema
        schema = pa.schema([stored.field(name) for name in columns])
        return ExactRelation(name, schema, tail=list(self._batches(schema.names, needed)))

    def notes(self) -> Iterator[str]:
        """What the rows lack."""
        if self.rows.lost:
            yield (
                f"table {self.rows.schema.name}: {self.rows.lost:,} changes are missing, or may "
                "be, because bytes of the log are damaged"
            )

    def _batches(self, columns: list[str], needed: int | None) -> Iterator[pa.RecordBatch]:
        for piece in self.rows.pieces:
            batch = piece.select(columns)
            if needed is not None:
                batch = batch.slice(0, min(needed, batch.num_rows))
                needed -= batch.num_rows
            if batch.num_rows:
                yield batch
