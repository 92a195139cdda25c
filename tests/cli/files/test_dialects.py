"""Files of many dialects have the right types and values, or are refused with a remedy."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import io
import lzma
import tarfile
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shedder.cli.files.epoch_times import TimeUnit
from shedder.cli.files.formats import Dialect
from shedder.cql.expressions.column_types import ColumnType
from shedder.errors import InvalidRequest
from tests.cli.files.worlds import read

T = dt.datetime(2024, 1, 2, 3, 4, 5)


def values(content: bytes, *expected, name="f.csv", kind=None, how=None, types=None):
    return (name, content, Dialect(**(how or {})), types, kind, list(expected))


def lines_of(rows: list[str]) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def array_of(rows: list[str]) -> bytes:
    return ("[" + ",\n ".join(rows) + "]\n").encode()


def zipped(content: bytes, name: str = "f.csv") -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr(name, content)
    return whole.getvalue()


def tarred(content: bytes) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        entry = tarfile.TarInfo("f.csv")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


def packed(content: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as out:
        out.write(content)
    return sink.getvalue().to_pybytes()


XY = {"how": {"delimiter": ";"}}

JSON_NUMBERS = {
    "integers beyond 64 bits stay text": (
        "VARCHAR",
        ['{"x": 123456789012345678901}'],
        "123456789012345678901",
    ),
    "decimals that a double loses stay text": (
        "VARCHAR",
        [
            '{"y": {"x": 1234567890123456.78}, "x": 9007199254740993.5}',
            '{"y": {"x": 1234567890123456.78}, "x": 1234567890123456.78}',
            '{"x": 1.50}',
        ],
        "9007199254740993.5",
        "1234567890123456.78",
        "1.5",
    ),
    "doubles of 17 digits": (
        "DOUBLE",
        ['{"x": 13.377704000000001}', '{"x": 0.30000000000000004e0}'],
        13.377704000000001,
        0.30000000000000004,
    ),
}
# Each file has a column x; its type and its values are what counts.
READ = {
    "integers": values(b"x\n1\n-2\n", 1, -2, kind="BIGINT"),
    "least and greatest integer": values(
        b"x\n-9223372036854775808\n9223372036854775807\n", -(2**63), 2**63 - 1, kind="BIGINT"
    ),
    "integers beyond 64 bits stay text": values(
        b"x\n1\n9223372036854775808\n", "1", "9223372036854775808", kind="VARCHAR"
    ),
    "leading zeros stay text": values(b"x\n007\n8\n", "007", "8", kind="VARCHAR"),
    "leading zeros and a plus sign in a column of integers": values(
        b"x\n007\n+49\n", 7, 49, types={"x": ColumnType.BIGINT}
    ),
    "a plus sign stays text": values(b"x\n+49\n8\n", "+49", "8", kind="VARCHAR"),
    "decimals": values(b"x\n0.1\n-2.50\n.5\n", 0.1, -2.5, 0.5, kind="DOUBLE"),
    "exponents": values(b"x\n1e-3\n2E+2\n", 0.001, 200.0, kind="DOUBLE"),
    "infinity": values(b"x\ninf\n-inf\n1\n", float("inf"), float("-inf"), 1.0, kind="DOUBLE"),
    "doubles of 17 digits": values(
        b"x\n0.30000000000000004\n1.7976931348623157e308\n",
        0.30000000000000004,
        1.7976931348623157e308,
        kind="DOUBLE",
    ),
    "doubles of 20 decimals": values(b"x\n0.10000000000000000555\n", 0.1, kind="DOUBLE"),
    "cents that a double loses stay text": values(
        b"x\n1234567890123456.78\n1.5\n", "1234567890123456.78", "1.5", kind="VARCHAR"
    ),
    "integers among decimals that a double loses stay text": values(
        b"x\n9007199254740993\n1.5\n", "9007199254740993", "1.5", kind="VARCHAR"
    ),
    "truths": values(b"x\ntrue\nFALSE\n", True, False, kind="BOOLEAN"),
    "truths of other words": values(
        b"x\nt\nF\n0\n1\n", True, False, False, True, types={"x": ColumnType.BOOLEAN}
    ),
    "days": values(b"x\n2024-01-02\n", dt.date(2024, 1, 2), kind="DATE"),
    "days with midnight": values(
        b"x\n2024-01-02 00:00:00\n", dt.date(2024, 1, 2), types={"x": ColumnType.DATE}
    ),
    "times": values(b"x\n2024-01-02 03:04:05\n", T, kind="TIMESTAMP"),
    "times in UTC": values(b"x\n2024-01-02T03:04:05Z\n", T, kind="TIMESTAMP"),
    "times in a zone": values(b"x\n2024-01-02T05:04:05+02:00\n", T, kind="TIMESTAMP"),
    "times of nine digits": values(
        b"x\n2024-01-02T03:04:05.123456789Z\n", T.replace(microsecond=123456), kind="TIMESTAMP"
    ),
    "times before 1970 of nine digits": values(
        b"x\n1969-12-31T23:59:59.9999999\n",
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        kind="TIMESTAMP",
    ),
    "times of year 1 and year 9999": values(
        b"x\n0001-01-01 00:00:00\n9999-12-31 23:59:59\n",
        dt.datetime(1, 1, 1),
        dt.datetime(9999, 12, 31, 23, 59, 59),
        kind="TIMESTAMP",
    ),
    "times of a format": values(
        b"x\n02/01/2024 03:04:05\n", T, kind="TIMESTAMP", how={"time_format": "%d/%m/%Y %H:%M:%S"}
    ),
    "times of a format with a zone": values(
        b"x\n02/Jan/2024:05:04:05 +0200\n",
        T,
        kind="TIMESTAMP",
        how={"time_format": "%d/%b/%Y:%H:%M:%S %z"},
    ),
    "seconds since 1970": values(
        b"x\n1704164645\n", T, how={"time_unit": TimeUnit.S}, types={"x": ColumnType.TIMESTAMP}
    ),
    "nanoseconds before 1970": values(
        b"x\n-1\n",
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        how={"time_unit": TimeUnit.NS},
        types={"x": ColumnType.TIMESTAMP},
    ),
    "words for NULL stay text": values(
        b"x\nNA\nNULL\nnan\nN/A\nDE\n", "NA", "NULL", "nan", "N/A", "DE", kind="VARCHAR"
    ),
    "words for NULL among numbers": values(b"x,y\n1,a\nNA,b\n,c\n", 1, None, None, kind="BIGINT"),
    "words for NULL alone stay text": values(b"x,y\nNA,1\n", "NA", kind="VARCHAR"),
    "words that are said to be NULL": values(
        b'x,y\nNA,1\n"NA",1\nDE,1\n', None, "NA", "DE", how={"null_words": ("NA",)}
    ),
    "empty cells": values(b"x,y\n,1\n7,1\n", None, 7, kind="BIGINT"),
    "empty text in quotes": values(b'x,y\n"",1\nb,1\n,1\n', "", "b", None, kind="VARCHAR"),
    "blanks are kept": values(b"x,y\n a ,1\n", " a ", kind="VARCHAR"),
    "quotes in quotes": values(b'x,y\n"a ""b"", c",1\n', 'a "b", c', kind="VARCHAR"),
    "line ends in quotes": values(b'x,y\n"a\nb",1\nc,2\n', "a\nb", "c", kind="VARCHAR"),
    "another quote": values(b"x,y\n'a,b',1\n", "a,b", how={"quote": "'"}),
    "no quotes": values(b'x,y\n"a,1\n', '"a', how={"quote": None}),
    "semicolons": values(b"x;y\n1,5;2\n", "1,5", how={"delimiter": ";"}),
    "decimal commas": values(
        b"x;y\n1,5;2\n", 1.5, kind="DOUBLE", how={"delimiter": ";", "decimal_comma": True}
    ),
    "bars": values(b"x|y\na|2\n", "a", how={"delimiter": "|"}),
    "tabs": values(b"x\ty\na,b\t2\n", "a,b", name="f.tsv"),
    "line ends of Windows": values(b"x,y\r\n1,a\r\n2,b\r\n", 1, 2, kind="BIGINT"),
    "no end of the last line": values(b"x\n1\n2", 1, 2, kind="BIGINT"),
    "a mark of the encoding": values(b"\xef\xbb\xbfx\n1\n", 1, kind="BIGINT"),
    "no header": values(b"1,a\n2,b\n", 1, 2, kind="BIGINT", how={"header": ("x", "y")}),
    "latin-1": values("x\ncafé\n".encode("latin-1"), "café", how={"encoding": "latin-1"}),
    "cp1252": values("x\n5 €\n".encode("cp1252"), "5 €", how={"encoding": "cp1252"}),
    "utf-16": values("x\ncafé\n".encode("utf-16"), "café", how={"encoding": "utf-16"}),
    "gzip": values(gzip.compress(b"x\n1\n"), 1, name="f.csv.gz"),
    "gzip of two members": values(
        gzip.compress(b"x\n1\n") + gzip.compress(b"2\n"), 1, 2, name="f.csv.gz"
    ),
    "gzip without its suffix": values(gzip.compress(b"x\n1\n"), 1),
    "bzip2 of two members": values(bz2.compress(b"x\n1\n") + bz2.compress(b"2\n"), 1, 2),
    "xz": values(lzma.compress(b"x\n1\n"), 1),
    "zstd": values(packed(b"x\n1\n", "zstd"), 1, name="f.csv.zst"),
    "zstd of two frames": values(packed(b"x\n1\n", "zstd") + packed(b"2\n", "zstd"), 1, 2),
    "lz4": values(packed(b"x\n1\n", "lz4"), 1, name="f.csv.lz4"),
    "JSON lines": values(b'{"x": 1}\n\n{"x": null}\n{}\n', 1, None, None, name="f.ndjson"),
    "JSON numbers": values(b'{"x": 1}\n{"x": 2.5}\n', 1.0, 2.5, name="f.json", kind="DOUBLE"),
    "JSON integers of 64 bits": values(
        b'{"x": 9007199254740993}\n', 2**53 + 1, name="f.json", kind="BIGINT"
    ),
    **{
        f"{what} in JSON {form}": values(joined(rows), *expected, name="f.json", kind=kind)
        for what, (kind, rows, *expected) in JSON_NUMBERS.items()
        for form, joined in (("lines", lines_of), ("arrays", array_of))
    },
    "an empty line before JSON": values(b'\n\n{"x": 1}\n', 1, name="f.json"),
    "JSON strings of digits stay text": values(
        b'{"x": "12"}\n', "12", name="f.json", kind="VARCHAR"
    ),
    "empty JSON objects": values(
        b'{"x": 1, "y": {}}\n{"x": 2, "y": {"z": 1}}\n', 1, 2, name="f.json"
    ),
    "JSON truths": values(b'{"x": true}\n', True, name="f.json", kind="BOOLEAN"),
    "JSON times": values(
        b'{"x": "2024-01-02T03:04:05.123456789Z"}\n',
        T.replace(microsecond=123456),
        name="f.json",
        kind="TIMESTAMP",
    ),
    "JSON escapes": values(rb'{"x": "a\n\u00e9\"\/"}', 'a\né"/', name="f.json"),
    "a JSON array": values(b' [{"x": 1},\n {"x": 2}]\n', 1, 2, name="f.json", kind="BIGINT"),
    "JSON arrays as text": values(
        b'{"x": [1, "a"]}\n', '[1,"a"]', name="f.json", types={"x": ColumnType.VARCHAR}
    ),
}


@pytest.mark.parametrize("case", READ.values(), ids=READ)
def test_a_file_has_the_right_values(tmp_path, case):
    name, content, dialect, types, kind, expected = case
    path = tmp_path / name
    path.write_bytes(content)
    found, rows = read(path, dialect, types=types)
    assert [row["x"] for row in rows] == expected
    assert kind is None or found["x"] == kind


def test_nested_json_has_a_column_for_each_path(tmp_path):
    path = tmp_path / "f.ndjson"
    path.write_text('{"a": {"b.c": 1, "d/e~": {"f": "x"}}, "g": 2}\n{"a": {"b.c": 3}, "g": null}\n')
    found, rows = read(path)
    assert found == {"a.b.c": "BIGINT", "a.d/e~.f": "VARCHAR", "g": "BIGINT"}
    assert rows == [
        {"a.b.c": 1, "a.d/e~.f": "x", "g": 2},
        {"a.b.c": 3, "a.d/e~.f": None, "g": None},
    ]


def refused(content: bytes, match: str, *, name="f.csv", how=None, types=None):
    return (name, content, Dialect(**(how or {})), types, match)


REFUSED = {
    "latin-1": refused("x\ncafé\n".encode("latin-1"), r"f\.csv: line 2 is not UTF-8 .*--encoding"),
    "latin-1 in JSON": refused(
        '{"x": "é"}\n'.encode("latin-1"), "line 1 is not UTF-8 .*--encoding", name="f.json"
    ),
    "utf-16": refused("x\n1\n".encode("utf-16"), "not UTF-8, it looks like UTF-16: say --encoding"),
    "utf-16 without a mark": refused("x\n1\n".encode("utf-16-le"), "--encoding utf-16-le"),
    "bytes outside of an encoding": refused(
        b"x\n\x81\n", "line 2 is not in cp1252 .byte 0x81", how={"encoding": "cp1252"}
    ),
    "a zip archive": refused(zipped(b"x\n1\n"), "is a zip archive: unzip it first"),
    "a zip archive by its suffix": refused(
        zipped(b"x\n1\n"), r"f\.zip is a zip archive: unzip it first \(\.gz", name="f.zip"
    ),
    "a zip archive of a file": refused(zipped(b""), "unzip it first", name="f.csv.zip"),
    "a zip archive of JSON": refused(zipped(b"{}"), "unzip it first", name="f.json"),
    "a spreadsheet": refused(
        zipped(b"", "[Content_Types].xml"),
        r"f\.xlsx is a spreadsheet .*: export it as CSV",
        name="f.xlsx",
    ),
    "a spreadsheet of OpenDocument": refused(
        zipped(b"", "mimetype"), "is a spreadsheet", name="f.ods"
    ),
    "a tar archive": refused(tarred(b"x\n1\n"), "is a tar archive: unpack it", name="f.csv.tgz"),
    "an Avro file": refused(b"Obj\x01", "is an Avro file: write it as Parquet", name="f.avro"),
    "a cut gzip": refused(gzip.compress(b"x\n1\n" * 999)[:-9], "cannot be unpacked"),
    "a cut zstd": refused(packed(b"x\n1\n" * 99, "zstd")[:-6], "cannot be unpacked"),
    "Parquet under another name": refused(b"PAR1 and more", "is Parquet: say --format parquet"),
    "a name twice": refused(b"x,x\n1,2\n", "has column 'x' twice; .*--header x_1,x_2"),
    "a JSON key twice": refused(b'{"x": 1, "x": 2}\n', "row 1 has a key twice", name="f.json"),
    "a JSON key twice within": refused(
        b'{"x": {"y": {"z": 1}}}\n{"x": {"y": {"z": 1, "z": 2}}}\n',
        "row 2 has a key twice",
        name="f.json",
    ),
    "two JSON paths of one name": refused(
        b'{"a": {"b": 1}, "a.b": 2}\n', "two keys of an object are both called 'a.b'", name="f.json"
    ),
    "a row with more cells": refused(b"x,y\n1,2\n1,2,3\n", "row 2 has 3 cells, not 2: '1,2,3'"),
    "a row with fewer cells": refused(b"x,y\n1,2\n\n1\n", "has 1 cells, not 2: '1'.*--bad-rows"),
    "a text that is no number": refused(
        b"x\n1\ntimeout\n",
        r"row 2, column 'x': 'timeout' is no DOUBLE; --bad-rows FILE",
        types={"x": ColumnType.DOUBLE},
    ),
    "an integer that a double loses": refused(
        b"x\n9007199254740993\n",
        "row 1, column 'x': '9007199254740993' has more digits than DOUBLE holds; .*x=VARCHAR",
        types={"x": ColumnType.DOUBLE},
    ),
    "a number beyond the doubles": refused(
        b"x\n1e400\n", "'1e400' has more digits", types={"x": ColumnType.DOUBLE}
    ),
    "an integer beyond 32 bits": refused(
        b"x\n1\n2147483648\n",
        "row 2, .*'2147483648' is no INTEGER",
        types={"x": ColumnType.INTEGER},
    ),
    "a time as a day": refused(
        b"x\n2024-01-02 03:04:05\n", "is no DATE", types={"x": ColumnType.DATE}
    ),
    "a time of another format": refused(
        b"x\n2010/01/01 00:00:00\n",
        "is no moment in ISO 8601. Say .* --time-format '%Y/%m/%d %H:%M:%S'",
        types={"x": ColumnType.TIMESTAMP},
    ),
    "a 30th of February": refused(
        b"x\n2024-02-30 00:00:00\n", "is no moment", types={"x": ColumnType.TIMESTAMP}
    ),
    "a line that is no JSON": refused(
        b'{"x": 1}\n{"x": \n', "row 2 is not a JSON object: ", name="f.json"
    ),
    "JSON that is no object": refused(b"[1]\n", "row 1 is not a JSON object: '1'", name="f.json"),
    "JSON below an empty line that is no object": refused(
        b'\n{"x": 1}\n[2]\n', "row 3 is not a JSON object", name="f.json"
    ),
    "an element of a JSON array that is no object": refused(
        b'[{"x": 1},\n2]', "row 2 is not a JSON object: '2'", name="f.json"
    ),
    "a JSON key twice in an array": refused(
        b'[{"x": 1, "x": 2}]', "row 1 has a key twice", name="f.json"
    ),
    "a JSON array without a comma": refused(b'[{"x": 1} {}]', "is not a JSON array", name="f.json"),
    "a JSON array with a comma at its end": refused(
        b'[{"x": 1},]', "is not a JSON array", name="f.json"
    ),
    "text after a JSON array": refused(b'[{"x": 1}] {}', "is not a JSON array", name="f.json"),
    "an open JSON array": refused(b'[{"x": 1},', "is not a JSON array", name="f.json"),
    "a JSON array in a column": refused(
        b'{"x": [1]}\n', "arrays or objects.*--type x=VARCHAR", name="f.json"
    ),
    "no bytes": refused(b"", "Empty CSV file"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_file_is_refused_with_what_would_be_right(tmp_path, case):
    name, content, dialect, types, match = case
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=match):
        read(path, dialect, types=types)


PARQUET = {
    "nanoseconds before 1970": (
        pa.array([-1, -1_001, -1_000, 1_999], pa.timestamp("ns")),
        "TIMESTAMP",
        [dt.datetime(1969, 12, 31, 23, 59, 59, us) for us in (999_999, 999_998, 999_999)]
        + [dt.datetime(1970, 1, 1, 0, 0, 0, 1)],
    ),
    "a zone": (pa.array([T], pa.timestamp("ms", "America/New_York")), "TIMESTAMP", [T]),
    "decimals": (
        pa.array(["0.10", "1.15", None]).cast(pa.decimal128(18, 2)),
        "DOUBLE",
        [0.1, 1.15, None],
    ),
    "a dictionary": (pa.array(["a", "b", "a"]).dictionary_encode(), "VARCHAR", ["a", "b", "a"]),
    "times of day": (pa.array([3_600], pa.time32("s")), "VARCHAR", ["01:00:00.000"]),
}


@pytest.mark.parametrize("case", PARQUET.values(), ids=PARQUET)
def test_a_parquet_file_has_the_right_values(tmp_path, case):
    column, kind, expected = case
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"x": column}), path)
    found, rows = read(path)
    assert (found["x"], [row["x"] for row in rows]) == (kind, expected)


def test_int96_times_of_all_years_are_right(tmp_path):
    times = [dt.datetime(1, 1, 1), dt.datetime(1500, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59)]
    path = tmp_path / "f.parquet"
    table = pa.table({"x": pa.array(times, pa.timestamp("us"))})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    assert [row["x"] for row in read(path)[1]] == times


@pytest.mark.parametrize(
    ("column", "match"),
    [
        (pa.array(["9007199254740993"]).cast(pa.decimal128(18, 0)), "'9007199254740993' has more"),
        (pa.array(["1234567890123456.78"]).cast(pa.decimal128(18, 2)), "'1234567890123456.78' has"),
        (pa.array([1, 2**53 + 1]), "row 2, column 'x': '9007199254740993' has more digits"),
        (pa.array([2**64 - 1], pa.uint64()), "'18446744073709551615' has more digits"),
    ],
)
def test_parquet_numbers_that_a_double_loses_are_refused(tmp_path, column, match):
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"x": column}), path)
    with pytest.raises(InvalidRequest, match=match):
        read(path, types={"x": ColumnType.DOUBLE})


def test_the_index_of_pandas_is_no_column(tmp_path):
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"x": [1], "__index_level_0__": [7]}), path)
    assert read(path) == ({"x": "BIGINT"}, [{"x": 1}])
