"""Questions read the copies of eager and lazy streams, and leave marks on the lazy ones."""

import numpy as np
import pyarrow as pa
import pytest

from shedder.archive.layouts.blocks import Wanted
from shedder.archive.layouts.nested_copies import shell_sizes
from shedder.archive.operations.scrub import scrub
from shedder.archive.sampling.block_sample import BlockSample
from shedder.archive.sampling.run_sample import drawn
from shedder.archive.tasks.deadline import Deadline
from shedder.cql.statements.archive_layout import Eager
from shedder.engine.engine import Engine
from tests.archive.schemas import SCHEMA
from tests.archive.worlds import opened
from tests.engine.supervised import REWRITES, Supervised, settle

ROWS = 60_000
VALUES = np.random.default_rng(5).normal(100.0, 20.0, ROWS)
QUARTER = "SELECT AVG(v) AS a, COUNT(*) AS n FROM s REDUCE BY uniform(0.75)"


def filled(directory, layout: str):
    db = Engine.open(directory, sample_rows=100, machine=Supervised())
    db.execute(f"CREATE STREAM s (ts TIMESTAMP, v DOUBLE) TIMESTAMP BY ts ARCHIVE {layout}")
    for first in range(0, ROWS, 20_000):
        times = pa.array(np.arange(first, first + 20_000) * 1000, pa.timestamp("us"))
        db.push("s", pa.table({"ts": times, "v": VALUES[first : first + 20_000]}))
        db.seal("s")
    return db


def answered(db, sql=QUARTER):
    """The answer, which must hold the truth: its widest interval is eight deviations."""
    answer = db.execute(sql + " CONFIDENCE 99.9999 PERCENT")
    row = answer.table.to_pylist()[0]
    assert row["a_low"] - 1e-9 <= VALUES.mean() <= row["a_high"] + 1e-9
    assert row["n"] == ROWS
    return answer


@pytest.mark.slow
def test_an_eager_stream_is_read_by_its_copies(tmp_path):
    with filled(tmp_path, "eager(0.5, 0.7)") as db:
        part = answered(db).archive
        assert part.bytes_read < 0.45 * part.bytes_stored
        assert part.given_max == pytest.approx(0.7)
        more = answered(db, QUARTER.replace("0.75", "0.6")).archive
        assert more.given_max == pytest.approx(0.5)
        assert more.bytes_read > 1.2 * part.bytes_read
        assert answered(db, QUARTER.replace("0.75", "0.4")).archive is None  # No copy is so fine.


@pytest.mark.slow
def test_a_lazy_stream_is_read_by_what_earlier_questions_left(tmp_path):
    with filled(tmp_path, "lazy") as db:
        first = answered(db)
        assert first.archive is None or first.archive.bytes_read > 0.9 * first.archive.bytes_stored
        settle(db, REWRITES)
        assert [run.copies[0].reduction for run in db.core.store.runs(1)] == [0.75] * 3
        second = answered(db).archive
        assert second.bytes_read < 0.5 * second.bytes_stored
        assert 0 < second.blocks_read < second.blocks == 6
        assert second.given_max == 0.75
        assert answered(db, "SELECT AVG(v) AS a, COUNT(*) AS n FROM s").archive is None
    with Engine.open(tmp_path, machine=Supervised()) as db:
        assert answered(db).archive.bytes_read == second.bytes_read


@pytest.mark.slow
def test_a_target_is_met_by_copies_and_beyond_them(tmp_path):
    with filled(tmp_path, "eager(0.5, 0.9)") as db:
        wide = db.execute("SELECT AVG(v) AS a FROM s WITHIN 2 PERCENT")
        narrow = db.execute("SELECT AVG(v) AS a FROM s WITHIN 0.2 PERCENT")
        for answer in (wide, narrow):
            assert answer.table["a_met"].to_pylist() == [True]
        assert wide.archive is not None
        assert wide.archive.bytes_read < 0.3 * wide.archive.bytes_stored


def test_a_damaged_copy_changes_no_answer(tmp_path):
    with filled(tmp_path, "eager(0.7)") as db:
        for run in db.core.store.runs(1):
            path = tmp_path / "runs" / run.copies[0].file
            data = bytearray(path.read_bytes())
            for offset in range(100, len(data), 50):
                data[offset] ^= 1
            path.write_bytes(data)
        part = answered(db).archive
        assert part.bytes_read > 0.9 * part.bytes_stored
        assert scrub(db.core.store).damaged == []
        assert [run.copies for run in db.core.store.runs(1)] == [()] * 3
        db.relayouts.wake("s")
        settle(db, REWRITES)
        assert answered(db).archive.bytes_read < 0.5 * part.bytes_stored


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """300 runs of 40 tuples, each in shells."""
    store = opened(tmp_path_factory.mktemp("shells"), Eager((0.4, 0.8)), *[40] * 300)
    yield store
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.6, 0.9])
def test_shells_in_order_are_a_simple_random_sample(store, share):
    """Over 300 runs of 40 tuples, each place in the run is kept as often as any other."""
    kept = np.zeros(40, np.int64)
    with store.snapshot(1) as snapshot:

        def read(run, numbers, columns):
            return snapshot.read_shells(run, numbers, Wanted("ts", tuple(columns)), SCHEMA.seed)

        runs = [(run, 1) for run in snapshot.runs]
        rng = np.random.default_rng(3)
        sample = BlockSample(SCHEMA, runs, [], read, ["serial"], rng)
        sample.extend([share / 2] * 300, Deadline())
        sample.extend([share] * 300, Deadline())
        for each in sample.runs:
            assert sum(shell_sizes(each.run)) == 40
            parts = [table["serial"].to_numpy() for table in drawn([each])]
            rows = np.concatenate(parts or [[]])
            assert len(set(rows.tolist())) == rows.size == each.kept
            kept += np.bincount((rows - each.run.first_position).astype(int), minlength=40)
    expected = kept.sum() / 40
    assert abs(kept.sum() - 12_000 * share) < 6 * np.sqrt(12_000 * share * (1 - share))
    statistic = ((kept - expected) ** 2).sum() / (expected * (1 - share))
    assert statistic < 39 + 6 * np.sqrt(2 * 39)
