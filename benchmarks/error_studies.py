"""Errors of summaries over log-spaced stream lengths: many trials at once, one trial a group.

In the manner of datasketches-characterization: a study feeds growing streams to a summary and asks
at every length, so that one pass serves all. What is kept: the error of every trial at every
length, and how often the intervals of 68, 95 and 99 % held the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synopses.bottom_k import BottomK, HashSample, WeightedBottomK
from synopses.distinct import GroupedDistinct
from synopses.estimate import Bound, Estimates
from synopses.frequent import GroupedFrequent
from synopses.hashing import combine, murmur_int64, position_keys, uniforms
from synopses.intervals.distinct import distinct_by_hash
from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.interval import Intervals
from synopses.intervals.weighted import WeightedMatches, weighted_sum
from synopses.kll import GroupedKll
from synopses.log_buckets import GroupedLogBuckets
from synopses.profile import Profile, Statistics
from synopses.ranks import discrete_rank
from synopses.req import GroupedReq
from synopses.theta import GroupedTheta

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
    held, asked: per confidence, intervals that held the truth, and all of them; answers that are
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
    asked: dict[float, int] = field(default_factory=lambda: dict.fromkeys(CONFIDENCES, 0))

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
            self.asked[confidence] += int(np.sum(~exact))
            self.held[confidence] += int(np.sum(holds & ~exact))

    def coverage(self, confidence: float) -> float | None:
        """The share of the intervals that held the truth; None when all answers were exact."""
        asked = self.asked[confidence]
        return self.held[confidence] / asked if asked else None


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


def merged(panes: Sequence[Any], empty: Callable[[], Any]) -> Any:
    """A window over panes: all of them, or the only one as it is."""
    if len(panes) == 1:
        return panes[0]
    window = empty()
    for pane in panes:
        window.merge(pane)
    return window


def _window(panes: int) -> str:
    return f", {panes} panes" if panes > 1 else ""


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
    study = Study(f"KLL, k = {k}", stream + _window(panes), "rank error of the median")
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
    study = Study(f"REQ, k = {k}", stream + _window(panes), unit)
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
    study = Study(name, stream + _window(panes), "largest error / tuples", True)
    draw = {
        "unique": lambda rng, shape: rng.permuted(
            np.tile(np.arange(shape[1]), (shape[0], 1)), axis=1
        ),
        "zipf 1.1": lambda rng, shape: np.minimum(rng.zipf(1.1, shape), 10**9),
        "zipf 1.5": lambda rng, shape: np.minimum(rng.zipf(1.5, shape), 10**9),
        "in runs": lambda _rng, shape: np.tile(np.arange(shape[1]) // 5, (shape[0], 1)),
        "heavy comes last": lambda _rng, shape: np.tile(
            np.where(np.arange(shape[1]) % 8 == 7, -1, np.arange(shape[1])), (shape[0], 1)
        ),
    }[stream]
    values = draw(np.random.default_rng(3), (trials, most)).astype(np.int64)
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


# --- samples ---------------------------------------------------------------------------------


def uniform(level: int, trials: int, most: int, k: int = 1024) -> Study:
    """A uniform sample, thinned to 2^-level of the rows: rows behind a filter that passes 10 %."""
    study = Study(
        f"uniform sample, k = {k}", f"1/{2**level} of the rows read", "error of a share of 10 %"
    )
    matched = np.zeros((trials, len(lengths(most))), np.int64)
    read = np.zeros_like(matched)
    for trial in range(trials):
        sample = BottomK(k)
        if level:
            sample.lower(2 ** (64 - level))
        held = np.zeros(0, np.int64)
        for at, (start, end) in enumerate(stretches(most)):
            kept = sample.update(position_keys(trial, start, end - start))
            held = np.concatenate([held if kept.old is None else held[kept.old], start + kept.new])
            chosen = held[sample.chosen()]
            matched[trial, at], read[trial, at] = np.sum(chosen % 10 == 0), len(chosen)
    for at, end in enumerate(lengths(most)):
        truth = -(-end // 10)
        value = matched[:, at] / np.maximum(read[:, at], 1)
        study.at(end, value - truth / end, BottomK.profile, k)
        size = np.maximum(read[:, at].mean(), 1)
        away = np.sqrt(0.09 * max(0.0, 1 - size / end) / size)
        study.promised[-1] = tuple(s * float(away) for s in SIGMAS)
        for rows in np.unique(read[:, at]):
            mine = matched[read[:, at] == rows, at]
            found = {
                c: matching_count(population=end, read=int(rows), matched=mine, confidence=c)
                for c in CONFIDENCES
            }
            study.ask(truth, found)
    return study


def by_hash(trials: int, most: int, rows: int = 1024) -> Study:
    """A sample by hash: distinct values behind a filter that passes half of them."""
    study = Study(f"hash sample, {rows} rows", "unique values", "relative error of the count")
    kept, shares = np.zeros((2, trials, len(lengths(most))))
    keys = murmur_int64(np.arange(most))[0]
    for trial in range(trials):
        sample = HashSample(rows)
        mine = combine(keys, np.full(most, trial, np.uint64))
        held = np.zeros(0, np.int64)
        for at, (start, end) in enumerate(stretches(most)):
            for change, base in ((sample.update(mine[start:end]), start), (sample.settle(), 0)):
                held = held if change.old is None else held[change.old]
                held = np.concatenate([held, base + change.new])
            kept[trial, at], shares[trial, at] = np.sum(held % 2 == 0), sample.share
    for at, end in enumerate(lengths(most)):
        truth = (end + 1) // 2
        study.at(end, kept[:, at] / shares[:, at] / truth - 1, HashSample.profile, rows // 2)
        found = {
            c: distinct_by_hash(kept=kept[:, at], share=shares[:, at], confidence=c)
            for c in CONFIDENCES
        }
        study.ask(truth, found)
    return study


def by_weight(stream: str, trials: int, most: int, k: int = 1024) -> Study:
    """A sample by weight: the sum behind a filter that passes half of the rows."""
    study = Study(f"weighted sample, k = {k}", stream, "relative error of a sum")
    for trial in range(trials):
        values = STREAMS[stream](np.random.default_rng([4, trial]), (1, most))[0]
        sample, held = WeightedBottomK(k), np.zeros(0, np.int64)
        for at, (start, end) in enumerate(stretches(most)):
            given = values[start:end], uniforms(position_keys(trial, start, end - start))
            for change, base in ((sample.update(*given), start), (sample.settle(), 0)):
                held = held if change.old is None else held[change.old]
                held = np.concatenate([held, base + change.new])
            weights = sample.weights[held % 2 == 0]
            matches = WeightedMatches.by_group(weights, tau=sample.tau, ids=None, groups=1)
            truth = values[:end:2].sum()
            found = {c: weighted_sum(matches, confidence=c) for c in CONFIDENCES}
            study.ask(truth, found, slack=1e-9 * truth)
            if not trial:
                study.at(end, np.zeros(trials), WeightedBottomK.profile, k // 2)
            study.errors[at][trial] = found[0.95].value[0] / truth - 1
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
        *(partial(uniform, level, some, long) for level in (0, 3, 6)),
        partial(by_hash, some, long),
        *(
            partial(by_weight, stream, few, middle)
            for stream in ("uniform", "zipf 1.3", "lognormal, sigma 2", "constant")
        ),
    ]
