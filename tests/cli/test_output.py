"""Answers in every format carry the same values."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import re

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import structlog
from rich.console import Console

from shedder.archive.tasks.progress import Progress
from shedder.cli.logs import log_to_stderr
from shedder.cli.output import FACTS, Format, chosen, is_status, write
from shedder.cli.progress_bar import Bar
from shedder.cli.stderr import say
from shedder.errors import BadSetting
from shedder.queries.answers.answer import COMPANION, ESTIMATE, ROLE, Answer
from shedder.settings import Settings

ANSWER = Answer(
    pa.table(
        {
            "carrier": ["AA", None],
            "seen": pa.array([dt.datetime(2013, 1, 1), None], pa.timestamp("us")),
            "top": [[{"value": "x", "count": 3}], None],
            "n": [3, 4],
        }
    ),
    query="SELECT …",
    confidence=0.95,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(capfdbinary, form: Format) -> bytes:
    write(ANSWER, form)
    return capfdbinary.readouterr().out


@pytest.fixture
def fd_stdout(capfdbinary, monkeypatch):
    """stdout as a file, as in a real process: with a layer of bytes below."""
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.FileIO(1, "w", closefd=False)))
    return capfdbinary


def strict(text):
    """JSON as every parser but Python's own takes it."""

    def refused(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refused)


def test_what_json_and_python_lack_is_said_in_words(fd_stdout):
    far = pa.array([1 << 62, None, 0], pa.timestamp("us"))
    days = pa.array([(1 << 31) - 1, None, -800_000], pa.int32()).cast(pa.date32())
    numbers = [math.inf, -math.inf, math.nan]
    top = [[{"value": far[0], "count": -math.inf}], None, []]
    answer = Answer(
        pa.table({"far": far, "day": days, "x": pa.array(numbers, pa.float64()), "top": top})
    )
    rows = [
        {
            "far": "148108-07-06T14:00:27.387904Z",
            "day": "5881580-07-11",
            "x": "Infinity",
            "top": [{"value": "148108-07-06T14:00:27.387904Z", "count": "-Infinity"}],
        },
        {"far": None, "day": None, "x": "-Infinity", "top": None},
        {"far": "1970-01-01T00:00:00Z", "day": "-221-09-04", "x": "NaN", "top": []},
    ]
    write(answer, Format.NDJSON)
    assert [strict(line) for line in fd_stdout.readouterr().out.splitlines()] == rows
    write(answer, Format.JSON)
    assert strict(fd_stdout.readouterr().out)["rows"] == rows
    write(answer, Format.CSV)
    assert b"148108-07-06T14:00:27.387904Z" in fd_stdout.readouterr().out
    write(answer, Format.TABLE)
    assert b"5881580-07-11" in fd_stdout.readouterr().out


def test_ndjson_is_a_line_per_row(fd_stdout):
    rows = [json.loads(line) for line in printed(fd_stdout, Format.NDJSON).splitlines()]
    assert rows == [
        {
            "carrier": "AA",
            "seen": "2013-01-01T00:00:00Z",
            "top": [{"value": "x", "count": 3}],
            "n": 3,
        },
        {"carrier": None, "seen": None, "top": None, "n": 4},
    ]


def test_json_holds_the_rows_and_what_they_rest_on(fd_stdout):
    document = json.loads(printed(fd_stdout, Format.JSON))
    assert [row["n"] for row in document["rows"]] == [3, 4]
    assert document["confidence"] == 0.95


def test_csv_has_lists_as_json(fd_stdout):
    table = pa_csv.read_csv(pa.py_buffer(printed(fd_stdout, Format.CSV)))
    assert json.loads(table["top"][0].as_py()) == [{"value": "x", "count": 3}]
    assert table["n"].to_pylist() == [3, 4]


def test_arrow_carries_the_facts(fd_stdout):
    table = pa.ipc.open_stream(printed(fd_stdout, Format.ARROW)).read_all()
    assert table.equals(ANSWER.table)
    assert json.loads(table.schema.metadata[FACTS])["confidence"] == 0.95


def test_parquet_carries_the_facts(fd_stdout):
    table = pq.read_table(pa.py_buffer(printed(fd_stdout, Format.PARQUET)))
    assert table.to_pylist() == ANSWER.rows()
    assert json.loads(table.schema.metadata[FACTS])["confidence"] == 0.95


def test_a_terminal_gets_a_table_and_a_pipe_gets_ndjson():
    assert chosen(None, Terminal()) is Format.TABLE
    assert chosen(None, io.StringIO()) is Format.NDJSON


def test_bytes_are_not_sent_to_a_terminal():
    with pytest.raises(BadSetting, match="-o parquet is binary"):
        chosen(Format.PARQUET, Terminal())


def test_a_status_is_told_from_data():
    assert is_status(Answer.status("stream x created"))
    assert not is_status(ANSWER)


@pytest.mark.parametrize(
    ("columns", "first"), [(80, "carrier  seen"), (30, "carrier  AA\nseen     2")]
)
def test_a_row_that_a_terminal_would_break_is_a_paragraph(monkeypatch, columns, first):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    write(ANSWER, Format.TABLE)
    assert terminal.getvalue().startswith(first)
    assert ("\n\ncarrier  NULL\n" in terminal.getvalue()) is (columns == 30)


HOSTILE = "\x1b]0;owned\x07\x9b31m\r\n\u202etxt"
SHOWN = r"\x1b]0;owned\x07\x9b31m\r\n\u202etxt"


def hostile_answer() -> Answer:
    return Answer(pa.table({HOSTILE: [HOSTILE], "top": [[{"value": HOSTILE, "count": 3}]]}))


@pytest.mark.parametrize("columns", [200, 20])
def test_a_table_escapes_control_characters_of_values_and_names(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    write(hostile_answer(), Format.TABLE)
    shown = terminal.getvalue()
    assert shown.count(SHOWN) >= 2
    assert not set(shown) & set("\x1b\x07\x9b\r\u202e")
    assert SHOWN in repr(hostile_answer())


def test_csv_escapes_control_characters_on_a_terminal_only(fd_stdout, monkeypatch):
    write(hostile_answer(), Format.CSV)
    assert fd_stdout.readouterr().out.count(HOSTILE.encode()) == 2
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    write(hostile_answer(), Format.CSV)
    assert not set(terminal.getvalue()) & set("\x1b\x07\x9b\r\u202e")


@pytest.mark.parametrize("form", [Format.JSON, Format.NDJSON])
def test_json_keeps_control_characters_as_its_own_escapes(fd_stdout, form):
    write(hostile_answer(), form)
    out = fd_stdout.readouterr().out
    assert out.isascii()
    assert b"\x1b" not in out
    document = json.loads(out)
    row = document["rows"][0] if form is Format.JSON else document
    assert row[HOSTILE] == HOSTILE


@pytest.mark.parametrize("terminal", [Terminal, io.StringIO])
def test_messages_escape_control_characters_and_take_markup_literally(monkeypatch, terminal):
    monkeypatch.setattr("sys.stderr", out := terminal())
    say(f"no stream '{HOSTILE}' [red]:smile:\nsecond line")
    assert (
        out.getvalue()
        == f"no stream '{SHOWN.replace(chr(92) + 'n', chr(10))}' [red]:smile:\nsecond line\n"
    )


def test_a_bar_escapes_control_characters_of_names(monkeypatch):
    out = Terminal()
    console = Console(file=out, force_terminal=True, width=100)
    with Bar(console, patience_s=0) as bar:
        bar.follow(Progress(f"backup to [red]{HOSTILE}", "bytes"))
        bar.refresh()
    assert f"backup to [red]{SHOWN}" in out.getvalue()


def test_a_log_for_people_escapes_control_characters(monkeypatch):
    monkeypatch.setattr("sys.stderr", out := io.StringIO())
    log_to_stderr(Settings(log_format="console"))
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        structlog.get_logger().exception(f"refused {HOSTILE}", producer=HOSTILE)
    structlog.reset_defaults()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert plain.count(SHOWN.partition(r"\r")[0]) >= 3
    assert not set(plain) & set("\x1b\x07\x9b\r\u202e")


@pytest.mark.parametrize(("no_color", "red"), [("", True), ("1", False)])
def test_a_value_without_a_bound_is_red_where_there_are_colours(monkeypatch, no_color, red):
    field = pa.field("n", pa.int64(), metadata={ROLE: ESTIMATE})
    companions = [("n_low", pa.int64()), ("n_high", pa.int64()), ("n_bound", pa.string())]
    schema = pa.schema([field, *(pa.field(*one, metadata={ROLE: COMPANION}) for one in companions)])
    answer = Answer(
        pa.table([[5], pa.nulls(1, pa.int64()), pa.nulls(1, pa.int64()), ["none"]], schema)
    )
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    write(answer, Format.TABLE)
    assert ("\x1b[31m5 (no bound)\x1b[0m" in terminal.getvalue()) is red
    assert "5 (no bound)" in terminal.getvalue()
