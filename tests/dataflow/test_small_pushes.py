"""Many pushes of one tuple: what waits is kept in few pieces, so a step stays cheap."""

from __future__ import annotations

import gc

import numpy as np
import pyarrow as pa
import pytest

from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.pending_events import DueEvents, Events, PendingEvents
from shedder.dataflow.reorder_buffer import ReorderBuffer

PUSHES = 2_000
SCHEMA = pa.schema([("n", pa.int64())])


def one(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([number], pa.int64())], schema=SCHEMA)


@pytest.mark.slow
def test_events_of_many_steps_wait_in_few_runs():
    gc.collect()
    before = sum(isinstance(each, Events) for each in gc.get_objects())
    pending, at = PendingEvents(), np.zeros(1, np.int64)
    for ts in range(PUSHES):
        tuples = ChangeBatch.of_tuples(one(ts), at + ts)
        ending = tuples.with_lifetimes(tuples.born_us, tuples.ts_us + PUSHES)
        pending.push(ending, at)
        assert len(DueEvents.of([pending], ts + 1)) == 1
    waiting = sum(isinstance(each, Events) for each in gc.get_objects()) - before
    assert waiting <= 2 * PUSHES.bit_length()
    due, _ = DueEvents.of([pending], 2 * PUSHES).merged()
    assert due.instant_us.tolist() == list(range(PUSHES + 1, 2 * PUSHES + 1))


def test_tuples_that_wait_for_a_silent_stream_are_few_batches():
    """Arrow allocates 64 bytes at least for each buffer of a batch."""
    random = np.random.default_rng(1)
    times = random.integers(0, 500, PUSHES)
    before = pa.total_allocated_bytes()
    buffer = ReorderBuffer(SCHEMA)
    for position, ts in enumerate(times.tolist()):
        buffer.push(one(position), np.array([ts]), np.array([position]))
    assert pa.total_allocated_bytes() - before < 2 * buffer.size_bytes
    for end in (100, 101, 500):
        released = buffer.release(end)
        wanted = [at for at in np.argsort(times, kind="stable") if times[at] < end]
        assert released.columns["n"].to_pylist() == wanted
        times = np.where(times < end, 1 << 40, times)
    assert buffer.size_bytes == 0
