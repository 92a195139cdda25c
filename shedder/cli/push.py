"""`shedder push`: load files into a stream or a table, making the stream first if asked."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from shedder.cli.connection import (
    CaOption,
    CertOption,
    ConnectOption,
    DataOption,
    KeyOption,
    Place,
    TokenFileOption,
    opened,
)
from shedder.cli.files.bad_rows import opened_sink
from shedder.cli.files.formats import Dialect, format_of
from shedder.cli.files.input_paths import on_disk
from shedder.cli.files.row_file import RowFile
from shedder.cli.loading.load_progress import shown_progress
from shedder.cli.loading.load_sources import LoadOptions
from shedder.cli.loading.push_options import (
    BadRowsOption,
    ColumnsOption,
    CreateOption,
    DecimalCommaOption,
    DelimiterOption,
    EncodingOption,
    FileFormatOption,
    FilesArgument,
    HeaderOption,
    LatenessOption,
    NullWordsOption,
    ProducerOption,
    QuoteOption,
    ResumeOption,
    SkipUntimedOption,
    SortOption,
    TargetArgument,
    TimeColumnOption,
    TimeFormatOption,
    TimeUnitOption,
    TypesOption,
)
from shedder.cli.loading.schema_inference import StreamOptions
from shedder.cli.loading.stream_load import StreamLoad
from shedder.cli.loading.table_load import load_table
from shedder.cli.stderr import say
from shedder.cql.statements.table_schema import TableSchema
from shedder.cql.text.durations import INT64_MAX
from shedder.errors import BadSetting, UnknownStream
from shedder.queries.answers.database_api import Database

DEFAULT_PRODUCER = "file"
_PRODUCER_BYTES_MAX = 64  # Hashes of content and options follow the name.


def push(
    stream: TargetArgument,
    files: FilesArgument,
    data: DataOption = None,
    connect: ConnectOption = None,
    create: CreateOption = False,
    time_column: TimeColumnOption = None,
    time_format: TimeFormatOption = None,
    time_unit: TimeUnitOption = None,
    columns: ColumnsOption = None,
    types: TypesOption = None,
    lateness_s: LatenessOption = None,
    file_format: FileFormatOption = None,
    producer: ProducerOption = DEFAULT_PRODUCER,
    skip_untimed: SkipUntimedOption = False,
    bad_rows: BadRowsOption = None,
    sort: SortOption = True,
    resume: ResumeOption = False,
    encoding: EncodingOption = "utf-8",
    delimiter: DelimiterOption = None,
    quote: QuoteOption = '"',
    header: HeaderOption = None,
    null_words: NullWordsOption = None,
    decimal_comma: DecimalCommaOption = False,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Append the rows of files to a stream, in order of event time, each row once.

    Into a table, each row is put in the place of the row with its key, in the order of the files.

    All rows are read, checked and kept in TMPDIR before the first one is stored. Files are
    recognized by their content, so pushing a file again stores nothing twice.

    - `shedder push flights flights.parquet --data ./data --create --time time_hour`
    - `zcat log.csv.gz | shedder push requests - --format csv --connect localhost:7077`
    - `shedder push sales sales.csv --delimiter ';' --encoding cp1252 --connect localhost:7077`
    """
    place = Place(data, connect, token_file, ca, cert, key)
    dialect = Dialect(
        delimiter="\t" if delimiter == "\\t" else delimiter,
        quote=quote or None,
        header=_names(header),
        encoding=encoding,
        null_words=tuple(null_words or ()),
        decimal_comma=decimal_comma,
        time_format=time_format,
        time_unit=time_unit,
    )
    _check_producer(producer)
    new_stream = StreamOptions(columns, types, time_column, _microseconds(lateness_s or 0))
    with ExitStack() as stack:
        paths = stack.enter_context(on_disk(files))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shedder-push-")))
        aside = None if bad_rows is None else stack.enter_context(opened_sink(bad_rows))
        rows = [RowFile(path, file_format or format_of(path), dialect) for path in paths]
        options = LoadOptions(producer, sort, resume, aside)
        load = StreamLoad(stream, rows, new_stream, options, directory, create, skip_untimed)
        if place.is_new:
            load.load_new(place)
        else:
            with opened(place) as database:
                table = _table(database, stream)
                if table is not None:
                    _refuse_options_of_streams(
                        stream, time_column=time_column, skip_untimed=skip_untimed, resume=resume
                    )
                    load_table(database, table, rows, columns, aside, shown_progress)
                    return
                _say_unused(database, stream, types=types, lateness_s=lateness_s)
                load.load(database, load.prepare(database))


def _names(header: str | None) -> tuple[str, ...] | None:
    """Return the column names of `--header`."""
    return None if header is None else tuple(name.strip() for name in header.split(","))


def _check_producer(name: str) -> None:
    if not name or len(name.encode()) > _PRODUCER_BYTES_MAX:
        raise BadSetting(f"--producer {name!r}: a name has 1 to {_PRODUCER_BYTES_MAX} bytes")


def _table(database: Database, name: str) -> TableSchema | None:
    """The table of this name; None: there is none."""
    try:
        found = database.relation(name)
    except UnknownStream:
        return None
    return found if isinstance(found, TableSchema) else None


def _refuse_options_of_streams(
    table: str, *, time_column: str | None, skip_untimed: bool, resume: bool
) -> None:
    given = {"--time": time_column, "--skip-untimed": skip_untimed, "--resume": resume}
    for name, value in given.items():
        if value:
            raise BadSetting(f"{name} is for streams; {table!r} is a table, without an event time")


def _say_unused(
    database: Database, stream: str, *, types: list[str] | None, lateness_s: float | None
) -> None:
    """Say which options of --create do nothing, because the stream is there."""
    try:
        database.schema(stream)
    except UnknownStream:
        return
    given = {"--type": types, "--lateness": lateness_s}
    unused = [name for name, value in given.items() if value is not None]
    if unused:
        have = "has" if len(unused) == 1 else "have"
        say(f"stream {stream} exists: {' and '.join(unused)} {have} no effect", "yellow")


def _microseconds(lateness_s: float) -> int:
    if lateness_s * 1e6 > INT64_MAX:
        raise BadSetting(f"--lateness {lateness_s:g}: that is longer than time itself")
    return round(lateness_s * 1e6)
