"""`shedder push`: load files into a stream, making the stream first if asked."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

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
from shedder.cli.epoch_times import TimeUnit
from shedder.cli.files.bad_rows import opened_sink
from shedder.cli.files.formats import Dialect, FileFormat, format_of
from shedder.cli.files.row_file import FileColumns, RowFile
from shedder.cli.files.temporary_files import written_in
from shedder.cli.load_identity import option_hashes
from shedder.cli.load_sources import LoadOptions, sources
from shedder.cli.loads import FileLoad, LoadTally, Spooled, report, spooled
from shedder.cli.schema_inference import NewStream, StreamOptions, listed, stream_of
from shedder.cli.stderr import console, say
from shedder.cli.table_load import load_table
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.canonical_text import text_of_stream
from shedder.cql.statements.table_schema import TableSchema
from shedder.cql.text.durations import INT64_MAX
from shedder.errors import BadSetting, UnknownStream
from shedder.queries.answers.control_characters import escaped
from shedder.queries.answers.database_api import Database

STDIN = Path("-")
DEFAULT_PRODUCER = "file"
_PRODUCER_BYTES_MAX = 64  # Hashes of content and options follow the name.


def push(
    stream: Annotated[str, typer.Argument(help="The stream to append to.")],
    files: Annotated[
        list[Path], typer.Argument(help="Parquet, CSV, TSV or JSON (also .gz, .zst); - is stdin.")
    ],
    data: DataOption = None,
    connect: ConnectOption = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make the stream from the first file if there is none.")
    ] = False,
    time_column: Annotated[
        str | None,
        typer.Option("--time", metavar="COLUMN", help="Event time, with --create."),
    ] = None,
    time_format: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="strptime format of moments; else ISO 8601."),
    ] = None,
    time_unit: Annotated[
        TimeUnit | None, typer.Option(help="Unit of moments that are numbers since 1970.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Only these columns of the file.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="COLUMN=TYPE", help="With --create: not what it looks like."
        ),
    ] = None,
    lateness_s: Annotated[
        float | None,
        typer.Option(
            "--lateness",
            metavar="SECONDS",
            min=0,
            help="With --create: how far out of order rows may come; 0 if not given.",
        ),
    ] = None,
    file_format: Annotated[
        FileFormat | None,
        typer.Option("--format", help="Format of the files; if not given, that of the suffix."),
    ] = None,
    producer: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Name of the producer; a file is stored once under each name.",
        ),
    ] = DEFAULT_PRODUCER,
    skip_untimed: Annotated[
        bool,
        typer.Option(
            "--skip-untimed",
            help="Leave out rows whose event time is empty or cannot be read; says which.",
        ),
    ] = False,
    bad_rows: Annotated[
        Path | None,
        typer.Option(
            "--bad-rows",
            metavar="FILE",
            help="Append rows that cannot be read to this file, as JSON lines.",
        ),
    ] = None,
    sort: Annotated[
        bool,
        typer.Option("--sort/--no-sort", help="Push rows in order of event time."),
    ] = True,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Push only the new rows of a file that has grown."),
    ] = False,
    encoding: Annotated[
        str, typer.Option(metavar="NAME", help="Encoding of text files: latin-1, cp1252, utf-16.")
    ] = "utf-8",
    delimiter: Annotated[
        str | None,
        typer.Option(
            metavar="CHARACTER", help="Separates cells; a comma if not given, in TSV a tab."
        ),
    ] = None,
    quote: Annotated[
        str,
        typer.Option(metavar="CHARACTER", help="Encloses cells; empty if cells have no quotes."),
    ] = '"',
    header: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Column names of files without a header."),
    ] = None,
    null_words: Annotated[
        list[str] | None,
        typer.Option(
            "--null",
            metavar="WORD",
            help="An unquoted word, such as NA, that is NULL in text, too.",
        ),
    ] = None,
    decimal_comma: Annotated[
        bool, typer.Option("--decimal-comma", help="Numbers have a decimal comma: 3,14.")
    ] = False,
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
        paths = stack.enter_context(_on_disk(files))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shedder-push-")))
        aside = None if bad_rows is None else stack.enter_context(opened_sink(bad_rows))
        rows = [RowFile(path, file_format or format_of(path), dialect) for path in paths]
        options = LoadOptions(producer, sort, resume, aside)
        job = _PushJob(stream, rows, new_stream, options, directory, create, skip_untimed)
        if place.is_new:
            job.load_new(place)
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
                job.load(database, job.prepare(database))


def _names(header: str | None) -> tuple[str, ...] | None:
    """Return the column names of `--header`."""
    return None if header is None else tuple(name.strip() for name in header.split(","))


def _check_producer(name: str) -> None:
    if not name or len(name.encode()) > _PRODUCER_BYTES_MAX:
        raise BadSetting(f"--producer {name!r}: a name has 1 to {_PRODUCER_BYTES_MAX} bytes")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Files that are read and checked. new: the stream to make; None: it is there."""

    interrupted: list[Spooled]
    files: list[Spooled]
    schema: StreamSchema
    new: NewStream | None


@dataclass(frozen=True, slots=True)
class _PushJob:
    """One `shedder push`."""

    stream: str
    files: list[RowFile]
    new_stream: StreamOptions
    options: LoadOptions
    directory: Path
    create: bool
    skip_untimed: bool
    tally: LoadTally = field(default_factory=LoadTally)

    def prepare(self, database: Database | None) -> _Prepared:
        """Read and check all rows. Nothing is made or pushed."""
        skip_bad = self.options.bad_rows is not None
        schema = None
        if database is not None:
            schema = _known(database, self.stream, self.new_stream, missing_is_fine=self.create)
        new = None
        if schema is None:
            new = stream_of(
                self.stream,
                self.files[0],
                self.new_stream,
                skip_untimed=self.skip_untimed,
                skip_bad=skip_bad,
            )
            schema = new.schema
            database = None
        reading = _reading(schema, self.new_stream, skip_untimed=self.skip_untimed)
        given = self.new_stream.columns
        hashes = [
            option_hashes(file, _choices(file, given, reading, schema), sorts=self.options.sorts)
            for file in self.files
        ]
        found = sources(database, self.stream, self.files, self.options, hashes)
        with self.tally.timing():
            made = [
                spooled(each, reading, schema, self.options, self._place(name), shown_progress)
                for name, each in (("interrupted", found.interrupted), ("files", found.files))
            ]
        return _Prepared(made[0], made[1], schema, new)

    def _place(self, name: str) -> Path:
        place = self.directory / name
        place.mkdir()
        return place

    def load_new(self, place: Place) -> None:
        """Read the files, then make the data directory: what is refused leaves none behind."""
        if not self.create:
            raise UnknownStream.from_message(
                f"{place.name} is no data directory yet, so it has no stream {self.stream!r}. "
                "--create makes it from the file"
            )
        prepared = self.prepare(None)
        with opened(place, create=True) as database:
            self.load(database, prepared)

    def load(self, database: Database, prepared: _Prepared) -> None:
        """Make the stream if there is none, and push the rows."""
        if prepared.new is not None:
            statement = text_of_stream(prepared.new.statement)
            database.execute(statement)
            say(statement, "dim")
            for note in prepared.new.notes:
                say(note, "yellow")
        time_column = prepared.schema.time_column
        load = FileLoad(database, self.stream, time_column, self.options, self.tally)
        with self.tally.timing():
            load.run((prepared.interrupted, prepared.files), shown_progress)
        report(self.stream, self.tally, prepared.files, sorts=self.options.sorts)


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


def _known(
    database: Database, stream: str, options: StreamOptions, *, missing_is_fine: bool
) -> StreamSchema | None:
    """The stream, if its event time is that of the options; None: it is to be made."""
    try:
        schema = database.schema(stream)  # A call, not a statement: pushing needs no scope to ask.
    except UnknownStream as error:
        if missing_is_fine:
            return None
        raise UnknownStream.from_message(f"{error}. --create makes it from the file") from error
    moment = schema.time_column
    if options.time_column not in (None, moment):
        raise BadSetting(
            f"--time {options.time_column!r}: the event time of {stream} is {moment!r}"
        )
    return schema


def _reading(stream: StreamSchema, options: StreamOptions, *, skip_untimed: bool) -> FileColumns:
    """The columns of `--columns`; without it, those of the stream that a file has."""
    known = {column.name: column for column in stream.columns}
    named = listed(options.columns, list(known), f"stream {stream.name}")
    nullable = [name for name in named if options.columns is None and known[name].nullable]
    return FileColumns(
        columns={name: known[name].type for name in named},
        optional=frozenset(nullable),
        moment=stream.time_column if skip_untimed else None,
        others=options.columns is not None,
    )


def _choices(
    file: RowFile, columns: str | None, reading: FileColumns, stream: StreamSchema
) -> list[str | None]:
    """Values of `--columns` that read the same rows of a file; the first names new loads."""
    known = {column.name for column in stream.columns} & set(file.names())
    if columns is None:
        return [None, ",".join(sorted(known))]
    ordered = ",".join(sorted(reading.columns))
    whole = [None] if known <= set(reading.columns) else []
    return [ordered, columns, *whole]


@contextmanager
def shown_progress(name: str, tally: LoadTally) -> Iterator[Callable[[float], None]]:
    """A bar on stderr, if that is a terminal; it is told the share of the file that is read."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeElapsedColumn(),
        console=console(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(escaped(name), total=1.0, rows=0)
        yield lambda share: bar.update(task, completed=share, rows=tally.rows)


@contextmanager
def _on_disk(files: list[Path]) -> Iterator[list[Path]]:
    """The files, with stdin copied to disk: its types are looked at before it is read."""
    for path in files:
        if path != STDIN and not path.is_file():
            kind = "a directory, not a" if path.is_dir() else "no"
            raise BadSetting(
                f"{kind} file {str(path)!r}" if kind == "no" else f"{str(path)!r} is {kind} file"
            )
    if STDIN not in files:
        yield files
        return
    with tempfile.TemporaryDirectory(prefix="shedder-stdin-") as directory:
        copy = Path(directory) / "stdin"
        with written_in(copy.parent), copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield [copy if path == STDIN else path for path in files]
