"""Measured costs of a synopsis: the model of its kind, corrected by measurements."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.3  # What a measurement counts in the mean.
LOOKS = 3  # Measurements of which the middle one counts.
CALL_NS = 22_000.0
"""Of one thinned synopsis and one run of tuples, however many: 200 of them at their lowest levels
took 343 ns per tuple in runs of 16,384, and 138 in runs of 65,536."""
_NOISE = 0.05  # Of a measurement, as a share of it.
_CALLS_OFF = 1.5  # By how much the factor of calls may differ from that of full reading,
_TUPLES_OFF = 0.2  # ... and that of thinned reading, as a share: a slower machine is so in all.
_FARTHEST = 4096.0  # A model is not believed to be wrong by more: a clock was.


@dataclass(frozen=True, slots=True)
class CostSample:
    """What a synopsis has taken since the last look, per tuple of its stream.

    measured_ns: all of it. modelled_ns: what the model says of tuples. calls_ns: what CALL_NS says
    of calls; 0 where they are not counted apart.
    """

    measured_ns: float
    modelled_ns: float
    calls_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class _Sums:
    """Of normal equations: of calls' and tuples' shares of what the model says, and of the ratio
    of what was measured to that."""

    calls: float = 0.0
    both: float = 0.0
    tuples: float = 0.0
    calls_seen: float = 0.0
    tuples_seen: float = 0.0

    def add(self, look: CostSample) -> _Sums:
        whole = look.calls_ns + look.modelled_ns
        calls, tuples = look.calls_ns / whole, look.modelled_ns / whole
        ratio = look.measured_ns / whole
        new = (calls * calls, calls * tuples, tuples * tuples, calls * ratio, tuples * ratio)
        old = (self.calls, self.both, self.tuples, self.calls_seen, self.tuples_seen)
        return _Sums(*(n + (1.0 - ALPHA) * o for n, o in zip(new, old, strict=True)))

    def solved(self, ratio: float, guess: float) -> tuple[float, float]:
        """The factors of calls and of tuples, neither negative, that fit best.

        What the looks leave open, as where all were at one level and of runs of one size, is near
        what reading everything says. ratio: of a look. guess: the factor of full reading.
        """
        noise = (_NOISE * ratio / guess) ** 2
        by_calls, by_tuples = noise / _CALLS_OFF**2, noise / _TUPLES_OFF**2
        a, b, d = self.calls + by_calls, self.both, self.tuples + by_tuples
        p, q = self.calls_seen + by_calls * guess, self.tuples_seen + by_tuples * guess
        det = a * d - b * b
        calls, tuples = (d * p - b * q) / det, (a * q - b * p) / det
        if calls < 0:
            return 0.0, q / d
        return (p / a, 0.0) if tuples < 0 else (calls, tuples)


@dataclass(frozen=True, slots=True)
class Factors:
    """How many times the model's cost a synopsis takes; nan: it was never seen so.

    full: of all that it takes when it reads everything. calls, thinned: when it is thinned, of a
    part for each run of tuples, and of one for each tuple. A level makes the second one smaller
    and leaves the first, which is most of it at low levels: one factor for both would have levels
    in the middle cost what they do not.

    Full and thinned reading are kept apart, and while it is in one of the two the other is
    remembered: so leaving an overload does not forget what reading everything costs here, and the
    controller does not leave too early twice.
    seen_full, seen_thinned: the newest LOOKS measurements, of which the middle one counts (of two
    the smaller): what happened once, a kernel that was compiled, a page that was touched for the
    first time, is not what the synopsis costs. It was seen to come to fifty times all others.
    """

    full: float = math.nan
    calls: float = math.nan
    thinned: float = math.nan
    seen_full: tuple[CostSample, ...] = ()
    seen_thinned: tuple[CostSample, ...] = ()
    sums: _Sums = _Sums()

    def learn(
        self, *, level: int, measured_ns: float, modelled_ns: float, calls_ns: float = 0.0
    ) -> Factors:
        """The factors after a tick at one level, in which tuples were read.

        Args:
          level: 0: everything was read. measured_ns, modelled_ns, calls_ns: as of a Look.
        """
        if not (measured_ns > 0 and modelled_ns > 0):
            return self
        believed = modelled_ns + (calls_ns if level else 0.0)
        seen = min(max(measured_ns / believed, 1 / _FARTHEST), _FARTHEST)
        look = CostSample(seen * believed, modelled_ns, calls_ns if level else 0.0)
        if level:
            return self._learn_thinned(look)
        latest = (*self.seen_full, look)[-LOOKS:]
        middle = _middle(latest)
        full = middle.measured_ns / middle.modelled_ns
        if len(latest) == LOOKS:  # Fewer are too few to be smoothed.
            full = self.full + ALPHA * (full - self.full)
        return replace(self, full=full, seen_full=latest)._fitted()

    def _learn_thinned(self, look: CostSample) -> Factors:
        latest = (*self.seen_thinned, look)[-LOOKS:]
        before = self.sums if len(latest) == LOOKS else _Sums()
        return replace(self, seen_thinned=latest, sums=before.add(_middle(latest)))._fitted()

    def _fitted(self) -> Factors:
        if not self.seen_thinned:
            return self
        ratio = _ratio(_middle(self.seen_thinned))
        guess = ratio if math.isnan(self.full) else self.full
        calls, thinned = self.sums.solved(ratio, guess)
        return replace(self, calls=calls, thinned=thinned)

    def corrected(
        self, modelled_ns: NDArray[np.float64], calls_ns: float = 0.0
    ) -> NDArray[np.float64]:
        """The costs of all levels, [levels], as they are here.

        Args:
          modelled_ns: [levels]; of tuples. calls_ns: as of a Look, at the present size of runs.
        """
        full = _known(self.full, self.thinned)
        thinned = _known(self.thinned, self.full)
        calls = _known(self.calls, 1.0) * calls_ns
        return np.concatenate([full * modelled_ns[:1], calls + thinned * modelled_ns[1:]])


def _ratio(look: CostSample) -> float:
    return look.measured_ns / (look.modelled_ns + look.calls_ns)


def _middle(latest: tuple[CostSample, ...]) -> CostSample:
    return sorted(latest, key=_ratio)[(len(latest) - 1) // 2]


def _known(factor: float, otherwise: float) -> float:
    """A factor, or else the other one, or else what the model says."""
    if not math.isnan(factor):
        return factor
    return 1.0 if math.isnan(otherwise) else otherwise
