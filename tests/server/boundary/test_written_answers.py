"""Written answers are bounded by their bytes, and each is written once."""

import numpy as np
import pyarrow as pa

from shedder.queries.answers.answer import Answer
from shedder.server.written_answers import WrittenAnswers
from shedder.wire.answers import answer_to_wire

ROWS = 1_000


def answer(rows=ROWS):
    return Answer(table=pa.table({"n": np.arange(rows)}))


def test_an_answer_is_written_once_for_all_readers():
    written = WrittenAnswers(answer_to_wire)
    one = answer()
    first = written.of("q", one)
    assert written.of("q", one) is first
    assert written.of("q", answer()) is not first
    assert len(first.invoked) > 8 * ROWS


def test_answers_of_many_queries_keep_within_the_bytes():
    """Answers of 256 queries were kept, of up to 64 MiB each."""
    size_bytes = WrittenAnswers(answer_to_wire).of("q", answer()).size_bytes
    written = WrittenAnswers(answer_to_wire, 3 * size_bytes)
    answers = {f"q{number}": answer() for number in range(10)}
    kept = {name: written.of(name, each) for name, each in answers.items()}
    assert written.size_bytes == 3 * size_bytes
    for name in ("q9", "q8", "q7"):  # Newest first: none of the others takes a place.
        assert written.of(name, answers[name]) is kept[name]
    assert written.of("q0", answers["q0"]) is not kept["q0"]
    assert written.of("q9", answers["q9"]) is not kept["q9"]  # Used longest ago by then.
    assert written.size_bytes == 3 * size_bytes


def test_an_answer_larger_than_the_bytes_is_sent_and_not_kept():
    written = WrittenAnswers(answer_to_wire, 4 * ROWS)
    written.of("q", answer(1))
    large = answer()
    assert written.of("q", large).answer is large
    assert written.size_bytes == 0


def test_a_dropped_query_has_no_bytes():
    written = WrittenAnswers(answer_to_wire)
    written.of("q", answer())
    written.forget("q")
    written.forget("q")
    assert written.size_bytes == 0
