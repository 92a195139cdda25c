"""What a study of errors keeps, and the growing streams that it feeds.

In the manner of datasketches-characterization: a study feeds growing streams to a summary and asks
at every length, so that one pass serves all. What is kept: the error of every trial at every
length, and how often the intervals of 68, 95 and 99 % held the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.interval import Intervals
from synopses.model.estimate import Bound, Estimates
from synopses.model.profile import Profile, Statistics

CONFIDENCES = (0.68, 0.95, 0.99)
SIGMAS = (1, 2, 3)
WITHIN = (0.6827, 0.9545, 0.9973)  # Of a normal distribution within so many sigma.
RANKS = (0.01, 0.1, 0.5, 0.9, 0.99)
Doubles = NDArray[np.float64]


@dataclass(slots=True)
class Study:
    """One summary on one kind of stream.

    lengths: of the streams. errors: per length, float64 [trials], signed, in `unit`.
    promised: per length the half-widths that the profile promises for 1, 2 and 3 sigma.
    held, trials: per confidence, intervals that held the truth, and all of them; answers that are
      called exact are not counted, they must be right.
    """

    summary: str
    stream: str
    unit: str
    certain: bool = False
    lengths: list[int] = field(default_factory=list)
    errors: list[Doubles] = field(default_factory=list)
    promised: list[tuple[float, ...]] = field(default_factory=list)
    held: dict[float, int] = field(default_factory=lambda: dict.fromkeys(CONFIDENCES, 0))
    trials: dict[float, int] = field(default_factory=lambda: dict.fromkeys(CONFIDENCES, 0))

    def at(self, length: int, errors: Doubles, profile: Profile, size: int) -> None:
        """Note the errors of all trials at a length."""
        statistics = Statistics(tuples=length)
        self.lengths.append(length)
        self.errors.append(errors)
        self.promised.append(tuple(profile.error_of(size, statistics, c) for c in WITHIN))

    def ask(
        self, truth: Any, answers: Mapping[float, Estimates | Intervals], slack: float = 0.0
    ) -> None:
        """Count which answers of each confidence hold the truth; slack: of sums, for rounding."""
        for confidence, answer in answers.items():
            exact = answer.bound == Bound.EXACT
            holds = (answer.low - slack <= truth) & (truth <= answer.high + slack)
            assert holds[exact].all(), (self.summary, self.stream)
            self.trials[confidence] += int(np.sum(~exact))
            self.held[confidence] += int(np.sum(holds & ~exact))

    def coverage(self, confidence: float) -> float | None:
        """The share of the intervals that held the truth; None when all answers were exact."""
        trials = self.trials[confidence]
        return self.held[confidence] / trials if trials else None


def lengths(most: int, per_octave: int = 2) -> list[int]:
    """Log-spaced whole numbers from 1 to most."""
    steps = int(np.log2(most) * per_octave) + 1
    return sorted({round(2 ** (step / per_octave)) for step in range(steps)})


def stretches(most: int) -> Iterator[tuple[int, int]]:
    """Where each stretch of a growing stream begins and ends."""
    ends = lengths(most)
    yield from zip([0, *ends], ends, strict=False)


# --- streams: float64 [trials, n] ------------------------------------------------------------


def _sorted(rng: np.random.Generator, shape: tuple[int, int]) -> Doubles:
    return np.sort(rng.random(shape), axis=1)


def _zoomed(rng: np.random.Generator, shape: tuple[int, int]) -> Doubles:
    """Each value between the last two of its trial: the order that quantile sketches like least."""
    alternating = np.where(np.arange(shape[1]) % 2, 1.0, -1.0) / (1.0 + np.arange(shape[1]))
    return alternating + 1e-9 * rng.random(shape)


STREAMS: Mapping[str, Callable[[np.random.Generator, tuple[int, int]], Doubles]] = {
    "uniform": lambda rng, shape: rng.random(shape),
    "normal": lambda rng, shape: rng.normal(0.0, 1.0, shape),
    "zipf 1.3": lambda rng, shape: np.minimum(rng.zipf(1.3, shape), 1e6).astype(np.float64),
    "lognormal, sigma 2": lambda rng, shape: rng.lognormal(0.0, 2.0, shape),
    "constant": lambda _rng, shape: np.full(shape, 7.25),
    "sorted": _sorted,
    "zooming in": _zoomed,
}


def _unique(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.int64]:
    return rng.permuted(np.tile(np.arange(shape[1]), (shape[0], 1)), axis=1)


def _heavy_last(_rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.int64]:
    places = np.arange(shape[1])
    return np.tile(np.where(places % 8 == 7, -1, places), (shape[0], 1))


ITEMS: Mapping[str, Callable[[np.random.Generator, tuple[int, int]], NDArray[Any]]] = {
    "unique": _unique,
    "zipf 1.1": lambda rng, shape: np.minimum(rng.zipf(1.1, shape), 10**9),
    "zipf 1.5": lambda rng, shape: np.minimum(rng.zipf(1.5, shape), 10**9),
    "in runs": lambda _rng, shape: np.tile(np.arange(shape[1]) // 5, (shape[0], 1)),
    "heavy comes last": _heavy_last,
}


def merged(panes: Sequence[Any], empty: Callable[[], Any]) -> Any:
    """A window over panes: all of them, or the only one as it is."""
    if len(panes) == 1:
        return panes[0]
    window = empty()
    for pane in panes:
        window.merge(pane)
    return window


def window(panes: int) -> str:
    """What the name of a stream says of a window's panes."""
    return f", {panes} panes" if panes > 1 else ""
