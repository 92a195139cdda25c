"""Rows of CSV and TSV files: cells as text, NULL where a cell is empty without quotes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from shedder.cli.files.bad_rows import BadRows, shown
from shedder.cli.files.formats import Dialect
from shedder.cli.files.rows import Rows

_BLOCK_BYTES = 8 << 20  # A row must fit into a block.


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
) -> Iterator[Rows]:
    """All rows that have as many cells as the header.

    Args:
      text: of the file, in UTF-8. names: of its columns, each once. wanted: those to read.
      dialect, delimiter: how it is written.
      bad: takes the rows with more or fewer cells.
    """
    problems: list[pa_csv.InvalidRow] = []

    def note(row: pa_csv.InvalidRow) -> Literal["skip", "error"]:
        problems.append(row)
        return "skip" if bad.sink is not None else "error"

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
        skip_rows=0 if dialect.header is not None else 1,
    )
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        include_columns=list(wanted),
        null_values=["", *dialect.null_words],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    seen, first = 0, 1
    has_header = dialect.header is None
    try:
        with pa_csv.open_csv(text, read, parse, convert) as reader:
            for batch in reader:
                gaps = np.array([_number(row, has_header) for row in problems], np.int64)
                numbers = _without(first, batch.num_rows, gaps)
                while seen < len(problems) and gaps[seen] <= (numbers[-1] if len(numbers) else 0):
                    _keep(problems[seen], has_header, bad)
                    seen += 1
                if len(numbers):
                    first = int(numbers[-1]) + 1
                yield Rows(numbers, batch)
    except pa.ArrowInvalid:
        for row in problems[seen:]:  # Raises with more details than Arrow.
            _keep(row, has_header, bad)
        raise
    for row in problems[seen:]:
        _keep(row, has_header, bad)


def _without(first: int, count: int, gaps: NDArray[np.int64]) -> NDArray[np.int64]:
    """`count` numbers from `first` on that are not in `gaps`."""
    later = gaps[gaps >= first]
    if not len(later):
        return np.arange(first, first + count, dtype=np.int64)
    return np.setdiff1d(np.arange(first, first + count + len(later)), later)[:count]


def _number(row: pa_csv.InvalidRow, has_header: bool) -> int:
    return int(row.number or 0) - (1 if has_header else 0)


def _keep(row: Any, has_header: bool, bad: BadRows) -> None:
    problem = f" has {row.actual_columns} cells, not {row.expected_columns}: {shown(row.text)}"
    bad.keep(_number(row, has_header), problem, row.text)
