"""What goes over the wire comes out as it went in, every field of it."""

import dataclasses
import math
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest

from shedder.errors import CorruptData, InvalidRequest, Unimplemented
from shedder.queries.answers.answer import Answer, ArchiveRead, InputProgress, MissingGroups
from shedder.queries.answers.completeness import Completeness
from shedder.queries.answers.database_api import Ledger, QueryLedger, Receipt
from shedder.streams.ipc import table_bytes
from shedder.v1 import ingest_pb2, query_pb2
from shedder.wire import tables
from shedder.wire.answers import answer_from_wire, answer_to_wire
from shedder.wire.ingest import (
    ledger_from_wire,
    ledger_to_wire,
    receipt_from_wire,
    receipt_to_wire,
    schema_from_wire,
    schema_to_wire,
)
from shedder.wire.parameters import parameters_from_wire, parameters_to_wire
from synopses.model.estimate import Bound, Estimate
from tests.streams.streams import EVERY_TYPE

TOP = pa.list_(pa.struct({"value": pa.string(), "count": pa.int64(), "guaranteed": pa.bool_()}))
FULL = Answer(
    table=pa.table(
        {
            "n": pa.array([1.5, None]),
            "top": pa.array([[{"value": "a", "count": 3, "guaranteed": True}], None], TOP),
        }
    ),
    query="SELECT 1",
    start_us=-5,
    end_us=0,
    resolution_us=3,
    watermark_us=17,
    position=9,
    late=2,
    complete=False,
    confidence=0.95,
    thinning=0.25,
    archive_share_read=0.5,
    archive=ArchiveRead("uniform(0.5)", 0.4, 0.5, 0.45, 0.55, 32, 64, 10_000, 20_000, 2),
    sources=("moments", "sample"),
    missing=MissingGroups(12.5, 0.99, "sampled"),
    others=0,
    notes=("a note",),
    missed=3,
    elapsed_ms=0.25,
    certified=False,
    cut="cut behind 2 rows",
    inputs=(InputProgress("s", "a", 9, 17, 1, 2, 3), InputProgress("t", "b", 0, None, 0, 0, 0)),
    resume="token",
    completeness=Completeness(
        ("k", "l"),
        0.25,
        -3,
        4,
        10,
        5,
        Estimate(40.0, -math.inf, math.inf, 0.95, Bound.NONE, "sample of keys"),
        Estimate(20.0, 12.0, 33.0, 0.95, Bound.INTERVAL, "sample of keys"),
        "why",
    ),
)
EMPTY = Answer(table=pa.table({"status": pa.array([], pa.string())}))


def sent_and_received(answer: Answer) -> Answer:
    payload = answer_to_wire(answer).SerializeToString()
    return answer_from_wire(query_pb2.Answer.FromString(payload))


@pytest.mark.parametrize("answer", [FULL, EMPTY, Answer.status("created")])
def test_every_field_of_an_answer_arrives(answer):
    got = sent_and_received(answer)
    assert got.table.equals(answer.table, check_metadata=True)
    for field in dataclasses.fields(Answer):
        if field.name != "table":
            assert getattr(got, field.name) == getattr(answer, field.name), field.name


def test_the_full_answer_of_this_test_differs_from_the_default_in_every_field():
    for field in dataclasses.fields(Answer):
        if field.name != "table":
            assert getattr(FULL, field.name) != field.default, field.name


def test_nothing_known_about_missing_groups_stays_nothing_known():
    unknown = MissingGroups(None, 0.95, "no sample")
    assert sent_and_received(dataclasses.replace(EMPTY, missing=unknown)).missing == unknown


def test_a_table_keeps_its_metadata():
    field = pa.field("n", pa.int64(), metadata={"shedder.role": "estimate"})
    table = pa.table([[1]], schema=pa.schema([field]))
    assert tables.from_bytes(table_bytes(table)).schema.equals(table.schema, True)


@pytest.mark.parametrize("payload", [b"", b"junk", table_bytes(FULL.table)[:100]])
def test_a_damaged_table_is_said_to_be_damaged(payload):
    with pytest.raises(CorruptData):
        tables.from_bytes(payload)


def values_of(params):
    return [params[name] for name in sorted(params)] if isinstance(params, dict) else params


@pytest.mark.parametrize(
    "params",
    [
        None,
        [True, 1, -(2**63), 2**63 - 1, 1.5, math.inf, "é", "", None],
        {"a": False, "b": 0, "c": 0.0, "d": None},
        [
            datetime(2026, 1, 2, 3, 4, 5, 6),
            datetime(1, 1, 1),
            date(2026, 1, 2),
            date.max,
            timedelta(-9, 5, 7),
        ],
    ],
)
def test_parameters_arrive_with_their_types(params):
    message = parameters_to_wire(params)
    if message is None:
        assert params is None
        return
    got = parameters_from_wire(query_pb2.Parameters.FromString(message.SerializeToString()))
    assert got == params
    assert list(map(type, values_of(got))) == list(map(type, values_of(params)))


def test_aware_datetimes_become_utc_and_numpy_scalars_plain():
    zone = timezone(timedelta(hours=2))
    message = parameters_to_wire([datetime(2026, 1, 1, 2, tzinfo=zone), np.int64(3), np.True_])
    assert parameters_from_wire(message) == [datetime(2026, 1, 1), 3, True]
    same = parameters_to_wire([datetime(2026, 1, 1, tzinfo=UTC)])
    assert parameters_from_wire(same) == [datetime(2026, 1, 1)]


@pytest.mark.parametrize(
    "params", ["text", [object()], [2**63], [timedelta.max], {"a": b"bytes"}, 3]
)
def test_a_parameter_that_no_column_can_hold_is_refused(params):
    with pytest.raises(InvalidRequest):
        parameters_to_wire(params)


@pytest.mark.parametrize(
    "message",
    [
        query_pb2.Parameters(
            positional=[query_pb2.Value(integer=1)], named={"a": query_pb2.Value(integer=1)}
        ),
        query_pb2.Parameters(positional=[query_pb2.Value(timestamp_us=2**63 - 1)]),
        query_pb2.Parameters(positional=[query_pb2.Value(date_days=2**31 - 1)]),
    ],
)
def test_parameters_that_make_no_sense_are_refused(message):
    with pytest.raises(InvalidRequest):
        parameters_from_wire(message)


def test_a_streams_schema_arrives_without_its_seed():
    assert schema_from_wire(schema_to_wire(EVERY_TYPE)) == dataclasses.replace(EVERY_TYPE, seed=0)
    kept = dataclasses.replace(EVERY_TYPE, retain_us=5, lateness_us=3, seed=0)
    assert schema_from_wire(schema_to_wire(kept)) == kept


def test_a_newer_servers_types_are_named():
    message = schema_to_wire(EVERY_TYPE)
    message.columns.append(
        ingest_pb2.DescribeStreamResponse.Column(name="shape", type="GEOMETRY", nullable=True)
    )
    with pytest.raises(Unimplemented, match="GEOMETRY"):
        schema_from_wire(message)


def test_receipts_and_ledgers_arrive():
    receipt = Receipt("s", 10, 3, duplicate=True)
    assert receipt_from_wire(receipt_to_wire(receipt)) == receipt
    ledger = Ledger("s", 1, 2, 3, 4, 5, 6, (QueryLedger("q", 7, 8, 9), QueryLedger("r", 1, 2, 3)))
    assert ledger_from_wire(ledger_to_wire(ledger)) == ledger
