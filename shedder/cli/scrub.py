"""`shedder scrub`: read everything that is stored while it is served."""

from __future__ import annotations

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
from shedder.cli.progress_bar import executed
from shedder.cli.stderr import say


def scrub(
    data: DataOption = None,
    connect: ConnectOption = None,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Read every run against its checksum, also while a server runs, at a limited rate.

    A run that is damaged goes into quarantine: from then on answers say what is missing. Ends with
    5 when any run is in quarantine afterwards; `shedder check` verifies the rest offline.

    - `shedder scrub --connect localhost:7077`
    """
    place = Place(data, connect, token_file, ca, cert, key)
    with opened(place) as database:
        say(executed(database, "SCRUB").table["status"][0].as_py())
        runs = database.execute("SHOW RUNS").table.to_pylist()
    damaged = [run for run in runs if run["problem"] is not None]
    for run in damaged:
        say(f"in quarantine: {run['stream']}: {run['problem']}", "red")
    if damaged:
        raise typer.Exit(ExitCode.DAMAGED)
    say("all runs are whole", "green")
