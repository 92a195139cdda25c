"""Errors of hashed counters and of sets compared, over log-spaced stream lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies.error_study import CONFIDENCES, ITEMS, SIGMAS, Study, stretches
from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.counters.join_size import self_join_size
from synopses.kernels.hashing import murmur_int64
from synopses.model.estimate import Estimates
from synopses.theta.set_operations import Compared
from synopses.theta.theta_sketch import GroupedTheta

Counters = TypeVar("Counters", GroupedCountMin, GroupedCountSketch)
_QUERIED = 100  # Keys whose counts are asked: the most frequent ones, and as many that never came.


def _queried_keys(
    seen: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], ...]:
    """The most frequent values and some that never came, with their counts."""
    first = np.argsort(-counts, kind="stable")[:_QUERIED]
    absent = -10 - np.arange(_QUERIED)
    return np.concatenate([seen[first], absent]), np.concatenate([counts[first], 0 * absent])


def count_min(stream: str, trials: int, most: int, lg_width: int = 8) -> Study:
    """Count-Min: errors of the size of a self join; intervals of it and of counts."""
    name = f"Count-Min, 2^{lg_width} cells a row"
    study = Study(name, stream, "relative error of the size of a self join")
    summaries = [GroupedCountMin(1, lg_width, seed) for seed in range(trials)]
    return _counted(study, np.random.default_rng(8), summaries, most, self_join_size)


def count_sketch(stream: str, trials: int, most: int, lg_width: int = 8) -> Study:
    """CountSketch: errors of the second moment; intervals of it and of counts."""
    name = f"CountSketch, 2^{lg_width} cells a row"
    study = Study(name, stream, "relative error of the second moment")
    summaries = [GroupedCountSketch(1, lg_width, seed) for seed in range(trials)]
    moment = GroupedCountSketch.second_moment
    return _counted(study, np.random.default_rng(9), summaries, most, moment)


def _counted(
    study: Study,
    rng: np.random.Generator,
    summaries: Sequence[Counters],
    most: int,
    squares: Callable[[Counters, float], Estimates],
) -> Study:
    """The study, of a summary for each trial: rows of one seed err alike.

    squares: the sum of squared counts, at a confidence.
    """
    trials = len(summaries)
    values = ITEMS[study.stream](rng, (trials, most)).astype(np.int64)
    for start, end in stretches(most):
        errors = np.zeros(trials)
        for trial, summary in enumerate(summaries):
            summary.update(None, murmur_int64(values[trial, start:end])[0])
            seen, counts = np.unique(values[trial, :end], return_counts=True)
            truth = float((counts.astype(np.float64) ** 2).sum())
            found = {c: squares(summary, c) for c in CONFIDENCES}
            study.ask(truth, found)
            errors[trial] = found[0.95].value[0] / truth - 1
            keys, known = _queried_keys(seen, counts)
            hashes = murmur_int64(keys)[0]
            study.ask(known, {c: summary.count(hashes, c) for c in CONFIDENCES})
        study.at(end, errors, summaries[0].profile, summaries[0].lg_width)
    return study


def compared(shared: float, trials: int, most: int, lg_k: int = 10) -> Study:
    """Two theta sketches of sets that share a part: errors of Jaccard, intervals of all four."""
    share = f"{shared:.0%} of either set in both"
    study = Study(f"sets compared, 2^{lg_k} hashes", share, "error of Jaccard's coefficient")
    sides = GroupedTheta(trials, lg_k), GroupedTheta(trials, lg_k)
    owners = np.arange(trials, dtype=np.int32)
    for start, end in stretches(most):
        places = np.arange(start, end)
        alone = np.floor((places + 1) * shared) == np.floor(places * shared)
        for side, summary in enumerate(sides):
            numbers = places + (alone & (side == 1)) * (1 << 30)
            keys = (owners.astype(np.int64)[:, None] << 32) + numbers
            summary.update(np.repeat(owners, end - start), murmur_int64(keys.ravel())[0])
        found = Compared.of(*sides)
        both = int(np.floor(end * shared))
        either = 2 * end - both
        for truth, ask in (
            (both, found.intersection),
            (end - both, found.difference),
            (either, found.union),
            (both / either, found.jaccard),
        ):
            answers: dict[float, Estimates] = {c: ask(c) for c in CONFIDENCES}
            study.ask(truth, answers)
        error = found.jaccard(0.95).value - both / either
        study.at(end, error, GroupedTheta.profile, lg_k)
        share_of = both / either
        drawn = np.maximum(found.found.mean(), 1.0)
        left = 1.0 - found.shares.mean()
        away = np.sqrt(share_of * (1 - share_of) * left / drawn)
        study.promised[-1] = tuple(s * float(away) for s in SIGMAS)
    return study
