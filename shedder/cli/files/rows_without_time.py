"""Rows of files without an event time: they refuse their file, or are left out and named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cli.files.rows import NumberedRows
from shedder.errors import BadTimestamp
from shedder.streams.batches import TIME_MAX_US, TIME_MIN_US

_NAMED_MAX = 5


@dataclass(slots=True)
class Untimed:
    """The rows of one file whose event time is empty, cannot be read, or is in no calendar.

    count: of them. first: the numbers of the first few; the row after a header is 1.
    """

    count: int = 0
    first: list[int] = field(default_factory=list)

    def note(self, rows: list[int]) -> None:
        """There are these, too."""
        self.count += len(rows)
        self.first += rows[: _NAMED_MAX - len(self.first)]

    def __str__(self) -> str:
        named = ", ".join(f"{row:,}" for row in self.first)
        more = self.count - len(self.first)
        return f"row{'' if self.count == 1 else 's'} {named}{f' and {more:,} more' if more else ''}"


def timed(
    name: str, blocks: Iterable[NumberedRows], moment: str, left_out: Untimed | None
) -> Iterator[NumberedRows]:
    """The rows that have an event time, in blocks with at least one.

    Args:
      name: of the file. blocks: of its rows; those that lack the column are left as they are.
      moment: the event time.
      left_out: notes the other rows; None: there may be none.

    Raises:
      BadTimestamp: there are others; says which.
    """
    for rows in blocks:
        kept = rows
        if moment in rows.batch.schema.names:
            bad = _untimed(rows.batch.column(moment))
            if bad.any():
                found = rows.numbers[bad].tolist()
                if left_out is None:
                    raise _refused(name, found, moment, rows.numbers)
                left_out.note(found)
                kept = NumberedRows(rows.numbers[~bad], rows.batch.filter(pa.array(~bad)))
        if kept.batch.num_rows:
            yield kept


def _untimed(times: pa.Array[Any]) -> Any:
    micros: Any = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    held = np.asarray(micros.fill_null(TIME_MIN_US - 1))
    return (held < TIME_MIN_US) | (held > TIME_MAX_US)


def _refused(name: str, rows: list[int], moment: str, among: NDArray[np.int64]) -> BadTimestamp:
    found = Untimed()
    found.note(rows)
    return BadTimestamp(
        f"{name}: no event time {moment!r} that could be kept in {found}, of rows "
        f"{among[0]:,} to {among[-1]:,}; --skip-untimed leaves such rows out, and says which"
    )
