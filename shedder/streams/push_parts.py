"""Parts of a push: the batches that share one sequence number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from shedder.cql.statements.table_schema import RelationSchema
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import BatchLimits, empty_batch


@dataclass(frozen=True, slots=True)
class Part:
    """The place of a batch in its push.

    first_row: rows of the push before this batch.
    is_last: no batch of the push follows.
    skipped: rows of the push, from first_row on, that the producer has lost and does not send.
    """

    first_row: int = 0
    is_last: bool = True
    skipped: int = 0


WHOLE = Part()


def parts_of(
    data: object, schema: RelationSchema, limits: BatchLimits, *, ends_at_error: bool
) -> Iterator[tuple[Part, pa.RecordBatch]]:
    """The data of one push as batches of its stream, with their places in the push.

    Args:
      data, schema, limits: as of `conform`.
      ends_at_error: as of `in_parts`.

    Raises:
      what `conform` raises, after the batches before the error.
    """
    batches = conform(data, schema, limits=limits)
    return in_parts(batches, empty_batch(schema), ends_at_error=ends_at_error)


def in_parts(
    batches: Iterable[pa.RecordBatch], nothing: pa.RecordBatch, *, ends_at_error: bool
) -> Iterator[tuple[Part, pa.RecordBatch]]:
    """Give each batch of one push its place; a push without rows is one empty batch.

    Args:
      batches: of the push, in order.
      nothing: an empty batch of the stream.
      ends_at_error: if `batches` raises, the batch before the error is the last of the push. If
        False, the push stays incomplete, and sending it again stores the rest.

    Raises:
      what `batches` raises, after the batches before the error.
    """
    first_row, held = 0, None
    remaining = iter(batches)
    while True:
        try:
            batch = next(remaining, None)
        except Exception:
            if held is not None:
                yield Part(first_row, is_last=ends_at_error), held
            raise
        if held is not None:
            yield Part(first_row, is_last=batch is None), held
            first_row += held.num_rows
        elif batch is None:
            yield WHOLE, nothing
        if batch is None:
            return
        held = batch
