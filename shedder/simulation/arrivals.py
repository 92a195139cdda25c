"""Arrival processes: rates over time, and seeded counts per interval."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shedder.simulation.scenario import Arrivals

Rate = Callable[[float], float]

# The shape of a day with two matches on the site of the 1998 World Cup, hour by hour: drawn after
# the description by Arlitt & Jin (HPL-1999-35R1; IEEE Network 14(3), 2000: quiet nights, walls
# before each kick-off, a peak of some ten million requests in an hour, a cliff when the match is
# over), not taken from the trace. In millions of requests; only their ratios count.
_WORLD_CUP_HOURS = (
    0.35, 0.30, 0.28, 0.30, 0.40, 0.60, 0.95, 1.35, 1.65, 1.90, 2.10, 2.30,
    2.60, 3.10, 5.20, 7.90, 6.40, 3.60, 3.90, 8.60, 10.30, 5.10, 1.70, 0.75,
)  # fmt: skip


def rate_of(arrivals: Arrivals, rng: np.random.Generator, seconds: float) -> Rate:
    """Tuples/s over time of a group of producers.

    Args:
      arrivals: what is asked for. rng: draws where bursts lie. seconds: how long the world lasts.
    """
    rate = arrivals.rate
    match arrivals.shape:
        case "steady" | "poisson":
            return lambda _: rate
        case "bursts":
            edges = _bursts(arrivals, rng, seconds)
            return lambda at_s: (
                rate * (arrivals.times if np.searchsorted(edges, at_s, side="right") % 2 else 1.0)
            )
        case "flash":
            return lambda at_s: rate * _flash(arrivals, at_s)
        case "diurnal":
            return lambda at_s: rate * _diurnal(arrivals, at_s)
        case "worldcup98":
            return lambda at_s: rate * _world_cup(at_s / arrivals.period_s)


def count(arrivals: Arrivals, mean: float, rng: np.random.Generator) -> int:
    """Return how many tuples come in an interval in which `mean` are expected; no shape is even."""
    if arrivals.shape == "steady":  # But for the rest of a tuple, which comes now or later.
        return math.floor(mean) + int(rng.random() < mean % 1.0)
    return int(rng.poisson(mean))


def _bursts(arrivals: Arrivals, rng: np.random.Generator, seconds: float) -> NDArray[np.float64]:
    """The moments at which it goes on, off, on ...; off at 0."""
    pairs = 4 + int(4 * seconds / (arrivals.on_s + arrivals.off_s))
    lengths = np.empty(2 * pairs)
    lengths[0::2] = rng.exponential(arrivals.off_s, pairs)
    lengths[1::2] = rng.exponential(arrivals.on_s, pairs)
    return np.cumsum(lengths)


def _flash(arrivals: Arrivals, at_s: float) -> float:
    since, ends = at_s - arrivals.from_s, arrivals.from_s + arrivals.for_s - at_s
    if since < 0 or ends <= 0:
        return 1.0
    up = min(1.0, since / arrivals.ramp_s) if arrivals.ramp_s else 1.0
    return 1.0 + up * (arrivals.times - 1.0)


def _diurnal(arrivals: Arrivals, at_s: float) -> float:
    """1 at noon, `low` at midnight, where a day begins."""
    day = 0.5 - 0.5 * math.cos(2 * math.pi * at_s / arrivals.period_s)
    return arrivals.low + (1.0 - arrivals.low) * day


def _world_cup(day: float) -> float:
    """Times the mean, between the hours' values."""
    hours = np.array(_WORLD_CUP_HOURS)
    at = day % 1.0 * len(hours)
    value = np.interp(at, np.arange(len(hours) + 1), np.append(hours, hours[0]))
    return float(value / hours.mean())
