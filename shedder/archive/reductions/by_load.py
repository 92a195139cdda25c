"""`by_load(0.95)`: everything when the engine is idle, little when it is overloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

from shedder.archive.reductions.arguments import share
from shedder.archive.reductions.reduction import BlockStatistics, Surroundings


@dataclass(frozen=True, slots=True)
class ByLoad:
    """A reduction in proportion to the live load, looked at anew as the scan comes to a run."""

    reduction_max: float
    load: Callable[[], float]
    reads_on: ClassVar[bool] = False

    @classmethod
    def make(cls, surroundings: Surroundings, reduction_max: float = 0.99) -> Self:
        """Of the reduction at full load."""
        return cls(share("reduction_max", reduction_max), surroundings.load)

    def wanted(self, block: BlockStatistics) -> float:
        """By the load of this moment."""
        del block
        return self.reduction_max * min(1.0, max(0.0, self.load()))
