"""Target of a row query: the stream into which its rows are inserted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

EVENT_TIME = "_ts"  # Event time of a row, and of the derived stream of a view.
SIGN = "_sign"


@dataclass(frozen=True, slots=True)
class RowTarget:
    """Stream that a row query writes.

    stream: its name. columns: of the stream, in the order of the query's columns; in a view the
    event time of the rows is one more. is_view: the stream was made for the query, and has its
    name.
    """

    stream: str
    columns: tuple[str, ...]
    is_view: bool

    def to_json(self) -> dict[str, Any]:
        """Return it as the catalog keeps it."""
        return {"stream": self.stream, "columns": list(self.columns), "view": self.is_view}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> RowTarget:
        """Read what `to_json` returned."""
        return cls(stored["stream"], tuple(stored["columns"]), stored["view"])
