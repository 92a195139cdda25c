"""Paths of the files to load: each is there, and stdin is a copy on disk."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shedder.cli.files.temporary_files import written_in
from shedder.errors import BadSetting

STDIN = Path("-")


@contextmanager
def on_disk(files: list[Path]) -> Iterator[list[Path]]:
    """The files, with stdin copied to disk: its types are looked at before it is read."""
    for path in files:
        if path != STDIN and not path.is_file():
            kind = "a directory, not a" if path.is_dir() else "no"
            raise BadSetting(
                f"{kind} file {str(path)!r}" if kind == "no" else f"{str(path)!r} is {kind} file"
            )
    if STDIN not in files:
        yield files
        return
    with tempfile.TemporaryDirectory(prefix="shedder-stdin-") as directory:
        copy = Path(directory) / "stdin"
        with written_in(copy.parent), copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield [copy if path == STDIN else path for path in files]
