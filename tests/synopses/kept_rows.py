"""Rows of tables that take minutes to measure, kept in a file as they come.

A run that was ended goes on with the rows that are not there. Each row has the digest of the
modules whose intervals are measured, and of those that measure; rows with another digest are
measured again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_PACKAGES: Final = ("synopses", "shedder", "tests/synopses", "tests/engine")
FILE: Final = _ROOT / "build" / "coverage.jsonl"
"""Where `make coverage` keeps rows; `build` is no part of the repository."""


class KeptRows:
    """Rows by table and name, and a file that holds them; without a file they are kept nowhere."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._digest = _digest() if file else ""
        self._rows: dict[str, list[float]] = {}
        if file and file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                digest, place, row = json.loads(line)
                if digest == self._digest:
                    self._rows[place] = row

    def holds(self, table: str, name: str) -> bool:
        """Whether a row is kept."""
        return f"{table}: {name}" in self._rows

    def row(self, table: str, name: str, measure: Callable[[], Sequence[float]]) -> list[float]:
        """Return a row that is kept, or measure it, and say on stderr how long it took."""
        place = f"{table}: {name}"
        if place not in self._rows:
            begun, used = time.monotonic(), time.process_time()
            self._rows[place] = [float(each) for each in measure()]
            if self._file:
                self._keep(place)
                wall, cpu = time.monotonic() - begun, time.process_time() - used
                print(f"{place}: {cpu:.1f} s of CPU, {wall:.1f} s", file=sys.stderr, flush=True)
        return self._rows[place]

    def _keep(self, place: str) -> None:
        assert self._file is not None
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json.dumps([self._digest, place, self._rows[place]]) + "\n")


def _digest() -> str:
    found = sha256()
    for package in _PACKAGES:
        for module in sorted((_ROOT / package).rglob("*.py")):
            found.update(module.read_bytes())
    return found.hexdigest()[:16]
