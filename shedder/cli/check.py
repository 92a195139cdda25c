"""`shedder check`: verify a data directory while no server has it open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def check(
    data: Annotated[
        Path, typer.Option("--data", "-d", metavar="DIR", envvar="SHEDDER_DATA", file_okay=False)
    ],
) -> None:
    """Verify a data directory offline: every checksum, every row count, no position missing."""
