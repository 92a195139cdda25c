"""Credentials of a job: the same options in every command, and never printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode
from shedder.client.target import ServerTarget
from spark_ingest.executors import Service


def test_what_is_printed_of_a_service_has_no_secrets(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("PRIVATE KEY")
    options = {"token": "open sesame", "key": tmp_path / "key.pem", "cert": b"CERTIFICATE"}
    service = Service("server:7077", options)
    assert service.options["key"] == b"PRIVATE KEY"
    target = ServerTarget.of(
        "server", token="open-sesame", ca=None, cert=None, key=None, insecure=None
    )
    for shown in (repr(service), f"{[service]}", repr(target)):
        assert "server" in shown
        assert not any(secret in shown for secret in ("sesame", "PRIVATE", "CERTIFICATE"))


@pytest.mark.parametrize("command", ["accuracy", "backfill"])
def test_commands_say_who_calls_in_the_words_of_all_commands(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--help"]) == ExitCode.FINE
    output = capsys.readouterr().out
    assert all(flag in output for flag in ("--token-file", "--ca", "--cert", "--key"))
    assert "--token " not in output


def test_a_backfill_reads_its_token_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["files", "s", "--connect", "server", "--name", "n"]
    missing = str(tmp_path / "missing")
    assert run(["backfill", *where, "--token-file", missing]) == ExitCode.USAGE
    assert "cannot read the token file" in capsys.readouterr().err
    assert run(["backfill", *where, "--ca", missing, "--token", "x"]) == ExitCode.USAGE
    assert "cannot read ca" in capsys.readouterr().err
