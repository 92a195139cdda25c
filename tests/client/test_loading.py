"""What a process that only asks a server does without: all that computes and stores."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.server_process import ServerProcess

HEAVY = (
    "numba",
    "scipy",
    "duckdb",
    "sqlglot",
    "pandas",
    "pyspark",
    "shedder.engine.engine_state",
)
_TELL = f"import sys; print([module for module in {HEAVY} if module in sys.modules])"


def process(code: str) -> str:
    command = [sys.executable, "-c", f"{code}\n{_TELL}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.slow
def test_a_client_loads_nothing_that_computes() -> None:
    assert process("import shedder.cli.commands, shedder.client") == "[]\n"


@pytest.mark.slow
def test_a_statement_for_a_server_is_sent_without_what_computes(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    try:
        statement = ["sql", "--connect", server.address, "-o", "csv", "-c", "SHOW STREAMS"]
        called = f"from shedder.cli.commands import run; assert run({statement!r}) == 0"
        assert process(called).splitlines()[-1] == "[]"
    finally:
        server.stop()
