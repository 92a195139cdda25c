"""What a synopsis really costs: the model of its kind, corrected by what was measured here."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.3  # What a measurement counts in the mean.
LOOKS = 3  # Measurements of which the middle one counts.
_FARTHEST = 4096.0  # A model is not believed to be wrong by more: a clock was.


@dataclass(frozen=True, slots=True)
class Factors:
    """How many times the model's cost a synopsis has taken; nan: it was never seen so.

    full: when it read everything. thinned: when it was thinned. They are kept apart, and while it
    is in one of the two the other is remembered: so leaving an overload does not forget what
    reading everything costs here, and the controller does not leave too early twice.
    seen_full, seen_thinned: the newest LOOKS measurements, of which the middle one counts (of two
    the smaller): what happened once, a kernel that was compiled, a page that was touched for the
    first time, is not what the synopsis costs. It was seen to come to fifty times all others.
    """

    full: float = math.nan
    thinned: float = math.nan
    seen_full: tuple[float, ...] = ()
    seen_thinned: tuple[float, ...] = ()

    def learn(self, *, level: int, measured_ns: float, modelled_ns: float) -> Factors:
        """The factors after a tick at one level, in which tuples were read."""
        if not (measured_ns > 0 and modelled_ns > 0):
            return self
        seen = min(max(measured_ns / modelled_ns, 1 / _FARTHEST), _FARTHEST)
        if level:
            latest = (*self.seen_thinned, seen)[-LOOKS:]
            return replace(self, thinned=_mean(self.thinned, latest), seen_thinned=latest)
        latest = (*self.seen_full, seen)[-LOOKS:]
        return replace(self, full=_mean(self.full, latest), seen_full=latest)

    def corrected(self, modelled_ns: NDArray[np.float64]) -> NDArray[np.float64]:
        """The costs of all levels, [levels], as they are here."""
        full = _known(self.full, self.thinned)
        thinned = _known(self.thinned, self.full)
        return np.concatenate([full * modelled_ns[:1], thinned * modelled_ns[1:]])


def _mean(before: float, latest: tuple[float, ...]) -> float:
    middle = sorted(latest)[(len(latest) - 1) // 2]
    if len(latest) < LOOKS:  # Too few to be smoothed.
        return middle
    return before + ALPHA * (middle - before)


def _known(factor: float, otherwise: float) -> float:
    """A factor, or else the other one, or else what the model says."""
    if not math.isnan(factor):
        return factor
    return 1.0 if math.isnan(otherwise) else otherwise
