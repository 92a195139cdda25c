"""`shedder push`: load files into a stream, making the stream first if asked."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import pyarrow as pa
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
from shedder.cli.files import FileFormat, Reading, RowFile, format_of
from shedder.cli.rows_without_time import Untimed
from shedder.cli.schema_inference import Wishes, listed, naming, stream_of
from shedder.cli.stderr import console, say
from shedder.cli.timestamps import TimeUnit
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.canonical_text import text_of_stream
from shedder.cql.statements.statement import CreateStream
from shedder.cql.text.durations import INT64_MAX
from shedder.errors import BadSetting, UnknownStream
from shedder.queries.answers.database_api import Database, NamedProducer, Receipt

STDIN = Path("-")
_AGAIN = "with --producer NAME a file that is pushed again stores nothing twice"


def push(
    stream: Annotated[str, typer.Argument(help="The stream to append to.")],
    files: Annotated[
        list[Path], typer.Argument(help="Parquet, CSV or NDJSON (also .gz); - is stdin.")
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
        float,
        typer.Option(
            "--lateness",
            metavar="SECONDS",
            min=0,
            help="With --create: how far out of order rows come.",
        ),
    ] = 0,
    file_format: Annotated[
        FileFormat | None, typer.Option("--format", help="Else by the file's suffix.")
    ] = None,
    producer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Pushing a file again under this name stores nothing twice.",
        ),
    ] = None,
    skip_untimed: Annotated[
        bool,
        typer.Option(
            "--skip-untimed",
            help="Leave out rows whose event time is empty or cannot be read; says which.",
        ),
    ] = False,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Append the rows of files to a stream; each batch is durable before the next is sent.

    - `shedder push flights flights.parquet --data ./data --create --time time_hour`
    - `zcat log.csv.gz | shedder push requests - --format csv --connect localhost:7077`
    """
    place = Place(data, connect, token_file, ca, cert, key)
    with _on_disk(files) as paths:
        rows = [RowFile(path, file_format or format_of(path), time_format) for path in paths]
        reading = Reading({}, time_format, time_unit)
        wishes = Wishes(columns, types, time_column, _microseconds(lateness_s))
        if place.is_new:  # What is refused leaves no directory behind.
            if not create:
                raise UnknownStream.from_message(
                    f"{place.name} is no data directory yet, so it has no stream {stream!r}. "
                    "--create makes it from the file"
                )
            stream_of(stream, rows[0], reading, wishes, skip_untimed=skip_untimed)
        with opened(place) as database:
            known = _known(database, stream, wishes, missing_is_fine=create)
            if known is None:
                known = stream_of(stream, rows[0], reading, wishes, skip_untimed=skip_untimed)
                database.execute(text_of_stream(known))
                say(text_of_stream(known), "dim")
            reading = _reading(reading, known, wishes, skip_untimed=skip_untimed)
            _push_all(database, stream, rows, reading, known.time_column, producer)


def _microseconds(lateness_s: float) -> int:
    if lateness_s * 1e6 > INT64_MAX:
        raise BadSetting(f"--lateness {lateness_s:g}: that is longer than time itself")
    return round(lateness_s * 1e6)


def _known(
    database: Database, stream: str, wishes: Wishes, *, missing_is_fine: bool
) -> StreamSchema | CreateStream | None:
    """The stream, if it is as one wishes; None: it is to be made."""
    try:
        schema = database.schema(stream)  # A call, not a statement: pushing needs no scope to ask.
    except UnknownStream as error:
        if missing_is_fine:
            return None
        raise UnknownStream.from_message(f"{error}. --create makes it from the file") from error
    moment = schema.time_column
    if wishes.time_column not in (None, moment):
        raise BadSetting(f"--time {wishes.time_column!r}: the event time of {stream} is {moment!r}")
    return schema


def _reading(
    reading: Reading, stream: StreamSchema | CreateStream, wishes: Wishes, *, skip_untimed: bool
) -> Reading:
    """Of the stream's columns those that are wished for; else those that a file has."""
    known = {column.name: column for column in stream.columns}
    named = listed(wishes.columns, list(known))
    nullable = [name for name in named if wishes.columns is None and known[name].nullable]
    return replace(
        reading,
        columns={name: known[name].type for name in named},
        optional=frozenset(nullable),
        moment=stream.time_column if skip_untimed else None,
    )


def _push_all(
    database: Database,
    stream: str,
    files: list[RowFile],
    reading: Reading,
    moment: str,
    producer: str | None,
) -> None:
    tally = _Tally()
    late_before = database.ledger(stream).late
    started = time.monotonic()
    for file in files:
        before, untimed = tally.rows, Untimed()
        with ExitStack() as stack:
            show = stack.enter_context(_progress(file.path.name, tally))
            if producer is None:
                send: Callable[[pa.RecordBatch], Receipt] = partial(database.push, stream)
            else:
                name = _producer_of(producer, file.path)
                send = _Numbered(stack.enter_context(database.producer(stream, name)))
            skipped = None if reading.moment is None else untimed
            for batch in file.timed(reading, moment, skipped, show):
                with naming(file, tally.rows - before + untimed.count, batch.num_rows):
                    receipt = send(batch)
                tally.count(batch.num_rows, duplicate=receipt.duplicate)
        _say_lacking(file, reading)
        if untimed.count:
            said = f"{untimed.count:,} left out, with no event time that could be kept: {untimed}"
            say(f"{file.path.name}: {said}", "yellow")
    elapsed_s = time.monotonic() - started
    speed = tally.rows / max(elapsed_s, 1e-9)
    rows = "1 row" if tally.rows == 1 else f"{tally.rows:,} rows"
    say(f"{stream}: {rows} in {elapsed_s:.1f} s ({speed:,.0f} rows/s)", "green")
    if tally.duplicates:
        say(f"{tally.duplicates:,} of them were there already and were not stored again")
    late = database.ledger(stream).late - late_before
    if late > 0:
        say(
            f"{late:,} came later than the lateness allows: standing queries may miss them"
            + (f"; {_AGAIN}" if 2 * late > tally.rows and producer is None else ""),
            "yellow",
        )


def _say_lacking(file: RowFile, reading: Reading) -> None:
    if lacking := file.lacking(reading):
        say(f"{file.path.name} has no {', '.join(lacking)}: NULL in its rows", "dim")


def _producer_of(name: str, path: Path) -> str:
    """A producer for each content: another file's batches are not taken for repeated ones."""
    with path.open("rb") as file:
        return f"{name}/{hashlib.file_digest(file, 'sha256').hexdigest()[:32]}"


@dataclass(slots=True)
class _Numbered:
    """Pushes a file's batches from its first number on, be they there already.

    The producer says which is next: it cuts batches that are larger than the server takes.
    """

    out: NamedProducer
    sequence: int = 0

    def __call__(self, batch: pa.RecordBatch) -> Receipt:
        self.sequence = self.out.push(batch, sequence=self.sequence)
        return self.out.flush()


@dataclass(slots=True)
class _Tally:
    """What was pushed until now."""

    rows: int = 0
    duplicates: int = 0

    def count(self, rows: int, *, duplicate: bool) -> None:
        self.rows += rows
        self.duplicates += rows if duplicate else 0


@contextmanager
def _progress(name: str, tally: _Tally) -> Iterator[Callable[[float], None]]:
    """A bar on stderr, if that is a terminal; it is told the share of the file that is read."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeElapsedColumn(),
        console=console(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(name, total=1.0, rows=0)
        yield lambda share: bar.update(task, completed=share, rows=tally.rows)


@contextmanager
def _on_disk(files: list[Path]) -> Iterator[list[Path]]:
    """The files, with stdin copied to disk: its types are looked at before it is read."""
    for path in files:
        if path != STDIN and not path.is_file():
            raise BadSetting(f"no file {str(path)!r}")
    if STDIN not in files:
        yield files
        return
    with tempfile.NamedTemporaryFile(prefix="shedder-stdin-") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield [Path(copy.name) if path == STDIN else path for path in files]
