"""Every grouped summary as a subject of the laws."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.frequent.entries import ItemKind
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.hashing import murmur_float64, murmur_int64, murmur_utf8
from synopses.model.estimate import Estimates
from synopses.moments.counts import GroupedCount
from synopses.moments.covariance import GroupedCrossMoments
from synopses.moments.first_last import GroupedFirstLast
from synopses.moments.moments import GroupedMoments
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq
from synopses.theta.theta_sketch import GroupedTheta
from tests.laws import Part, Subject


def to_bytes(summary: Any) -> bytes:
    return summary.to_bytes()


def rounded(estimates: Estimates) -> list[str]:
    """Values to ten digits: what is left of a double when additions are done in another order."""
    return [
        "null" if null else f"{value:.10g}"
        for value, null in zip(estimates.value.tolist(), estimates.null.tolist(), strict=True)
    ]


def moments_state(moments: GroupedMoments) -> list[list[str]]:
    answers = [moments.count(), moments.sum(), moments.mean(), moments.minimum(), moments.maximum()]
    if moments.spread:
        answers += [moments.variance(), moments.deviation()]
    return [rounded(answer) for answer in answers]


def cross_state(moments: GroupedCrossMoments) -> list[list[str]]:
    """Correlations to nine places; the others to nine digits of the largest that they could be."""
    sums = moments.sums()
    spread_x, spread_y = (np.sqrt(squares) for squares in (sums.squares_x, sums.squares_y))
    largest = np.maximum(spread_x * spread_y, 1e-300)
    found = sums.pairs.tolist(), np.round(sums.cross / largest, 9).tolist()
    return [
        *([str(value + 0.0) for value in column] for column in found),
        rounded(Estimates.exact(spread_x, "", spread_x < 0)),
        rounded(Estimates.exact(spread_y, "", spread_y < 0)),
        moments.correlation().null.tolist(),
    ]


def feed_ends(summary: GroupedFirstLast, part: Part) -> None:
    """Positions are those of the values' own bits: the same wherever the part is cut."""
    positions = np.abs(part.values.view(np.int64)) >> 1
    summary.update(part.ids, positions % 5, positions, part.values)


def integers_of(part: Part) -> NDArray[np.int64]:
    """The part's values as integers of all sizes, negative ones included."""
    return np.floor(part.values * 1000).astype(np.int64) - 500


def texts_of(part: Part) -> NDArray[Any]:
    return np.array([f"v{value % 50}é" for value in integers_of(part).tolist()], object)


def arrow_of(texts: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Offsets and bytes as Arrow lays a string column out."""
    raw = [text.encode() for text in texts.tolist()]
    offsets = np.cumsum([0, *map(len, raw)]).astype(np.int32)
    return offsets, np.frombuffer(b"".join(raw), np.uint8)


def feed_texts(summary: GroupedFrequent, part: Part) -> None:
    texts = texts_of(part)
    summary.update(part.ids, murmur_utf8(*arrow_of(texts))[0], texts)


def feed_integers(summary: GroupedFrequent, part: Part) -> None:
    values = integers_of(part) % 200
    summary.update(part.ids, murmur_int64(values)[0], values)


def feed_thinned(summary: GroupedTheta, part: Part) -> None:
    """At 1/4, and at 1/8 the part's second half: each time only what the level lets through."""
    middle = len(part) // 2
    for level, half in ((2, part[:middle]), (3, part[middle:])):
        hashes = murmur_int64(integers_of(half))[0]
        kept = np.flatnonzero(hashes < np.uint64(1 << (64 - level)))
        summary.update(None if half.ids is None else half.ids[kept], hashes[kept])
        if len(half):
            summary.thin(level)


def count_integers(summary: GroupedCountMin | GroupedCountSketch, part: Part) -> None:
    summary.update(part.ids, murmur_int64(integers_of(part))[0])


def without_parameters(data: bytes) -> bytes:
    return data[struct.calcsize("<4sBBHQQ") :]


# Merged, these equal one pass exactly.
LINEAR = [
    Subject("count", GroupedCount, lambda s, p: s.update(p.ids, len(p)), to_bytes),
    Subject(
        "integer moments",
        lambda groups: GroupedMoments(groups, integer=True),
        lambda s, p: s.update(p.ids, integers_of(p)),
        to_bytes,
    ),
    Subject(
        "double moments",
        lambda groups: GroupedMoments(groups, integer=False, variance=True),
        lambda s, p: s.update(p.ids, p.values),
        moments_state,
    ),
    Subject(
        "cross moments",
        GroupedCrossMoments,
        lambda s, p: s.update(p.ids, p.values, np.sqrt(np.abs(p.values)) + 1e6),
        cross_state,
    ),
    Subject(
        "first and last",
        lambda groups: GroupedFirstLast(groups, integer=False),
        feed_ends,
        to_bytes,
    ),
    Subject("log buckets", GroupedLogBuckets, lambda s, p: s.update(p.ids, p.values), to_bytes),
    Subject(
        "distinct",
        lambda groups: GroupedDistinct(groups, lg_k=8),
        lambda s, p: s.update(p.ids, *murmur_float64(p.values)),
        to_bytes,
    ),
    Subject(
        "distinct, wide",
        lambda groups: GroupedDistinct(groups, lg_k=12),
        lambda s, p: s.update(p.ids, *murmur_int64(integers_of(p))),
        to_bytes,
    ),
    Subject(
        "theta",
        lambda groups: GroupedTheta(groups, lg_k=5),
        lambda s, p: s.update(p.ids, murmur_float64(p.values)[0]),
        to_bytes,
    ),
    Subject(
        "theta, thinned",
        lambda groups: GroupedTheta(groups, lg_k=7),
        feed_thinned,
        to_bytes,
        thins=True,
    ),
    Subject(
        "count-min", lambda groups: GroupedCountMin(groups, lg_width=4), count_integers, to_bytes
    ),
    Subject(
        "count-min, exact",
        lambda groups: GroupedCountMin(groups, lg_width=12),
        count_integers,
        to_bytes,
    ),
    Subject(
        "count-sketch",
        lambda groups: GroupedCountSketch(groups, lg_width=5),
        count_integers,
        to_bytes,
    ),
]

# Merged, these are only as good as one pass, not equal to it.
LOSSY = [
    Subject(
        "frequent integers", lambda groups: GroupedFrequent(groups, 16), feed_integers, to_bytes
    ),
    Subject(
        "frequent texts",
        lambda groups: GroupedFrequent(groups, 32, ItemKind.TEXT),
        feed_texts,
        to_bytes,
    ),
]

# Small enough that nothing is forgotten, a lossy summary keeps every law.
NOT_YET_LOSSY = [
    Subject("frequent, all", lambda groups: GroupedFrequent(groups, 512), feed_integers, to_bytes),
    Subject(
        "kll, all",
        lambda groups: GroupedKll(groups, 8000),
        lambda s, p: s.update(p.ids, p.values),
        lambda s: [rounded(s.quantile(q, 0.95)) for q in (0.0, 0.1, 0.5, 1.0)],
    ),
    Subject(
        "req, all",
        lambda groups: GroupedReq(groups, 254),
        lambda s, p: s.update(p.ids, p.values),
        lambda s: [rounded(s.quantile(q, 0.95)) for q in (0.9, 0.99, 1.0)],
    ),
]
