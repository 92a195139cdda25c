"""Answers of many rows on stdout: every format has all rows, and the terminal the first ones."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from shedder.cli.commands import run as command
from shedder.cli.output import Format
from shedder.cli.row_output import show_batches
from shedder.engine.engine import Engine
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.answer_batches import AnswerBatches
from tests.engine.rows_world import CREATE, rows_of, tuples

ROWS, PARTS = 30_000, 10
TABLE = pa.table({"n": range(ROWS), "text": ["a\nb" + "x" * 300] * ROWS})
FACTS = Answer(TABLE.slice(0, 0), "SELECT n, text FROM s", notes=("a note",), cut="cut there")


@pytest.fixture
def out(capfdbinary, monkeypatch):
    """stdout as a file, as in a real process: with a layer of bytes below."""
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.FileIO(1, "w", closefd=False)))
    return capfdbinary


def batches() -> AnswerBatches:
    def parts() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches(max_chunksize=ROWS // PARTS)

    return AnswerBatches(TABLE.schema, parts(), lambda: FACTS)


@pytest.mark.parametrize("form", [Format.NDJSON, Format.CSV, Format.ARROW, Format.PARQUET])
def test_every_format_has_all_rows(out, form):
    answer = show_batches(batches(), form, quiet=True)
    said = out.readouterr()
    assert answer.cut == "cut there"
    match form:
        case Format.NDJSON:
            found = pa.Table.from_pylist([json.loads(line) for line in said.out.splitlines()])
        case Format.CSV:
            options = pa_csv.ParseOptions(newlines_in_values=True)
            found = pa_csv.read_csv(pa.py_buffer(said.out), parse_options=options)
        case Format.ARROW:
            found = pa.ipc.open_stream(said.out).read_all()
        case Format.PARQUET:
            found = pq.read_table(pa.py_buffer(said.out))
    assert found.to_pylist() == TABLE.to_pylist()
    assert said.err.decode().strip() == "not all rows: cut there"


def test_json_is_one_document(out):
    show_batches(batches(), Format.JSON, quiet=True)
    document = json.loads(out.readouterr().out)
    assert (len(document["rows"]), document["cut"]) == (ROWS, "cut there")


def test_a_table_has_the_first_rows_and_the_number_of_the_others(out):
    show_batches(batches(), Format.TABLE)
    said = out.readouterr()
    lines = said.out.decode().splitlines()
    assert len(lines) == 2 + 50 + 2
    assert lines[2].split()[0] == "0"
    assert lines[2].endswith("x…")
    assert len(lines[2]) < 220
    assert lines[-2:] == ["… 29,950 more rows", "NOT ALL ROWS: cut there"]
    assert "30,000 rows" in said.err.decode()
    assert "a note" in said.err.decode()


@pytest.mark.slow
def test_shedder_sql_prints_rows_of_a_directory(tmp_path, out):
    rows = tuples(5_000, 7)
    with Engine.open(tmp_path / "data") as engine:
        engine.execute(CREATE.format("s", "plain"))
        engine.push("s", rows)
    place = ["sql", "-d", str(tmp_path / "data"), "-o", "ndjson"]
    code = command([*place, "-c", "SELECT k, x FROM s ORDER BY ts, k, x", "-c", "SHOW STREAMS"])
    assert code == 0
    said = out.readouterr()
    lines = [json.loads(line) for line in said.out.splitlines()]
    bag = sorted(repr((row["k"], row["x"])) for row in rows_of(rows))
    assert sorted(repr((line["k"], line["x"])) for line in lines[:-1]) == bag
    assert b"5,000 rows" in said.err
