"""Betting shuffles a sample by random bits of its own, so equal values do not fix the shuffle."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.archive.sampling.block_sample import BlockSample
from shedder.archive.tasks.deadline import Deadline
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.streams.live_sample import SampleView
from tests.archive.dealt import DealtRuns
from tests.queries.asking import ARROW, SCHEMA, ask
from tests.queries.sampled import view_of
from tests.truth import gate

TRIALS = 150
SIZE, READ, ONES = 121, 100, 8
MATCH = np.arange(SIZE) < ONES
DATA = pa.RecordBatch.from_arrays(
    [
        pa.array(np.arange(SIZE), pa.timestamp("us")),
        pa.nulls(SIZE, pa.string()),
        pa.nulls(SIZE, pa.int64()),
        pa.array(np.where(MATCH, 1.0, 0.0)),
        pa.array(MATCH),
        pa.nulls(SIZE, pa.date32()),
    ],
    schema=ARROW,
)


def archived(seed: int) -> SampleView:
    dealt = DealtRuns(SCHEMA, DATA, [SIZE], 11, seed, 2)
    sample: BlockSample = dealt.sample(("ts", "bytes", "ok"), seed, 1)
    sample.extend([READ / SIZE], Deadline())
    [view] = sample.views()
    return view


@pytest.mark.slow
@pytest.mark.parametrize("view", [lambda seed: view_of(DATA, READ, seed), archived])
def test_a_sum_of_equal_values_behind_a_filter_is_held_as_often_as_it_says(view) -> None:
    query = ask("SUM(bytes) AS s FROM requests WHERE ok")
    held, seeds = 0, set()
    for seed in range(TRIALS):
        sample = view(seed)
        seeds.add(sample.shuffle_seed)
        [found] = evidence_from_sample(query, sample).estimates.values()
        held += int(found.low[0] - 1e-9 <= ONES <= found.high[0] + 1e-9)
    assert held >= gate(TRIALS, 0.95)
    assert len(seeds) == TRIALS
