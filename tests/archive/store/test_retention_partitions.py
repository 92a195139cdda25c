"""Compartments: runs span little event time, so that what is too old goes in time."""

from concurrent.futures import Executor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.archive.archive_store import Store
from shedder.archive.log.records import Batch, RecordType
from shedder.archive.operations.verify import check
from shedder.archive.store.retention_partitions import (
    COMPARTMENTS,
    ROWS_MIN,
    compartment_us,
    rows_within,
)
from shedder.archive.store.tail import Piece, Tail
from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from shedder.streams.batches import encode
from tests.archive.schemas import SCHEMA, batch
from tests.archive.worlds import positions, recover
from tests.engine.world import CREATE, SECOND, START_US, requests

TIMES = st.lists(st.integers(-(2**62), 2**62), max_size=40)
NEAR = st.lists(st.integers(0, 30), max_size=60)


@given(st.one_of(TIMES, NEAR), st.integers(1, 40), st.integers(1, 10), st.integers(1, 60))
def test_a_run_takes_rows_until_it_would_span_too_much(times, width, rows_min, piece):
    array = np.array(times, np.int64)
    pieces = [array[at : at + piece] for at in range(0, len(array), piece)]
    taken = rows_within(pieces, width, rows_min)
    assert min(len(times), rows_min) <= taken <= len(times)
    if taken > rows_min:
        assert max(times[:taken]) - min(times[:taken]) <= width
    if taken < len(times):
        assert max(times[: taken + 1]) - min(times[: taken + 1]) > width


@pytest.mark.slow
@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.data())
def test_a_tail_that_is_split_keeps_its_rows(sizes, data):
    tail, position = Tail(), 0
    for sequence, rows in enumerate(sizes):
        tail.add(Piece(position, batch(position, rows), sequence))
        position += rows
    at = data.draw(st.integers(1, position))
    before = tail.split(at)
    assert before[-1].end_position == at
    assert sum(piece.batch.num_rows for piece in before) == at
    found = [serial for piece in tail.pieces for serial in piece.batch["serial"].to_pylist()]
    assert found == list(range(position))
    assert tail.rows == position
    tail.drop(len(before))
    assert tail.rows == position - at
    assert tail.size_bytes == sum(piece.size_bytes for piece in tail.pieces)


def test_without_retention_a_run_spans_what_it_likes(tmp_path):
    assert compartment_us(None) is None
    store = Store.open(tmp_path)
    store.create_stream(SCHEMA)
    rows = 3 * ROWS_MIN
    store.add(1, 0, batch(0, rows), sequence=0)
    assert not store.is_wide(1)
    assert store.cut(1).rows == rows
    store.close()


@pytest.mark.slow
def test_a_bulk_load_becomes_a_run_for_each_compartment(tmp_path):
    """Rows are a millisecond apart; compartments of 20,000 of them."""
    width_us = 20_000 * 1_000
    store = Store.open(tmp_path)
    store.create_stream(replace(SCHEMA, retain_us=COMPARTMENTS * width_us))
    rows = 70_000
    header = Batch(1, "p", 0, 0, 0, rows, 0)
    content = batch(0, rows)
    sequence = store.log.append(RecordType.BATCH, [header.to_bytes(), encode(content)])
    store.log.sync()
    store.add(1, 0, content, sequence=sequence)
    assert store.is_wide(1)
    first = store.cut(1)
    assert first.high_us - first.low_us <= width_us
    assert positions(store) == list(range(rows))
    while store.cut(1) is not None:
        pass
    assert [run.rows for run in store.runs(1)] == [20_001, 20_001, 20_001, 9_997]
    assert store.retention.apply(1, 20_001_000) == 20_001
    store.close()
    again = recover(tmp_path)
    assert positions(again) == list(range(20_001, rows))
    again.close()
    assert check(tmp_path).damages == []


class WatchedMachine(Environment):
    """This machine; the test can wait until its background workers are idle."""

    def __init__(self) -> None:
        super().__init__()
        self.pools: list[Executor] = []

    def pool(self, name: str) -> Executor:
        self.pools.append(super().pool(name))
        return self.pools[-1]

    def finish_background(self) -> None:
        for pool in self.pools:
            pool.submit(int).result()


@pytest.mark.slow
@pytest.mark.parametrize("batches", [1, 40])
def test_an_engine_keeps_little_more_than_it_has_to(tmp_path, batches):
    """An hour of 64,000 requests, of which the last ten minutes are kept."""
    retain_s = 600
    rows = 64_000 if batches == 1 else 16_000
    machine = WatchedMachine()
    with Engine.open(tmp_path, machine=machine, checkpoint_seconds=1e6) as engine:
        engine.execute(f"{CREATE} RETAIN INTERVAL '{retain_s}' SECOND")
        table = requests(rows, 1, seconds=3_600)
        size = rows // batches
        for first in range(0, rows, size):
            engine.push("requests", table.slice(first, size))
            engine.core.executor.call(engine.cutter.cut_what_is_due).result()
            machine.finish_background()
        engine.heartbeat("requests", START_US + 3_600 * SECOND)
        engine.core.executor.call(engine.checkpoints.tidy).result()
        store = engine.core.store
        times = [
            t for _, b in store.scan(1, columns=["ts"]) for t in b["ts"].cast("int64").tolist()
        ]
        oldest_s = 3_600 - (min(times) - START_US) / SECOND
        width_s = retain_s / COMPARTMENTS
        by_rows_s = 3_600 * ROWS_MIN / rows if batches == 1 else 3_600 / batches
        assert retain_s <= oldest_s <= retain_s + width_s + max(by_rows_s, 2) + 2 * width_s
        (row,) = engine.execute("SELECT COUNT(*) AS n FROM requests").rows()
        assert row["n"] == len(times)
