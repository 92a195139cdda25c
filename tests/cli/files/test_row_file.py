"""Files of rows become batches with a stream's types."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shedder.cli.files.column_types import column_type
from shedder.cli.files.epoch_times import TimeUnit
from shedder.cli.files.formats import Dialect, FileFormat, format_of
from shedder.cli.files.row_file import FileColumns, RowFile
from shedder.cli.files.rows_without_time import Untimed
from shedder.cli.files.timestamps import readable
from shedder.cql.expressions.column_types import ColumnType
from shedder.errors import BadBatch, BadSetting, BadTimestamp, TypeMismatch

MORNING = dt.datetime(2013, 1, 1, 5, 15)


def rows_of(file: RowFile, reading: FileColumns) -> list[dict]:
    return batches_of(file.rows(reading, lambda share: None)).to_pylist()


def batches_of(blocks) -> pa.Table:
    return pa.Table.from_batches([rows.batch for rows in blocks])


def written(tmp_path, name: str, text: str):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.parquet", FileFormat.PARQUET),
        ("a.CSV", FileFormat.CSV),
        ("a.csv.gz", FileFormat.CSV),
        ("b.jsonl", FileFormat.NDJSON),
    ],
)
def test_a_suffix_tells_the_format(tmp_path, name, expected):
    assert format_of(tmp_path / name) is expected


def test_a_suffix_that_tells_nothing_is_refused_with_the_name(tmp_path):
    with pytest.raises(BadSetting, match=r"'rows\.txt'"):
        format_of(tmp_path / "rows.txt")


@pytest.mark.parametrize(
    "moment", ["2013-01-01 05:15:00", "2013-01-01T05:15:00Z", "2013-01-01T07:15:00.000+02:00"]
)
@pytest.mark.parametrize("kind", ["csv", "ndjson"])
def test_moments_in_text_become_utc(tmp_path, kind, moment):
    text = f"ts,n\n{moment},1\n" if kind == "csv" else f'{{"ts": "{moment}", "n": 1}}\n'
    file = RowFile(written(tmp_path, f"a.{kind}", text), FileFormat(kind))
    reading = FileColumns({"ts": ColumnType.TIMESTAMP, "n": ColumnType.BIGINT})
    (row,) = rows_of(file, reading)
    assert (
        row["ts"].astimezone(dt.UTC).replace(tzinfo=None) == MORNING
        if row["ts"].tzinfo
        else row["ts"] == MORNING
    )


@pytest.mark.parametrize(
    ("number", "unit"),
    [
        ("1357017300", TimeUnit.S),
        ("1357017300.0", TimeUnit.S),
        ("1357017300000", TimeUnit.MS),
        ("1357017300000000", TimeUnit.US),
        ("1357017300000000000", TimeUnit.NS),
    ],
)
def test_moments_may_be_numbers_of_a_unit(tmp_path, number, unit):
    path = written(tmp_path, "a.csv", f"ts\n{number}\n")
    file = RowFile(path, FileFormat.CSV, Dialect(time_unit=unit))
    reading = FileColumns({"ts": ColumnType.TIMESTAMP})
    assert rows_of(file, reading) == [{"ts": MORNING}]


def test_numbers_of_a_unit_that_reach_beyond_time_are_refused_or_left_out():
    """Seconds that were microseconds came in as other times: 2^62 of them as 1970."""
    for column, unit in (
        (pa.array([2**62, 1]), TimeUnit.S),
        (pa.array([2**64 - 1, 1], pa.uint64()), TimeUnit.S),
        (pa.array([2**62, 1], pa.timestamp("s")), None),
    ):
        assert readable("t", column, None, unit).cast(pa.int64()).to_pylist() == [None, 10**6]


def test_numbers_without_a_unit_are_no_moments(tmp_path):
    file = RowFile(written(tmp_path, "a.csv", "ts\n1357017300\n"), FileFormat.CSV)
    with pytest.raises(BadTimestamp, match="--time-unit"):
        rows_of(file, FileColumns({"ts": ColumnType.TIMESTAMP}))


def test_truths_are_no_moments(tmp_path):
    file = RowFile(written(tmp_path, "a.csv", "ts\ntrue\n"), FileFormat.CSV)
    with pytest.raises(BadTimestamp, match="'true' is no moment in ISO 8601"):
        rows_of(file, FileColumns({"ts": ColumnType.TIMESTAMP}))


def test_moments_may_have_a_format_of_their_own(tmp_path):
    path = written(tmp_path, "a.csv", "ts\n01/01/2013 05:15\n")
    file = RowFile(path, FileFormat.CSV, Dialect(time_format="%d/%m/%Y %H:%M"))
    reading = FileColumns({"ts": ColumnType.TIMESTAMP})
    assert rows_of(file, reading) == [{"ts": MORNING}]


def test_a_moment_that_cannot_be_read_is_refused_with_its_value(tmp_path):
    file = RowFile(written(tmp_path, "a.csv", "ts\nyesterday\n"), FileFormat.CSV)
    expected = r"^a\.csv: row 1, column 'ts': 'yesterday' is no moment in ISO 8601\. Say [^\n]*$"
    with pytest.raises(BadTimestamp, match=expected):
        rows_of(file, FileColumns({"ts": ColumnType.TIMESTAMP}))


def test_the_first_of_several_bad_moments_is_shown(tmp_path):
    lines = [f"2013-01-{day:02} 05:15:00" for day in range(1, 29)]
    lines[19], lines[23] = "first", "second"
    file = RowFile(written(tmp_path, "a.csv", "\n".join(["ts", *lines])), FileFormat.CSV)
    with pytest.raises(BadTimestamp, match="'first'"):
        rows_of(file, FileColumns({"ts": ColumnType.TIMESTAMP}))


def test_moments_with_and_without_a_zone_are_not_mixed(tmp_path):
    text = "ts\n2013-01-01 05:15:00\n2013-01-01 05:15:00Z\n"
    file = RowFile(written(tmp_path, "a.csv", text), FileFormat.CSV)
    with pytest.raises(BadTimestamp, match="all moments have a zone, or none has"):
        rows_of(file, FileColumns({"ts": ColumnType.TIMESTAMP}))


def test_csv_has_empty_cells_as_nulls_and_quoted_ones_as_text(tmp_path):
    file = RowFile(written(tmp_path, "a.csv", 'x,y\n,""\n1,b\n'), FileFormat.CSV)
    reading = FileColumns({"x": ColumnType.DOUBLE, "y": ColumnType.VARCHAR})
    assert rows_of(file, reading) == [{"x": None, "y": ""}, {"x": 1.0, "y": "b"}]


def test_only_the_wanted_columns_are_read(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1], "y": ["a"], "z": [2.0]}), path)
    reading = FileColumns({"z": ColumnType.DOUBLE, "x": ColumnType.BIGINT})
    assert rows_of(RowFile(path, FileFormat.PARQUET), reading) == [{"x": 1, "z": 2.0}]


def test_packed_text_is_unpacked(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"x\n7\n"))
    assert rows_of(RowFile(path, FileFormat.CSV), FileColumns({"x": ColumnType.BIGINT})) == [
        {"x": 7}
    ]


def test_progress_reaches_one(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": range(200_000)}), path)
    shares: list[float] = []
    list(
        RowFile(path, FileFormat.PARQUET).rows(FileColumns({"x": ColumnType.BIGINT}), shares.append)
    )
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_bytes_that_are_not_the_format_are_refused_with_the_file(tmp_path):
    path = written(tmp_path, "a.parquet", "this is no parquet")
    with pytest.raises(BadBatch, match=r"a\.parquet"):
        RowFile(path, FileFormat.PARQUET).names()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.uint16(), ColumnType.INTEGER),
        (pa.uint64(), ColumnType.BIGINT),
        (pa.decimal128(10, 2), ColumnType.DOUBLE),
        (pa.dictionary(pa.int8(), pa.large_string()), ColumnType.VARCHAR),
        (pa.timestamp("ns", "UTC"), ColumnType.TIMESTAMP),
        (pa.date64(), ColumnType.DATE),
        (pa.null(), ColumnType.VARCHAR),
    ],
)
def test_arrow_types_have_a_column_type(kind, expected):
    assert column_type("c", kind) is expected


def test_a_type_that_no_stream_holds_is_refused_with_a_way_out():
    with pytest.raises(TypeMismatch, match=r"'tags' is list.*--columns A,B,C"):
        column_type("tags", pa.list_(pa.int64()))


UNTIMED = {
    "a.csv": "ts,n\n2013-01-01T05:15:00Z,1\n,2\nyesterday,3\n2013-01-01T05:15:00Z,4\n"
    "2013-01-01 05:15:00,5\n",
    "a.ndjson": '{"ts": "2013-01-01T05:15:00Z", "n": 1}\n{"n": 2}\n{"ts": "?", "n": 3}\n'
    '{"ts": "2013-01-01T05:15:00Z", "n": 4}\n{"ts": "2013-01-01 05:15:00", "n": 5}\n',
}


@pytest.mark.parametrize("name", UNTIMED)
def test_rows_without_an_event_time_may_be_left_out_and_are_named(tmp_path, name):
    file = RowFile(written(tmp_path, name, UNTIMED[name]), format_of(tmp_path / name))
    columns, left_out = {"ts": ColumnType.TIMESTAMP, "n": ColumnType.BIGINT}, Untimed()
    blocks = file.timed(FileColumns(columns, moment="ts"), "ts", left_out, lambda share: None)
    assert batches_of(blocks).to_pylist() == [
        {"ts": MORNING, "n": 1},
        {"ts": MORNING, "n": 4},
    ]  # The last has no zone, as most have.
    assert (left_out.count, left_out.first) == (3, [2, 3, 5])
    assert str(left_out) == "rows 2, 3, 5"


def test_a_row_without_an_event_time_refuses_its_file_by_its_number(tmp_path):
    file = RowFile(written(tmp_path, "a.csv", "ts,n\n2013-01-01,1\n,2\n"), FileFormat.CSV)
    reading = FileColumns({"ts": ColumnType.TIMESTAMP, "n": ColumnType.BIGINT})
    with pytest.raises(BadTimestamp, match=r"a\.csv: .* 'ts' .* in row 2, of rows 1 to 2; --skip"):
        list(file.timed(reading, "ts", None, lambda share: None))


@pytest.mark.parametrize(
    ("kind", "unit"),
    [(pa.timestamp("us"), None), (pa.int64(), TimeUnit.S), (pa.float64(), TimeUnit.MS)],
)
def test_times_that_no_calendar_has_are_left_out_too(tmp_path, kind, unit):
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"ts": pa.array([0, 1 << 62], pa.int64()).cast(kind, safe=False)}), path
    )
    reading, left_out = FileColumns({"ts": ColumnType.TIMESTAMP}, moment="ts"), Untimed()
    file = RowFile(path, FileFormat.PARQUET, Dialect(time_unit=unit))
    (rows,) = file.timed(reading, "ts", left_out, lambda share: None)
    assert (rows.numbers.tolist(), left_out.first) == ([1], [2])


@pytest.mark.parametrize(
    ("format_", "unit", "texts"),
    [("%d/%m/%Y", None, ["01/01/2013", "2013"]), (None, TimeUnit.S, ["1357017300.5", "soon"])],
)
def test_moments_of_a_format_or_a_unit_may_be_unreadable_too(tmp_path, format_, unit, texts):
    path = written(tmp_path, "a.csv", "ts\n" + "\n".join(texts) + "\n")
    reading = FileColumns({"ts": ColumnType.TIMESTAMP}, moment="ts")
    dialect = Dialect(time_format=format_, time_unit=unit)
    file, left_out = RowFile(path, FileFormat.CSV, dialect), Untimed()
    (rows,) = file.timed(reading, "ts", left_out, lambda share: None)
    assert (rows.numbers.tolist(), left_out.first) == ([1], [2])


def test_a_column_that_is_optional_may_be_lacking(tmp_path):
    file = RowFile(written(tmp_path, "a.csv", "n\n1\n"), FileFormat.CSV)
    columns = {"n": ColumnType.BIGINT, "m": ColumnType.BIGINT}
    assert rows_of(file, FileColumns(columns, optional=frozenset("m"))) == [{"n": 1}]
    assert file.lacking(FileColumns(columns)) == ["m"]
    with pytest.raises(BadBatch, match="has no column 'm'"):
        rows_of(file, FileColumns(columns))


def test_a_column_that_may_be_misnamed_is_not_taken_for_lacking(tmp_path):
    file = RowFile(written(tmp_path, "a.csv", "n,M\n1,2\n"), FileFormat.CSV)
    columns = {"n": ColumnType.BIGINT, "m": ColumnType.BIGINT}
    with pytest.raises(BadBatch, match="has no column 'm'; it has n, M"):
        rows_of(file, FileColumns(columns, optional=frozenset("m")))


@pytest.mark.parametrize(
    ("name", "text", "head", "earlier"),
    [
        ("a.ndjson", b"1\n2\n3\n", b"1", (b"1\n2", b"1\n")),
        ("a.ndjson", b"1\n", b"1", (b"1\n",)),
        ("a.csv", b"x\r\n1\r\n2\r\n", b"x\r\n1", (b"x\r\n1\r",)),
        ("a.csv", b"\nx\n1\n", b"x\n1", (b"\nx",)),
        ("a.csv", b"x\r1\r2\r", b"x\r1", (b"x\r1\r2\r",)),
    ],
)
def test_heads_that_earlier_versions_stored_are_known(tmp_path, name, text, head, earlier):
    path = tmp_path / name
    path.write_bytes(text)
    digest = RowFile(path, format_of(path)).digest()
    assert digest.head == hashlib.sha256(head).hexdigest()
    assert {hashlib.sha256(each).hexdigest() for each in earlier} <= {*digest.other_heads}
