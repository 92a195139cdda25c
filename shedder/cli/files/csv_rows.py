"""Rows of CSV and TSV files: cells as text, NULL where a cell is empty without quotes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from shedder.cli.files.bad_rows import BadRows, shown
from shedder.cli.files.contents import ended, skip_blank_lines
from shedder.cli.files.formats import Dialect
from shedder.cli.files.rows import NumberedRows
from shedder.errors import BadBatch, ShedderError

_BLOCK_BYTES = 8 << 20  # A row must fit into a block.
# Text of a row added behind the last one. If Arrow does not find that row, a quote is open.
_END = "end of the rows, c5e1b0ae"


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


@dataclass(slots=True)
class _OddRows:
    """Rows that have more or fewer cells than the header.

    bad: takes the rows. end: text of the row behind the last one. names_rows: of names, 0 or 1.
    gaps: numbers of the rows that come after the batches until now.
    refusal: the error of a row that refuses the file. is_ended: whether `end` was read as a row.
    """

    bad: BadRows
    end: str
    names_rows: int
    gaps: list[int] = field(default_factory=list)
    refusal: ShedderError | None = None
    is_ended: bool = False

    def handle(self, row: pa_csv.InvalidRow) -> Literal["skip", "error"]:
        """Keep a row aside, or stop reading; Arrow does not pass on what a handler raises."""
        if row.text == self.end:
            self.is_ended = True
            return "skip"
        number = int(row.number or 0) - self.names_rows
        if row.text.rstrip("\n").endswith(self.end):
            self.refusal = _not_closed(self.bad.name, number)
            return "error"
        self.gaps.append(number)
        problem = f" has {row.actual_columns} cells, not {row.expected_columns}: {shown(row.text)}"
        try:
            self.bad.keep(number, problem, row.text)
        except ShedderError as error:
            self.refusal = error
            return "error"
        return "skip"

    def numbers(self, first: int, count: int) -> NDArray[np.int64]:
        """The numbers of the next `count` other rows, from `first` on."""
        numbers = _without(first, count, np.array(self.gaps, np.int64))
        if count:
            del self.gaps[: bisect_left(self.gaps, int(numbers[-1]) + 1)]
        return numbers


def csv_rows(
    text: IO[bytes],
    names: Sequence[str],
    wanted: Sequence[str],
    dialect: Dialect,
    delimiter: str,
    bad: BadRows,
    *,
    has_header: bool,
) -> Iterator[NumberedRows]:
    """All rows that have as many cells as the header.

    Args:
      text: of the file, in UTF-8. names: of its columns, each once. wanted: those to read.
      dialect, delimiter: how it is written.
      bad: takes the rows with more or fewer cells.
      has_header: whether the names come before the rows.

    Raises:
      BadBatch: a quote is not closed: the last cell has all that follows it.
    """
    end = _END + delimiter * len(names)  # Has a cell too many.
    odd = _OddRows(bad, end, names_rows=int(has_header))
    parse = pa_csv.ParseOptions(
        delimiter=delimiter,
        quote_char=dialect.quote or False,
        newlines_in_values=True,
        invalid_row_handler=odd.handle,
    )
    read = pa_csv.ReadOptions(
        block_size=_BLOCK_BYTES,
        use_threads=False,  # Only then are bad rows numbered.
        column_names=list(names),
        skip_rows_after_names=int(has_header),  # A name may have line ends in quotes.
    )
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        include_columns=list(wanted),
        null_values=["", *dialect.null_words],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    first, waiting = 1, None
    if has_header:
        skip_blank_lines(text)
    try:
        with pa_csv.open_csv(ended(text, f"\n{end}\n".encode()), read, parse, convert) as reader:
            for batch in reader:
                numbers = odd.numbers(first, batch.num_rows)
                first = int(numbers[-1]) + 1 if len(numbers) else first
                if waiting is not None:
                    yield waiting
                waiting = NumberedRows(numbers, batch)
    except pa.ArrowInvalid:
        if odd.refusal is not None:
            raise odd.refusal from None
        raise
    if not odd.is_ended:
        raise _not_closed(bad.name, first - 1)
    if waiting is not None:
        yield waiting


def _not_closed(name: str, number: int) -> BadBatch:
    return BadBatch(
        f"{name}: row {number:,} has a quote that is not closed; --quote '' reads quotes as text"
    )


def _without(first: int, count: int, gaps: NDArray[np.int64]) -> NDArray[np.int64]:
    """`count` numbers from `first` on that are not in `gaps`."""
    later = gaps[gaps >= first]
    if not len(later):
        return np.arange(first, first + count, dtype=np.int64)
    return np.setdiff1d(np.arange(first, first + count + len(later)), later)[:count]
