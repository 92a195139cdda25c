"""A hundred queries over real and made-up columns, whose summaries share one budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spark_ingest.flights import load_flights
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.hashing import murmur_int64, position_keys
from synopses.model.profile import Profile, Statistics
from synopses.quantiles.kll import GroupedKll
from synopses.samples.bottom_k import BottomK

QUERIES = 100
ROWS = 300_000
CONFIDENCE = 0.95
NO_ANSWER = 1.0  # The error, of the value or the tuples, of a synopsis that has no bytes.
LARGEST_BYTES = 1 << 20

Integers = NDArray[np.int64]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class QuestionKind:
    """A question, its summary's profile, and the error of one built at a size over a column."""

    name: str
    profile: Profile
    error: Callable[[Integers, int, int], float]


def distinct_error(column: Integers, size: int, trial: int) -> float:
    """Of COUNT(DISTINCT x), as a share of the truth."""
    summary = GroupedDistinct(1, size)
    summary.update(None, *murmur_int64(column ^ (trial << 40)))
    return abs(summary.distinct(CONFIDENCE).value[0] / len(np.unique(column)) - 1)


def rank_error(column: Integers, size: int, trial: int) -> float:
    """Of MEDIAN(x), as a share of rank."""
    summary = GroupedKll(1, size)
    summary.update(None, np.random.default_rng(trial).permutation(column).astype(np.float64))
    found = summary.quantile(0.5, CONFIDENCE).value[0]
    below, to = (column < found).mean(), (column <= found).mean()
    return float(max(below - 0.5, 0.5 - to, 0.0))


def top_error(column: Integers, size: int, trial: int) -> float:
    """Of the most frequent value's count in TOP(x, k), as a share of all tuples."""
    shuffled = np.random.default_rng(trial).permutation(column)
    summary = GroupedFrequent(1, size)
    summary.update(None, murmur_int64(shuffled)[0], shuffled)
    items = {item.value: item.low for item in summary.top(20)[0]}
    values, counts = np.unique(column, return_counts=True)
    missed = [counts[i] - items.get(int(values[i]), 0) for i in np.argsort(-counts)[:20]]
    return float(max(missed) / len(column))


def share_error(column: Integers, size: int, trial: int) -> float:
    """Of the share of tuples behind a filter, from a sample."""
    sample = BottomK(size)
    keys = position_keys(trial, 0, len(column))
    sample.update(keys)
    sample.settle()
    kept = keys < np.uint64(sample.threshold)
    low = np.median(column)
    return abs(float((column[kept] <= low).mean() - (column <= low).mean()))


KINDS = (
    QuestionKind("COUNT(DISTINCT x)", GroupedDistinct.profile, distinct_error),
    QuestionKind("MEDIAN(x) by rank", GroupedKll.profile, rank_error),
    QuestionKind("TOP(x, 20)", GroupedFrequent.profile, top_error),
    QuestionKind("AVG(x <= c), sampled", BottomK.profile, share_error),
)


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadQuery:
    """A question of a column, its target as an error, and what meeting it is worth."""

    kind: QuestionKind
    column: Integers
    target: float
    weight: float

    @property
    def known(self) -> Statistics:
        """What the profiles are told of the column."""
        return Statistics(tuples=len(self.column))

    def sizes(self) -> tuple[Sequence[int], Integers, Doubles]:
        """The parameters that its summary may have, their bytes, and their predicted errors."""
        profile = self.kind.profile
        sizes = np.array(profile.sizes)
        if len(sizes) > 24:  # k of KLL: any whole number
            sizes = np.unique(np.geomspace(sizes[0], sizes[-1], 24).astype(int))
        held = np.array([profile.bytes_of(int(size), self.known) for size in sizes])
        sizes, held = sizes[held <= LARGEST_BYTES], held[held <= LARGEST_BYTES]
        errors = [profile.error_of(int(size), self.known, CONFIDENCE) for size in sizes]
        return sizes.tolist(), held, np.minimum(errors, NO_ANSWER)


def flights() -> list[Integers]:
    """Whole-number columns of real flights."""
    found = load_flights()
    texts = [found[name].combine_chunks().dictionary_encode() for name in ("tailnum", "dest")]
    columns: list[Any] = [text.indices.fill_null(-1) for text in texts]
    numbers = [found[name].combine_chunks() for name in ("flight", "arr_delay", "air_time")]
    columns += [number.fill_null(0) for number in numbers]
    return [np.asarray(column).astype(np.int64) for column in columns]


def zipf() -> list[Integers]:
    """Zipf streams of several skews."""
    rng = np.random.default_rng(5)
    return [rng.zipf(skew, ROWS).clip(max=10**9) for skew in (1.05, 1.2, 1.5, 2.0)]


def workload(columns: Sequence[Integers], seed: int) -> list[WorkloadQuery]:
    """A hundred queries of mixed kinds, targets from 0.3 % to 5 %, weights that differ by ten."""
    rng = np.random.default_rng(seed)
    return [
        WorkloadQuery(
            KINDS[int(rng.integers(len(KINDS)))],
            columns[int(rng.integers(len(columns)))],
            target=float(np.exp(rng.uniform(np.log(0.003), np.log(0.05)))),
            weight=float(np.exp(rng.uniform(0, np.log(10)))),
        )
        for _ in range(QUERIES)
    ]
