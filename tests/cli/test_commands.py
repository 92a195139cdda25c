"""Commands from end to end, in this process, on a directory of their own."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import shedder
from examples.requests import requests
from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode
from tests.cli.worlds import stored_rows

ROWS = 3_000


@pytest.fixture(autouse=True)
def only_our_settings(monkeypatch):
    import os

    for name in [name for name in os.environ if name.startswith("SHEDDER_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def parquet(tmp_path):
    path = tmp_path / "requests.parquet"
    pq.write_table(requests(ROWS), path)
    return str(path)


@pytest.fixture
def data(tmp_path, parquet):
    """A directory with the stream `requests` in it."""
    directory = str(tmp_path / "data")
    assert run(["push", "requests", parquet, "-d", directory, "--create"]) == ExitCode.FINE
    return directory


def rows(capfd, *arguments: str) -> list[dict]:
    capfd.readouterr()
    assert run(list(arguments)) == ExitCode.FINE
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


@pytest.mark.slow
def test_pushed_rows_can_be_counted(data, capfd):
    (row,) = rows(capfd, "sql", "-d", data, "-c", "SELECT COUNT(*) AS n FROM requests")
    assert row["n"] == ROWS


def test_the_only_column_of_moments_becomes_the_event_time(data):
    with shedder.open(data) as database:
        assert database.schema("requests").time_column == "ts"


@pytest.mark.slow
def test_csv_and_ndjson_hold_the_same_rows_as_parquet(tmp_path, data):
    table = requests(ROWS)
    csv, ndjson = tmp_path / "r.csv", tmp_path / "r.ndjson"
    pa_csv.write_csv(table, csv)
    ndjson.write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))
    expected = stored_rows(data, "requests")
    for path in (csv, ndjson):
        stream = f"from_{path.suffix[1:]}"
        assert run(["push", stream, str(path), "-d", data, "--create"]) == ExitCode.FINE
        assert stored_rows(data, stream) == expected


@pytest.mark.slow
def test_pushing_the_same_file_again_under_a_name_stores_nothing_twice(tmp_path, parquet, capfd):
    directory = str(tmp_path / "data")
    command = ["push", "requests", parquet, "-d", directory, "--create", "--producer", "load"]
    assert run(command) == ExitCode.FINE
    assert run(command) == ExitCode.FINE
    assert f"{ROWS:,} of them were there already" in capfd.readouterr().err
    assert stored_rows(directory, "requests").num_rows == ROWS


@pytest.mark.slow
def test_a_file_is_stored_whole_and_once_where_batches_must_be_smaller_than_it_is_read_in(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.setenv("SHEDDER_BATCH_BYTES_MAX", str(1 << 18))
    directory, path = str(tmp_path / "data"), tmp_path / "a.parquet"
    times = pa.array(range(ROWS), pa.timestamp("us"))
    pq.write_table(pa.table({"ts": times, "v": [f"{n:03000}" for n in range(ROWS)]}), path)
    command = ["push", "s", str(path), "-d", directory, "--create", "--producer", "load"]
    assert run(command) == ExitCode.FINE
    assert run(command) == ExitCode.FINE
    assert f"{ROWS:,} of them were there already" in capfd.readouterr().err
    assert stored_rows(directory, "s")["v"].to_pylist() == [f"{n:03000}" for n in range(ROWS)]


@pytest.mark.slow
def test_another_file_under_the_same_name_is_stored(tmp_path):
    directory = str(tmp_path / "data")
    days = [tmp_path / "monday.csv", tmp_path / "tuesday.csv"]
    for day, path in enumerate(days, 5):
        path.write_text(f"ts,v\n2026-01-0{day} 00:00:00,{day}\n")
    options = ["-d", directory, "--create", "--producer", "load"]
    for files in ([days[0]], [days[1]], days):  # The last one repeats both.
        assert run(["push", "s", *map(str, files), *options]) == ExitCode.FINE
    assert stored_rows(directory, "s")["v"].to_pylist() == [5, 6]


def test_a_file_that_lacks_a_column_is_refused_with_those_it_has(tmp_path, data, capfd):
    csv, parquet = tmp_path / "a.csv", tmp_path / "a.parquet"
    csv.write_text("ts,v\n2026-01-05 00:00:00,1\n")
    pq.write_table(pa.table({"ts": ["2026-01-05 00:00:00"], "v": [1]}), parquet)
    for path in (csv, parquet):
        assert run(["push", "requests", str(path), "-d", data]) == ExitCode.USAGE
        assert f"{path.name} has no column 'client'; it has ts, v" in capfd.readouterr().err


def test_a_stream_that_is_not_there_is_not_made_without_being_asked(tmp_path, parquet, capfd):
    assert run(["push", "requests", parquet, "-d", str(tmp_path / "data")]) == ExitCode.USAGE
    assert "--create makes it" in capfd.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_file_without_moments_is_refused_with_its_columns(tmp_path, capfd):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,b\n")
    code = run(["push", "s", str(path), "-d", str(tmp_path / "data"), "--create"])
    assert code == ExitCode.USAGE
    assert "--time COLUMN; the file has x (BIGINT), y (VARCHAR)" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (
            "ts,v\nyesterday,1\n",
            ["--time", "ts"],
            "a.csv: row 1, column 'ts': 'yesterday' is no moment",
        ),
        ("ts,v\n1357017300,1\n", ["--time", "ts"], "--time-unit"),
        (
            "ts,v\n2026-01-05 00:00:00,1\n,2\n",
            [],
            "a.csv: no event time 'ts' that could be kept in row 2, of rows 1 to 2; --skip-untimed",
        ),
        ("ts,v\n", ["--time", "ts"], "a.csv has no rows"),
        (
            "ts;v\n1;2\n",
            ["--time", "ts"],
            "no column 'ts'; the file has ts;v (columns are separated",
        ),
        (
            "ts;v\n1;2\n",
            [],
            "the file has ts;v (VARCHAR) (columns are separated by ';': say --delimiter ';')",
        ),
    ],
)
def test_a_file_that_cannot_be_read_leaves_no_stream_behind(tmp_path, capfd, text, options, said):
    path, directory = tmp_path / "a.csv", str(tmp_path / "data")
    path.write_text(text)
    assert run(["push", "s", str(path), "-d", directory, "--create", *options]) == ExitCode.USAGE
    assert said in capfd.readouterr().err
    assert not Path(directory).exists()
    assert run(["sql", "-d", directory, "--create", "-c", "SHOW STREAMS"]) == ExitCode.FINE
    assert run(["push", "s", str(path), "-d", directory, "--create", *options]) == ExitCode.USAGE
    capfd.readouterr()
    assert rows(capfd, "sql", "-d", directory, "-o", "ndjson", "-c", "SHOW STREAMS") == []


@pytest.mark.slow
def test_a_directory_that_is_made_is_named(tmp_path, capfd):
    made = str(tmp_path / "data")
    for said in (True, False):
        assert run(["sql", "-d", made, "--create", "-c", "SHOW STREAMS"]) == ExitCode.FINE
        assert (f"new data directory {made}" in capfd.readouterr().err) is said


@pytest.mark.parametrize("path", ["mistyped", "empty", "foreign"])
@pytest.mark.parametrize(
    "command",
    [
        ["sql", "-c", "CREATE STREAM s (ts TIMESTAMP NOT NULL) TIMESTAMP BY ts"],
        ["sql", "--query", "busy"],
        ["scrub"],
        ["push", "s", "a.csv"],
        ["backup", "copy"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_path_without_a_data_directory_is_refused_and_left_as_it_is(
    tmp_path, capfd, monkeypatch, path, command
):
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("ts,x\n2024-01-01 00:00:00,1\n")
    Path("empty").mkdir()
    Path("foreign").mkdir()
    Path("foreign", "file").write_text("theirs")
    before = sorted(Path().rglob("*"))
    assert run([*command, "-d", path]) in (ExitCode.USAGE, ExitCode.DAMAGED)
    said = capfd.readouterr().err
    assert path in said
    assert re.search("no (whole )?data directory", said)
    assert sorted(Path().rglob("*")) == before


def test_a_directory_of_other_files_is_not_made_a_data_directory(tmp_path, capfd):
    (tmp_path / "file").write_text("theirs")
    made = ["sql", "-d", str(tmp_path), "--create", "-c", "SHOW STREAMS"]
    assert run(made) == ExitCode.USAGE
    assert "is not a data directory and not empty: 'file'" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_directory_without_its_format_is_damaged_and_not_new(data, tmp_path, capfd):
    (tmp_path / "data" / "FORMAT").unlink()
    assert run(["sql", "-d", data, "-c", "SHOW STREAMS"]) == ExitCode.DAMAGED
    assert "FORMAT is missing" in capfd.readouterr().err


def test_columns_and_types_may_be_said(tmp_path, capfd):
    path, directory = tmp_path / "a.csv", str(tmp_path / "data")
    path.write_text("at,n,left out\n1357017300,1,x\n1357017301,2,y\n")
    options = ["--time", "at", "--time-unit", "s", "--columns", "at,n", "--type", "n=DOUBLE"]
    assert run(["push", "s", str(path), "-d", directory, "--create", *options]) == ExitCode.FINE
    described = rows(capfd, "sql", "-d", directory, "-c", "DESCRIBE s")
    assert [(row["column"], row["type"]) for row in described] == [
        ("at", "TIMESTAMP"),
        ("n", "DOUBLE"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "ndjson", "csv", "table"])
def test_every_text_format_shows_the_value(data, capfd, form):
    capfd.readouterr()
    assert run(["sql", "-d", data, "-o", form, "-c", "SHOW STREAMS"]) == ExitCode.FINE
    out = capfd.readouterr().out
    assert f"{ROWS:,}" in out or str(ROWS) in out


@pytest.mark.slow
def test_a_script_runs_statement_by_statement(data, tmp_path, capfd):
    script = tmp_path / "a.sql"
    script.write_text("SHOW STREAMS; -- two; statements\nSELECT COUNT(*) AS n FROM requests;")
    got = rows(capfd, "sql", "-d", data, "-f", str(script))
    assert [next(iter(row)) for row in got] == ["stream", "n"]


@pytest.mark.slow
def test_a_script_may_begin_with_the_mark_of_its_encoding(tmp_path):
    script = tmp_path / "a.sql"
    script.write_bytes(b"\xef\xbb\xbfSHOW STREAMS;")
    made = ["sql", "-d", str(tmp_path / "data"), "--create"]
    assert run([*made, "-f", str(script)]) == ExitCode.FINE


def test_bytes_that_are_no_text_are_no_script(tmp_path, capfd, monkeypatch):
    import io

    script = tmp_path / "a.sql"
    script.write_bytes(b"SELECT \xff")
    command = ["sql", "-d", str(tmp_path / "data")]
    assert run([*command, "-f", str(script)]) == ExitCode.USAGE
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"SELECT \xff"), "utf-8"))
    assert run(command) == ExitCode.USAGE
    assert capfd.readouterr().err.count("cannot read the script") == 2


@pytest.mark.slow
def test_statements_may_come_through_a_pipe(data, capfd, monkeypatch):
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT COUNT(*) AS n FROM requests"))
    assert rows(capfd, "sql", "-d", data)[0]["n"] == ROWS


def test_a_target_that_cannot_be_promised_ends_with_its_own_code(data, capfd):
    clients = "SELECT COUNT(DISTINCT client) AS n FROM requests [RANGE INTERVAL '1' HOUR]"
    impossible = f"CREATE QUERY q AS {clients} WITHIN 0.0001 PERCENT ELSE FAIL"
    assert run(["sql", "-d", data, "-c", impossible]) == ExitCode.PRECISION


@pytest.mark.slow
def test_a_standing_query_can_be_asked_by_name(data, capfd):
    hits = "SELECT COUNT(*) AS n FROM requests [RANGE INTERVAL '1' HOUR]"
    assert run(["sql", "-d", data, "-c", f"CREATE QUERY hits AS {hits}"]) == ExitCode.FINE
    (row,) = rows(capfd, "sql", "-d", data, "--query", "hits")
    assert 0 < row["n"] <= ROWS
    assert run(["sql", "-d", data, "--query", "misses"]) == ExitCode.USAGE


def test_parts_of_an_interval_are_a_table_on_a_terminal_and_rows_in_json(data, capfd):
    create = "CREATE QUERY total AS SELECT COUNT(*) AS n FROM requests"
    assert run(["sql", "-d", data, "-c", create]) == ExitCode.FINE
    part, whole = rows(capfd, "sql", "-d", data, "-c", "EXPLAIN PRECISION total")
    assert (part["part"], part["lower"], part["upper"]) == ("synopsis", 0, 0)
    assert (whole["part"], whole["value"], whole["bound"]) == ("interval", ROWS, "exact")
    text = ["sql", "-d", data, "-o", "table", "-c", "EXPLAIN PRECISION total"]
    assert run(text) == ExitCode.FINE
    assert capfd.readouterr().out.startswith(f"n: {ROWS:,}, exact\n")


@pytest.mark.slow
def test_a_file_may_lack_what_may_be_null_and_rows_without_a_time_may_be_skipped(tmp_path, capfd):
    directory, whole, some = str(tmp_path / "data"), tmp_path / "a.csv", tmp_path / "b.csv"
    whole.write_text("ts,k,note\n2013-01-01 00:00:00,1,x\n2013-01-01 00:00:01,2,\n")
    some.write_text("k,ts\n3,2013-01-02 00:00:00\n4,\n5,never\n6,2013-01-02 00:00:00\n")
    assert run(["push", "s", str(whole), "-d", directory, "--create"]) == ExitCode.FINE
    capfd.readouterr()
    assert run(["push", "s", str(some), "-d", directory]) != ExitCode.FINE
    assert "b.csv" in capfd.readouterr().err
    assert run(["push", "s", str(some), "-d", directory, "--skip-untimed"]) == ExitCode.FINE
    said = capfd.readouterr().err
    assert "b.csv has no note: NULL in its rows" in said
    assert "2 left out, with no event time that could be kept: rows 2, 3" in said
    stored = stored_rows(directory, "s")
    assert stored["k"].to_pylist() == [1, 2, 3, 6]
    assert stored["note"].to_pylist() == ["x", None, None, None]


@pytest.mark.slow
def test_a_stream_may_be_made_of_a_file_in_which_some_rows_have_no_time(tmp_path, capfd):
    directory, path = str(tmp_path / "data"), tmp_path / "a.csv"
    path.write_text("k,ts\n1,\n2,2013-01-02\n3,never\n")
    pushed = ["push", "s", str(path), "-d", directory, "--create", "--time", "ts"]
    assert run([*pushed, "--skip-untimed"]) == ExitCode.FINE
    assert stored_rows(directory, "s")["k"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("SELEC 1", ExitCode.USAGE),
        ("SELECT COUNT(*) FROM nowhere", ExitCode.USAGE),
        ("SELECT COUNT(nothing) FROM requests", ExitCode.USAGE),
    ],
)
def test_a_wrong_statement_is_a_usage_error_in_one_message(data, capfd, statement, code):
    capfd.readouterr()
    assert run(["sql", "-d", data, "-c", statement]) == code
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("shedder: ")
    assert "Traceback" not in captured.err


def test_no_server_is_unreachable(capfd):
    code = run(["sql", "--connect", "127.0.0.1:1", "-c", "SHOW STREAMS"])
    assert code == ExitCode.UNREACHABLE


def test_no_place_or_two_are_usage_errors(tmp_path, capfd):
    assert run(["sql", "-c", "SHOW STREAMS"]) == ExitCode.USAGE
    both = ["-d", str(tmp_path), "--connect", "localhost"]
    assert run(["sql", *both, "-c", "SHOW STREAMS"]) == ExitCode.USAGE


def test_a_whole_directory_passes_the_check(data, capfd):
    assert run(["check", "-d", data]) == ExitCode.FINE
    assert "nothing is lost" in capfd.readouterr().err


def test_a_damaged_directory_fails_the_check(data, tmp_path, capfd):
    with shedder.open(data) as database:
        database.seal("requests")
    (run_file,) = (tmp_path / "data/runs").rglob("*.parquet")
    blob = bytearray(run_file.read_bytes())
    blob[len(blob) // 2] ^= 1
    run_file.write_bytes(blob)
    assert run(["check", "-d", data]) == ExitCode.DAMAGED
    assert run_file.name in capfd.readouterr().err


def test_a_repair_says_what_it_has_done(data, tmp_path, capfd):
    assert run(["check", "-d", data, "--repair"]) == ExitCode.FINE
    assert "repaired" not in capfd.readouterr().err
    (tmp_path / "data" / "FORMAT").unlink()
    assert run(["check", "-d", data]) == ExitCode.DAMAGED
    assert "FORMAT" in capfd.readouterr().err
    assert run(["check", "-d", data, "--repair"]) == ExitCode.FINE
    said = capfd.readouterr().err
    assert "repaired: " in said
    assert "nothing is lost" in said


def test_a_repair_that_cannot_undo_a_loss_names_it_and_ends_as_damaged(data, tmp_path, capfd):
    older = {path: path.read_bytes() for path in (tmp_path / "data").glob("catalog.sqlite*")}
    with shedder.open(data) as database:
        database.execute("CREATE STREAM later (ts TIMESTAMP NOT NULL) TIMESTAMP BY ts")
    for path in (tmp_path / "data").glob("catalog.sqlite*"):
        path.unlink()
    for path, content in older.items():
        path.write_bytes(content)
    capfd.readouterr()
    assert run(["check", "-d", data, "--repair"]) == ExitCode.DAMAGED
    said = capfd.readouterr().err
    assert "lost: commits " in said
    assert "the repair could not undo 1 loss" in said
    assert "nothing is lost" not in said
    assert run(["check", "-d", data]) == ExitCode.DAMAGED  # The loss is recorded.
    (tmp_path / "data" / "REPAIRED").unlink()
    assert run(["check", "-d", data]) == ExitCode.FINE


def test_what_is_no_data_directory_is_said_to_be_none(tmp_path):
    assert run(["check", "-d", str(tmp_path / "nothing")]) == ExitCode.DAMAGED


def test_a_token_is_shown_once_and_its_hash_entered(tmp_path, capfd):
    from hashlib import sha256

    from shedder.engine.runtime.caller import Scope
    from shedder.server.authentication import parse_tokens

    file = tmp_path / "tokens.toml"
    for name, scope in (("in", "ingest"), ("out", "query")):
        assert run(["token", name, "--scope", scope, "-f", str(file)]) == ExitCode.FINE
    secrets = capfd.readouterr().out.split()
    identities = parse_tokens(file.read_text())
    held = [identities[sha256(secret.encode()).hexdigest()] for secret in secrets]
    assert [(one.name, one.scopes) for one in held] == [
        ("in", frozenset({Scope.INGEST})),
        ("out", frozenset({Scope.QUERY})),
    ]
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "arguments",
    [
        ["push", "s", "a.csv", "-d", "data", "--create", "--lateness", "inf"],
        ["token", "x", "--scope", "query", "-f", "tokens.toml", "--days", "99999999"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_spans_longer_than_time_are_usage_errors(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("ts,x\n2026-01-01T00:00:00,1\n")
    assert run(arguments) == ExitCode.USAGE
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "tokens.toml").exists()


def test_help_names_every_command(capfd):
    assert run(["--help"]) == ExitCode.FINE
    text = capfd.readouterr().out
    assert all(
        name in text for name in ("serve", "sql", "push", "check", "token", "demo", "accuracy")
    )


@pytest.mark.parametrize("arguments", [["frobnicate"], ["push"], ["sql", "--no-such-flag"]])
def test_a_wrong_command_line_is_a_usage_error_with_a_hint(arguments, capfd):
    assert run(arguments) == ExitCode.USAGE
    assert "--help" in capfd.readouterr().err


@pytest.mark.slow
def test_arrow_output_is_what_the_library_answers(data, capfdbinary):
    question = "SELECT status, COUNT(*) AS n FROM requests GROUP BY status ORDER BY status"
    capfdbinary.readouterr()
    assert run(["sql", "-d", data, "-q", "-o", "arrow", "-c", question]) == ExitCode.FINE
    table = pa.ipc.open_stream(capfdbinary.readouterr().out).read_all()
    with shedder.open(data) as database:
        assert table.to_pylist() == database.execute(question).rows()


def test_rows_that_come_too_late_are_counted_aloud(data, parquet, capfd):
    capfd.readouterr()
    assert run(["push", "requests", parquet, "-d", data, "--producer", "again"]) == ExitCode.FINE
    said = capfd.readouterr().err
    assert "came later than the lateness allows" in said
    assert "a new stream with --create --lateness SECONDS keeps windows open" in said


@pytest.mark.slow
def test_a_server_answers_the_command_line(data, capfd):
    from shedder.settings import Settings
    from tests.server_process import running

    settings = Settings(listen="127.0.0.1:0", insecure=True)
    with shedder.open(data, settings) as engine, running(engine, settings) as address:
        question = "SELECT COUNT(*) AS n FROM requests"
        (row,) = rows(capfd, "sql", "--connect", str(address), "-c", question)
    assert row["n"] == ROWS


def test_an_event_time_that_is_not_the_streams_is_refused(data, parquet, capfd):
    again = ["push", "requests", parquet, "-d", data, "--create", "--time"]
    assert run([*again, "bytes"]) == ExitCode.USAGE
    assert "'bytes': the event time of requests is 'ts'" in capfd.readouterr().err
    assert run([*again, "ts"]) == ExitCode.FINE


@pytest.mark.slow
def test_an_error_in_a_script_says_which_statement_it_is_of(data, tmp_path, capfd):
    script = tmp_path / "two.sql"
    script.write_text("SELECT COUNT(*) FROM requests;\n\nSELECT *, COUNT(*)\nFROM requests;")
    assert run(["sql", "-d", data, "-f", str(script)]) == ExitCode.USAGE
    said = capfd.readouterr().err
    assert "in the statement that begins in line 3:" in said
    assert "* is all columns of rows" in said


@pytest.mark.slow
def test_a_server_that_others_reach_asks_who_calls(data, parquet, tmp_path, capfd, monkeypatch):
    import trustme

    from shedder.settings import Settings
    from tests.server_process import running

    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    tokens = tmp_path / "tokens.toml"
    assert run(["token", "reader", "--scope", "query", "-f", str(tokens)]) == ExitCode.FINE
    (tmp_path / "token").write_text(capfd.readouterr().out)
    assert run(["token", "collector", "--scope", "ingest", "-f", str(tokens)]) == ExitCode.FINE
    (tmp_path / "pushes").write_text(capfd.readouterr().out)
    settings = Settings(
        listen="localhost:0",
        tls_cert=tmp_path / "server.pem",
        tls_key=tmp_path / "server.pem",
        tokens_file=tokens,
    )
    with shedder.open(data, settings) as engine, running(engine, settings) as address:
        server = ["--connect", f"localhost:{address.port}", "--ca", str(tmp_path / "ca.pem")]
        there, push = ["sql", *server], ["push", "requests", parquet, *server]
        known = [*there, "--token-file", str(tmp_path / "token")]
        assert rows(capfd, *known, "-c", "SELECT COUNT(*) AS n FROM requests")[0]["n"] == ROWS
        assert run([*there, "-c", "SHOW STREAMS"]) == ExitCode.IDENTITY
        assert run([*known, "-c", "DROP STREAM requests"]) == ExitCode.IDENTITY
        pushed = [*push, "--producer", "again", "--token-file", str(tmp_path / "pushes")]
        assert run(pushed) == ExitCode.FINE
        pushed = [*push, "--producer", "new", "--token-file", str(tmp_path / "token")]
        assert run(pushed) == ExitCode.IDENTITY
        assert rows(capfd, *known, "-c", "SELECT COUNT(*) AS n FROM requests")[0]["n"] == 2 * ROWS
        monkeypatch.setenv("SHEDDER_TOKEN", "unknown")
        assert run([*there, "-c", "SHOW STREAMS"]) == ExitCode.IDENTITY
