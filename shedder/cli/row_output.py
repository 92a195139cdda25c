"""Answers of many rows on stdout, batch by batch as they come."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import IOBase
from typing import cast

import pyarrow as pa
import pyarrow.csv as pa_csv

from shedder.cli.output import Format, flat, ndjson, show, show_facts, show_table
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.answer_batches import AnswerBatches
from shedder.queries.answers.text_format import ROWS_PRINTED

SMALL_BYTES = 1 << 20  # Answers of fewer bytes are written when they are whole.

Put = Callable[[pa.RecordBatch], object]


def show_batches(batches: AnswerBatches, form: Format, *, quiet: bool = False) -> Answer:
    """Write an answer to stdout as `output.show`; return it, without rows that were written."""
    with batches:
        whole = batches.whole_within(SMALL_BYTES)
        if whole is None and _is_one_document(form):
            whole = batches.read_all()
        if whole is not None:
            show(whole, form, quiet=quiet)
            return whole
        if form is Format.TABLE:
            answer, rows = _head(batches)
            show_table(answer, rows)
        else:
            with _writer(batches.schema, form) as put:
                rows = sum(_put(put, batch) for batch in batches)
            answer = batches.answer
        show_facts(answer, rows, quiet=quiet)
        return answer


def _is_one_document(form: Format) -> bool:
    """Return whether a format has no beginning without its end, or the terminal needs escapes."""
    is_escaped = form is Format.CSV and sys.stdout.isatty()
    return form in (Format.JSON, Format.PARQUET) or is_escaped


def _head(batches: AnswerBatches) -> tuple[Answer, int]:
    """The answer with the rows that are printed, and how many it has."""
    head: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if rows < ROWS_PRINTED:
            head.append(batch.slice(0, ROWS_PRINTED - rows))
        rows += batch.num_rows
    table = pa.Table.from_batches(head, batches.schema)
    return replace(batches.answer, table=table), rows


def _put(put: Put, batch: pa.RecordBatch) -> int:
    put(batch)
    return batch.num_rows


@contextmanager
def _writer(schema: pa.Schema, form: Format) -> Iterator[Put]:
    """A function that writes one batch to stdout. Arrow carries no facts: they come later."""
    sys.stdout.flush()
    out = sys.stdout.buffer
    match form:
        case Format.NDJSON:
            yield lambda batch: out.write(ndjson(pa.Table.from_batches([batch])).encode())
        case Format.CSV:
            with pa_csv.CSVWriter(out, flat(schema.empty_table()).schema) as csv:
                yield lambda batch: csv.write_table(flat(pa.Table.from_batches([batch])))
        case Format.ARROW:
            sink = pa.PythonFile(cast(IOBase, out), mode="w")
            with pa.ipc.new_stream(sink, schema) as arrow:
                yield arrow.write_batch
        case _:
            raise AssertionError(form)
    out.flush()
