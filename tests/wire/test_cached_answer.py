"""A response of Invoke is read once for as long as the same one comes again."""

import dataclasses

import pyarrow as pa
import pytest

from shedder.errors import CorruptData
from shedder.queries.answers.answer import Answer
from shedder.v1.query_pb2 import InvokeResponse
from shedder.wire.answers import answer_to_wire
from shedder.wire.cached_answer import KEPT_BYTES_MAX, LastAnswer

ONE = Answer(pa.table({"n": pa.array([1])}), query="SELECT 1", position=7)


def response(answer: Answer) -> bytes:
    return InvokeResponse(answer=answer_to_wire(answer)).SerializeToString()


def test_the_same_response_is_the_same_answer():
    last = LastAnswer()
    read = last.read(response(ONE))
    assert read.table.equals(ONE.table)
    assert last.read(response(ONE)) is read


def test_another_response_is_another_answer_even_when_only_one_field_differs():
    last = LastAnswer()
    read = last.read(response(ONE))
    later = last.read(response(dataclasses.replace(ONE, position=8)))
    assert (read.position, later.position) == (7, 8)
    assert last.read(response(ONE)).position == 7


def test_a_response_without_an_answer_is_none_before_and_after_one():
    last = LastAnswer()
    assert last.read(b"") is None
    assert last.read(response(ONE)) is not None
    assert last.read(b"") is None


def test_a_large_answer_is_not_kept():
    last = LastAnswer()
    large = response(Answer(pa.table({"n": pa.array(range(KEPT_BYTES_MAX // 8 + 1))})))
    assert last.read(large) is not last.read(large)


@pytest.mark.parametrize("damaged", [b"\xff", response(ONE)[:-3]])
def test_a_damaged_response_is_named_and_forgotten(damaged):
    last = LastAnswer()
    for _ in range(2):
        with pytest.raises(CorruptData):
            last.read(damaged)
