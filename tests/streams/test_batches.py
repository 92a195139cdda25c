"""Batches come back as they were sent, and nothing else comes back at all."""

import pyarrow as pa
import pytest

from shedder.errors import BadBatch, BadTimestamp, BatchTooLarge, SchemaMismatch, ShedderError
from shedder.streams.batches import (
    TIME_MAX_US,
    BatchLimits,
    arrow_schema,
    decode,
    decode_stored,
    encode,
)
from tests.streams.streams import EVERY_TYPE, TRADES, every_type, trades


def ipc(*batches: pa.RecordBatch, **options) -> bytes:
    sink = pa.BufferOutputStream()
    write = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, batches[0].schema, options=write) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("rows", [0, 1, 7, 1000])
def test_a_batch_of_every_type_comes_back_as_it_was_sent(rows):
    batch = every_type(rows)
    assert decode(encode(batch), EVERY_TYPE).equals(batch)
    assert decode_stored(encode(batch), EVERY_TYPE).equals(batch)


def test_a_slice_is_encoded_without_its_surroundings():
    whole = every_type(1000)
    part = whole.slice(501, 13)
    payload = encode(part)
    assert len(payload) < len(encode(whole)) / 10
    assert decode(payload, EVERY_TYPE).equals(part)


def test_metadata_and_nullability_of_the_sender_do_not_matter():
    batch = trades(5)
    nullable = pa.schema([field.with_nullable(True) for field in batch.schema])
    sent = pa.RecordBatch.from_arrays(batch.columns, schema=nullable.with_metadata({"a": "b"}))
    got = decode(encode(sent), TRADES)
    assert got.schema.equals(arrow_schema(TRADES), check_metadata=True)
    assert got.columns == batch.columns


def test_unaligned_bytes_are_read_as_well():
    payload = encode(trades(9))
    unaligned = memoryview(b"xyz" + payload)[3:]
    assert decode(unaligned, TRADES).equals(trades(9))


def test_every_shorter_payload_is_refused():
    payload = encode(trades(3))
    for length in range(len(payload) - 8):  # The last 8 bytes, the end marker, may be missing.
        with pytest.raises(BadBatch):
            decode(payload[:length], TRADES)
    assert decode(payload[:-8], TRADES).num_rows == 3


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compression_is_refused_before_it_is_undone(codec):
    with pytest.raises(BadBatch, match="compressed"):
        decode(ipc(trades(1000), compression=codec), TRADES)


def test_more_than_one_batch_is_refused():
    with pytest.raises(BadBatch, match="one batch"):
        decode(ipc(trades(3), trades(3)), TRADES)


def test_a_dictionary_is_refused():
    coded = trades(3).set_column(1, "key", pa.array(["a", "b", "a"]).dictionary_encode())
    with pytest.raises(BadBatch, match="dictionary"):
        decode(encode(coded), TRADES)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("key", pa.nulls(3)),
        ("key", pa.array([1, 2, 3], pa.int32())),
        ("ts", pa.array([1, 2, 3], pa.timestamp("us", "UTC"))),
        ("ts", pa.array([1, 2, 3], pa.timestamp("ns"))),
        ("value", pa.array([[1.0], [2.0], []])),
    ],
)
def test_another_type_than_the_streams_is_refused_by_name(column, values):
    batch = trades(3)
    other = batch.set_column(batch.schema.get_field_index(column), column, values)
    with pytest.raises(SchemaMismatch, match=f"column '{column}' is"):
        decode(encode(other), TRADES)


def test_a_column_that_claims_billions_of_rows_in_no_bytes_is_refused():
    nulls = pa.Array.from_buffers(pa.null(), 2**31 - 1, [None])
    nothing = pa.RecordBatch.from_arrays([nulls], ["ts"])
    with pytest.raises(BatchTooLarge, match="2147483647 rows"):
        decode(encode(nothing), TRADES)


def test_other_columns_than_the_streams_are_refused():
    with pytest.raises(SchemaMismatch, match="its columns are ts, key, not ts, key, value"):
        decode(encode(trades(3).drop_columns(["value"])), TRADES)


def test_limits_on_rows_and_bytes_hold():
    payload = encode(trades(1000))
    with pytest.raises(BatchTooLarge, match="1000 rows; the limit is 999"):
        decode(payload, TRADES, BatchLimits(rows_max=999))
    with pytest.raises(BatchTooLarge, match="bytes; the limit is 1000"):
        decode(payload, TRADES, BatchLimits(bytes_max=1000))
    assert decode(payload, TRADES, BatchLimits(1000, len(payload))).num_rows == 1000


def test_a_null_event_time_is_refused_with_its_row():
    times = pa.array([1, None, 3], pa.timestamp("us"))
    fields = [field.with_nullable(True) for field in arrow_schema(TRADES)]
    batch = trades(3)
    sent = pa.RecordBatch.from_arrays([times, *batch.columns[1:]], schema=pa.schema(fields))
    with pytest.raises(BadTimestamp, match="'ts' is null in 1 of 3 rows, the first time in row 2"):
        decode(encode(sent), TRADES)


@pytest.mark.parametrize("time_us", [TIME_MAX_US + 1, -(2**63)])
def test_an_event_time_that_no_calendar_has_is_refused(time_us):
    batch = trades(2)
    times = pa.array([0, time_us], pa.int64()).cast(pa.timestamp("us"))
    with pytest.raises(BadTimestamp, match=str(time_us)):
        decode(encode(batch.set_column(0, batch.schema.field(0), times)), TRADES)


def test_a_day_that_no_calendar_has_is_refused_in_any_column():
    batch = every_type(1)
    days = pa.array([2_932_897], pa.int32()).cast(pa.date32())
    place = batch.schema.get_field_index("day")
    with pytest.raises(BadTimestamp, match="'day' has a value 2932897 days"):
        decode(encode(batch.set_column(place, "day", days)), EVERY_TYPE)


def test_invalid_text_is_refused():
    batch = every_type(1)
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    )
    sent = batch.set_column(batch.schema.get_field_index("text"), "text", bad)
    with pytest.raises(BadBatch, match="damaged"):
        decode(encode(sent), EVERY_TYPE)


@pytest.mark.parametrize("junk", [b"", b"\0", b"\xff" * 8, b"ARROW1\0\0", b"\xff" * 4096])
def test_junk_is_refused(junk):
    with pytest.raises(ShedderError):
        decode(junk, TRADES)
