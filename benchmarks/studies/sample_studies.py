"""Errors of samples over log-spaced stream lengths: uniform, by hash, by weight, by stratum."""

from __future__ import annotations

import numpy as np

from benchmarks.studies.error_study import CONFIDENCES, SIGMAS, STREAMS, Study, lengths, stretches
from synopses.intervals.distinct import distinct_by_hash
from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.sums import sampled_sum
from synopses.intervals.weighted import WeightedMatches, weighted_sum
from synopses.kernels.hashing import combine, murmur_int64, position_keys, position_start, uniforms
from synopses.samples.bottom_k import BottomK, HashSample, WeightedBottomK
from synopses.samples.stratified_sample import StratifiedBottomK


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


def stratified(stream: str, trials: int, most: int, k: int = 1024, strata: int = 8) -> Study:
    """A sample by strata of Zipf sizes: errors of the sum of all, intervals of each one's sum."""
    study = Study(f"stratified sample, k = {k}", stream, "relative error of the sum of all strata")
    for trial in range(trials):
        rng = np.random.default_rng([7, trial])
        values = STREAMS[stream](rng, (1, most))[0]
        ids = (np.minimum(rng.zipf(1.5, most), strata) - 1).astype(np.int32)
        mine = [values[ids == stratum] for stratum in range(strata)]
        low, high = ([end(part, initial=0.0) for part in mine] for end in (np.min, np.max))
        deviation = np.array([np.std(part) if part.size else 0.0 for part in mine])
        sample, held = StratifiedBottomK(strata, k), np.zeros(0, np.int64)
        for at, (start, end) in enumerate(stretches(most)):
            entered = sample.update(ids[start:end], position_start(trial, start)).new
            held = np.concatenate([held, start + entered])
            if sample.is_full:
                stay = sample.cut(np.ones(strata)).old
                held = held if stay is None else held[stay]
            read = sample.chosen()
            population, rows = read.population, held[read.rows]
            found = SampledValues.by_group(
                values[rows], ids=read.ids, groups=strata, population=population, read=read.read,
                low=low, high=high,
            )  # fmt: skip
            truth = np.bincount(ids[:end], values[:end], strata)
            sums = {c: sampled_sum(found, confidence=c) for c in CONFIDENCES}
            there = np.flatnonzero(population)
            estimates = {
                c: each.estimates(confidence=c, source="sample").take(there)
                for c, each in sums.items()
            }
            study.ask(truth[there], estimates, slack=1e-9 * float(np.abs(values[:end]).sum()))
            if not trial:
                study.at(end, np.zeros(trials), StratifiedBottomK.profile, k)
                share = (population - read.read) / np.maximum(read.read, 1)
                away = np.sqrt(np.sum(population * share * deviation**2)) / truth.sum()
                study.promised[-1] = tuple(s * float(away) for s in SIGMAS)
            study.errors[at][trial] = sums[0.95].value.sum() / truth.sum() - 1
    return study
