"""The tail: few pieces, however small the batches, and none changed while it is written."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.archive.store.tail import PIECE_BYTES_MAX, PIECE_ROWS_MAX, Piece, Tail
from tests.archive.schemas import batch


def rows_of(tail: Tail) -> list[int]:
    return [value for piece in tail.pieces for value in piece.batch["serial"].to_pylist()]


@pytest.mark.slow
@given(st.lists(st.integers(1, 50), min_size=1, max_size=60))
def test_merging_keeps_rows_positions_and_the_first_sequence(sizes):
    tail, position = Tail(), 0
    for sequence, rows in enumerate(sizes):
        tail.add(Piece(position, batch(position, rows), sequence))
        position += rows
    assert rows_of(tail) == list(range(position))
    assert tail.rows == position
    assert tail.size_bytes == sum(piece.size_bytes for piece in tail.pieces)
    assert tail.pieces[0].sequence == 0
    ends = [piece.end_position for piece in tail.pieces]
    assert [piece.first_position for piece in tail.pieces] == [0, *ends[:-1]]
    sequences = [piece.sequence for piece in tail.pieces]
    assert sequences == sorted(sequences)
    tail.drop(len(tail.pieces))
    assert (tail.rows, tail.size_bytes) == (0, 0)


@pytest.mark.slow
def test_many_small_batches_become_few_pieces():
    tail = Tail()
    for number in range(1000):
        tail.add(Piece(number * 3, batch(number * 3, 3), number))
    assert len(tail.pieces) <= 12


def test_large_batches_are_not_copied():
    tail = Tail()
    large = batch(0, PIECE_ROWS_MAX)
    tail.add(Piece(0, large, 0))
    tail.add(Piece(PIECE_ROWS_MAX, batch(PIECE_ROWS_MAX, 10), 1))
    assert tail.pieces[0].batch is large


def test_pieces_that_are_being_written_stay_as_they_are():
    tail = Tail()
    tail.add(Piece(0, batch(0, 10), 0))
    writing = tail.stretch()
    tail.freeze(10)
    for number in range(1, 9):
        tail.add(Piece(number * 10, batch(number * 10, 10), number))
    tail.drop(len(writing))
    assert rows_of(tail) == list(range(10, 90))
    assert tail.pieces[0].sequence == 1


def test_pieces_are_not_merged_over_a_gap():
    tail = Tail()
    tail.add(Piece(0, batch(0, 10), 0))
    tail.add(Piece(11, batch(11, 10), 1))
    assert [piece.first_position for piece in tail.stretch()] == [0]
    assert len(tail.pieces) == 2


def test_large_texts_are_not_merged_into_one_column():
    text = pa.record_batch({"text": ["x" * (PIECE_BYTES_MAX // 2)]})
    tail = Tail()
    for number in range(3):
        tail.add(Piece(number, text, number))
    assert len(tail.pieces) == 3


def test_a_stretch_has_no_more_bytes_than_allowed():
    tail = Tail()
    for number in range(6):
        tail.add(Piece(number, batch(number, 1), number, size_bytes=PIECE_BYTES_MAX))
    for fitting in (1, 2, 5):
        found = tail.stretch(fitting * PIECE_BYTES_MAX + 1)
        assert [piece.first_position for piece in found] == list(range(fitting))
    assert [piece.first_position for piece in tail.stretch(1)] == [0]  # A row is not divided.
    assert tail.stretch() == list(tail.pieces)


def test_a_piece_larger_than_allowed_is_split():
    tail = Tail()
    tail.add(Piece(0, batch(0, 1_000), 0))
    [part] = tail.stretch(tail.size_bytes // 4)
    assert 200 <= part.end_position <= 250
    assert rows_of(tail) == list(range(1_000))
    assert [piece.end_position for piece in tail.pieces] == [part.end_position, 1_000]
