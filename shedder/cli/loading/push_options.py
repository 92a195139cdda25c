"""Arguments and options of `shedder push`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shedder.cli.files.epoch_times import TimeUnit
from shedder.cli.files.formats import FileFormat

TargetArgument = Annotated[str, typer.Argument(help="The stream to append to.")]
FilesArgument = Annotated[
    list[Path], typer.Argument(help="Parquet, CSV, TSV or JSON (also .gz, .zst); - is stdin.")
]
CreateOption = Annotated[
    bool, typer.Option("--create", help="Make the stream from the first file if there is none.")
]
TimeColumnOption = Annotated[
    str | None,
    typer.Option("--time", metavar="COLUMN", help="Event time, with --create."),
]
TimeFormatOption = Annotated[
    str | None,
    typer.Option(metavar="FORMAT", help="strptime format of moments; else ISO 8601."),
]
TimeUnitOption = Annotated[
    TimeUnit | None, typer.Option(help="Unit of moments that are numbers since 1970.")
]
ColumnsOption = Annotated[
    str | None, typer.Option(metavar="A,B,C", help="Only these columns of the file.")
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="COLUMN=TYPE", help="With --create: not what it looks like."),
]
LatenessOption = Annotated[
    float | None,
    typer.Option(
        "--lateness",
        metavar="SECONDS",
        min=0,
        help="With --create: how far out of order rows may come; 0 if not given.",
    ),
]
FileFormatOption = Annotated[
    FileFormat | None,
    typer.Option("--format", help="Format of the files; if not given, that of the suffix."),
]
ProducerOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Name of the producer; a file is stored once under each name.",
    ),
]
SkipUntimedOption = Annotated[
    bool,
    typer.Option(
        "--skip-untimed",
        help="Leave out rows whose event time is empty or cannot be read; says which.",
    ),
]
BadRowsOption = Annotated[
    Path | None,
    typer.Option(
        "--bad-rows",
        metavar="FILE",
        help="Append rows that cannot be read to this file, as JSON lines.",
    ),
]
SortOption = Annotated[
    bool,
    typer.Option("--sort/--no-sort", help="Push rows in order of event time."),
]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Push only the new rows of a file that has grown."),
]
EncodingOption = Annotated[
    str, typer.Option(metavar="NAME", help="Encoding of text files: latin-1, cp1252, utf-16.")
]
DelimiterOption = Annotated[
    str | None,
    typer.Option(metavar="CHARACTER", help="Separates cells; a comma if not given, in TSV a tab."),
]
QuoteOption = Annotated[
    str,
    typer.Option(metavar="CHARACTER", help="Encloses cells; empty if cells have no quotes."),
]
HeaderOption = Annotated[
    str | None,
    typer.Option(metavar="A,B,C", help="Column names of files without a header."),
]
NullWordsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--null",
        metavar="WORD",
        help="An unquoted word, such as NA, that is NULL in text, too.",
    ),
]
DecimalCommaOption = Annotated[
    bool, typer.Option("--decimal-comma", help="Numbers have a decimal comma: 3,14.")
]
