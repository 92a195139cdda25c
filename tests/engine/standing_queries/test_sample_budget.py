"""The memory of live samples, divided among streams by what each needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from shedder.engine.standing_queries.sample_budget import SAMPLES_SHARE, SampleBudget
from shedder.streams.frame import Frame
from shedder.streams.live_sample import StreamSample
from tests.queries.asking import ARROW, SCHEMA

MIB = 1 << 20
BUDGET = 8 * MIB


def batch_of(rows: int, length: int) -> pa.RecordBatch:
    columns = [
        pa.array(np.arange(rows), pa.timestamp("us")),
        pa.array(["x" * length] * rows),
        pa.array(np.arange(rows)),
        pa.array(np.ones(rows)),
        pa.array(np.ones(rows, bool)),
        pa.array(np.zeros(rows, np.int32)).view(pa.date32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW)


class World:
    """Streams that share a budget, as the engine offers batches to them."""

    def __init__(self, streams: int) -> None:
        self.budget = SampleBudget(SAMPLES_SHARE * BUDGET)
        self.samples = [
            StreamSample(
                replace(SCHEMA, seed=number),
                rows=2_000,
                size_bytes_max=self.budget.fair_bytes(streams),
            )
            for number in range(streams)
        ]

    def offer(self, stream: int, rows: int, length: int) -> None:
        sample, batch = self.samples[stream], batch_of(rows, length)
        self.budget.make_room(sample, batch.nbytes, self.samples)
        sample.update(sample.position, Frame(batch, "ts"))


def test_one_stream_has_all_of_it() -> None:
    world = World(1)
    for _ in range(30):
        world.offer(0, 100, 8_000)
    assert 0.3 * BUDGET < world.samples[0].size_bytes <= BUDGET


def test_what_narrow_streams_leave_goes_to_a_wide_one() -> None:
    world = World(4)
    for _ in range(30):
        world.offer(0, 100, 8_000)
        for narrow in (1, 2, 3):
            world.offer(narrow, 100, 10)
    assert world.samples[0].size_bytes > BUDGET / 4
    assert all(sample.view().rows.num_rows == 2_000 for sample in world.samples[1:])
    assert sum(sample.size_bytes for sample in world.samples) <= BUDGET


def test_wide_streams_that_come_later_get_as_much() -> None:
    world = World(2)
    for _ in range(30):
        world.offer(0, 100, 8_000)
    for _ in range(60):
        world.offer(1, 100, 8_000)
        world.budget.divide(world.samples)
    first, second = (sample.size_bytes for sample in world.samples)
    assert first + second <= BUDGET
    assert 0.3 < first / second < 3.0


def test_a_budget_divided_among_no_streams_is_whole_for_the_first() -> None:
    world = World(1)
    world.budget.divide([])
    for _ in range(30):
        world.offer(0, 100, 8_000)
    assert 0.3 * BUDGET < world.samples[0].size_bytes <= BUDGET
