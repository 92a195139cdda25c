"""First and last texts keep the laws of all grouped summaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shedder.streams.text_first_last import GroupedTextFirstLast
from synopses.moments.first_last import GroupedFirstLast
from synopses.moments.first_last_kernels import CELLS
from tests import laws, truth
from tests.laws import Part, Subject


def feed(summary: GroupedTextFirstLast, part: Part) -> None:
    """Positions are those of the values' own bits: the same wherever the part is cut."""
    positions = np.abs(part.values.view(np.int64)) >> 1
    texts = pa.array([f"t{value:.3f}é" for value in part.values.tolist()], pa.string())
    summary.update(part.ids, positions % 3, positions, texts)


def state(summary: GroupedTextFirstLast) -> list[Any]:
    answers = summary.first(), summary.last()
    return [
        summary.first_times().tolist(),
        summary.last_times().tolist(),
        *(answer.value.tolist() for answer in answers),
        *(answer.null.tolist() for answer in answers),
    ]


SUBJECT = Subject("first and last texts", GroupedTextFirstLast, feed, state)


@pytest.mark.parametrize("rows", [0, 1, 2, 700])
def test_texts_keep_the_laws(rows: int) -> None:
    values = truth.draw("normal", 1, rows)
    ids = np.random.default_rng(rows).integers(0, 4, rows).astype(np.int32)
    laws.hold(SUBJECT, Part(ids, values), groups=4, cut=rows // 2)
    laws.hold(SUBJECT, Part(None, values), groups=1, cut=rows // 3)


def test_the_texts_are_those_at_the_ends_of_time() -> None:
    summary = GroupedTextFirstLast(0)
    texts = pa.array(["late", "a", "b", "early", ""], pa.string())
    summary.update(None, np.array([9, 5, 5, 1, 9]), np.array([0, 2, 1, 3, 4]), texts)
    assert (summary.first().value[0], summary.last().value[0]) == ("early", "")
    assert summary.size_bytes > 100


def test_images_whose_times_are_metadata_are_read_too() -> None:
    summary = GroupedTextFirstLast(3)
    texts = pa.array(["b", "a", "c"], pa.string())
    summary.update(np.array([0, 2, 2], np.int32), np.array([5, 1, 9]), np.arange(3), texts)
    table = pa.ipc.open_stream(summary.to_bytes()).read_all()
    held = b"".join(cell.as_buffer() for cell in table["ends"])
    cells = np.frombuffer(held, np.int64).reshape(3, CELLS).copy()
    ends = GroupedFirstLast.of_cells(cells, integer=True).to_bytes()
    older = table.drop_columns(["ends"]).replace_schema_metadata({"ends": ends})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, older.schema) as writer:
        writer.write_table(older)
    assert state(GroupedTextFirstLast.from_bytes(sink.getvalue().to_pybytes())) == state(summary)
