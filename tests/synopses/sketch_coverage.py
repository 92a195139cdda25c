"""Coverage of the sketches, which skip nothing: distinct counts, quantiles, frequent items.

Their error depends on their size and on the data alone, so their cells are fewer: a sketch, what
is put in, a confidence. All trials of a cell are groups of one grouped summary.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.hashing import murmur_float64, murmur_int64
from synopses.model.estimate import Bound, Estimates
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq
from tests.truth import DISTRIBUTIONS, exact_counts, exact_quantile

DISTINCT = (1, 10, 100, 1000, 3000, 10_000, 30_000)
ROWS = 20_000
CONFIDENCES = (0.68, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class SketchCell:
    """A sketch, what is put into it, and the confidence that is asked for."""

    sketch: str
    data: str
    confidence: float

    def __str__(self) -> str:
        return f"{self.sketch}, {self.data}, {self.confidence:.0%}"


@dataclass(frozen=True, slots=True)
class SketchOutcome:
    """hits of trials held the truth; certain: all had to. half_width: mean, relative to truth."""

    cell: SketchCell
    trials: int
    hits: int
    certain: bool
    half_width: float


def _rng(cell: SketchCell) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(str(cell).encode()))


def _held(found: Estimates, truth: NDArray[np.float64]) -> NDArray[np.bool_]:
    exact = found.bound == Bound.EXACT
    assert (found.value[exact] == truth[exact]).all(), "called exact, and is not"
    return (found.low <= truth) & (truth <= found.high)


def _outcome(cell: SketchCell, found: Estimates, truth: NDArray[np.float64]) -> SketchOutcome:
    widths = (found.high - found.low) / 2 / np.maximum(np.abs(truth), 1e-300)
    held = _held(found, truth)
    certain = found.confidence == 1.0
    return SketchOutcome(cell, len(truth), int(held.sum()), certain, float(np.mean(widths)))


def distinct(cell: SketchCell, trials: int, *, lg_k: int) -> SketchOutcome:
    """Random whole numbers, each put in three times: a count of rows must not help."""
    count = int(cell.data.split()[0].replace(",", ""))
    rng = _rng(cell)
    sketch = GroupedDistinct(trials, lg_k)
    truth = np.empty(trials)
    for trial in range(trials):
        values = rng.integers(-(2**63), 2**63 - 1, count).repeat(3)
        truth[trial] = count
        sketch.update(np.full(len(values), trial, np.int32), *murmur_int64(values))
    return _outcome(cell, sketch.distinct(cell.confidence), truth)


def log_buckets(cell: SketchCell, trials: int, *, share: float) -> SketchOutcome:
    """Certain bounds: one miss is too many."""
    rng = _rng(cell)
    sketch = GroupedLogBuckets(trials)
    truth = np.empty(trials)
    for trial in range(trials):
        values = DISTRIBUTIONS[cell.data](rng, ROWS)
        truth[trial] = exact_quantile(values, share)
        sketch.update(np.full(ROWS, trial, np.int32), values)
    return _outcome(cell, sketch.quantile(share), truth)


def kll(cell: SketchCell, trials: int, *, share: float) -> SketchOutcome:
    """The same values each time: the sketch draws its own random bits."""
    values = DISTRIBUTIONS[cell.data](_rng(cell), ROWS)
    sketch = GroupedKll(trials)
    for trial in range(trials):
        sketch.update(np.full(ROWS, trial, np.int32), values)
    truth = np.full(trials, exact_quantile(values, share))
    return _outcome(cell, sketch.quantile(share, cell.confidence), truth)


def req(cell: SketchCell, trials: int, *, share: float) -> SketchOutcome:
    """As KLL."""
    values = DISTRIBUTIONS[cell.data](_rng(cell), ROWS)
    sketch = GroupedReq(trials, 12, high=share >= 0.5)
    for trial in range(trials):
        sketch.update(np.full(ROWS, trial, np.int32), values)
    truth = np.full(trials, exact_quantile(values, share))
    return _outcome(cell, sketch.quantile(share, cell.confidence), truth)


def frequent(cell: SketchCell, trials: int) -> SketchOutcome:
    """Certain bounds on every item of the list; a trial holds when all of its items do."""
    rng = _rng(cell)
    sketch = GroupedFrequent(trials, 64)
    counts = []
    for trial in range(trials):
        values = np.floor(np.abs(DISTRIBUTIONS[cell.data](rng, ROWS)) * 8).astype(np.int64)
        counts.append(exact_counts(values))
        keys = murmur_float64(values.astype(np.float64))[0]
        sketch.update(np.full(ROWS, trial, np.int32), keys, values)
    hits, widths = 0, []
    for items, truth in zip(sketch.top(10), counts, strict=True):
        listed = {item.value for item in items}
        most = max((n for value, n in truth.items() if value not in listed), default=0)
        hits += all(
            item.low <= truth[item.value] <= item.high and (not item.guaranteed or most <= item.low)
            for item in items
        )
        widths += [(item.high - item.low) / 2 / truth[item.value] for item in items]
    return SketchOutcome(cell, trials, hits, True, float(np.mean(widths)) if widths else math.nan)


SKETCHES: Mapping[str, Callable[[SketchCell, int], SketchOutcome]] = {
    "HLL 2^9": lambda cell, trials: distinct(cell, trials, lg_k=9),
    "HLL 2^12": lambda cell, trials: distinct(cell, trials, lg_k=12),
    "log buckets, median": lambda cell, trials: log_buckets(cell, trials, share=0.5),
    "log buckets, p99": lambda cell, trials: log_buckets(cell, trials, share=0.99),
    "KLL 200, median": lambda cell, trials: kll(cell, trials, share=0.5),
    "KLL 200, p99": lambda cell, trials: kll(cell, trials, share=0.99),
    "REQ 12, p99": lambda cell, trials: req(cell, trials, share=0.99),
    "REQ 12, p1": lambda cell, trials: req(cell, trials, share=0.01),
    "frequent items 64": frequent,
}


def sketch_cells() -> list[SketchCell]:
    """All cells; certain bounds have no confidence to vary."""
    counts = [f"{count:,} values" for count in DISTINCT]
    found = []
    for sketch in SKETCHES:
        data = counts if sketch.startswith("HLL") else list(DISTRIBUTIONS)
        certain = not sketch.startswith(("HLL", "KLL", "REQ"))
        found += [
            SketchCell(sketch, *rest) for rest in product(data, (0.95,) if certain else CONFIDENCES)
        ]
    return found


def measure_sketch(cell: SketchCell, *, trials: int) -> SketchOutcome:
    """Run a cell."""
    return SKETCHES[cell.sketch](cell, trials)
