"""`shedder sql`: statements from the command line, a file, a pipe or a shell."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from shedder.cli.connection import (
    CaOption,
    CertOption,
    ConnectOption,
    DataOption,
    KeyOption,
    Place,
    TokenFileOption,
    opened,
)
from shedder.cli.exit_codes import ExitCode
from shedder.cli.output import Format, chosen, show
from shedder.cli.progress_bar import executing
from shedder.cli.row_output import show_batches
from shedder.cli.script import placed, script_in
from shedder.cli.stderr import say
from shedder.errors import BadSetting, ShedderError
from shedder.queries.answers.database_api import Database


def sql(
    command: Annotated[
        list[str] | None,
        typer.Option("--command", "-c", metavar="SQL", help="Run this and end. May be repeated."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Run this script and end.")
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show a standing query's answer and end.")
    ] = None,
    watch: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show its every new answer, until Ctrl-C.")
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="With --watch: go on behind the rows of this token."),
    ] = None,
    data: DataOption = None,
    connect: ConnectOption = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make the data directory if there is none.")
    ] = False,
    output: Annotated[
        Format | None,
        typer.Option("--output", "-o", help="Default: table on a terminal, ndjson in a pipe."),
    ] = None,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="For each statement.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not say where answers came from.")
    ] = False,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Run statements, or open a shell when there are none.

    Ends with 6 when an answer misses its target (`WITHIN 1 PERCENT`).

    - `shedder sql --data ./data`
    - `shedder sql --data ./new --create`
    - `shedder sql -d ./data -c "SHOW STREAMS"`
    - `shedder sql -d ./data --query busy`
    - `shedder sql --connect localhost:7077 -o csv < report.sql > report.csv`
    """
    place = Place(data, connect, token_file, ca, cert, key)
    if create and place.data is None:
        raise BadSetting("--create makes a data directory: it goes with --data, not --connect")
    if after is not None and watch is None:
        raise BadSetting("--after goes with --watch")
    if query is not None or watch is not None:
        _standing(place, query, watch, after, chosen(output, sys.stdout), quiet=quiet)
        return
    texts = _texts(command, file)
    if texts is None:
        from shedder.cli.shell import Shell  # prompt_toolkit is for terminals only.

        with opened(place, create=create) as database:
            Shell(database, place.name, output or Format.TABLE, timeout_s).run()
        return
    form = chosen(output, sys.stdout)
    with opened(place, create=create) as database:
        met = _run(database, texts, form, timeout_s=timeout_s, quiet=quiet)
    _end(met=met)


def _standing(
    place: Place,
    query: str | None,
    watch: str | None,
    after: str | None,
    form: Format,
    *,
    quiet: bool,
) -> None:
    if query is not None and watch is not None:
        raise BadSetting("give --query or --watch, not both")
    with opened(place) as database:
        if watch is not None:
            for answer in database.query(watch).subscribe(after):
                show(answer, form, quiet=quiet)
            return
        assert query is not None
        answer = database.query(query).answer()
        show(answer, form, quiet=quiet)
    _end(met=answer.met is not False)


def _end(*, met: bool) -> None:
    if not met:
        say("a value misses its target: its _met is false", "yellow")
        raise typer.Exit(ExitCode.PRECISION)


def _texts(commands: list[str] | None, file: Path | None) -> list[str] | None:
    """The scripts to run; None asks for a shell."""
    if commands:
        if file is not None:
            raise BadSetting("give --command or --file, not both")
        return commands
    if file is not None:
        return [script_in(file)]
    return None if sys.stdin.isatty() else [_piped()]


def _piped() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise BadSetting(f"cannot read the script from stdin: {error}") from error


def _run(
    database: Database, texts: Iterable[str], form: Format, *, timeout_s: float | None, quiet: bool
) -> bool:
    """Run all statements in order; whether every answer met its target."""
    met = True
    for text in texts:
        script = list(placed(text))
        for line, statement in script:
            try:
                with executing(database, statement, timeout_s) as batches:
                    answer = show_batches(batches, form, quiet=quiet)
            except ShedderError:
                if len(script) > 1:
                    say(f"in the statement that begins in line {line}:", "red")
                raise
            met = met and answer.met is not False
    return met
