"""One small summary of each kind, as its bytes were when its layout was new.

`python -m tests.synopses.golden` writes the files of layouts that have none. A file is never
written again: a changed layout gets a new number in binary_header.py and a new file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.group_table import GroupTable
from synopses.kernels.hashing import murmur_int64, position_start
from synopses.model.binary_header import LAYOUTS, Kind
from synopses.moments.counts import GroupedCount
from synopses.moments.covariance import GroupedCrossMoments
from synopses.moments.first_last import GroupedFirstLast
from synopses.moments.moments import GroupedMoments
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq
from synopses.samples.bottom_k import BottomK, HashSample, WeightedBottomK
from synopses.samples.stratified_sample import StratifiedBottomK
from synopses.theta.theta_sketch import GroupedTheta

FILES = Path(__file__).parent.parent / "golden" / "synopses"
NUMBERS = np.arange(3_000)
IDS = (NUMBERS % 7 // 3).astype(np.int32)  # Groups of 3, 3 and 1 in 7.
VALUES = (NUMBERS * 7919 % 3001 - 1000) / 8
H1, H2 = murmur_int64(NUMBERS)


def fed(summary: Any, *columns: Any) -> Any:
    summary.update(*columns)
    return summary


def table() -> GroupTable:
    groups = GroupTable(8)
    groups.assign(H1[:20])
    return groups


MADE: dict[Kind, Callable[[], Any]] = {
    Kind.COUNT: lambda: fed(GroupedCount(3), IDS, IDS.size),
    Kind.MOMENTS: lambda: fed(GroupedMoments(3, integer=True), IDS, NUMBERS),
    Kind.LOG_BUCKETS: lambda: fed(GroupedLogBuckets(3), IDS, VALUES),
    Kind.KLL: lambda: fed(GroupedKll(3, 8), IDS, VALUES),
    Kind.FREQUENT: lambda: fed(GroupedFrequent(3, 16), IDS, H1, NUMBERS),
    Kind.GROUP_TABLE: table,
    Kind.BOTTOM_K: lambda: fed(BottomK(8), H1),
    Kind.HASH_SAMPLE: lambda: fed(HashSample(8), H1),
    Kind.WEIGHTED_BOTTOM_K: lambda: fed(
        WeightedBottomK(8), NUMBERS + 1.0, (NUMBERS * 7919 % 3001 + 1) / 3002
    ),
    Kind.THETA: lambda: fed(GroupedTheta(3, 5), IDS, H1),
    Kind.CROSS_MOMENTS: lambda: fed(GroupedCrossMoments(3), IDS, VALUES, VALUES[::-1].copy()),
    Kind.FIRST_LAST: lambda: fed(
        GroupedFirstLast(3, integer=False), IDS, NUMBERS // 5, NUMBERS, VALUES
    ),
    Kind.COUNT_MIN: lambda: fed(GroupedCountMin(3, 4, seed=5), IDS, H1),
    Kind.COUNT_SKETCH: lambda: fed(GroupedCountSketch(3, 4, seed=5), IDS, H1),
    Kind.DISTINCT: lambda: fed(GroupedDistinct(4, 7), np.where(NUMBERS < 5, 3, IDS), H1, H2),
    Kind.REQ: lambda: fed(GroupedReq(3, 12), IDS, VALUES),
    Kind.STRATIFIED: lambda: fed(StratifiedBottomK(3, 8), IDS, position_start(1, 0)),
}


def file_of(kind: Kind, layout: int) -> Path:
    return FILES / f"{kind.name.lower()}-{layout}.bin"


def write() -> None:
    FILES.mkdir(exist_ok=True)
    for kind, made in MADE.items():
        if not file_of(kind, LAYOUTS[kind]).exists():
            file_of(kind, LAYOUTS[kind]).write_bytes(made().to_bytes())


if __name__ == "__main__":
    write()
