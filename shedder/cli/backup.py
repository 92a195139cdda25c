"""`shedder backup` and `shedder restore`: data directories out of data directories."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from shedder.archive.tasks.progress import Progress
from shedder.cli.connection import (
    CaOption,
    CertOption,
    ConnectOption,
    KeyOption,
    Place,
    TokenFileOption,
    opened,
)
from shedder.cli.progress_bar import executed, shown
from shedder.cli.stderr import say
from shedder.errors import BadSetting

Result = TypeVar("Result")

CopyOption = Annotated[
    bool, typer.Option("--copy", help="Copy every file, also where a hard link would do.")
]


def backup(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A new directory; of a server, a name.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            "-d",
            metavar="DIR",
            envvar="SHEDDER_DATA",
            help="No process may have it open.",
        ),
    ] = None,
    connect: ConnectOption = None,
    copy: CopyOption = False,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Make a backup: a second data directory that opens to the same tuples, or none at all.

    Runs are not copied where a hard link will do, so a backup on the same disk takes a moment and
    next to no space; it does not protect from that disk. A server makes it while it runs, in its
    `backup_directory`.

    - `shedder backup /backups/monday --data ./data`
    - `shedder backup monday --connect localhost:7077`
    """
    place = Place(data, connect, token_file, ca, cert, key)
    if place.connect is not None:
        if copy:
            raise BadSetting(
                "--copy goes with --data: a server links what is on the disk of its "
                "backup_directory, and copies to any other; restore --copy makes copies of that"
            )
        quoted = target.replace("'", "''")
        with opened(place) as database:
            answer = executed(database, f"BACKUP TO '{quoted}'")
        say(answer.table["status"][0].as_py(), "green")
        return
    assert data is not None
    _make(f"backup to {target}", data, Path(target), link=not copy, verify=False)


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="A backup, or any directory.")],
    target: Annotated[Path, typer.Argument(metavar="DIR", help="The new data directory.")],
    copy: CopyOption = False,
) -> None:
    """Make a data directory from a backup, after every byte of the backup was verified.

    Ends with 5 when the backup is damaged; then nothing is made.

    - `shedder restore /backups/monday ./data`
    """
    _make(f"restore to {target}", source, target, link=not copy, verify=True)


def _make(what: str, source: Path, target: Path, *, link: bool, verify: bool) -> None:
    from shedder.archive.operations.backup import restore as make

    progress = Progress(what, "bytes")
    with shown(progress):
        made = _cancellable(
            progress,
            lambda: make(source, target, progress=progress, link=link, verify=verify),
        )
    say(
        f"made {made.directory}: {made.linked_bytes:,} bytes linked, {made.copied_bytes:,} copied",
        "green",
    )


def _cancellable(progress: Progress, work: Callable[[], Result]) -> Result:
    """The result of work, which ends cleanly at Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    before = signal.signal(signal.SIGINT, lambda *_: progress.cancel())
    try:
        return work()
    finally:
        signal.signal(signal.SIGINT, before)
