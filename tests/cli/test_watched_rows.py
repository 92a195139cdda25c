"""`shedder sql --watch` of a row query: NDJSON into a pipe, and a token to go on from."""

import json

import pytest

import shedder
from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode
from shedder.settings import Settings
from tests.server_process import running, shedder_command
from tests.warm_process import WarmProcess

CREATE = "CREATE STREAM s (ts TIMESTAMP, id BIGINT) TIMESTAMP BY ts"
INSERT = "INSERT INTO s VALUES (TIMESTAMP '2024-01-01 00:00:0{}', {})"


@pytest.mark.slow
def test_watched_rows_are_lines_and_resume_behind_a_token(tmp_path):
    settings = Settings(listen="127.0.0.1:0", insecure=True, drain_s=5)
    with (
        shedder.open(tmp_path / "data", settings) as engine,
        running(engine, settings) as address,
    ):
        engine.execute(CREATE)
        query = engine.register("q", "SELECT id FROM s WHERE id > 1")
        begin = query.answer().resume
        for number in range(1, 5):
            engine.execute(INSERT.format(number, number))
        arguments = ["sql", "--connect", str(address), "--watch", "q", "--after", begin]
        said = tmp_path / "said"
        with WarmProcess(shedder_command, arguments, errors=said) as watching:
            lines = [watching.output.readline(), watching.output.readline()]
            engine.execute("DROP QUERY q")
            assert watching.wait() == ExitCode.USAGE
    assert [json.loads(line)["id"] for line in lines] == [2, 3]
    assert f"resume after {begin.partition('.')[0]}.2" in said.read_text()


def test_a_token_needs_a_watched_query(tmp_path, capfd):
    assert run(["sql", "-d", str(tmp_path), "--after", "x.1"]) == ExitCode.USAGE
    assert "--after goes with --watch" in capfd.readouterr().err
