"""`until_error()`: a pilot, then as much as the target needs: online aggregation.

Source: Hellerstein, Haas & Wang 1997, Online Aggregation (SIGMOD);
synopses/intervals/sequential_looks.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from shedder.archive.reductions.arguments import number
from shedder.archive.reductions.reduction import BlockStatistics, Surroundings
from synopses.intervals.sequential_looks import rows_wanted

PILOT_ROWS: Final = 60_000
_PILOT_SHARE: Final = 0.1  # Of all tuples, that a pilot reads at most.


@dataclass(frozen=True, slots=True)
class UntilError:
    """Wants what is left unread when every interval is as narrow as the target, and no more."""

    pilot_rows: int = PILOT_ROWS
    reads_on: ClassVar[bool] = True

    @classmethod
    def make(cls, surroundings: Surroundings, pilot_rows: float = PILOT_ROWS) -> Self:
        """Of the number of tuples that are read before anything can be predicted."""
        del surroundings
        if not number("pilot_rows", pilot_rows) >= 1:
            raise ValueError(f"pilot_rows takes 1 or more, not {pilot_rows:g}")
        return cls(int(min(pilot_rows, 1e18)))

    def wanted(self, block: BlockStatistics) -> float:
        """A pilot's reduction first, and after each look what its error asks for, if it is more."""
        scan = block.scan
        pilot = rows = min(self.pilot_rows, math.ceil(_PILOT_SHARE * scan.rows))
        if scan.look > 0 and scan.rows_read > 0:
            rows = rows_wanted(
                population=scan.rows,
                read=scan.rows_read,
                error=scan.error,
                look=scan.look - 1,
                confidence=scan.confidence,
            )
        return max(0.0, 1.0 - max(rows, pilot) / scan.rows)
