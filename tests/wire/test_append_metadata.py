"""What a call declares of its batch: round trips, and declarations that are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.errors import InvalidRequest
from shedder.v1.ingest_pb2 import AppendRequest, Batch, Declared
from shedder.wire.append_metadata import KEY, check_declared, declared_in, declared_metadata
from shedder.wire.batches import Carrying

COUNTS = st.integers(0, (1 << 63) - 1)
OTHERS = st.lists(st.tuples(st.sampled_from(["authorization", "x-bin"]), st.text()))


@pytest.mark.slow
@given(stream=st.text(), rows=COUNTS, size_bytes=COUNTS, before=OTHERS, behind=OTHERS)
def test_what_is_declared_is_found_among_whatever_else_is_said(
    stream, rows, size_bytes, before, behind
):
    pair = declared_metadata(stream, rows, size_bytes)
    found = declared_in([*before, pair, *behind])
    assert found == Declared(stream=stream, rows=rows, size_bytes=size_bytes)
    assert declared_in([*before, *behind]) is None


@pytest.mark.parametrize("metadata", [None, (), (("authorization", "Bearer x"),)])
def test_a_call_may_declare_nothing(metadata):
    assert declared_in(metadata) is None


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ([declared_metadata("s", -1, 8)], "-1 rows and 8 bytes"),
        ([declared_metadata("s", 1, -8)], "1 rows and -8 bytes"),
        ([(KEY, b"\xff\xff")], "is no shedder.v1.Declared"),
        ([declared_metadata("s", 1, 8)] * 2, "2 times"),
    ],
)
def test_what_cannot_be_is_said_to_be_so(metadata, said):
    with pytest.raises(InvalidRequest, match=said):
        declared_in(metadata)


@given(data=st.binary())
def test_whatever_bytes_come_they_are_a_declaration_or_refused(data):
    try:
        found = declared_in([(KEY, data)])
    except InvalidRequest:
        return
    assert found is not None
    assert min(found.rows, found.size_bytes) >= 0


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (Declared(stream="t", rows=2, size_bytes=3), "stream 't', the request has 's'"),
        (Declared(stream="s", rows=1, size_bytes=3), "rows 1, the request has 2"),
        (Declared(stream="s", rows=2, size_bytes=4), "size_bytes 4, the request has 3"),
    ],
)
def test_what_comes_must_be_what_was_declared(declared, said):
    carrying = Carrying(AppendRequest(stream="s", batch=Batch(rows=2)), b"abc")
    check_declared(Declared(stream="s", rows=2, size_bytes=3), carrying)
    with pytest.raises(InvalidRequest, match=said):
        check_declared(declared, carrying)
