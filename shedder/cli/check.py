"""`shedder check`: verify a data directory while no server has it open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shedder.cli.exit_codes import ExitCode
from shedder.cli.stderr import say


def check(
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            "-d",
            metavar="DIR",
            envvar="SHEDDER_DATA",
            help="It must not be open anywhere.",
        ),
    ],
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Rebuild a catalog that is too old to open from the runs and the log."
        ),
    ] = False,
) -> None:
    """Verify a data directory offline: every checksum, every row count, no position missing.

    Nothing is changed without `--repair`. Ends with 5 when bytes or tuples are lost.

    - `shedder check --data ./data`
    """
    from shedder.archive.operations.repair import Repaired
    from shedder.archive.operations.repair import repair as repair_directory
    from shedder.archive.operations.verify import check as check_directory

    repaired = Repaired()
    if repair:
        repaired = repair_directory(data)
        for done in repaired.done:
            say(f"repaired: {done}", "green")
        for lost in repaired.lost:
            say(f"lost: {lost}", "red")
    report = check_directory(data)
    say(f"streams: {report.streams:,}")
    say(f"runs: {report.runs:,} with {report.run_rows:,} rows in {report.run_bytes:,} bytes")
    say(
        f"log: {report.segments:,} segments with {report.records:,} records, "
        f"{report.log_rows:,} rows in batches"
    )
    if report.tables:
        say(f"tables: {report.tables:,} with {report.table_rows:,} rows in their images")
    for note in report.notes:
        say(f"note: {note}", "yellow")
    for damage in (*report.damages, *report.aside):
        say(f"damage: {damage}", "red")
    if repaired.lost:
        what = "1 loss" if len(repaired.lost) == 1 else f"{len(repaired.lost):,} losses"
        say(f"the repair could not undo {what}, named above", "red")
    if repaired.lost or not report.ok:
        raise typer.Exit(ExitCode.DAMAGED)
    say("nothing is lost", "green")
