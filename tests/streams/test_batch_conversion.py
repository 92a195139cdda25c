"""What holds columns becomes batches of the stream, or says why it cannot."""

import datetime
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from shedder.errors import BadTimestamp, BatchTooLarge, InvalidRequest, SchemaMismatch
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import BatchLimits, arrow_schema, encode
from tests.streams.streams import EVERY_TYPE, TRADES, every_type, trades

NEW_YEAR_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z


def one(data) -> list[dict]:
    (batch,) = conform(data, TRADES)
    assert batch.schema == arrow_schema(TRADES)
    return batch.to_pylist()


def table(**columns) -> pa.Table:
    return pa.table({"ts": pa.array([1], pa.timestamp("us")), "key": [1], "value": [1.0]} | columns)


def decimals(text: str, scale: int) -> pa.Array:
    return pa.array([text]).cast(pa.decimal128(18, scale))


def test_columns_are_found_by_name():
    got = one(table().select(["value", "ts", "key"]))
    assert got == [{"ts": datetime.datetime(1970, 1, 1, 0, 0, 0, 1), "key": 1, "value": 1.0}]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_of_pandas_and_polars_become_batches(frame):
    times = np.array(["2026-01-01T00:00:00.000001"], "datetime64[us]")
    got = one(frame({"value": [2.5], "key": [7], "ts": times}))
    assert got == [{"ts": datetime.datetime(2026, 1, 1, 0, 0, 0, 1), "key": 7, "value": 2.5}]


def test_a_mapping_of_columns_becomes_a_batch():
    got = one({"ts": [datetime.datetime(2026, 1, 1)], "key": [7], "value": [None]})
    assert got == [{"ts": datetime.datetime(2026, 1, 1), "key": 7, "value": None}]


def test_a_reader_and_an_iterable_of_batches_are_taken_as_they_come():
    parts = [trades(3), trades(4)]
    reader = pa.RecordBatchReader.from_batches(parts[0].schema, parts)
    assert list(conform(reader, TRADES)) == parts
    assert list(conform(iter(parts), TRADES)) == parts


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_timestamps_of_every_unit_and_zone_become_microseconds_in_utc(unit, zone):
    moment = pa.array([NEW_YEAR_US], pa.int64()).cast(pa.timestamp("us"))
    times = moment.cast(pa.timestamp(unit)).cast(pa.int64()).cast(pa.timestamp(unit, zone))
    assert one(table(ts=times))[0]["ts"] == datetime.datetime(2026, 1, 1)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("key", pa.array([5], pa.uint8())),
        ("key", pa.array([5], pa.uint64())),
        ("key", pa.array([5]).dictionary_encode()),
        ("value", pa.array([5], pa.float32())),
        ("value", pa.array([5], pa.int16())),
        ("value", decimals("5.00", 2)),
    ],
)
def test_a_cast_that_loses_nothing_is_made(column, values):
    assert one(table(**{column: values}))[0][column] == 5


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_every_kind_of_string_becomes_plain(kind):
    batch = every_type(3)
    text = pa.array(["a", None, "a"])
    typed = text.dictionary_encode() if pa.types.is_dictionary(kind) else text.cast(kind)
    (got,) = conform(batch.set_column(5, "text", typed), EVERY_TYPE)
    assert got["text"].to_pylist() == ["a", None, "a"]


@pytest.mark.parametrize(
    ("column", "values", "problem"),
    [
        ("key", pa.array([2**63], pa.uint64()), "does not fit BIGINT.*9223372036854775808"),
        ("key", pa.array([1.0]), "is double, which is not BIGINT"),
        ("key", pa.array(["1"]), "is string, which is not BIGINT"),
        ("value", pa.array([2**53 + 1]), "does not fit DOUBLE"),
        ("value", decimals("9007199254740993", 0), "9007199254740993 has more digits"),
        ("value", decimals("1234567890123456.78", 2), "1234567890123456.78 has more digits"),
        ("value", pa.array([True]), "is bool, which is not DOUBLE"),
        ("ts", pa.array([1], pa.timestamp("ns")), "does not fit TIMESTAMP.*lose data"),
        ("ts", pa.array([1]), "is int64, which is not TIMESTAMP"),
    ],
)
def test_a_value_that_does_not_fit_is_shown(column, values, problem):
    with pytest.raises(SchemaMismatch, match=problem):
        list(conform(table(**{column: values}), TRADES))


def test_decimals_become_the_nearest_doubles():
    assert one(table(value=decimals("1.15", 2)))[0]["value"] == 1.15
    assert one(table(value=decimals("0.1", 1).dictionary_encode()))[0]["value"] == 0.1


def test_a_time_within_a_day_is_no_date():
    batch = every_type(1)
    at = batch.schema.get_field_index("day")
    day = pa.array([86_400_000], pa.int64()).cast(pa.date64())
    (got,) = conform(batch.set_column(at, "day", day), EVERY_TYPE)
    assert got["day"].to_pylist() == [datetime.date(1970, 1, 2)]
    inside = pa.array([86_400_001], pa.int64()).view(pa.date64())
    with pytest.raises(SchemaMismatch, match=r"does not fit DATE: .* is inside of a day"):
        list(conform(batch.set_column(at, "day", inside), EVERY_TYPE))


def test_a_frame_that_makes_no_table_is_refused():
    doubled = pd.DataFrame([[1, 2]], columns=["key", "key"])
    with pytest.raises(InvalidRequest, match="this frame does not make a table: Dup"):
        list(conform(doubled, TRADES))


def test_a_column_that_may_be_null_and_is_not_there_is_null():
    got = one(table().drop_columns(["value"]))
    assert got == [{"ts": datetime.datetime(1970, 1, 1, 0, 0, 0, 1), "key": 1, "value": None}]
    assert one({"ts": [datetime.datetime(1970, 1, 1)]})[0]["key"] is None


@pytest.mark.parametrize("without", ["ts", "text"])
def test_a_column_that_may_not_be_null_must_be_there(without):
    columns = [replace(it, nullable=it.name not in ("ts", "text")) for it in EVERY_TYPE.columns]
    strict = replace(EVERY_TYPE, columns=tuple(columns))
    with pytest.raises(SchemaMismatch, match=f"column '{without}' is missing, and NOT NULL"):
        list(conform(every_type(3).drop_columns([without]), strict))


def test_unknown_and_doubled_columns_are_named():
    with pytest.raises(SchemaMismatch, match="no column 'extra'"):
        list(conform(table(extra=[1]), TRADES))
    doubled = pa.Table.from_arrays([*table().columns, pa.chunked_array([[1]])], [*"ab", "c", "c"])
    with pytest.raises(SchemaMismatch, match="twice"):
        list(conform(doubled.rename_columns(["ts", "key", "value", "value"]), TRADES))


def test_null_event_times_are_refused_also_without_a_type():
    with pytest.raises(BadTimestamp, match="the event time 'ts' is null in 1 of"):
        list(conform(table(ts=pa.nulls(1)), TRADES))


@pytest.mark.parametrize("data", [3, "rows", None, [1, 2], {"ts": 1}])
def test_what_has_no_columns_is_refused(data):
    with pytest.raises(InvalidRequest):
        list(conform(data, TRADES))


def test_an_empty_table_makes_no_batch_but_its_columns_are_checked():
    assert list(conform(table().slice(0, 0), TRADES)) == []
    with pytest.raises(SchemaMismatch):
        list(conform(table(extra=[1]).slice(0, 0), TRADES))


def test_a_big_table_is_split_and_nothing_is_lost():
    whole = pa.Table.from_batches([trades(1000)])
    got = list(conform(whole, TRADES, rows_max=300))
    assert [batch.num_rows for batch in got] == [300, 300, 300, 100]
    assert pa.Table.from_batches(got).equals(whole)


def test_batches_are_as_large_as_the_limit_on_rows_allows():
    limits = BatchLimits(rows_max=300)
    got = list(conform(pa.Table.from_batches([trades(1000)]), TRADES, limits=limits))
    assert [batch.num_rows for batch in got] == [300, 300, 300, 100]


def test_many_small_pieces_are_gathered():
    pieces = pa.Table.from_batches([trades(10, seed) for seed in range(50)])
    got = list(conform(pieces, TRADES, rows_max=300))
    assert [batch.num_rows for batch in got] == [300, 200]
    assert pa.Table.from_batches(got).equals(pieces.combine_chunks())


def test_wide_rows_are_split_until_each_payload_fits():
    batch = every_type(64)
    wide = batch.set_column(5, "text", pa.array(["x" * 10_000] * 64))
    limits = BatchLimits(bytes_max=200_000)
    got = list(conform(wide, EVERY_TYPE, limits=limits))
    assert sum(part.num_rows for part in got) == 64
    assert all(len(encode(part)) <= limits.bytes_max for part in got)
    with pytest.raises(BatchTooLarge, match="one row"):
        list(conform(wide, EVERY_TYPE, limits=BatchLimits(bytes_max=70_000)))
