"""Runs: Parquet that any reader can read, and damage that none is served from."""

import threading

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shedder.archive.encoding.parquet_encoding import (
    TEXT_CHARACTERS_MAX,
    basics_of,
    choose_encoding,
    row_group_rows,
)
from shedder.archive.files.file_system import OsFiles
from shedder.archive.layouts.run_footer import basics_beside
from shedder.archive.metadata.catalog_entries import StreamEntry
from shedder.archive.runs.run_format import read_run, verify_run, write_run
from shedder.errors import Cancelled, CorruptData
from tests.archive.schemas import ARROW, PLAIN, SCHEMA, batch


@pytest.fixture(params=[SCHEMA, PLAIN], ids=["hybrid", "plain"])
def written(tmp_path, request):
    (tmp_path / "tmp").mkdir()
    batches = [batch(100, 70_000), batch(70_100, 10)]
    stream = StreamEntry(3, request.param)
    return tmp_path, batches, write_run(OsFiles(), tmp_path, stream, 100, batches)


@pytest.mark.slow
def test_a_run_reads_back_as_it_was_written(written):
    directory, batches, run = written
    read = list(read_run(directory / "runs" / run.file, run))
    assert [positions[0] for positions, _ in read] == [100, 65_636]
    expected = pa.Table.from_batches(batches).to_pydict()
    assert repr(pa.Table.from_batches([b for _, b in read]).to_pydict()) == repr(expected)
    (_, first), *_ = read_run(directory / "runs" / run.file, run, ["value", "ts"])
    assert first.schema.names == ["value", "ts"]
    assert run.rows == 70_010
    nothing = list(read_run(directory / "runs" / run.file, run, []))
    assert [batch.num_rows for _, batch in nothing] == [65_536, 70_010 - 65_536]
    assert {batch.num_columns for _, batch in nothing} == {0}
    assert list((directory / "tmp").iterdir()) == []


def test_other_readers_read_a_run(written):
    directory, _, run = written
    path = directory / "runs" / run.file
    count, serial, kind = duckdb.sql(
        f"SELECT count(*), sum(serial), any_value(typeof(ts)) FROM read_parquet('{path}')"
    ).fetchall()[0]
    assert (count, serial, kind) == (70_010, sum(range(100, 70_110)), "TIMESTAMP")
    metadata = pq.ParquetFile(path).metadata.metadata
    assert metadata[b"shedder.first_position"] == b"100"
    assert metadata[b"shedder.end_position"] == b"70110"


def test_the_basics_are_those_of_the_rows(written):
    _, batches, run = written
    table = pa.Table.from_batches(batches).to_pandas()
    assert run.basics["value"].nulls == table["value"].isna().sum()
    assert run.basics["value"].low == table["value"].min()
    assert run.basics["value"].high == table["value"].max()
    assert (run.low_us, run.high_us) == (100_000, 70_109_000)
    assert run.basics["ts"].high == 70_109_000
    assert (run.basics["day"].low, run.basics["day"].high) == (10, 7010)
    assert run.basics["site"].high == "site8"
    assert (run.basics["ok"].low, run.basics["ok"].high) == (False, True)


def test_basics_of_nothing_but_nulls_and_of_long_text_are_unknown():
    table = pa.table(
        {
            "nan": pa.array([float("nan"), None]),
            "null": pa.array([None, None], pa.int64()),
            "text": pa.array(["x" * (TEXT_CHARACTERS_MAX + 1), "y"]),
        }
    )
    basics = basics_of(table)
    assert (basics["nan"].nulls, basics["nan"].low) == (2, None)
    assert (basics["null"].nulls, basics["null"].high) == (2, None)
    assert (basics["text"].low, basics["text"].high, basics["text"].exact) == (None, "y", False)


def test_basics_of_a_dictionary_are_those_of_its_texts():
    texts = pa.array(["b", None, "c", "b"])
    long = pa.array(["x" * (TEXT_CHARACTERS_MAX + 1), "y", "y", "y"])
    table = pa.table({"text": texts, "long": long, "none": pa.nulls(4, pa.string())})
    encoded = pa.table({name: table[name].dictionary_encode() for name in table.column_names})
    assert basics_of(encoded) == basics_of(table)


def test_encodings_follow_the_values():
    table = pa.Table.from_batches([batch(0, 50_000)])
    chosen = {name: choose_encoding(table[name]) for name in ARROW.names}
    assert chosen == {
        "ts": "DELTA_BINARY_PACKED",
        "sensor": "DICTIONARY",
        "serial": "BYTE_STREAM_SPLIT",
        "value": "BYTE_STREAM_SPLIT",
        "site": "DICTIONARY",
        "ok": "PLAIN",
        "day": "DICTIONARY",
    }


def test_wide_rows_make_smaller_row_groups():
    narrow = pa.table({"a": range(10)})
    wide = pa.table({"text": ["x" * (1 << 20)] * 10})
    assert row_group_rows(narrow) == 1 << 20
    assert row_group_rows(wide) in (127, 128)


def test_a_run_as_written_passes_verification(written):
    directory, _, run = written
    read_bytes: list[int] = []
    verify_run(OsFiles(), directory, run, read_bytes.append)
    assert sum(read_bytes) == (directory / "runs" / run.file).stat().st_size > 0


@pytest.mark.slow
def test_no_flipped_bit_passes_verification(written):
    directory, _, run = written
    path = directory / "runs" / run.file
    data = path.read_bytes()
    for offset in range(5, len(data), 4096):
        rotten = bytearray(data)
        rotten[offset] ^= 1
        path.write_bytes(rotten)
        with pytest.raises(CorruptData, match="checksum"):
            verify_run(OsFiles(), directory, run)


@pytest.mark.parametrize("change", ["missing", "short", "long"])
def test_a_file_of_the_wrong_size_does_not_pass_verification(written, change):
    directory, _, run = written
    path = directory / "runs" / run.file
    data = path.read_bytes()
    path.unlink()
    if change != "missing":
        path.write_bytes(data[:-1] if change == "short" else data + b"\0")
    with pytest.raises(CorruptData, match="positions 100 to 70110"):
        verify_run(OsFiles(), directory, run)


class Slow:
    """A table whose columns cannot be read before it is told to allow it."""

    schema = ()

    def __init__(self):
        self.go_on, self.waited = threading.Event(), threading.Event()

    @property
    def columns(self):
        self.waited.set()
        self.go_on.wait()
        return ()


def test_nobody_waits_for_the_basics_of_a_run_that_is_not_written():
    table = Slow()

    def called_off() -> None:
        with basics_beside(table):
            table.waited.wait()
            raise Cancelled("a rewrite")

    with pytest.raises(Cancelled):
        called_off()
    assert not table.go_on.is_set()
    table.go_on.set()
