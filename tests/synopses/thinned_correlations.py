"""CORR of thinned panes beside the least width that can be proven: a table for docs/coverage.md.

The pairs that are read in full are known for certain. A hidden pair may be at any place between the
ends of both columns, of their sum and of their difference. Of mixed levels the bound takes the half
that is read at 1/2 for known: what holds there holds for less knowledge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.normal import rho_max
from synopses.strata.pair_stratum import PairSquares, PairStratum
from synopses.strata.stratified_pairs import certified_correlation
from tests.synopses.kept_rows import KeptRows
from tests.synopses.least_correlation import Pairs, least_half

Values = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Values]

DELTA: Final = 0.05
LEVELS: Final[Mapping[str, tuple[int, ...]]] = {"thinned": (8,), "mixed": (8, 2)}
"""Of equal parts of the group's pairs, one in so many is read."""
_STREAM, _GROUP = 40_000, 800
_KEPT: Final = 250  # Pairs of the stream beyond each end: a twentieth of what 1/8 keeps.
_GRID: Final = 81
_NORMAL: Final = 1.96


class Widths(NamedTuple):
    """Half widths of r's interval: ours, by the medians of both ends, the bound and the ideal.

    certified: the share of samples in which rho is small enough as it is. held: of the intervals.
    """

    certified: float
    ideal: float
    least: float
    ours: float
    held: float


class _World(NamedTuple):
    """A group's pairs on the axes, which are read in full, and the ranges of all others."""

    u: Values
    v: Values
    certain: NDArray[np.bool_]
    ends: list[tuple[float, float]]


def correlations(draw: Draw, levels: tuple[int, ...], trials: int) -> Widths:
    """Measure r of a column and another with half of its variance."""
    rng = np.random.default_rng(_GROUP)
    world = _world(draw, rng)
    u, v, certain, _ = world
    a, b = ((each - each.mean()) / each.std() for each in (u, v))
    r = float((a * b).mean())
    influence = a * b - r / 2 * (a * a + b * b)
    parts = np.array_split(np.arange(_GROUP), len(levels))
    unread = sum(
        (level - 1) * (influence[part] ** 2).sum()
        for part, level in zip(parts, levels, strict=True)
    )
    strata = [_read(world, np.flatnonzero(certain), 1, trials, rng)]
    strata += [
        _read(world, part[~certain[part]], level, trials, rng)
        for part, level in zip(parts, levels, strict=True)
    ]
    found = certified_correlation(strata, confidence=1 - DELTA)
    places = _places(world)
    reach = np.abs(places[0] * places[1] - r / 2 * (places[0] ** 2 + places[1] ** 2)).max()
    rho = max(levels) * reach / (_GROUP * found.error)
    known = certain.copy()
    for part in parts[1:]:
        known[part] = True
    others = int(np.count_nonzero(~known))
    pairs = Pairs.of(u, v, (world.ends[0], world.ends[1]), known)._replace(places=places)
    least = least_half(pairs, others, others // levels[0], DELTA)
    low, high = np.nan_to_num(found.low, nan=-1.0), np.nan_to_num(found.high, nan=1.0)
    return Widths(
        float((rho <= rho_max(1 - DELTA)).mean()),
        _NORMAL * float(np.sqrt(unread)) / _GROUP,
        least,
        float(np.median(high) - np.median(low)) / 2,
        float(((low - 1e-9 <= r) & (r <= high + 1e-9)).mean()),
    )


def _world(draw: Draw, rng: np.random.Generator) -> _World:
    x = draw(rng, _STREAM)
    y = x / x.std() + rng.permutation(x) / x.std()
    u, v = ((each - each.mean()) / each.std() for each in (x, y))
    extreme = np.zeros(_STREAM, np.bool_)
    for each in (u, v, u + v, u - v):
        low, high = np.sort(each)[[_KEPT, -_KEPT - 1]]
        if max(-each.min(), each.max()) > 2.0 * each.std():  # Flat columns have no such rows.
            extreme |= (each < low) | (each > high)
    ends = [(float(e[~extreme].min()), float(e[~extreme].max())) for e in (u, v, u + v, u - v)]
    return _World(u[:_GROUP], v[:_GROUP], extreme[:_GROUP], ends)


def _places(world: _World) -> Values:
    """Places where a hidden pair may be, standardised: [2, places]."""
    grid = [np.linspace(*ends, _GRID) for ends in world.ends[:2]]
    u, v = (each.ravel() for each in np.meshgrid(*grid))
    inside = np.ones(len(u), np.bool_)
    for both, (low, high) in zip((u + v, u - v), world.ends[2:], strict=True):
        inside &= (both >= low) & (both <= high)
    columns = ((u, world.u), (v, world.v))
    return np.array([(place[inside] - each.mean()) / each.std() for place, each in columns])


def _read(
    world: _World, rows: NDArray[np.int64], level: int, trials: int, rng: np.random.Generator
) -> PairStratum:
    """Samples of some rows, one in each group; level 1: all of them, in each."""
    read = len(rows) // level
    chosen = np.array([rng.choice(rows, read, replace=False) for _ in range(trials)])
    u, v = world.u[chosen], world.v[chosen]
    columns = u, v, (u + v) ** 2, (u - v) ** 2
    means = [each.mean(axis=1) if read else np.zeros(trials) for each in columns]
    away = [each - mean[:, None] for each, mean in zip(columns, means, strict=True)]
    first, second, both, apart = ((each**2).sum(axis=1) for each in away)
    x, y, total, difference = world.ends
    return PairStratum(
        len(rows),
        read,
        np.full(trials, read),
        (means[0], means[1]),
        (first, second),
        (away[0] * away[1]).sum(axis=1),
        x,
        y,
        True,
        (total, difference),
        PairSquares((means[2], means[3]), (both, apart), (away[2] * away[3]).sum(axis=1)),
    )


def _row(draw: Draw, trials: int) -> list[float]:
    """Of each level: the certified share, ideal, least and ours."""
    found = [correlations(draw, levels, trials) for levels in LEVELS.values()]
    return [width for one in found for width in (one.certified, one.ideal, one.least, one.ours)]


def section(columns: Mapping[str, Draw], kept: KeptRows, trials: int = 40) -> str:
    """The table with its preface."""
    heads = [f"{name}: certified | ideal | least | ours" for name in LEVELS]
    lines = ["", *_PREFACE.split("\n"), ""]
    lines += ["| CORR, thinned | " + " | ".join(heads) + " |", "|---" * 9 + "|"]
    for name, draw in columns.items():
        row = kept.row("thinned correlations", name, partial(_row, draw, trials))
        digits = [2, 3, 3, 3] * len(LEVELS)
        cells = [f"{each:.{many}f}" for each, many in zip(row, digits, strict=True)]
        lines.append("| " + " | ".join((name, *cells)) + " |")
    return "\n".join(lines) + "\n"


_PREFACE: Final = """\
`CORR` of thinned panes, by `tests/synopses/thinned_correlations.py`: a group of 800 pairs of a
stream of 40,000, *thinned* to 1/8, or *mixed*, one half at 1/8 and the other at 1/2.

- 250 pairs of the stream are beyond each end of x, of y, of their sum and of their difference. They
  are read in full.
- *certified*: the share of samples in which the influence function is certified with its own
  error. In all others each end takes a larger error, with which it is certified.
- *ideal*: of a sample at these shares, without pairs that are read in full: a width may be below.
- *least*: as above. The range is that of both columns, their sum and their difference. Of *mixed*
  it takes the half that is read at 1/2 for known: less knowledge has no narrower interval.
- Ours is 1.7 to 1.9 times *least* where it is certified, and 2.2 times in the median over columns.
  At the ends of what the means may be, how W = a b - r/2 (a^2 + b^2) varies with a and b is not
  known, for panes keep no third moments: the error there is the sum of both. Nearer ends are
  neither known nor proven impossible."""
