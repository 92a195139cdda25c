"""A small directory with a file of every kind, and what its store may say after any damage.

After damage to one file the store gives what it gave before, or says what is lost, or refuses with
an error that names the file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shedder.archive.archive_store import Store
from shedder.archive.catalog.catalog import Catalog
from shedder.archive.files.durable_marks import DurableMarks
from shedder.archive.files.file_system import OsFiles
from shedder.archive.log.records import RecordType
from shedder.archive.log.table_changes import ChangeKind, TableChange, body_of
from shedder.archive.metadata.catalog_entries import QueryEntry
from shedder.archive.runs.run_format import verify_run
from shedder.archive.tables.table_rows import TableRows, arrow_columns
from shedder.cql.binding.parse import parse
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.statement import ColumnDefinition
from shedder.cql.statements.table_schema import TableSchema
from shedder.errors import CorruptData, NewerFormat, ShedderError
from tests.archive.schemas import SCHEMA
from tests.archive.worlds import checkpoint, delete, ingest, recover

ROLLUP = "SELECT COUNT(*), SUM(serial) FROM readings [RANGE 1 SECOND SLIDE 1 SECOND]"
TABLE = TableSchema("t", (ColumnDefinition("k", ColumnType.BIGINT, False),), ("k",))
CUTS = 64  # Sizes to which a file is cut off.


@dataclass(frozen=True)
class Damage:
    """Damage to a file.

    kind: flip, cut or missing. at: the byte, or the size in bytes; 0 for missing. bit: of flip.
    """

    file: str
    kind: str
    at: int = 0
    bit: int = 0

    def apply(self, directory: Path) -> None:
        """Damage the file."""
        path = directory / self.file
        if self.kind == "missing":
            path.unlink()
            return
        data = bytearray(path.read_bytes())
        if self.kind == "flip":
            data[self.at] ^= 1 << self.bit
        else:
            del data[self.at :]
        path.write_bytes(data)

    @property
    def is_of_catalog(self) -> bool:
        """Whether the file is SQLite's."""
        return self.file.startswith("catalog.sqlite")

    def is_named(self, text: str) -> bool:
        """Whether a text names the file; the write-ahead log goes by its catalog's name."""
        stem = "catalog.sqlite" if self.is_of_catalog else Path(self.file).name
        return stem in text or (self.kind == "missing" and str(Path(self.file).parent) in text)


def fill(served: Path, target: Path) -> None:
    """Make a directory, and copy it while it is open, as a kill leaves it."""
    store = Store.open(served, log_segment_bytes=3_000)
    store.create_stream(SCHEMA)
    store.rollups.add(1, "counts", parse(ROLLUP))
    store.indexes.create(1, "serial")
    for first in (0, 12):
        ingest(store, first, 12)
        store.cut(1)
    delete(store, lambda position: position % 5 == 0)
    store.catalog.add_query(QueryEntry("all", ROLLUP, "{}", 1, 0, 7))
    store.catalog.put_pane("all", 0, b"a pane")
    store.close()  # The commits so far are in the catalog's file, the rest in its log.
    store = recover(served)
    for run, column in store.indexes.unindexed(1):
        store.indexes.build(run, column)
    ingest(store, 24, 6)
    store.cut(1)
    delete(store, lambda position: position == 25)
    checkpoint(store, store.log.next_sequence, {"stream/1": b"state"})
    ingest(store, 30, 6)
    change_table(store)
    (served / "quarantine" / "kept").write_bytes(b"of an earlier damage")
    shutil.copytree(served, target)
    store.close()


def change_table(store: Store) -> None:
    """Make a table with one change in an image and one in the log."""
    table = store.catalog.tables.add(TABLE)
    rows = TableRows(TABLE)
    for version, keys in ((1, [5, 7]), (2, [9])):
        batch = pa.record_batch([pa.array(keys)], schema=arrow_columns(TABLE.columns))
        header = TableChange(table.id, ChangeKind.UPSERT, version, 0)
        store.log.append(RecordType.TABLE, [header.to_bytes(), body_of(batch)])
        store.log.sync()
        if version == 1:
            rows = rows.changed(header.kind, batch, version=version)
            store.catalog.tables.put_image(table.id, store.tables.write(table.id, rows))


def every_damage(directory: Path, seed: int) -> Iterator[Damage]:
    """Return damages to each file: the file missing, cut off, and a drawn bit of each byte."""
    rng = np.random.default_rng(seed)
    for path in sorted(directory.rglob("*")):
        if not path.is_file():
            continue
        file, size = str(path.relative_to(directory)), path.stat().st_size
        yield Damage(file, "missing")
        for at in sorted({size * cut // CUTS for cut in range(CUTS)} | {max(0, size - 1)}):
            yield Damage(file, "cut", at)
        for at, bit in enumerate(rng.integers(8, size=size).tolist()):
            yield Damage(file, "flip", at, bit)


def drawn(directory: Path, seed: int, trials: int) -> Iterator[Damage]:
    """Draw damages, of each file as many."""
    rng = np.random.default_rng(seed)
    by_file: dict[str, list[Damage]] = {}
    for damage in every_damage(directory, seed):
        by_file.setdefault(damage.file, []).append(damage)
    for file in list(by_file) * (1 + trials // len(by_file)):
        yield by_file[file][rng.integers(len(by_file[file]))]


def files_for(damage: Damage) -> Callable[[str, list[str]], list[str]]:
    """Return what `copytree` is to leave out: beside a damaged catalog, all but the marks."""

    def ignored(_: str, names: list[str]) -> list[str]:
        return [name for name in names if not name.startswith(("catalog.sqlite", "DURABLE"))]

    return ignored if damage.is_of_catalog else lambda _directory, _names: []


def catalogued(catalog: Catalog) -> str:
    """Return all that a catalog says."""
    said = [
        catalog.generation,
        catalog.streams(),
        catalog.last_stream_id(),
        catalog.queries(),
        catalog.runs(),
        catalog.runs(1),
        catalog.annotations.deletions(),
        catalog.annotations.deleted(),
        catalog.annotations.emptied(),
        catalog.annotations.quarantined(),
        catalog.annotations.scans(),
        catalog.annotations.scrubbed(),
        catalog.annotations.indexes(),
        catalog.rollups.entries(),
        catalog.tables.entries(),
        catalog.backfills.entries(),
        catalog.panes("all", -1, 1),
        catalog.checkpoint_sequence(),
        catalog.checkpoint_parts(),
    ]
    return repr(said)


@dataclass(frozen=True)
class Said:
    """What a store gives: its rows, all that its catalog says, the rows by index, the rollups."""

    rows: dict[int, str]
    catalog: str
    beside: dict[str, str]


def read(store: Store) -> Said:
    """Return what a store gives; `beside` lacks what the store does not use.

    Raises:
      CorruptData.
    """
    catalog, beside = catalogued(store.catalog), {}
    for run in store.runs(1):
        for serial in range(run.first_position, run.end_position):
            groups = store.indexes.look_up(run, "serial", [(serial, serial)])
            if groups is not None:
                beside[f"row groups of {serial}"] = repr(groups.tolist())
        for rolled in run.rolled:
            path = store.directory / "runs" / rolled.file
            try:
                verify_run(OsFiles(), store.directory, run.of_rolled(rolled))
            except CorruptData:
                continue
            beside[rolled.file] = repr(pq.read_table(path).to_pydict())
    for entry in store.catalog.tables.entries():
        beside[entry.schema.name] = repr(store.tables.read(entry).table().to_pydict())
    rows = {}
    for _, batch in store.scan(1):
        rows |= {row["serial"]: repr(row) for row in batch.to_pylist()}
    return Said(rows, catalog, beside)


def said_of(directory: Path) -> Said:
    """Return what the store in an undamaged directory gives."""
    with closing(recover(directory)) as store:
        return read(store)


def assert_honest(directory: Path, damage: Damage, truth: Said) -> str:
    """Open a damaged directory, read it all, and return what it did: right, flagged or refused."""
    try:
        if damage.is_of_catalog:
            with closing(_catalog(directory)) as catalog:
                assert catalogued(catalog) == truth.catalog, damage
            return "right"
        store = recover(directory)
    except (CorruptData, NewerFormat) as error:
        _assert_named(damage, error)
        return "refused"
    with closing(store):
        found = store.recovery
        reported = [*map(str, found.log.damages), *(run.file for run in found.missing)]
        try:
            said = read(store)
        except CorruptData as error:
            _assert_named(damage, error)
            return "flagged"
        assert said.catalog == truth.catalog, damage
        assert said.rows.items() <= truth.rows.items(), damage
        assert said.beside.items() <= truth.beside.items(), damage
        if said.rows == truth.rows and not reported:
            return "right"
        assert any(map(damage.is_named, reported)), (damage, reported)
        return "flagged"


def _catalog(directory: Path) -> Catalog:
    """Open the catalog as a store does; all of a store is what its catalog says."""
    marks = DurableMarks.open(OsFiles(), directory)
    path = directory / "catalog.sqlite"
    try:
        if not path.exists():
            raise CorruptData(f"{path} is missing")  # As `open_parts` says it.
        return Catalog.open(path, must_exist=True, marks=marks)
    finally:
        marks.close()


def _assert_named(damage: Damage, error: ShedderError) -> None:
    is_newer = damage.file == "FORMAT" and isinstance(error, NewerFormat)  # It names the format.
    assert damage.is_named(str(error)) or is_newer, (damage, str(error))
