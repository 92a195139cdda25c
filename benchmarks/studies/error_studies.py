"""Errors of summaries over log-spaced stream lengths: many trials at once, one trial a group."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.studies.counter_studies import compared, count_min, count_sketch
from benchmarks.studies.error_study import (
    CONFIDENCES,
    ITEMS,
    RANKS,
    SIGMAS,
    STREAMS,
    Doubles,
    Study,
    merged,
    stretches,
    window,
)
from benchmarks.studies.sample_studies import by_hash, by_weight, stratified, uniform
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.intervals.interval import Intervals
from synopses.kernels.hashing import murmur_int64
from synopses.model.ranks import discrete_rank
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq
from synopses.theta.theta_sketch import GroupedTheta

# --- distinct counts -------------------------------------------------------------------------


def _distinct_answers(summary: GroupedDistinct) -> Callable[[float], Any]:
    """Answers as if each value had come twice, so that the number of tuples tells nothing."""
    return summary.select(np.arange(summary.groups)).merge(summary).distinct


def hll(trials: int, most: int, lg_k: int = 12) -> Study:
    """HLL of unique values."""
    study = Study(f"HLL, 2^{lg_k} registers", "unique values", "relative error of the count")
    summary = GroupedDistinct(trials, lg_k)
    owners = np.arange(trials, dtype=np.int32)
    for start, end in stretches(most):
        keys = (owners.astype(np.int64)[:, None] << 32) + np.arange(start, end)
        summary.update(np.repeat(owners, end - start), *murmur_int64(keys.ravel()))
        answer = _distinct_answers(summary)
        study.at(end, answer(0.95).value / end - 1, GroupedDistinct.profile, lg_k)
        study.ask(end, {c: answer(c) for c in CONFIDENCES})
    return study


def theta(trials: int, most: int, level: int = 0, lg_k: int = 10) -> Study:
    """Theta of unique values, thinned by hash to 2^-level of them."""
    stream = f"unique values, thinned to 1/{2**level}" if level else "unique values"
    study = Study(f"theta, 2^{lg_k} hashes", stream, "relative error of the count")
    summary = GroupedTheta(trials, lg_k)
    summary.thin(level)
    owners = np.arange(trials, dtype=np.int32)
    for start, end in stretches(most):
        keys = (owners.astype(np.int64)[:, None] << 32) + np.arange(start, end)
        summary.update(np.repeat(owners, end - start), murmur_int64(keys.ravel())[0])
        value = summary.held / summary.shares
        held = min(1 << lg_k, end / 2**level)
        study.at(end, value / end - 1, GroupedTheta.profile, lg_k)
        if level:
            study.promised[-1] = tuple(s * float(np.sqrt((1 - 2.0**-level) / held)) for s in SIGMAS)
        study.ask(end, {c: summary.distinct(c) for c in CONFIDENCES})
    return study


# --- quantiles -------------------------------------------------------------------------------


def _at(ordered: Doubles, q: float) -> Doubles:
    """Each trial's discrete quantile."""
    quantile: Doubles = ordered[:, int(discrete_rank(q, np.array([ordered.shape[1]]))[0]) - 1]
    return quantile


def _ranks_off(ordered: Doubles, answers: Doubles, q: float) -> Doubles:
    """Signed distance of q from the ranks that an answer has, as a share of the tuples."""
    below = (ordered < answers[:, None]).mean(axis=1)
    within = (ordered <= answers[:, None]).mean(axis=1)
    return np.maximum(0.0, below - q) - np.maximum(0.0, q - within)


def kll(stream: str, trials: int, most: int, panes: int = 1, k: int = 200) -> Study:
    """KLL: error of the median's rank; coverage over several ranks. Panes take turns."""
    study = Study(f"KLL, k = {k}", stream + window(panes), "rank error of the median")
    values = STREAMS[stream](np.random.default_rng(1), (trials, most))
    parts = [GroupedKll(trials, k) for _ in range(panes)]
    owners = np.arange(trials, dtype=np.int32)
    for start, end in stretches(most):
        for pane, part in enumerate(parts):
            given = values[:, start:end][:, pane::panes]
            part.update(np.repeat(owners, given.shape[1]), given.ravel())
        summary = merged(parts, lambda: GroupedKll(trials, k))
        ordered = np.sort(values[:, :end], axis=1)
        median = summary.quantile(0.5, 0.95).value
        study.at(end, _ranks_off(ordered, median, 0.5), GroupedKll.profile, k)
        for q in RANKS:
            truth = _at(ordered, q)
            study.ask(truth, {c: summary.quantile(q, c) for c in CONFIDENCES})
    return study


def req(stream: str, trials: int, most: int, panes: int = 1, k: int = 24) -> Study:
    """REQ: error of the 90th percentile's rank; coverage over several ranks. Panes take turns."""
    unit = "rank error of p90, as a share of what is above it"
    study = Study(f"REQ, k = {k}", stream + window(panes), unit)
    values = STREAMS[stream](np.random.default_rng(6), (trials, most))
    parts = [GroupedReq(trials, k) for _ in range(panes)]
    owners = np.arange(trials, dtype=np.int32)
    for start, end in stretches(most):
        for pane, part in enumerate(parts):
            given = values[:, start:end][:, pane::panes]
            part.update(np.repeat(owners, given.shape[1]), given.ravel())
        summary = merged(parts, lambda: GroupedReq(trials, k))
        ordered = np.sort(values[:, :end], axis=1)
        tail = summary.quantile(0.9, 0.95).value
        study.at(end, _ranks_off(ordered, tail, 0.9) / 0.1, GroupedReq.profile, k)
        for q in RANKS:
            truth = _at(ordered, q)
            study.ask(truth, {c: summary.quantile(q, c) for c in CONFIDENCES})
    return study


def log_buckets(stream: str, trials: int, most: int) -> Study:
    """Log buckets: error of the 99th percentile in its value."""
    study = Study("log buckets", stream, "relative error of p99", certain=True)
    values = STREAMS[stream](np.random.default_rng(2), (trials, most))
    summary = GroupedLogBuckets(trials)
    owners = np.arange(trials, dtype=np.int32)
    for start, end in stretches(most):
        summary.update(np.repeat(owners, end - start), values[:, start:end].ravel())
        ordered = np.sort(values[:, :end], axis=1)
        for q in RANKS:
            truth = _at(ordered, q)
            study.ask(truth, dict.fromkeys(CONFIDENCES, summary.quantile(q)))
        p99 = _at(ordered, 0.99)
        errors = summary.quantile(0.99).value / p99 - 1
        study.at(end, errors, GroupedLogBuckets.profile, GroupedLogBuckets.profile.default)
    return study


# --- frequent items --------------------------------------------------------------------------


def frequent(stream: str, trials: int, most: int, panes: int = 1, entries: int = 256) -> Study:
    """Frequent items: the largest error of any count, that of values without counter included."""
    name = f"frequent items, {entries} entries"
    study = Study(name, stream + window(panes), "largest error / tuples", True)
    values = ITEMS[stream](np.random.default_rng(3), (trials, most)).astype(np.int64)
    parts = [GroupedFrequent(trials, entries) for _ in range(panes)]
    owners = np.arange(trials, dtype=np.int32)
    for start, end in stretches(most):
        for pane, part in enumerate(parts):
            given = values[:, start:end][:, pane::panes]
            ids, keys = np.repeat(owners, given.shape[1]), murmur_int64(given.ravel())[0]
            part.update(ids, keys, given.ravel())
        summary = merged(parts, lambda: GroupedFrequent(trials, entries))
        worst = np.zeros(trials)
        for trial, items in enumerate(summary.top(entries)):
            seen, counts = np.unique(values[trial, :end], return_counts=True)
            at = np.searchsorted(seen, [item.value for item in items])
            low, high = np.array([(item.low, item.high) for item in items]).T
            certain = Intervals.of(low, low, high, exact=low == high)
            study.ask(counts[at], dict.fromkeys(CONFIDENCES, certain))
            found = np.zeros(len(seen))
            found[at] = low
            worst[trial] = (found - counts).min()
        study.at(end, worst / end, GroupedFrequent.profile, entries)
    return study


def all_studies(scale: int) -> list[Callable[[], Study]]:
    """Everything that the page shows; scale divides trials and lengths (1: the committed run)."""
    many, some, few = 2048 // scale, 512 // scale, 128 // scale
    long, middle = (1 << 16) // scale, (1 << 15) // scale
    return [
        partial(hll, many, long),
        *(partial(theta, some, long, level) for level in (0, 3)),
        *(partial(kll, stream, few, middle) for stream in STREAMS),
        partial(kll, "normal", few, middle, panes=16),
        *(partial(req, stream, few, middle) for stream in STREAMS),
        partial(req, "normal", few, middle, panes=16),
        *(
            partial(log_buckets, stream, few, middle)
            for stream in ("uniform", "normal", "zipf 1.3", "lognormal, sigma 2", "constant")
        ),
        *(
            partial(frequent, stream, few // 4, middle)
            for stream in ("unique", "zipf 1.1", "zipf 1.5", "in runs", "heavy comes last")
        ),
        partial(frequent, "zipf 1.1", few // 4, middle, panes=16),
        *(partial(count_min, stream, few // 4, middle) for stream in ITEMS),
        *(partial(count_sketch, stream, few // 4, middle) for stream in ITEMS),
        *(partial(compared, shared, some, middle) for shared in (0.5, 0.05, 1.0)),
        *(partial(uniform, level, some, long) for level in (0, 3, 6)),
        partial(by_hash, some, long),
        *(
            partial(by_weight, stream, few, middle)
            for stream in ("uniform", "zipf 1.3", "lognormal, sigma 2", "constant")
        ),
        *(
            partial(stratified, stream, few, middle)
            for stream in ("uniform", "zipf 1.3", "lognormal, sigma 2", "constant")
        ),
    ]
