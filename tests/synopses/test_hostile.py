"""No bytes crash a reader or make it take memory that their length does not justify."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.counters.join_size import self_join_size
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.frequent.heavy_share import Promise
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.intervals.distinct import distinct_by_hash
from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.weighted import WeightedMatches, weighted_sum
from synopses.kernels.hashing import murmur_int64, position_start
from synopses.model.binary_header import Kind, seal
from synopses.model.errors import BadParameter, CannotMerge, CorruptSynopsis, SynopsisError
from synopses.moments.counts import GroupedCount
from synopses.moments.covariance import GroupedCrossMoments
from synopses.moments.covariance_kernels import COUNT
from synopses.moments.first_last import GroupedFirstLast
from synopses.moments.moment_kernels import CELLS
from synopses.moments.moment_kernels import COUNT as MOMENTS_COUNT
from synopses.moments.moments import GroupedMoments
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq
from synopses.samples.bottom_k import BottomK, HashSample, WeightedBottomK
from synopses.samples.stratified_sample import StratifiedBottomK
from synopses.theta.set_operations import Compared
from synopses.theta.theta_sketch import GroupedTheta
from tests.laws import Part
from tests.scale import scaled
from tests.seeds import seed
from tests.synopses.hostile import memory_bounded, survive
from tests.synopses.subjects import LINEAR, LOSSY, NOT_YET_LOSSY
from tests.truth import draw

# A kernel that does not end cannot be interrupted, only the process ended.
pytestmark = pytest.mark.timeout(300, method="thread")

# A summary accepts at least 8 % of its mutations, so some of 5,000 are always accepted.
MUTATIONS = scaled(5_000, 100_000)
MUTATIONS_OF_IMAGES = scaled(2_000, 20_000)
USED_EVERY = scaled(17, 97)
MORE_BYTES = 128 << 20


def grouped(subject) -> Callable[[], Any]:
    ids = np.arange(6, dtype=np.int32) % 2
    return lambda: subject.of(Part(ids, draw("normal", 1, 6)), 2)


def uniform() -> BottomK:
    sample = BottomK(4)
    sample.update(np.arange(1, 12, dtype=np.uint64) * 10**15)
    return sample


def by_hash() -> HashSample:
    sample = HashSample(4)
    sample.update(np.arange(1, 12, dtype=np.uint64) * 10**15)
    return sample


def by_weight() -> WeightedBottomK:
    sample = WeightedBottomK(4)
    sample.update(np.arange(1.0, 12.0), np.arange(1.0, 12.0) / 12)
    return sample


def by_stratum() -> StratifiedBottomK:
    sample = StratifiedBottomK(2, 6)
    sample.update(np.arange(11, dtype=np.int32) % 2, position_start(1, 0))
    return sample


KINDS = {
    **{subject.name: grouped(subject) for subject in LINEAR + LOSSY + NOT_YET_LOSSY},
    "bottom-k": uniform,
    "hash sample": by_hash,
    "weighted bottom-k": by_weight,
    "stratified": by_stratum,
}


SOME = murmur_int64(np.arange(3))[0], 0.95
QUESTIONS: dict[type, list[Callable[[Any], Any]]] = {
    GroupedCount: [lambda s: s.count()],
    GroupedMoments: [
        lambda s: (s.count(), s.sum(), s.mean(), s.minimum(), s.maximum()),
        lambda s: s.variance() if s.spread else None,
    ],
    GroupedCrossMoments: [
        lambda s: (s.covariance(sample=True), s.correlation(), s.slope(), s.intercept()),
    ],
    GroupedLogBuckets: [lambda s: s.quantile(0.5), lambda s: s.quantile(1.0)],
    GroupedDistinct: [lambda s: s.distinct(0.95)],
    GroupedTheta: [
        lambda s: s.distinct(0.95),
        lambda s: Compared.of(s, s.select(np.arange(s.groups))).jaccard(0.95),
    ],
    GroupedCountMin: [lambda s: s.count(*SOME), lambda s: self_join_size(s, 0.95)],
    GroupedCountSketch: [
        lambda s: (s.count(*SOME), s.second_moment(0.95)),
        lambda s: s.inner_product(s.select(np.arange(s.groups)), 0.95),
    ],
    GroupedFrequent: [
        lambda s: s.top(3),
        lambda s: [s.frequent(0.1, promise) for promise in Promise],
    ],
    GroupedKll: [lambda s: s.quantile(0.5, 0.95)],
    GroupedReq: [lambda s: s.quantile(0.5, 0.95)],
    GroupedFirstLast: [lambda s: s.first(), lambda s: s.last()],
    HashSample: [
        lambda s: distinct_by_hash(kept=len(np.unique(s.hashes)), share=s.share, confidence=0.95),
        lambda s: (merged_with_itself(s), s.settle()),
    ],
    BottomK: [lambda s: s.chosen(), lambda s: merged_with_itself(s).chosen()],
    WeightedBottomK: [
        lambda s: weighted_sum(
            WeightedMatches.by_group(s.weights, tau=s.tau, ids=None, groups=1), confidence=0.95
        ),
        lambda s: (merged_with_itself(s), s.settle()),
    ],
    StratifiedBottomK: [
        lambda s: matching_count(
            population=s.chosen().population,
            read=s.chosen().read,
            matched=s.chosen().read,
            confidence=0.95,
        ),
        lambda s: merged_with_itself(s).cut(np.ones(s.groups)),
    ],
}


def merged_with_itself(sample: Any) -> Any:
    """As when a part comes twice."""
    sample.merge(type(sample).from_bytes(sample.to_bytes()))
    return sample


def use(found: Any) -> None:
    """What a reader of a pane does next; a question is answered, or refused by name."""
    if hasattr(found, "select"):
        found.merge(found.select(np.arange(found.groups)))
    assert found.size_bytes >= 0
    for question in QUESTIONS.get(type(found), []):
        with suppress(SynopsisError):
            question(found)
    found.to_bytes()


IMAGES = {
    "distinct, coupons": (GroupedDistinct, {"lg_k": 9}, 5),
    "distinct, registers": (GroupedDistinct, {"lg_k": 7}, 400),
    "theta": (GroupedTheta, {"lg_k": 5}, 40),
    "frequent": (GroupedFrequent, {"entries": 16}, 30),
    "kll": (GroupedKll, {"k": 8}, 60),
    "req": (GroupedReq, {"k": 12}, 600),
}


def counters(*rows: list[int]) -> bytes:
    """A Count-Min of one large group, whose five rows count so."""
    table = np.zeros((5, 16), np.int64)
    table[:, : len(rows[0])] = [rows[min(row, len(rows) - 1)] for row in range(5)]
    empty = [np.zeros(0, kind) for kind in (np.int32, np.uint64, np.int64)]
    body = [np.ones(1, np.uint8), table, *empty]
    return seal(Kind.COUNT_MIN, (1, 4), body)


def weighted(weights: list[float], priorities: list[float]) -> bytes:
    columns = [np.array(column, np.float64) for column in (weights, priorities)]
    return seal(Kind.WEIGHTED_BOTTOM_K, (4, 0.0), columns)


def frequent(count: int, late: int, error: int, total: int) -> bytes:
    """Frequent values of two groups, of which the second has one."""
    entry = [np.array([1], np.int32), np.array([7], np.uint64), np.array([count]), np.array([late])]
    body = [*entry, np.array([3]), np.array([0, error]), np.array([0, total])]
    return seal(Kind.FREQUENT, (2, 8, 0), body)


def pairs(count: int, infinite: int) -> bytes:
    """Return the bytes of cross moments of one group that declare `count` pairs."""
    cells = np.zeros((1, 8), np.int64)
    cells[0, COUNT] = count
    return seal(Kind.CROSS_MOMENTS, (1,), [cells, np.array([infinite])])


def moments(count: int, infinite: int) -> bytes:
    """Return the bytes of moments of one group that declare `count` values."""
    cells = np.zeros((1, CELLS), np.int64)
    cells[0, MOMENTS_COUNT] = count
    return seal(Kind.MOMENTS, (1, False, True), [cells, np.full(2, infinite)])


CONTRADICTIONS: dict[str, tuple[Any, bytes]] = {
    "a count below 0": (
        GroupedCount,
        seal(Kind.COUNT, (1,), [np.array([-5])]),
    ),
    "a count that wraps": (
        GroupedCount,
        seal(Kind.COUNT, (1,), [np.array([2**62])]),
    ),
    "values below 0": (GroupedMoments, moments(-1, 0)),
    "values that wrap": (GroupedMoments, moments(2**62, 0)),
    "infinite values below 0": (GroupedMoments, moments(1, -1)),
    "infinite values that wrap": (GroupedMoments, moments(1, 2**62)),
    "keys that wrap": (
        GroupedCountMin,
        seal(
            Kind.COUNT_MIN,
            (1, 4),
            [
                np.zeros(1, np.uint8),
                np.zeros((0, 5, 16), np.int64),
                np.zeros(2, np.int32),
                np.array([1, 2], np.uint64),
                np.array([2**61, 2**61]),
            ],
        ),
    ),
    "pairs below 0": (GroupedCrossMoments, pairs(-(2**63), 0)),
    "pairs that wrap": (GroupedCrossMoments, pairs(2**62, 0)),
    "infinite pairs below 0": (GroupedCrossMoments, pairs(1, -1)),
    "counters that wrap": (GroupedCountMin, counters([2**61, 2**61])),
    "a counter below 0": (GroupedCountMin, counters([-1, 2])),
    "rows of other sums": (GroupedCountMin, counters([1, 2], [2, 2])),
    "a weight of nothing": (WeightedBottomK, weighted([math.nan], [1.0])),
    "a weight below 0": (WeightedBottomK, weighted([-1.0], [1.0])),
    "a priority of nothing": (WeightedBottomK, weighted([1.0], [math.nan])),
    "a weight that is a signal": (
        WeightedBottomK,
        weighted([np.array([0x7FF0000000000001]).view(np.float64)[0]], [1.0]),
    ),
    "a priority below its weight": (WeightedBottomK, weighted([2.0], [1.0])),
    "a counter of nothing": (GroupedFrequent, frequent(0, 0, 0, 0)),
    "counters of more than was counted": (GroupedFrequent, frequent(5, 0, 2, 6)),
    "more taken than was counted": (GroupedFrequent, frequent(1, 0, 2**62, 1)),
    "a total that wraps": (GroupedFrequent, frequent(5, 0, 2, 2**62)),
    "later than all purges": (GroupedFrequent, frequent(5, 3, 2, 9)),
    "earlier than all purges": (GroupedFrequent, frequent(5, -1, 2, 9)),
    "a key that went out": (
        BottomK,
        seal(Kind.BOTTOM_K, (4, 10), [np.array([11], np.uint64)]),
    ),
    "a hash that went out": (
        HashSample,
        seal(Kind.HASH_SAMPLE, (4, 10), [np.array([10], np.uint64)]),
    ),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_what_no_summary_can_hold_is_refused(what: str) -> None:
    kind, data = CONTRADICTIONS[what]
    with pytest.raises(CorruptSynopsis):
        kind.from_bytes(data)


def test_what_a_summary_can_just_hold_is_read() -> None:
    assert GroupedCountMin.from_bytes(counters([2**61, 1])).totals().tolist() == [2**61 + 1]
    assert GroupedFrequent.from_bytes(frequent(5, 2, 2, 7)).error.tolist() == [0, 2]
    assert len(WeightedBottomK.from_bytes(weighted([1.0, 1e308], [1.0, math.inf])).weights) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", IMAGES)
def test_images_of_others_are_refused_or_read(name: str) -> None:
    kind, size, rows = IMAGES[name]
    whole, values = kind(1, **size), np.arange(rows)
    hashes = murmur_int64(values)
    arguments = {
        GroupedDistinct: hashes,
        GroupedTheta: hashes[:1],
        GroupedFrequent: (hashes[0], values),
        GroupedKll: (values.astype(np.float64),),
        GroupedReq: (values.astype(np.float64),),
    }
    whole.update(None, *arguments[kind])

    def read(image: bytes) -> Any:
        try:
            return kind.from_images([image], **size)
        except (CannotMerge, BadParameter) as error:  # Of a smaller size, which is no damage.
            raise CorruptSynopsis("size", str(error), size) from error

    data = whole.image(0)
    use(read(data))
    with memory_bounded(MORE_BYTES):
        ends = survive(
            read,
            use,
            data,
            count=MUTATIONS_OF_IMAGES,
            seed=seed("hostile images", name),
            used_every=USED_EVERY,
            sealed=False,
        )
    assert min(ends["read"], ends["refused"], ends["used"]) > 0, ends


def attack(name: str, *, count: int, used_every: int) -> None:
    whole = KINDS[name]()
    data = whole.to_bytes()
    use(type(whole).from_bytes(data))  # What is compiled now is not what the bytes ask for.
    with memory_bounded(MORE_BYTES):
        ends = survive(
            type(whole).from_bytes,
            use,
            data,
            count=count,
            seed=seed("hostile bytes", name, count),
            used_every=used_every,
        )
    assert ends["read"] + ends["refused"] == count
    assert min(ends["read"], ends["refused"], ends["used"]) > 0, ends


@pytest.mark.parametrize("name", KINDS)
def test_bytes_with_a_right_checksum_are_refused_or_read(name: str) -> None:
    attack(name, count=300, used_every=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in KINDS if name != "frequent, all"])
def test_so_are_many_more(name: str) -> None:
    attack(name, count=MUTATIONS, used_every=USED_EVERY)
