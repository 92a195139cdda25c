"""The least half width that an interval for r can have, by tests of other populations.

The other populations have r = c. A share e of their tuples is at one place of the known range,
where this population has none. Each other tuple is 1/(1 - l W) times as likely as here, where W is
the influence of r at c. Of all changes of that mean this one is the least likely to be noticed
(Honda and Takemura 2010, COLT; the dual of the best bet). An end may miss in a part `tail` of all
samples of each. So a sample must be refused by the most powerful test, or the end is beyond c
(Pratt 1961). Where that test, by Neyman and Pearson, refuses half of this population's samples at
most, the end is beyond c in half of them. The farthest such c is the least median distance.

Samples are taken as drawn with replacement. Without it, distances are sqrt(1 - n/N) of these: so
are errors of the sample, and what a sample misses with a given probability, to 1 % for n <= N/8.
Nothing here calls the intervals.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Box = tuple[tuple[float, float], tuple[float, float]]

SHARES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)  # Of delta, for the lower end: the best of these counts.
_ROWS: Final = 4_000  # Of a larger population so many are taken, in the order of their influence.
_HIDDEN: Final = (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.88, 0.94, 1.0)  # Of the largest share e.
_GRID: Final = 4_096  # Cells of the distribution of a log likelihood.
_DEVIATIONS: Final = 8.0  # That the grid reaches on either side.


class Ends(NamedTuple):
    """Least median distances of both ends from r."""

    below: float
    above: float


class Pairs(NamedTuple):
    """A population.

    x, y: standardised pairs that are sampled. box: the known range of these.
    certain: sums of 1, x, y, x^2, y^2 and x y over pairs that are known, per sampled one.
    places: float64 [2, places], where a hidden pair may be; None: anywhere in the box.
    """

    x: Values
    y: Values
    box: Box
    certain: Values
    places: Values | None = None

    @classmethod
    def of(cls, x: Values, y: Values, ends: Box, certain: NDArray[np.bool_]) -> Pairs:
        """Of columns, the ranges of those that are not certain, and which are."""
        scaled, box = [], []
        for column, (low, high) in zip((x, y), ends, strict=True):
            middle, spread = column.mean(), column.std()
            scaled.append((column - middle) / spread)
            box.append(((low - middle) / spread, (high - middle) / spread))
        a, b = scaled
        known = _features(a[certain], b[certain]).sum(axis=1) / np.count_nonzero(~certain)
        r, a, b = float((a * b).mean()), a[~certain], b[~certain]
        if len(a) > _ROWS:
            order = np.argsort(a * b - r / 2 * (a**2 + b**2))
            chosen = order[np.linspace(0, len(a) - 1, _ROWS).astype(np.int64)]
            a, b = a[chosen], b[chosen]
        return cls(a, b, (box[0], box[1]), known)

    def mirrored(self) -> Pairs:
        """The pairs of x and -y."""
        (x, (low, high)), signs = self.box, np.array([1.0, 1.0, -1.0, 1.0, 1.0, -1.0])
        places = None if self.places is None else self.places * np.array([[1.0], [-1.0]])
        return Pairs(self.x, -self.y, (x, (-high, -low)), self.certain * signs, places)


def least_half(pairs: Pairs, size: int, read: int, delta: float) -> float:
    """Return half the sum of both ends' least median distances, delta split as is best."""
    root, sums = np.sqrt(1 - read / size), []
    for share in SHARES:
        below = _End(pairs.mirrored(), read, share * delta).distance()
        above = _End(pairs, read, (1 - share) * delta).distance()
        sums.append(root * (below + above) / 2)
    return float(min(sums))


class _End:
    """The upper end of an interval for r that misses with probability `tail`."""

    def __init__(self, pairs: Pairs, read: int, tail: float) -> None:
        self._pairs, self._read, self._tail = pairs, read, tail
        self._features = _features(pairs.x, pairs.y)
        self._even = np.full(len(pairs.x), 1 / len(pairs.x))
        self._r = self._correlation(self._even, 0.0, self._features[:, 0])
        # With this share at one place, a sample has none of it with probability 2 tail.
        self._hidden_max = 1 - (2 * tail) ** (1 / read)

    def distance(self) -> float:
        """Return the largest distance c - r of which half of all samples allow c."""
        x, y = self._pairs.x, self._pairs.y
        influence = x * y - self._r / 2 * (x**2 + y**2)
        near, step = self._r, float(influence.std()) / np.sqrt(self._read) + 1e-6
        while near + step < 1 and self._allows(near + step):
            near, step = near + step, 1.6 * step
        far = min(near + step, 1.0)
        for _ in range(7):
            middle = (near + far) / 2
            near, far = (middle, far) if self._allows(middle) else (near, middle)
        return near - self._r

    def _allows(self, c: float) -> bool:
        x, y = self._pairs.x, self._pairs.y
        gain = x * y - c / 2 * (x**2 + y**2)
        gain = gain - gain.mean() - (c - self._r)
        place = self._place(c)
        return any(self._is_missed(c, part * self._hidden_max, place, gain) for part in _HIDDEN)

    def _place(self, c: float) -> Values:
        """The features of the place in the range at which hidden pairs raise r the most."""
        if self._pairs.places is not None:
            a, b = self._pairs.places
            best = int(np.argmax(a * b - c / 2 * (a**2 + b**2)))
            return _features(a[best : best + 1], b[best : best + 1])[:, 0]
        first, second = self._pairs.box
        found = [(a, b) for a in first for b in second]
        if c != 0.0:
            found += [(a, float(np.clip(a / c, *second))) for a in first]
            found += [(float(np.clip(b / c, *first)), b) for b in second]
        places = [_features(np.array([a]), np.array([b]))[:, 0] for a, b in found]
        return max(places, key=lambda at: self._correlation(self._even, self._hidden_max, at))

    def _is_missed(self, c: float, hidden: float, place: Values, gain: Values) -> bool:
        """Whether half of all samples allow a population with r = c and this share hidden."""
        unseen = (1 - hidden) ** self._read
        if self._correlation(self._even, hidden, place) >= c:
            return unseen >= 2 * self._tail
        most = float(gain.max())
        if most <= 0.0:
            return False
        near, far = 0.0, 0.9999 / most
        if self._correlation(_weights(far, gain), hidden, place) < c:
            return False
        for _ in range(18):
            middle = (near + far) / 2
            is_less = self._correlation(_weights(middle, gain), hidden, place) < c
            near, far = (middle, far) if is_less else (near, middle)
        return _allowed(_weights(far, gain), self._read, self._tail / unseen) >= 0.5

    def _correlation(self, weights: Values, hidden: float, place: Values) -> float:
        sums = (1 - hidden) * (self._features @ weights) + hidden * place + self._pairs.certain
        x, y, xx, yy, xy = sums[1:] / sums[0]
        return float((xy - x * y) / np.sqrt(max((xx - x * x) * (yy - y * y), 1e-300)))


def _features(x: Values, y: Values) -> Values:
    return np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y])


def _weights(slope: float, gain: Values) -> Values:
    weights = 1 / (1 - slope * gain)
    return np.asarray(weights / weights.sum())


def _allowed(weights: Values, read: int, tail: float) -> float:
    """The share of samples from equal weights that the best test of `weights` at `tail` allows."""
    if tail >= 1.0:
        return 0.0
    logs = np.log(weights * len(weights))
    even = np.full(len(logs), 1 / len(logs))
    means = [float(each @ logs) for each in (even, weights)]
    squares = [
        float(each @ (logs - mean) ** 2) for each, mean in zip((even, weights), means, strict=True)
    ]
    reach = _DEVIATIONS * np.sqrt(read * max(squares))
    if reach < 1e-9:
        return 1 - tail
    least = read * min(means) - reach
    span = max(read * max(means) + reach - least, 1.01 * float(np.ptp(logs)))
    here, there = (_of_sums(logs, each, read, least, span) for each in (even, weights))
    return 1 - float(np.interp(tail, np.cumsum(there), np.cumsum(here)))


def _of_sums(logs: Values, chances: Values, read: int, least: float, span: float) -> Values:
    """Chances of the sums of `read` draws, in cells from `least` on; farther ones are wrapped."""
    cell = span / _GRID
    place = logs / cell
    below = np.floor(place)
    part = place - below
    at = below.astype(np.int64)
    one = np.bincount(at % _GRID, chances * (1 - part), _GRID)
    one += np.bincount((at + 1) % _GRID, chances * part, _GRID)
    found = np.maximum(np.fft.irfft(np.fft.rfft(one) ** read, _GRID), 0.0)
    return np.asarray(np.roll(found / found.sum(), -(int(np.floor(least / cell)) % _GRID)))
