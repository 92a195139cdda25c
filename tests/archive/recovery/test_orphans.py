"""Files that the catalog does not name: leftovers go, what may be anything else is kept."""

import pytest

from shedder.archive.archive_store import Store
from shedder.archive.files.durable_marks import FILE_NAME
from shedder.archive.files.file_system import OsFiles
from shedder.archive.log.log_segment import RECORD_HEAD_BYTES, SEGMENT_HEAD_BYTES
from shedder.archive.log.segment_recovery import inspect
from shedder.archive.metadata.run_name import RunName
from shedder.archive.operations.verify import check
from tests.archive.power import PowerFiles
from tests.archive.schemas import SCHEMA
from tests.archive.worlds import ingest, positions, recover

STRANGERS = {
    "1/x.parquet": b"of another program",
    f"9/{0:020}-{5:020}.parquet": b"of another directory",
    f"1/{0:020}-{5:020}-old.parquet": b"a copy that an operator has made",
}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("1/00000000000000000000-00000000000000000020.parquet", (1, 0, 20, True)),
        ("12/00000000000000000020-00000000000000000040.3.parquet", (12, 20, 40, True)),
        ("1/00000000000000000000-00000000000000000020-r0.2.parquet", (1, 0, 20, False)),
        ("1/00000000000000000000-00000000000000000020-r1e-05.1.parquet", (1, 0, 20, False)),
        ("1/00000000000000000000-00000000000000000020-w7.parquet", (1, 0, 20, False)),
        ("1/-0000000004294967296-00000000000000000000.parquet", (1, -(1 << 32), 0, True)),
        ("1/0-20.parquet", None),
        ("1/00000000000000000000-00000000000000000020.parquet~", None),
        ("a/00000000000000000000-00000000000000000020.parquet", None),
    ],
)
def test_names_of_runs_are_read(name, said):
    parsed = RunName.parse(name)
    assert said == (
        None
        if parsed is None
        else (parsed.stream_id, parsed.first_position, parsed.end_position, parsed.is_run)
    )


@pytest.fixture
def data(tmp_path):
    store = Store.open(tmp_path / "data")
    store.create_stream(SCHEMA)
    for first in range(0, 40, 20):
        ingest(store, first, 20)
        store.cut(1)
    store.close()
    return tmp_path / "data"


def test_files_of_strangers_go_into_quarantine_and_are_told_of(data):
    for name, content in STRANGERS.items():
        (data / "runs" / name).parent.mkdir(exist_ok=True)
        (data / "runs" / name).write_bytes(content)
    (data / "runs" / "notes.txt").write_text("beside the streams")
    (data / "backfills" / "1").mkdir(parents=True)
    (data / "backfills" / "1" / "mine.csv").write_bytes(b"rows")
    store = recover(data)
    assert store.recovery.orphans == ()
    assert len(store.recovery.unknown) == 4
    assert {path.read_bytes() for path in store.recovery.unknown} == {*STRANGERS.values(), b"rows"}
    assert positions(store) == list(range(40))
    store.close()
    assert (data / "runs" / "notes.txt").exists()
    notes = check(data).notes
    assert sum("unknown origin" in note for note in notes) == 5
    assert check(data).ok


def test_two_strangers_of_one_name_are_both_kept(data):
    for content in (b"first", b"second"):
        (data / "runs" / "1" / "x.parquet").write_bytes(content)
        recover(data).close()
    kept = {path.read_bytes() for path in (data / "quarantine").iterdir()}
    assert kept == {b"first", b"second"}


def test_without_marks_a_leftover_is_kept_too(data):
    """The catalog may be older than it was, and nothing says so."""
    leftover = data / "runs" / "1" / f"{0:020}-{20:020}.1.parquet"
    leftover.write_bytes(b"an old form of the run")
    (data / FILE_NAME).unlink()
    store = recover(data)
    assert [path.read_bytes() for path in store.recovery.unknown] == [b"an old form of the run"]
    store.close()
    leftover.write_bytes(b"another one")
    store = recover(data)  # The marks are there now.
    assert store.recovery.orphans == (f"1/{leftover.name}",)
    assert not leftover.exists()
    store.close()


def test_files_that_a_commit_replaced_stay_while_its_mark_is_not_durable(tmp_path):
    files = PowerFiles(tmp_path)
    store = Store.open(tmp_path / "data", files=files)
    store.create_stream(SCHEMA)
    ingest(store, 0, 20)
    run = store.cut(1)
    store.catalog.set_retained(1, 0, 0)  # A commit whose mark is written, and not synced.
    files.fail_next("sync")
    store.drop_stream(1)
    assert (tmp_path / "data" / "runs" / run.file).exists()
    store.close()
    again = Store.open(tmp_path / "data", files=PowerFiles(tmp_path))
    assert again.recovery.orphans == (run.file,)
    again.close()


def test_the_log_stays_while_the_mark_of_the_checkpoint_is_not_durable(tmp_path):
    files = PowerFiles(tmp_path)
    store = Store.open(tmp_path / "data", files=files, log_segment_bytes=2_000)
    store.create_stream(SCHEMA)
    for first in range(0, 40, 10):
        last = ingest(store, first, 10)
    while store.cut(1) is not None:
        pass
    store.catalog.write_checkpoint(last + 1, {})
    files.fail_next("sync")
    assert store.trim_log() == 0
    assert store.trim_log() > 0
    store.close()


def test_a_file_in_quarantine_is_not_taken_for_another_of_its_name(tmp_path):
    store = Store.open(tmp_path / "data")
    store.create_stream(SCHEMA)
    ingest(store, 0, 20)
    run = store.cut(1)
    aside = tmp_path / "data" / "quarantine" / run.file.replace("/", "-")
    aside.write_bytes(b"of a run that was there before")
    path = tmp_path / "data" / "runs" / run.file
    content = path.read_bytes()
    assert store.quarantine.add(run, "as if")
    assert aside.read_bytes() == content
    kept = {each.read_bytes() for each in (tmp_path / "data" / "quarantine").iterdir()}
    assert kept == {content, b"of a run that was there before"}
    store.close()


def test_a_segment_in_quarantine_is_not_replaced_by_another_of_its_name(data):
    (segment,) = (data / "log").glob("*.log")
    (data / "quarantine" / segment.name).write_bytes(b"of an earlier damage")
    content = bytearray(segment.read_bytes())
    content[:64] = bytes(64)
    segment.write_bytes(content)
    Store.open(data).close()
    kept = {each.read_bytes() for each in (data / "quarantine").iterdir()}
    assert kept == {bytes(content), b"of an earlier damage"}


def test_damaged_bytes_of_one_place_are_kept_as_often_as_they_differ(data):
    (segment,) = (data / "log").glob("*.log")
    sound = segment.read_bytes()
    for bit in (1, 2, 2):
        content = bytearray(sound)
        content[SEGMENT_HEAD_BYTES + RECORD_HEAD_BYTES + 8] ^= bit
        segment.write_bytes(content)
        _, found = inspect(OsFiles(), data / "log", data / "quarantine", at_least=2)
        assert len(found.damages) == len(found.quarantined) == 1
    assert len(list((data / "quarantine").iterdir())) == 2
