"""`by_age('1 day')`: the recent in full, half as much for every so long that it is older."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from shedder.archive.reductions.arguments import duration_us, share
from shedder.archive.reductions.reduction import BlockStatistics, Surroundings


@dataclass(frozen=True, slots=True)
class ByAge:
    """Reads 2^-(age / half_life) of a run, and never less than 1 - reduction_max.

    Age is counted from the newest run of the scan, so that an old stretch has its own recent end.
    """

    half_life_us: int
    reduction_max: float
    reads_on: ClassVar[bool] = False

    @classmethod
    def make(cls, surroundings: Surroundings, half_life: str, reduction_max: float = 0.99) -> Self:
        """Of a duration such as '6 hours', and the largest reduction for what is oldest."""
        del surroundings
        return cls(duration_us("half_life", half_life), share("reduction_max", reduction_max))

    def wanted(self, block: BlockStatistics) -> float:
        """By the age of the run's newest tuple."""
        age_us = max(0, block.newest_us - block.end_us)
        return float(min(self.reduction_max, 1.0 - 0.5 ** (age_us / self.half_life_us)))
