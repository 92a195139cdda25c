"""`uniform(0.75)`: the same reduction everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from shedder.archive.reductions.arguments import share
from shedder.archive.reductions.reduction import BlockStatistics, Surroundings


@dataclass(frozen=True, slots=True)
class Uniform:
    """Leaves the same share of every run unread."""

    reduction: float
    reads_on: ClassVar[bool] = False

    @classmethod
    def make(cls, surroundings: Surroundings, reduction: float) -> Self:
        """Of a reduction in [0, 1)."""
        del surroundings
        return cls(share("reduction", reduction))

    def wanted(self, block: BlockStatistics) -> float:
        """What was asked for."""
        del block
        return self.reduction
