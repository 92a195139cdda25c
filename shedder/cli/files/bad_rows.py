"""Rows that cannot be read: the file is refused, or such rows are written to a separate file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from shedder.errors import BadBatch, BadSetting, InvalidRequest

_SHOWN = 60  # Characters of a value in a message.
HINT = "--bad-rows FILE keeps such rows aside"


@dataclass(slots=True)
class BadRows:
    """The rows of one file that cannot be read.

    name: of the file. sink: takes them as JSON lines; None: the first one raises. count: of them.
    """

    name: str
    sink: IO[str] | None = None
    count: int = 0

    def keep(
        self,
        number: int,
        problem: str,
        values: Mapping[str, Any] | str,
        kind: type[InvalidRequest] = BadBatch,
    ) -> None:
        """Write one row to the sink with its number (the row after a header is 1).

        Raises:
          kind: there is no sink; names the row and the problem.
          BadSetting: the sink cannot be written.
        """
        if self.sink is None:
            raise kind(f"{self.name}: row {number:,}{problem}; {HINT}")
        entry = {"file": self.name, "row": number, "problem": problem.lstrip(",: "), "is": values}
        try:
            self.sink.write(json.dumps(entry, default=str) + "\n")
        except OSError as error:
            raise _unwritable(self.sink.name, error) from error
        self.count += 1


@contextmanager
def opened_sink(path: Path) -> Iterator[IO[str]]:
    """Open a sink that writes each line at once, so rows are pushed only if it has room.

    Raises:
      BadSetting: the file cannot be written.
    """
    try:
        sink = path.open("a", encoding="utf-8", buffering=1)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        yield sink
    finally:
        try:
            sink.close()
        except OSError as error:
            raise _unwritable(path, error) from error


def _unwritable(sink: Path | str, error: OSError) -> BadSetting:
    return BadSetting(f"cannot write --bad-rows {str(sink)!r}: {error.strerror}")


def shown(value: object) -> str:
    """The value in quotes, cut to a length that fits into a message."""
    text = str(value)
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
