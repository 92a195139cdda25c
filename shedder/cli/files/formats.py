"""File formats and dialects that `shedder push` reads."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from shedder.cli.files.contents import refused_kind
from shedder.cli.files.epoch_times import TimeUnit
from shedder.errors import BadSetting

# Missing values in columns of numbers, times and truths. In a text column they are text.
NULL_WORDS = frozenset(
    ["", "NA", "N/A", "#N/A", "n/a", "<NA>", "NULL", "null", "NaN", "nan", "-NaN", "-nan", "#NA"]
)


class FileFormat(Enum):
    """What `shedder push` reads; NDJSON includes files with one JSON array of objects."""

    PARQUET = "parquet"
    CSV = "csv"
    TSV = "tsv"
    NDJSON = "ndjson"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a text file writes its rows and values.

    delimiter: between cells of a row; one ASCII character; None: comma, or tab in TSV.
    quote: around cells; None: there are no quotes.
    header: names of the columns of a file without a header; None: the first row has them.
    encoding: of the bytes; a codec of Python.
    null_words: unquoted words that mean NULL in text columns, too.
    decimal_comma: whether numbers have a comma before their decimals.
    time_format: strptime format of times in text; None: ISO 8601.
    time_unit: of times that are numbers since 1970; None: there are none.
    """

    delimiter: str | None = None
    quote: str | None = '"'
    header: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    null_words: tuple[str, ...] = ()
    decimal_comma: bool = False
    time_format: str | None = None
    time_unit: TimeUnit | None = None

    def __post_init__(self) -> None:
        for name, mark in (("delimiter", self.delimiter), ("quote", self.quote)):
            if mark is not None and (len(mark) != 1 or not mark.isascii() or mark in "\r\n"):
                raise BadSetting(f"--{name} {mark!r}: it must be one ASCII character")
        if self.delimiter is not None and self.delimiter == self.quote:
            raise BadSetting(f"--delimiter and --quote are both {self.quote!r}")
        if self.header is not None and not all(self.header):
            raise BadSetting(f"--header {','.join(self.header)!r}: a column has no name")
        try:
            with suppress(UnicodeError):  # Of one byte alone.
                b"a".decode(self.encoding)
        except LookupError:
            raise BadSetting(
                f"--encoding {self.encoding!r} is unknown; there are utf-8, latin-1, cp1252, "
                "utf-16, shift_jis and the others of Python"
            ) from None


DEFAULT_DIALECT = Dialect()
_SUFFIXES = {
    ".parquet": FileFormat.PARQUET,
    ".pq": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".tsv": FileFormat.TSV,
    ".tab": FileFormat.TSV,
    ".ndjson": FileFormat.NDJSON,
    ".jsonl": FileFormat.NDJSON,
    ".json": FileFormat.NDJSON,
}


def format_of(path: Path) -> FileFormat:
    """The format by the file's suffix (`.gz` and its like aside).

    Raises:
      BadSetting: the suffix says nothing. Says what to do, also with a file of a kind not read.
    """
    for suffix in reversed(path.suffixes):
        if suffix.lower() in _SUFFIXES:
            return _SUFFIXES[suffix.lower()]
    if path.is_file() and (problem := refused_kind(path)) is not None:
        raise BadSetting(f"{path.name} is {problem}")
    known = ", ".join(each.value for each in FileFormat)
    raise BadSetting(f"cannot tell the format of {path.name!r}: say --format with one of {known}")
