"""Replay of past tuples into a new dataflow, in memory that does not grow with the past."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.engine.dataflow.row_input import RowInput, Scan, times_of
from shedder.engine.dataflow.row_query import RowQuery

Rows = tuple[pa.RecordBatch, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class PastStretch:
    """Tuples of one input that are replayed.

    first_position, end_position: of the stretch.
    from_us: tuples before it are not needed; None: all are.
    closed_us: no tuple behind the stretch has an earlier event time unless it is late; None:
      nothing is known.
    """

    first_position: int
    end_position: int
    from_us: int | None
    closed_us: int | None


def replay(
    query: RowQuery,
    stretches: Mapping[str, PastStretch],
    scans: Mapping[int, Scan],
    between: Callable[[], None] | None = None,
) -> None:
    """Have a query read past tuples; the rows that they lead to are not kept.

    The archive has tuples in the order of arrival. A first pass over the event times finds, for
    each place, the least event time behind it. Watermarks follow these, so operators drop tuples
    that windows have left. The input that is behind in event time goes first.

    Args:
      query: whose state is to be made.
      stretches: by alias. scans: by the id of a stream.
      between: called behind each part of the tuples.
    """
    parts = [
        _PastReader(each, stretches[each.alias], scans[each.stream_id])
        for each in query.inputs
        if each.alias in stretches
    ]
    going = list(parts)
    while going:
        part = min(going, key=lambda each: each.order)
        rows = part.next()
        if rows is None:
            going.remove(part)
            continue
        query.take_past(part.alias, *rows)
        query.pass_by({each.alias: each.safe_us for each in parts})
        if between is not None:
            between()


class _PastReader:
    """One input's stretch, as far as it was read.

    safe_us: no tuple that is still to be read has an earlier event time; None: it is not known.
    """

    def __init__(self, of: RowInput, stretch: PastStretch, scan: Scan) -> None:
        self.alias = of.alias
        self._stretch = stretch
        self._ends, self._least_us = _least_behind(of, stretch, scan)
        self._rows = of.past(scan, stretch.first_position, stretch.end_position, stretch.from_us)
        self.safe_us = self._safe_us(stretch.first_position)

    @property
    def order(self) -> float:
        """The event time up to which it was read."""
        return -np.inf if self.safe_us is None else float(self.safe_us)

    def next(self) -> Rows | None:
        """Return the next rows; None: there are none."""
        rows = next(self._rows, None)
        if rows is not None:
            self.safe_us = self._safe_us(int(rows[1][-1]) + 1)
        return rows

    def _safe_us(self, position: int) -> int | None:
        closed_us = self._stretch.closed_us
        at = int(np.searchsorted(self._ends, position, side="right"))
        if closed_us is None or at == len(self._ends):
            return closed_us
        return min(closed_us, int(self._least_us[at]))


def _least_behind(
    of: RowInput, stretch: PastStretch, scan: Scan
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ends of parts of a stretch, and the least event time from each part on."""
    ends, least = list[int](), list[int]()
    for rows, positions in _times(of, stretch, scan):
        ends.append(int(positions[-1]) + 1)
        least.append(int(times_of(rows, of.time_column).min()))
    behind = np.minimum.accumulate(np.array(least[::-1], np.int64))[::-1]
    return np.array(ends, np.int64), behind


def _times(of: RowInput, stretch: PastStretch, scan: Scan) -> Iterator[Rows]:
    columns = (of.time_column,)
    return of.past(
        scan, stretch.first_position, stretch.end_position, stretch.from_us, columns=columns
    )
