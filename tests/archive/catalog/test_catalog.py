"""The catalog: rows come back as they went in, together or not at all, or with an error."""

import dataclasses
import math
import sqlite3
import threading

import pytest

from shedder.archive.catalog.backfill_table import BackfillPart
from shedder.archive.catalog.catalog import Catalog
from shedder.archive.catalog.migrations import statements_of
from shedder.archive.catalog.sqlite_tables import SCHEMA_VERSION, TABLE_STATEMENTS, row_checksum
from shedder.archive.metadata.catalog_entries import Footer, QueryEntry, Run, RunBasics
from shedder.cql.statements.archive_layout import Hybrid
from shedder.errors import CorruptData, NewerFormat, QueryExists, StorageFailed, StreamExists
from tests.archive.schemas import SCHEMA

RUN = Run(
    stream_id=1,
    first_position=0,
    end_position=10,
    file="1/0-10.parquet",
    size_bytes=1234,
    crc=99,
    low_us=-5,
    high_us=5,
    layout=Hybrid(blocks=4),
    basics={
        "value": RunBasics(3, -math.inf, math.inf),
        "site": RunBasics(0, "a", None, False),
        "ok": RunBasics(0, False, True),
        "serial": RunBasics(10, None, None),
    },
)
QUERY = QueryEntry("busy", "SELECT COUNT(*) FROM readings", "{}", 1, 17, 1_000)


@pytest.fixture
def catalog(tmp_path):
    catalog = Catalog.open(tmp_path / "catalog.sqlite")
    yield catalog
    catalog.close()


def reopened(catalog: Catalog) -> Catalog:
    catalog.close()
    return Catalog.open(catalog.path)


def test_everything_comes_back_as_it_went_in(catalog):
    assert catalog.add_stream(SCHEMA).id == 1
    catalog.add_run(RUN)
    catalog.add_query(QUERY)
    catalog.put_pane("busy", 60, b"old")
    assert catalog.put_pane("busy", 60, b"new") == 2
    catalog.put_pane("busy", 120, b"")
    catalog.write_checkpoint(41, {"gone": b"x"})
    catalog.write_checkpoint(42, {"stream/1": b"\0\1", "query/busy": b""})
    again = reopened(catalog)
    (stream,) = again.streams()
    assert (stream.id, stream.schema, stream.retained_from_us) == (1, SCHEMA, None)
    assert again.runs(1) == again.runs() == [RUN]
    assert again.queries() == [QUERY]
    assert [(p.start_us, p.version, p.blob) for p in again.panes("busy", 0, 120)] == [
        (60, 2, b"new")
    ]
    assert len(again.panes("busy", 60, 121)) == 2
    assert again.checkpoint_sequence() == 42
    assert again.checkpoint_parts() == {"stream/1": b"\0\1", "query/busy": b""}
    assert again.problems() == []
    again.close()


def test_a_transaction_that_fails_leaves_nothing(catalog):
    class Stop(Exception):
        pass

    def change() -> None:
        with catalog.transaction():
            catalog.add_stream(SCHEMA)
            with catalog.transaction():
                catalog.write_checkpoint(5, {"a": b"b"})
            raise Stop

    with pytest.raises(Stop):
        change()
    assert catalog.streams() == []
    assert catalog.checkpoint_sequence() == 0
    assert catalog.checkpoint_parts() == {}


def test_another_thread_waits_for_the_transaction(catalog):
    entered = threading.Event()
    seen = []

    def read() -> None:
        entered.set()
        seen.append(catalog.checkpoint_sequence())

    reader = threading.Thread(target=read)
    with catalog.transaction():
        catalog.write_checkpoint(1, {})
        reader.start()
        entered.wait()
        catalog.write_checkpoint(2, {})
    reader.join()
    assert seen == [2]


def test_names_are_given_once_and_ids_never_twice(catalog):
    catalog.add_stream(SCHEMA)
    with pytest.raises(StreamExists, match="readings"):
        catalog.add_stream(SCHEMA)
    catalog.drop_stream(1)
    assert catalog.add_stream(dataclasses.replace(SCHEMA, name="other")).id == 2
    catalog.add_query(QUERY)
    with pytest.raises(QueryExists, match="busy"):
        catalog.add_query(QUERY)


def test_dropping_takes_what_belongs_to_it(catalog):
    catalog.add_stream(SCHEMA)
    catalog.add_run(RUN)
    catalog.drop_stream(1)
    assert catalog.runs() == []
    catalog.add_query(QUERY)
    catalog.put_pane("busy", 0, b"x")
    catalog.drop_query("busy")
    assert catalog.panes("busy", -1, 1) == []


def test_retention_is_noted(catalog):
    catalog.add_stream(SCHEMA)
    catalog.set_retained(1, 777, 12)
    (stream,) = reopened(catalog).streams()
    assert (stream.retained_from_us, stream.retained_position) == (777, 12)


def test_a_newer_catalog_is_refused(catalog):
    catalog.close()
    with sqlite3.connect(catalog.path) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(NewerFormat, match="format 99"):
        Catalog.open(catalog.path)


@pytest.mark.parametrize("version", range(2, SCHEMA_VERSION))
@pytest.mark.parametrize("read_only", [True, False])
def test_a_catalog_of_an_older_version_gets_the_tables_it_lacks(catalog, version, read_only):
    catalog.add_stream(SCHEMA)
    catalog.close()
    with sqlite3.connect(catalog.path) as raw:
        for statement in set(TABLE_STATEMENTS) - statements_of(version):
            raw.execute(f"DROP TABLE {statement.split()[2]}")
        for statement in statements_of(version) - set(TABLE_STATEMENTS):
            raw.execute(statement)
        raw.execute(f"PRAGMA user_version = {version}")
    raw.close()
    again = Catalog.open(catalog.path, read_only=read_only)
    assert [entry.schema for entry in again.streams()] == [SCHEMA]
    assert again.problems() == []
    again.close()


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("damaged", [True, False])
def test_parts_of_a_backfill_keep_their_summaries_over_a_migration(catalog, read_only, damaged):
    """In format 10 they were a column of the parts."""
    catalog.add_stream(SCHEMA)
    run = dataclasses.replace(RUN, footer=Footer(7, 8))
    parts = [BackfillPart(1, "old", number, 5, 1, (run,), {}) for number in (0, 1)]
    for part in parts:
        catalog.backfills.put_part(part, b"part %d" % part.part)
    catalog.close()
    with sqlite3.connect(catalog.path) as raw:
        rows = raw.execute("SELECT * FROM backfill_parts").fetchall()
        newer = ("generation", "tables", "table_images")
        for table in ("backfill_parts", "backfill_summaries", *newer):
            raw.execute(f"DROP TABLE {table}")
        for statement in statements_of(10) - set(TABLE_STATEMENTS):
            raw.execute(statement)
        for row in rows:
            old = [*row[:-1], b"part %d" % row[2]]
            old.append(row_checksum(old) + damaged)
            raw.execute(f"INSERT INTO backfill_parts VALUES ({','.join('?' * len(old))})", old)
        raw.execute("PRAGMA user_version = 10")
    raw.close()
    if damaged:
        with pytest.raises(CorruptData, match="table backfill_parts"):
            Catalog.open(catalog.path, read_only=read_only)
        return
    again = Catalog.open(catalog.path, read_only=read_only)
    assert again.backfills.parts(1, "old") == parts
    assert [again.backfills.summaries(part) for part in parts] == [b"part 0", b"part 1"]
    assert again.problems() == []
    again.close()


@pytest.mark.parametrize(
    "content", [b"no database at all, but long enough" * 9, b"SQLite format 3"]
)
def test_another_file_is_not_a_catalog(tmp_path, content):
    path = tmp_path / "catalog.sqlite"
    path.write_bytes(content)
    with pytest.raises(CorruptData):
        Catalog.open(path)


def test_another_program_s_database_is_not_a_catalog(tmp_path):
    path = tmp_path / "catalog.sqlite"
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA user_version = 5")
    raw.close()
    with pytest.raises(CorruptData, match="not a catalog"):
        Catalog.open(path)


def test_others_may_not_read_the_catalog(catalog):
    catalog.add_stream(SCHEMA)
    names = ("catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm")
    modes = [(catalog.path.parent / name).stat().st_mode & 0o007 for name in names]
    assert modes == [0, 0, 0]


def test_a_missing_catalog_is_not_made_by_a_reader(tmp_path):
    with pytest.raises(StorageFailed):
        Catalog.open(tmp_path / "catalog.sqlite", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_purged_run_of_divided_blocks_is_listed_as_such(catalog):
    catalog.add_stream(SCHEMA)
    run = dataclasses.replace(RUN, blocks=5, purged=3, halvings=2)
    catalog.add_run(run)
    assert catalog.runs() == [run]


def test_a_changed_row_is_noticed(catalog):
    catalog.add_stream(SCHEMA)
    catalog.add_run(RUN)
    catalog.write_checkpoint(1, {"key": b"\0" * 100})
    with sqlite3.connect(catalog.path) as raw:
        raw.execute("UPDATE runs SET end_position = 11")
        raw.execute("UPDATE checkpoint_parts SET blob = zeroblob(101)")
    raw.close()
    with pytest.raises(CorruptData, match="table runs"):
        catalog.runs()
    with pytest.raises(CorruptData, match="'key' fails its checksum"):
        catalog.checkpoint_parts()
    assert len(catalog.problems()) == 2


@pytest.mark.slow
def test_no_flipped_bit_is_served(tmp_path):
    """One flip per 64 bytes of the file: the same content, or an error, never other content."""
    path = tmp_path / "catalog.sqlite"
    catalog = Catalog.open(path)
    catalog.add_stream(SCHEMA)
    catalog.add_run(RUN)
    catalog.write_checkpoint(1, {"key": bytes(range(256)) * 40})
    truth = (catalog.streams(), catalog.runs(), catalog.checkpoint_parts())
    catalog.close()
    data = path.read_bytes()
    noticed = 0
    for offset in range(13, len(data), 64):
        rotten = bytearray(data)
        rotten[offset] ^= 0x10
        other = tmp_path / "rotten.sqlite"
        other.write_bytes(rotten)
        try:
            again = Catalog.open(other, read_only=True)
        except (CorruptData, NewerFormat, StorageFailed):
            noticed += 1
            continue
        try:
            found = (again.streams(), again.runs(), again.checkpoint_parts())
            assert found == truth
        except (CorruptData, StorageFailed):
            noticed += 1
        again.close()
    assert noticed > 50


def test_a_definition_that_is_no_utf_8_is_damage(tmp_path):
    """Python raises errors of two kinds for it, and neither has a code of SQLite."""
    path = tmp_path / "catalog.sqlite"
    Catalog.open(path).close()
    whole = path.read_bytes()
    for text in (b"CREATE TABLE rollups", b"tablerollupsrollups"):
        begin = whole.index(text)
        for at in range(begin, begin + len(text)):
            rotten = bytearray(whole)
            rotten[at] ^= 0x80
            path.write_bytes(rotten)
            with pytest.raises(CorruptData, match=r"catalog\.sqlite"):
                Catalog.open(path)
