"""Rows that cannot be read are kept aside with their numbers; changes and types are told."""

from __future__ import annotations

import datetime as dt
import io
import json

import pytest

from shedder.cli.files.bad_rows import BadRows
from shedder.cli.files.cell_values import Changes
from shedder.cli.files.epoch_times import TimeUnit
from shedder.cli.files.formats import Dialect, FileFormat
from shedder.cli.files.row_file import RowFile
from shedder.cql.expressions.column_types import ColumnType
from shedder.errors import BadSetting
from tests.cli.files.worlds import read


def aside(tmp_path, name: str, text: str, types: dict) -> tuple[list[dict], list[dict]]:
    """The rows of a file, and its bad rows as they are written."""
    path, sink = tmp_path / name, io.StringIO()
    path.write_text(text)
    bad = BadRows(name, sink)
    _, rows = read(path, types=types, bad=bad)
    written = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert bad.count == len(written)
    return rows, written


def test_bad_rows_of_csv_are_kept_aside_with_their_numbers(tmp_path):
    text = "x,y\n1,a\n2,b,c\nthree,d\n4\n5,e\n99999999999,f\n"
    rows, bad = aside(tmp_path, "f.csv", text, {"x": ColumnType.INTEGER})
    assert rows == [{"x": 1, "y": "a"}, {"x": 5, "y": "e"}]
    assert sorted((row["row"], row["is"]) for row in bad if isinstance(row["is"], str)) == [
        (2, "2,b,c"),
        (4, "4"),
    ]
    assert [(row["row"], row["is"]) for row in bad if isinstance(row["is"], dict)] == [
        (3, {"x": "three", "y": "d"}),
        (6, {"x": "99999999999", "y": "f"}),
    ]
    assert {row["file"] for row in bad} == {"f.csv"}


def test_bad_rows_in_many_blocks_are_kept_aside_in_order_and_none_twice(tmp_path):
    wide = "w" * 4_500
    text = "x,y\n" + "".join(f"{n}\n{n},{wide}\n" for n in range(6_000)) + "4\n4\n"
    rows, bad = aside(tmp_path, "f.csv", text, {"x": ColumnType.BIGINT})
    assert [row["x"] for row in rows] == [*range(6_000)]
    assert [row["row"] for row in bad] == [*range(1, 12_000, 2), 12_001, 12_002]


def test_bad_rows_of_json_are_kept_aside_with_their_numbers(tmp_path):
    text = '{"x": 1}\n{"x": \n[2]\n{"x": "y"}\n{"x": 5, "x": 6}\n{"x": 7}\n'
    rows, bad = aside(tmp_path, "f.ndjson", text, {"x": ColumnType.BIGINT})
    assert rows == [{"x": 1}, {"x": 7}]
    assert sorted(row["row"] for row in bad) == [2, 3, 4, 5]


def test_a_row_with_two_bad_values_is_kept_aside_once(tmp_path):
    types = {"x": ColumnType.BIGINT, "y": ColumnType.BIGINT}
    rows, bad = aside(tmp_path, "f.csv", "x,y\na,b\n1,2\n", types)
    assert (rows, len(bad)) == ([{"x": 1, "y": 2}], 1)


def test_what_is_read_otherwise_than_written_is_counted(tmp_path):
    path, changes = tmp_path / "f.csv", Changes()
    path.write_text("x,t\nNA,2024-01-01 00:00:00.1234567\n,2024-01-01 00:00:00.1234560\n1,NA\n")
    read(path, changes=changes)
    assert (changes.null_words, changes.cut) == ({"x": 1, "t": 1}, {"t": 1})


def test_numeric_times_that_are_rounded_down_are_counted(tmp_path):
    path, changes = tmp_path / "f.csv", Changes()
    path.write_text("t\n1.1234\n1.123\n-1.1239\n2\n")
    how = Dialect(time_unit=TimeUnit.MS)
    _, rows = read(path, how, types={"t": ColumnType.TIMESTAMP}, changes=changes)
    epoch = dt.datetime(1970, 1, 1)
    assert [(row["t"] - epoch) // dt.timedelta(microseconds=1) for row in rows] == [
        *(1_123, 1_123, -1_124, 2_000)
    ]
    assert changes.cut == {"t": 2}


def test_a_column_that_is_text_for_the_sake_of_one_value_is_told(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("ms,name\n" + "".join(f"{n},a\n" for n in range(300)) + "timeout,b\n")
    found = RowFile(path, FileFormat.CSV).types()
    assert (found["ms"].type, found["name"].note) == (ColumnType.VARCHAR, None)
    said = found["ms"].note
    assert "300 of 301 values are BIGINT, and 'timeout' in row 301 is not" in said
    assert "--type ms=BIGINT" in said


def test_a_type_is_inferred_from_all_of_a_long_file(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("x,pad\n" + f"1,{'p' * 200}\n" * 50_000 + "1.5,\n")
    assert RowFile(path, FileFormat.CSV).types(["x"])["x"].type is ColumnType.DOUBLE


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"delimiter": ";;"}, "--delimiter ';;': it must be one ASCII character"),
        ({"delimiter": '"'}, "are both"),
        ({"quote": "“"}, "--quote"),
        ({"encoding": "klingon"}, "--encoding 'klingon' is unknown"),
        ({"encoding": "hex"}, "--encoding 'hex' is unknown"),
        ({"header": ("a", "")}, "--header 'a,': a column has no name"),
    ],
)
def test_a_dialect_that_cannot_be_is_refused(options, match):
    with pytest.raises(BadSetting, match=match):
        Dialect(**options)
