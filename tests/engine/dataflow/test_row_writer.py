"""Writer of a query's rows, over a log that loses records, is full, or refuses a row."""

from __future__ import annotations

from concurrent.futures import Future

import pyarrow as pa
import pytest

from shedder.engine.dataflow.row_output import RowOutput
from shedder.engine.dataflow.row_queries import StandingRowQueries
from shedder.engine.dataflow.row_target import RowTarget
from shedder.engine.dataflow.row_writer import RowWriter
from shedder.engine.engine import Engine
from shedder.errors import DiskFull, SchemaMismatch
from shedder.streams.batches import BatchLimits
from tests.engine.dataflow.worlds import CREATE, START_US, applied, batch

pytestmark = pytest.mark.slow


class FakeLog:
    """Target of a writer whose records become durable, are lost, or are refused."""

    stream_id = 7

    def __init__(self) -> None:
        self.losses = 0
        self.is_full = False
        self.waiting: list[tuple[int, list[int], Future[int]]] = []
        self.stored: list[int] = []
        self.watermarks: list[int] = []
        self.beats: list[Future[int]] = []

    def append_made(self, rows, producer, *, end_row, losses):
        assert producer.startswith("\0")
        if self.is_full:
            raise DiskFull("no room")
        if losses != self.losses:
            return None
        self.waiting.append((end_row, rows["id"].to_pylist(), Future()))
        return self.waiting[-1][2]

    def heartbeat(self, watermark_us, *, urgent):
        assert urgent
        self.watermarks.append(watermark_us - START_US)
        self.beats.append(Future())
        return self.beats[-1]

    def commit(self, records):
        """Store the oldest records; return the number behind the last row."""
        done, self.waiting = self.waiting[:records], self.waiting[records:]
        for _, ids, future in done:
            self.stored += ids
            future.set_result(0)
        return done[-1][0]

    def lose(self):
        """Lose what waits, as a disk that is full does."""
        self.losses += 1
        for _, _, future in self.waiting:
            future.set_exception(DiskFull("no room"))
        self.waiting = []


@pytest.fixture
def db(tmp_path):
    with Engine.open(tmp_path / "data") as opened:
        opened.execute(CREATE)
        opened.register("q", "SELECT id FROM s")
        yield opened


def push(db, first, last):
    db.push("s", batch([(at, at, 0) for at in range(first, last)]))
    db.heartbeat("s", START_US + last)
    applied(db)


def batch_of(rows):
    return rows.combine_chunks().to_batches()[0]


def writer_of(db, log, *, rows_max=4):
    query, target = db.core.rows.queries["q"], RowTarget("v", ("id",), is_view=True)
    return RowWriter(query, target, log, batch_of, BatchLimits(rows_max, 1 << 20))


def test_lost_records_are_sent_again_and_durable_ones_are_not(db):
    log = FakeLog()
    writer = writer_of(db, log)
    push(db, 0, 10)
    writer.send()
    assert [len(ids) for _, ids, _ in log.waiting] == [4, 4, 2]
    log.commit(1)  # Durable, and not applied yet.
    log.lose()
    push(db, 10, 12)
    writer.send()
    writer.note_stored(log.commit(len(log.waiting)))
    assert log.stored == [*range(12)]
    writer.send()
    assert (log.waiting, writer.stored) == ([], 12)


def test_nothing_is_sent_before_the_query_is_durable(db):
    log = FakeLog()
    query, target = db.core.rows.queries["q"], RowTarget("v", ("id",), is_view=True)
    writer = RowWriter(query, target, log, batch_of, BatchLimits(), begins=False)
    push(db, 0, 3)
    writer.send()
    assert (log.waiting, log.watermarks) == ([], [])
    writer.begin()
    assert (log.waiting[0][1], log.watermarks) == ([0, 1, 2], [3])


def test_a_full_log_keeps_rows_and_lets_nothing_wait(db):
    log = FakeLog()
    writer = writer_of(db, log)
    push(db, 0, 3)
    waits = writer.when_stored()
    log.is_full = True
    writer.send()
    assert waits.done()
    log.is_full = False
    writer.send()
    assert log.waiting[0][1] == [0, 1, 2]


def test_one_watermark_is_on_its_way_and_the_newest_follows(db):
    log = FakeLog()
    writer = writer_of(db, log)
    for last in (2, 4, 6):
        push(db, last - 2, last)
        writer.send()
    assert log.watermarks == [2]
    waits = writer.when_stored()
    writer.note_stored(log.commit(len(log.waiting)))
    assert not waits.done()  # The watermark is still that of two rows.
    log.beats[0].set_result(0)
    writer.send()
    assert log.watermarks == [2, 6]
    writer.note_watermark(8, START_US + 6)  # Of another stream.
    assert not waits.done()
    writer.note_watermark(7, START_US + 6)
    assert waits.done()


def test_rows_are_kept_until_they_are_applied_however_many_they_are(db):
    query = db.core.rows.queries["q"]
    bytes_max = db.core.rows.limits.output_bytes_max
    log = FakeLog()
    writer = writer_of(db, log, rows_max=1 << 20)
    rows = 1 + bytes_max // 2 // 24
    for at in range(3):
        push(db, at * rows, (at + 1) * rows)
        writer.send()
    before = query.frontier
    assert query.output.size_bytes > bytes_max >= query.output.counted_bytes
    assert query.output.restart_point(before, read_bytes_max=0, floor_us=None).rows == 0
    writer.note_stored(log.commit(len(log.waiting)))
    assert log.stored == [*range(3 * rows)]
    assert query.output.size_bytes <= bytes_max
    assert query.output.restart_point(before, read_bytes_max=0, floor_us=None).rows >= rows


def test_what_the_target_refuses_is_an_error(db):
    log = FakeLog()

    def convert(rows: pa.Table) -> pa.RecordBatch:
        raise SchemaMismatch("t", f"{rows.num_rows} rows")

    query, target = db.core.rows.queries["q"], RowTarget("t", ("id",), is_view=False)
    writer = RowWriter(query, target, log, convert, BatchLimits())
    push(db, 0, 3)
    with pytest.raises(SchemaMismatch, match="3 rows"):
        writer.send()
    assert (log.waiting, log.watermarks) == ([], [])


def test_rows_that_a_query_made_before_it_failed_are_sent_without_a_watermark(db):
    log, rows = (
        FakeLog(),
        StandingRowQueries(db.core.rows.limits, db.core.rows.steps, db.core.rows.schedule),
    )
    writer = writer_of(db, log)
    rows.add(db.core.rows.queries["q"], writer)
    push(db, 0, 6)
    waits = writer.when_stored()
    db.core.rows.queries["q"].fail("no memory")
    rows.send()
    assert [ids for _, ids, _ in log.waiting] == [[0, 1, 2, 3], [4, 5]]
    assert (log.watermarks, waits.done()) == ([], True)
    log.lose()
    rows.send()
    writer.note_stored(log.commit(2))
    rows.send()
    assert (log.stored, log.waiting) == ([*range(6)], [])


def test_last_rows_that_the_target_refuses_are_not_tried_again(db):
    tried = []

    def convert(rows: pa.Table) -> pa.RecordBatch:
        tried.append(rows.num_rows)
        raise SchemaMismatch("t", "no")

    query, target = db.core.rows.queries["q"], RowTarget("t", ("id",), is_view=False)
    writer = RowWriter(query, target, FakeLog(), convert, BatchLimits())
    push(db, 0, 3)
    query.fail("no memory")
    for _ in range(2):
        writer.send_last()
    assert tried == [3]


def test_rows_of_a_failed_query_that_a_restart_does_not_have_are_not_sent(db):
    output = RowOutput("q", "x", db.core.rows.queries["q"].output.schema, bytes_max=1 << 20)
    output.begin_at(6)
    output.keep_from(4)
    assert output.after(4, 10, 1 << 20) is None
