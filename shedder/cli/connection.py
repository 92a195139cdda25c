"""Location of the data: a directory that this process opens, or a server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from shedder.cli.stderr import say
from shedder.errors import BadSetting
from shedder.queries.answers.database_api import Database

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        "-d",
        metavar="DIR",
        envvar="SHEDDER_DATA",
        help="Open this directory in this process.",
        file_okay=False,
    ),
]
ConnectOption = Annotated[
    str | None,
    typer.Option(
        "--connect", metavar="HOST:PORT", envvar="SHEDDER_CONNECT", help="Speak to this server."
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="File with the bearer token; SHEDDER_TOKEN holds the token itself."
    ),
]
CaOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", envvar="SHEDDER_CA", help="Authority of the server's certificate (PEM)."
    ),
]
CertOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Own certificate (PEM), for mTLS.")
]
KeyOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key (PEM).")]


@dataclass(frozen=True, slots=True)
class Place:
    """Which database a command works on, and as whom."""

    data: Path | None
    connect: str | None
    token_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.data is None) == (self.connect is None):
            raise BadSetting("say where: --data DIR (in this process) or --connect HOST:PORT")

    @property
    def name(self) -> str:
        """What a prompt shows."""
        return self.connect if self.connect is not None else str(self.data)

    @property
    def credentials(self) -> dict[str, Any]:
        """Return the options of `shedder.connect` that identify the caller, as far as given.

        Raises:
          BadSetting: the token file cannot be read.
        """
        said = {"token": _token(self), "ca": self.ca, "cert": self.cert, "key": self.key}
        return {name: each for name, each in said.items() if each is not None}

    @property
    def is_new(self) -> bool:
        """Return whether there is a path, and no data directory, not even a damaged one."""
        parts = ("FORMAT", "catalog.sqlite")
        return self.data is not None and not any((self.data / part).exists() for part in parts)


@contextmanager
def opened(place: Place, *, create: bool = False) -> Iterator[Database]:
    """The database at a place, closed at the end.

    Args:
      create: whether a data directory is made where there is none.

    Raises:
      BadSetting: there is no data directory.
      Unreachable, Unauthenticated, DirectoryLocked, CorruptData: as the two sides say.
    """
    import shedder  # Heavy (numba, gRPC); `shedder --help` does without.

    if place.connect is None:
        assert place.data is not None
        is_new = place.is_new
        if is_new and not create:  # A mistyped path would else look like lost data.
            raise BadSetting(
                f"--data {str(place.data)!r}: there is no data directory. If the path is right, "
                "shedder sql --create makes one, and shedder push --create makes one from a file"
            )
        with closing(shedder.open(place.data, compiles_ahead=False)) as database:
            if is_new:
                say(f"new data directory {place.data}", "yellow")
            yield database
    else:
        with closing(shedder.connect(place.connect, **place.credentials)) as database:
            yield database


def _token(place: Place) -> str | None:
    if place.token_file is None:
        return os.environ.get("SHEDDER_TOKEN")
    try:
        return place.token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(
            f"cannot read the token file {str(place.token_file)!r}: {error}"
        ) from error
