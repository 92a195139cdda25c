"""`shedder push` into a table: rows of files replace those with their keys, or nothing is put."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shedder
from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with shedder.open(tmp_path / "data") as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, name VARCHAR NOT NULL, x DOUBLE)")
        db.execute("INSERT INTO t VALUES (1, 'one', 1), (9, 'nine', 9)")
    return tmp_path / "data"


def push(data: Path, *arguments: str) -> int:
    return run(["push", "t", *arguments, "-d", str(data)])


def rows(data: Path) -> dict[int, tuple[str, float | None]]:
    with shedder.open(data) as db:
        found = db.core.tables["t"].rows.table().to_pylist()
    return {row["k"]: (row["name"], row["x"]) for row in found}


def test_rows_of_files_replace_in_the_order_of_the_files(data: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,k\neins,1\nzwei,2\nzwo,2\n")
    columns = {"k": [2, 3], "x": [0.5, None], "name": ["deux", "trois"]}
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    for _ in range(2):
        assert push(data, str(tmp_path / "a.csv"), str(tmp_path / "b.parquet")) == 0
        assert rows(data) == {
            1: ("eins", None),
            2: ("deux", 0.5),
            3: ("trois", None),
            9: ("nine", 9.0),
        }


@pytest.mark.parametrize(
    ("text", "arguments", "code", "said"),
    [
        ("k,name\n1,a\nx,b\n", (), ExitCode.USAGE, "row 2"),
        ("k,name\n1,a\n2,\n", (), ExitCode.USAGE, "nulls in 'name', which is NOT NULL"),
        ("k,nom\n1,a\n", (), ExitCode.USAGE, "has no column 'name'"),
        ("k,name\n1,a\n", ("--time", "k"), ExitCode.USAGE, "--time is for streams"),
        ("k,name\n1,a\n", ("--resume",), ExitCode.USAGE, "--resume is for streams"),
    ],
)
def test_nothing_is_put_if_a_row_or_an_option_is_wrong(
    data: Path, tmp_path: Path, capfd, text: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "good.csv").write_text("k,name\n1,changed\n")
    (tmp_path / "bad.csv").write_text(text)
    before = rows(data)
    paths = [str(tmp_path / name) for name in ("good.csv", "bad.csv")]
    assert push(data, *paths, *arguments) == code
    assert said in capfd.readouterr().err
    assert rows(data) == before


def test_rows_that_cannot_be_read_are_kept_aside_once(data: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,name,more\n1,eins,-\nx,bad,-\n")
    aside = tmp_path / "aside.ndjson"
    options = ("--bad-rows", str(aside), "--columns", "k,name")
    assert push(data, str(tmp_path / "a.csv"), *options) == 0
    assert rows(data) == {1: ("eins", None), 9: ("nine", 9.0)}
    assert len(aside.read_text().splitlines()) == 1
