"""A repeated number must have the rows that it had, as far as they are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.engine.ingest.producer_sequences import PushProgress, check_replay
from shedder.errors import SequenceReused
from shedder.streams.push_parts import WHOLE
from tests.engine.killed import copy_killed

STREAM = "CREATE STREAM s (ts TIMESTAMP NOT NULL, k BIGINT) TIMESTAMP BY ts"


def rows(count: int) -> pa.RecordBatch:
    times = pa.array(np.arange(count) * 1_000, pa.timestamp("us"))
    return pa.record_batch({"ts": times, "k": pa.array(np.arange(count))})


def test_a_record_without_contents_is_compared_by_its_number_of_rows_alone() -> None:
    last = PushProgress(epoch=0, sequence=4, position=100, rows=10)
    check_replay("p", last, sequence=4, end_row=10, part=WHOLE)
    check_replay("p", last, sequence=3, end_row=99, part=WHOLE)
    check_replay("p", PushProgress(0, 4, 100, None), sequence=4, end_row=11, part=WHOLE)
    with pytest.raises(
        SequenceReused, match=r"sequence 4 of producer 'p' has 10 rows, .* with 11;"
    ):
        check_replay("p", last, sequence=4, end_row=11, part=WHOLE)


@pytest.mark.slow
def test_other_rows_under_the_last_number_are_refused_and_counted_after_a_restart_too(
    tmp_path: Path,
) -> None:
    with Engine.open(tmp_path / "db") as engine:
        engine.execute(STREAM)
        engine.push("s", rows(7), producer="p", sequence=0)
        engine.push("s", rows(10), producer="p", sequence=1)
        copy_killed(engine, tmp_path / "crashed")
        for _ in range(2):
            assert engine.push("s", rows(10), producer="p", sequence=1).duplicate
            assert engine.push("s", rows(7), producer="p", sequence=0).duplicate
            with pytest.raises(SequenceReused, match="has 10 rows, and came again with 11"):
                engine.push("s", rows(11), producer="p", sequence=1)
        ledger = engine.ledger("s")
        assert (ledger.applied, ledger.duplicate, ledger.refused_rows) == (17, 34, 22)
    for directory in ("db", "crashed"):  # Of a checkpoint, and of the log.
        with Engine.open(tmp_path / directory) as engine:
            assert engine.push("s", rows(10), producer="p", sequence=1).duplicate
            with pytest.raises(SequenceReused, match="has 10 rows, and came again with 9"):
                engine.push("s", rows(9), producer="p", sequence=1)
            assert engine.ledger("s").applied == 17


@pytest.mark.slow
def test_a_batch_of_which_some_was_dropped_at_the_door_is_acknowledged_when_it_comes_again(
    tmp_path: Path,
) -> None:
    with Engine.open(tmp_path / "db") as engine:
        engine.execute(f"{STREAM} ON OVERLOAD DROP")
        drops = engine.core.intakes["s"].drops
        assert drops is not None
        drops.share = 0.5
        assert 0 < engine.push("s", rows(1_000), producer="p", sequence=0).dropped < 1_000
        assert engine.push("s", rows(1_000), producer="p", sequence=0).duplicate
    with Engine.open(tmp_path / "db") as engine:
        engine.execute("ALTER STREAM s SET ON OVERLOAD BLOCK")
        assert engine.push("s", rows(1_000), producer="p", sequence=0).duplicate
