"""Rows that a stream cannot take are told from the others, whatever they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.cql.expressions.column_types import ColumnType
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import TIME_MAX_US, TIME_MIN_US, BatchLimits
from spark_ingest.rejected_rows import CORRUPT, REASON, Aside, sound, taken
from tests.streams.streams import stream

NEWEST_US = 10**15


SCHEMA = stream(
    "s",
    ts=ColumnType.TIMESTAMP,
    i=ColumnType.INTEGER,
    b=ColumnType.BIGINT,
    d=ColumnType.DOUBLE,
    s=ColumnType.VARCHAR,
)


def near(*ends: int) -> st.SearchStrategy[int]:
    return st.sampled_from(ends).flatmap(lambda end: st.integers(end - 2, end + 2))


def texts(values: list[bytes | None], kind: pa.DataType) -> pa.Array[Any]:
    """Bytes as text, unseen, as Spark casts them."""
    wide = kind == pa.large_string()
    held = pa.array(values, pa.large_binary() if wide else pa.binary())
    return pa.Array.from_buffers(kind, len(held), held.buffers())


def is_text(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


ROWS = st.lists(
    st.tuples(
        st.none() | near(TIME_MIN_US, 0, NEWEST_US, TIME_MAX_US),
        st.none() | near(-(1 << 31), 0, (1 << 31) - 1),
        st.none() | near(2, (1 << 63) - 1),
        st.none() | near(-(1 << 53), 0, 1 << 53),
        st.none() | st.sampled_from([b"", b"a", "é".encode(), b"\xff", b"\xed\xa0\x80", b"a\xc3"]),
    ),
    max_size=20,
)


@pytest.mark.slow
@given(rows=ROWS, text=st.sampled_from([pa.string(), pa.large_string()]))
def test_sound_rows_are_those_whose_every_value_the_stream_can_hold(
    rows: list[tuple[Any, ...]], text: pa.DataType
) -> None:
    ts, i, b, d, s = ([row[at] for row in rows] for at in range(5))
    batch = pa.record_batch(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "i": pa.array(i, pa.int64()),
            "b": pa.array(b, pa.uint64()),
            "d": pa.array(d, pa.int64()),
            "s": texts(s, text),
        }
    )
    good, bad = sound(batch, SCHEMA, NEWEST_US)
    fine = [
        ts is not None
        and TIME_MIN_US <= ts <= NEWEST_US
        and (i is None or -(1 << 31) <= i < 1 << 31)
        and (b is None or b < 1 << 63)
        and (d is None or abs(d) <= 1 << 53)
        and is_text(s)
        for ts, i, b, d, s in rows
    ]
    assert good.equals(batch.filter(pa.array(fine, pa.bool_())))
    assert (0 if bad is None else bad.num_rows) == len(rows) - sum(fine)
    assert bad is None or None not in bad[REASON].to_pylist()
    assert sum(each.num_rows for each in conform(good, SCHEMA)) == sum(fine)  # It takes them all.


def test_nanoseconds_that_microseconds_would_lose_are_poison() -> None:
    times = pa.array([1_000, 1_001, None], pa.timestamp("ns", "UTC"))
    schema = stream("s", ts=ColumnType.TIMESTAMP, u=ColumnType.TIMESTAMP)
    batch = pa.record_batch({"ts": pa.array([1, 2, 3], pa.timestamp("us")), "u": times})
    good, bad = sound(batch, schema, NEWEST_US)
    assert good["u"].cast(pa.int64()).to_pylist() == [1_000, None]
    assert bad is not None
    assert bad[REASON].to_pylist() == ["u: does not fit TIMESTAMP"]


def test_a_record_that_the_source_could_not_read_is_poison_with_its_text() -> None:
    schema = stream("s", ts=ColumnType.TIMESTAMP, i=ColumnType.BIGINT)
    rows = {"ts": pa.array([1, 2], pa.timestamp("us")), "i": [None, 2], CORRUPT: ["1,x", None]}
    batch = pa.record_batch(rows)
    good, bad = sound(batch, schema, NEWEST_US)
    assert good.schema.names == ["ts", "i"]
    assert good["i"].to_pylist() == [2]
    assert bad is not None
    assert bad[CORRUPT].to_pylist() == ["1,x"]
    assert bad[REASON].to_pylist() == [f"{CORRUPT}: the source cannot read this"]


@pytest.mark.parametrize("own", [True, False])
def test_a_stream_may_have_a_column_of_that_name_itself(own: bool) -> None:
    kinds = {CORRUPT: ColumnType.VARCHAR} if own else {}
    schema = stream("s", ts=ColumnType.TIMESTAMP, **kinds)
    batch = pa.record_batch({"ts": pa.array([1], pa.timestamp("us")), CORRUPT: ["as it should be"]})
    good, _ = sound(batch, schema, NEWEST_US)
    assert good.num_rows == int(own)
    assert taken(batch.schema, schema) == ["ts", CORRUPT]


def test_jobs_that_share_a_directory_keep_their_poison_apart(tmp_path: Path) -> None:
    jobs = [
        ("write", "s", "nightly"),
        ("backfill", "s", "nightly"),
        ("write", "t", "nightly"),
        ("write", "s", "../nightly"),
        ("write", "s.a", "b"),
        ("write", "s", "a.b"),
    ]
    for number, job in enumerate(jobs):
        Aside.of(str(tmp_path), *job).write(pa.table({"x": [number]}), 0, 0)
    assert sorted(pq.read_table(tmp_path)["x"].to_pylist()) == list(range(len(jobs)))
    Aside.of(str(tmp_path), *jobs[1]).clear()
    Aside.of(str(tmp_path), *jobs[2]).clear(0)
    Aside.of(str(tmp_path), *jobs[3]).clear(1)
    assert sorted(pq.read_table(tmp_path)["x"].to_pylist()) == [0, 3, 4, 5]
    assert {path.parent for path in tmp_path.glob("job=*")} == {tmp_path}


def test_a_micro_batch_that_is_tried_again_begins_with_no_poison(tmp_path: Path) -> None:
    aside = Aside(str(tmp_path / "poison"))
    aside.clear(3)
    for partition in range(2):
        aside.write(pa.table({"x": [partition]}), 3, partition)
        aside.write(pa.table({"x": [10 + partition]}), 4, partition)
    aside.clear(3)
    aside.write(pa.table({"x": [5]}), 3, 0)
    assert sorted(pq.read_table(tmp_path / "poison")["x"].to_pylist()) == [5, 10, 11]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("value", [(1 << 63) - 1, -(1 << 63) + 1])
def test_times_that_no_microsecond_can_hold_are_poison(unit: str, value: int) -> None:
    """Cast without a look they become others, of which some are in the range."""
    plain = stream("s", ts=ColumnType.TIMESTAMP)
    batch = pa.RecordBatch.from_arrays([pa.array([value, 0], pa.timestamp(unit))], names=["ts"])
    good, bad = sound(batch, plain, NEWEST_US)
    assert good.num_rows == 1
    assert bad is not None
    assert bad.num_rows == 1


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_newest_time_is_the_same_in_every_unit(unit: str) -> None:
    plain = stream("s", ts=ColumnType.TIMESTAMP)
    whole = {"s": 10**6, "ms": 1_000, "us": 1, "ns": 1}[unit]
    newest = pa.array([NEWEST_US, NEWEST_US + whole], pa.timestamp("us")).cast(pa.timestamp(unit))
    good, bad = sound(pa.RecordBatch.from_arrays([newest], names=["ts"]), plain, NEWEST_US)
    assert good.num_rows == 1
    assert bad is not None
    assert bad.column(REASON).to_pylist() == ["ts: is too far in the future"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary("int32", "string")])
def test_a_row_that_no_batch_can_hold_is_poison(kind: pa.DataType) -> None:
    plain = stream("s", ts=ColumnType.TIMESTAMP, s=ColumnType.VARCHAR)
    limits = BatchLimits(rows_max=1_000, bytes_max=1 << 17)
    values = pa.array(["x" * (1 << 17), "y" * (1 << 15), None, "z"], pa.string()).cast(kind)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([0, 1, 2, 3], pa.timestamp("us")), values], names=["ts", "s"]
    )
    good, bad = sound(batch, plain, NEWEST_US, limits.bytes_max)
    assert sum(each.num_rows for each in conform(good, plain, limits=limits)) == 3
    assert bad is not None
    assert bad.column("ts").cast(pa.int64()).to_pylist() == [0]
    assert "larger than a batch may be, 131,072 bytes" in bad.column(REASON)[0].as_py()
