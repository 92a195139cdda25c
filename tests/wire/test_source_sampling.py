"""What a producer has left out of a batch: said on the wire, and believed only if it can be."""

import numpy as np
import pyarrow as pa
import pytest

from shedder.errors import BadBatch
from shedder.streams.batches import encoded
from shedder.streams.dropped_counts import Dropped
from shedder.v1.ingest_pb2 import LeftOut
from shedder.wire.batches import ALIGNMENT, append_stream_bytes, read_append_stream
from shedder.wire.source_sampling import ROWS_MAX, left_out_from_wire, left_out_to_wire
from tests.streams.streams import EVERY_TYPE, TRADES, every_type, trades


@pytest.mark.parametrize("rows", [1, 2, 300])
def test_what_is_said_of_every_type_is_what_is_read(rows):
    said = Dropped.of(every_type(rows), "ts")
    message = LeftOut.FromString(left_out_to_wire(said).SerializeToString())
    assert left_out_from_wire(message, EVERY_TYPE) == said


def test_columns_without_a_value_and_infinities_have_their_ranges_too():
    batch = every_type(50)
    real = pa.array(np.repeat([-np.inf, np.inf], 25))
    batch = batch.set_column(4, batch.schema.field(4), real)
    batch = batch.set_column(3, batch.schema.field(3), pa.nulls(50, pa.int64()))
    said = Dropped.of(batch, "ts")
    assert (said.basics["real"].low, said.basics["big"].low) == (-np.inf, None)
    assert left_out_from_wire(left_out_to_wire(said), EVERY_TYPE) == said


def test_the_payload_beside_it_is_handed_on_as_it_lies():
    payload, said = encoded(trades(10)), left_out_to_wire(Dropped.of(trades(70_000), "ts"))
    request = append_stream_bytes(3, 10, payload, said)
    carrying = read_append_stream(request)
    assert isinstance(carrying.payload, memoryview)
    assert bytes(carrying.payload) == payload.to_pybytes()
    assert (len(request) - payload.size) % ALIGNMENT == 0
    assert carrying.request.batch.left_out == said


def changed(**fields):
    """A sound message, in which these are others."""
    message = left_out_to_wire(Dropped.of(trades(4_000), "ts"))
    for name, value in fields.items():
        match name:
            case "rows":
                message.rows = value
            case "seconds":
                del message.seconds[:]
                message.seconds.extend(LeftOut.Second(second=s, rows=n) for s, n in value)
            case "columns":
                del message.columns[:]
                message.columns.extend(value(left_out_to_wire(Dropped.of(trades(4_000), "ts"))))
            case _:
                [column] = [each for each in message.columns if each.name == name]
                column.MergeFrom(value)
    return message


ALL = [(0, 1_000), (1, 1_000), (2, 1_000), (3, 1_000)]
HOSTILE = {
    "no rows": {"rows": 0},
    "less than none": {"rows": -1},
    "more than can be": {"rows": ROWS_MAX + 1},
    "more than its seconds have": {"rows": 4_001},
    "no seconds": {"seconds": []},
    "seconds in another order": {"seconds": [ALL[1], ALL[0], *ALL[2:]]},
    "a second twice": {"seconds": [(0, 500), (0, 500), *ALL[1:]]},
    "a second without rows": {"seconds": [(0, 2_000), (1, 0), *ALL[2:]]},
    "a second with less than none": {"seconds": [(0, 2_001), (1, -1), *ALL[2:]]},
    "a second of no calendar": {"seconds": [*ALL[:3], (1 << 62, 1_000)]},
    "seconds that are not those of the times": {"seconds": [(9, 4_000)]},
    "no columns": {"columns": lambda message: []},
    "a column too few": {"columns": lambda message: message.columns[:2]},
    "a column twice": {"columns": lambda message: [*message.columns[:2], message.columns[1]]},
    "more nulls than rows": {"key": LeftOut.Column(nulls=4_001)},
    "less nulls than none": {"key": LeftOut.Column(nulls=-1)},
    "an event time without a value": {"ts": LeftOut.Column(nulls=1)},
    "a range although all are null": {"key": LeftOut.Column(nulls=4_000)},
    "a range that is none": {"key": LeftOut.Column(whole=LeftOut.Whole(low=7, high=6))},
    "NaN": {"value": LeftOut.Column(real=LeftOut.Real(low=float("nan"), high=1.0))},
    "whole numbers of a DOUBLE": {"value": LeftOut.Column(whole=LeftOut.Whole(low=1, high=2))},
    "a DOUBLE of a BIGINT": {"key": LeftOut.Column(real=LeftOut.Real(low=1.0, high=2.0))},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_contradicts_itself_or_the_stream_is_refused(what):
    with pytest.raises(BadBatch):
        left_out_from_wire(changed(**HOSTILE[what]), TRADES)


def test_a_range_is_wanted_where_there_are_values_and_of_text_there_is_none():
    for batch, schema, name in ((trades(5), TRADES, "key"), (every_type(50), EVERY_TYPE, "text")):
        message = left_out_to_wire(Dropped.of(batch, "ts"))
        [column] = [each for each in message.columns if each.name == name]
        if name == "text":
            column.whole.CopyFrom(LeftOut.Whole(low=0, high=1))
        else:
            column.ClearField("whole")
        with pytest.raises(BadBatch, match=f"the range of {name}"):
            left_out_from_wire(message, schema)
