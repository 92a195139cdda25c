"""Kept rows of a query: numbers, tokens, and readers that are too slow."""

import pyarrow as pa
import pytest

from shedder.engine.dataflow.row_output import (
    COLUMN_BYTES,
    SEGMENT_BYTES,
    Frontier,
    InputFrontier,
    RowOutput,
)
from shedder.errors import BadSetting, OutputDiscarded, RowQueryFailed
from shedder.queries.answers.answer import InputProgress

SCHEMA = pa.schema([("n", pa.int64())])
PROGRESS = (InputProgress("s", "s", 0, None),)
ROWS_KEPT = 10


def frontier(rows, *, position=0, watermark_us=None, read_bytes=0):
    return Frontier(rows, {"s": InputFrontier(position, watermark_us)}, read_bytes)


def published(output, rows, **before):
    """Append rows whose values are their numbers."""
    first = output.rows
    table = pa.table({"n": pa.array(range(first, first + rows), pa.int64())})
    output.publish(table, frontier(first, **before), PROGRESS)


@pytest.fixture
def output():
    """Only the values count."""
    limits = {"bytes_max": 8 * ROWS_KEPT, "segment_bytes": 0, "column_bytes": 0}
    return RowOutput("q", "abc", SCHEMA, **limits)


def read(output, at, bytes_max=1 << 20):
    found = []
    while (taken := output.take(at, bytes_max)) is not None:
        table, at, _ = taken
        found += table["n"].to_pylist()
    return found


def test_every_place_is_read_to_the_end_in_batches_of_any_size(output):
    for rows in (3, 1, 4):
        published(output, rows)
    for at in range(9):
        for bytes_max in (1, 8, 17, 1 << 20):
            assert read(output, at, bytes_max) == list(range(at, 8))
    assert output.place("abc.5") == 5
    assert output.place(None) == 8
    assert output.newest(24)[0]["n"].to_pylist() == [5, 6, 7]
    assert output.newest(40)[0]["n"].to_pylist() == [3, 4, 5, 6, 7]


def test_oldest_rows_leave_and_their_readers_learn_where_to_go_on(output):
    for _ in range(5):
        published(output, 4)
    assert output.size_bytes <= 8 * ROWS_KEPT
    with pytest.raises(OutputDiscarded, match=r"rows 3 to 12 .* after 'abc.12'"):
        output.take(3, 100)
    with pytest.raises(OutputDiscarded, match="rows 11 to 12"):
        output.place("abc.11")
    assert read(output, output.place("abc.12")) == list(range(12, 20))


def test_rows_of_one_record_are_kept_whole_though_they_exceed_the_limit(output):
    published(output, 3 * ROWS_KEPT)
    assert read(output, 0) == list(range(3 * ROWS_KEPT))


def test_rows_of_many_records_are_counted_with_the_memory_of_each_record():
    """A record of one row takes kilobytes of objects, and 8 bytes of values."""
    output = RowOutput("q", "abc", SCHEMA, bytes_max=1 << 16)
    for _ in range(100):
        published(output, 1)
    kept = (1 << 16) // (SEGMENT_BYTES + COLUMN_BYTES + 8)
    assert read(output, 100 - kept) == list(range(100 - kept, 100))
    with pytest.raises(OutputDiscarded):
        output.place(f"abc.{100 - kept - 1}")


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "abc",
        "abd.1",
        "abc.-1",
        "abc.²",
        "abc.1.2",
        pytest.param("abc." + "1" * 5_000, id="long"),
    ],
)
def test_strange_tokens_are_refused(output, token):
    published(output, 3)
    with pytest.raises(BadSetting, match="is no token"):
        output.place(token)


def test_token_of_rows_that_were_never_made_is_refused(output):
    published(output, 3)
    with pytest.raises(BadSetting, match="is behind row 3"):
        output.place("abc.4")


def test_reader_gets_the_kept_rows_before_the_error(output):
    woken = []
    stop = output.wake_by(lambda: woken.append(output.rows))
    published(output, 2)
    output.end(RowQueryFailed("too large"))
    output.end(RowQueryFailed("something else"))
    stop()
    assert woken == [2, 2]
    assert output.take(0, 100)[0].num_rows == 2
    with pytest.raises(RowQueryFailed, match="too large"):
        output.take(2, 100)


def test_reader_whose_wake_up_raises_is_removed_and_the_others_are_woken(output):
    woken, failed = [], []

    def fail():
        failed.append(output.rows)
        raise RuntimeError("the loop is closed")

    output.wake_by(fail)
    output.wake_by(lambda: woken.append(output.rows))
    published(output, 2)
    published(output, 1)
    assert (failed, woken) == ([2], [2, 3])


def test_reader_learns_that_the_engine_closes(output):
    output.end(None)
    with pytest.raises(EOFError):
        output.take(0, 100)


def test_restart_begins_before_the_rows_that_fit_its_budget(output):
    for at in range(3):
        published(output, 2, position=10 * at, watermark_us=100 * at, read_bytes=1_000 * at)
    now = frontier(6, position=30, watermark_us=300, read_bytes=3_000)

    def begin(read_bytes_max, floor_us=None):
        point = output.restart_point(now, read_bytes_max=read_bytes_max, floor_us=floor_us)
        return point.inputs["s"].position

    assert begin(3_000) == 0
    assert begin(2_000) == 10
    assert begin(0) == 20  # The rows of the newest record at least.
    assert begin(3_000, floor_us=100) == 10
    assert begin(3_000, floor_us=201) == 30
