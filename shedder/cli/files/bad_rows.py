"""Rows that cannot be read: the file is refused, or such rows are written to a separate file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from shedder.errors import BadBatch, InvalidRequest

_SHOWN = 60  # Characters of a value in a message.
HINT = "--bad-rows FILE keeps such rows aside"


@dataclass(slots=True)
class BadRows:
    """The rows of one file that cannot be read.

    name: of the file. sink: where they are written as JSON lines; None: the first one raises.
    count: of them.
    """

    name: str
    sink: IO[str] | None = None
    count: int = 0
    numbers: list[int] = field(default_factory=list)

    def keep(
        self,
        number: int,
        problem: str,
        values: Mapping[str, Any] | str,
        kind: type[InvalidRequest] = BadBatch,
    ) -> None:
        """Write one row to the sink with its number (the row after a header is 1).

        Raises:
          kind: there is no place for such rows; names the row and the problem.
        """
        if self.sink is None:
            raise kind(f"{self.name}: row {number:,}{problem}; {HINT}")
        entry = {"file": self.name, "row": number, "problem": problem.lstrip(",: "), "is": values}
        self.sink.write(json.dumps(entry, default=str) + "\n")
        self.count += 1
        self.numbers.append(number)


def shown(value: object) -> str:
    """The value in quotes, cut to a length that fits into a message."""
    text = str(value)
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
