"""Exact truth to measure synopses against: populations, oracles and the gate for coverage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrik  # Importing `scipy.stats` takes a second.

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]

# Probability that a gate refuses an honest interval. On literal seeds the outcome changes only with
# the code. On seeds of the run (tests/seeds.py), 10,000 gates raise a false alarm in one of 10,000
# runs.
ALARM, RUN_ALARM = 1e-6, 1e-8


@dataclass(slots=True)
class Evaluated:
    """Numbers of gates evaluated in this process, on literal seeds and on seeds of the run."""

    literal: int = 0
    run: int = 0

    def add(self, *, literal: int = 0, run: int = 0) -> None:
        """Count gates that were evaluated here or in a worker."""
        self.literal += literal
        self.run += run


EVALUATED = Evaluated()


def gate(trials: int, confidence: float, alarm: float = ALARM) -> int:
    """Return the fewest hits that an honest interval of this confidence gets in `trials` trials.

    An honest interval gets fewer hits with probability `alarm` at most. A test on seeds of the run
    passes RUN_ALARM and runs a quarter more trials, which gives it the power of ALARM.
    """
    is_of_run = alarm <= RUN_ALARM
    EVALUATED.add(literal=int(not is_of_run), run=int(is_of_run))
    if not trials:
        return 0
    hits = math.ceil(bdtrik(alarm, trials, confidence))
    return hits - 1 if hits > 0 and bdtr(hits - 1, trials, confidence) >= alarm else hits


def _zipf(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    return np.minimum(rng.zipf(1.3, size), 1_000_000).astype(np.float64)


def _spike(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    values = rng.normal(0.0, 1.0, size)
    values[rng.random(size) < 1e-4] = 1e6
    return values


def _adversarial(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Sorted down, then ever new extremes at both ends: the worst order for greedy summaries."""
    values = np.sort(rng.lognormal(0.0, 1.0, size))[::-1].copy()
    tail = size // 4
    values[size - tail :] = np.arange(1, tail + 1) * np.where(np.arange(tail) % 2, -10.0, 10.0)
    return values


DISTRIBUTIONS: Mapping[str, Draw] = {
    "uniform": lambda rng, size: rng.random(size),
    "normal": lambda rng, size: rng.normal(50.0, 15.0, size),
    "exponential": lambda rng, size: rng.exponential(10.0, size),
    "lognormal-1": lambda rng, size: rng.lognormal(0.0, 1.0, size),
    "lognormal-2": lambda rng, size: rng.lognormal(0.0, 2.0, size),
    "pareto": lambda rng, size: rng.pareto(1.1, size) + 1.0,
    "zipf": _zipf,
    "constant": lambda _rng, size: np.full(size, 7.25),
    "spike": _spike,
    "adversarial": _adversarial,
}


def distributions() -> list[str]:
    """The names of all populations, for parametrize."""
    return list(DISTRIBUTIONS)


def draw(name: str, seed: int, size: int) -> NDArray[np.float64]:
    """A population of this distribution; the same for the same seed."""
    return DISTRIBUTIONS[name](np.random.default_rng([seed, len(name)]), size)


def exact_sum(values: NDArray[Any]) -> float | int:
    """The sum without rounding on the way (integers: without overflow)."""
    if np.issubdtype(values.dtype, np.integer):
        return sum(values.tolist())
    return math.fsum(values.tolist())


def exact_quantile(values: NDArray[Any], q: float) -> Any:
    """The discrete quantile: the value of rank max(1, ceil(q n)) in order."""
    return exact_quantiles(values, [q])[0]


def exact_quantiles(values: NDArray[Any], qs: Iterable[float]) -> NDArray[Any]:
    """Discrete quantiles, as `exact_quantile`, from one partition of the values."""
    shares = [Fraction(repr(float(q))) for q in qs]  # q is the decimal written.
    places = np.array([max(1, math.ceil(share * len(values))) - 1 for share in shares])
    return np.partition(values, np.unique(places))[places]


def rank_range(values: NDArray[Any], value: float) -> tuple[int, int]:
    """How many are below the value, and how many are not above it."""
    return int(np.sum(values < value)), int(np.sum(values <= value))


def exact_distinct(values: NDArray[Any]) -> int:
    """How many different values there are."""
    return len(np.unique(values))


def exact_counts(values: NDArray[Any]) -> Counter[Any]:
    """How often each value occurs."""
    return Counter(values.tolist())


def by_group(ids: NDArray[np.int32], values: NDArray[Any], groups: int) -> list[NDArray[Any]]:
    """The values of each group, in their order of arrival."""
    order = np.argsort(ids, kind="stable")
    ends = np.cumsum(np.bincount(ids, minlength=groups))
    return np.split(values[order], ends[:-1])


def keeps_its_promise(
    items: Sequence[Mapping[str, Any]],
    bound: str,
    counts: Mapping[Any, int],
    share: float,
    *,
    positives: bool,
) -> bool:
    """Whether a list of FREQUENT is true. positives: it was to have no false positives."""
    threshold = Fraction(repr(share)) * sum(counts.values())
    frequent = {value: count for value, count in counts.items() if count >= threshold}
    listed = {item["value"]: item["count"] for item in items}
    held = all(item["low"] <= counts[item["value"]] <= item["high"] for item in items)
    held &= all(item["value"] in frequent for item in items if positives or item["guaranteed"])
    held &= bound != "exact" or listed == frequent
    return bound == "none" or (held and (positives or frequent.keys() <= listed.keys()))
