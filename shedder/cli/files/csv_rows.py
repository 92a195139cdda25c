"""Rows of CSV and TSV files: cells as text, NULL where a cell is empty without quotes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import IO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from shedder.cli.files.bad_rows import BadRows, shown
from shedder.cli.files.contents import ended
from shedder.cli.files.formats import Dialect
from shedder.cli.files.rows import Rows
from shedder.errors import BadBatch, ShedderError

_BLOCK_BYTES = 8 << 20  # A row must fit into a block.
_END = "end of the rows, c5e1b0ae"  # Text of a row that is added; if it is not read, it is quoted.


def csv_names(text: IO[bytes], dialect: Dialect, delimiter: str) -> list[str]:
    """The names in the header, as they are: some may be there twice.

    Raises:
      pa.ArrowInvalid: there is no first row.
    """
    if dialect.header is not None:
        return list(dialect.header)
    parse = pa_csv.ParseOptions(
        delimiter=delimiter,
        quote_char=dialect.quote or False,
        newlines_in_values=True,
        invalid_row_handler=_skipped,
    )
    with pa_csv.open_csv(text, pa_csv.ReadOptions(block_size=_BLOCK_BYTES), parse) as reader:
        return list(reader.schema.names)


def _skipped(_row: pa_csv.InvalidRow) -> Literal["skip", "error"]:
    return "skip"


def csv_rows(
    text: IO[bytes],
    names: Sequence[str],
    wanted: Sequence[str],
    dialect: Dialect,
    delimiter: str,
    bad: BadRows,
    *,
    has_header: bool,
) -> Iterator[Rows]:
    """All rows that have as many cells as the header.

    Args:
      text: of the file, in UTF-8. names: of its columns, each once. wanted: those to read.
      dialect, delimiter: how it is written.
      bad: takes the rows with more or fewer cells.
      has_header: whether the names come before the rows.

    Raises:
      BadBatch: a quote is not closed: the last cell has all that follows it.
    """
    last_row = _END + delimiter * len(names)  # Has a cell too many.
    is_ended = False
    gaps: list[int] = []  # Numbers of bad rows that come after the batches until now.
    refusals: list[ShedderError] = []

    def note(row: pa_csv.InvalidRow) -> Literal["skip", "error"]:
        nonlocal is_ended
        if row.text == last_row:
            is_ended = True
            return "skip"
        number = int(row.number or 0) - (1 if has_header else 0)
        gaps.append(number)
        problem = f" has {row.actual_columns} cells, not {row.expected_columns}: {shown(row.text)}"
        try:
            bad.keep(number, problem, row.text)
        except ShedderError as error:  # Arrow has no way for an error of a handler.
            refusals.append(error)
            return "error"
        return "skip"

    parse = pa_csv.ParseOptions(
        delimiter=delimiter,
        quote_char=dialect.quote or False,
        newlines_in_values=True,
        invalid_row_handler=note,
    )
    read = pa_csv.ReadOptions(
        block_size=_BLOCK_BYTES,
        use_threads=False,  # Only then are bad rows numbered.
        column_names=list(names),
        skip_rows_after_names=1 if has_header else 0,  # A name may have line ends in quotes.
    )
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        include_columns=list(wanted),
        null_values=["", *dialect.null_words],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    first = 1
    try:
        whole = ended(text, f"\n{last_row}\n".encode())
        with pa_csv.open_csv(whole, read, parse, convert) as reader:
            for batch in reader:
                numbers = _without(first, batch.num_rows, np.array(gaps, np.int64))
                if len(numbers):
                    first = int(numbers[-1]) + 1
                    del gaps[: bisect_left(gaps, first)]
                yield Rows(numbers, batch)
    except pa.ArrowInvalid:
        if refusals:
            raise refusals[0] from None
        raise
    if not is_ended:
        raise BadBatch(
            f"{bad.name}: row {first - 1:,} has a quote that is not closed; "
            "--quote '' reads quotes as text"
        )


def _without(first: int, count: int, gaps: NDArray[np.int64]) -> NDArray[np.int64]:
    """`count` numbers from `first` on that are not in `gaps`."""
    later = gaps[gaps >= first]
    if not len(later):
        return np.arange(first, first + count, dtype=np.int64)
    return np.setdiff1d(np.arange(first, first + count + len(later)), later)[:count]
