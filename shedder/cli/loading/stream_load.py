"""Load of files into a stream, which is made first if it is not there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from shedder.cli.connection import Place, opened
from shedder.cli.files.row_file import FileColumns, RowFile
from shedder.cli.loading.load_identity import option_hashes
from shedder.cli.loading.load_progress import shown_progress
from shedder.cli.loading.load_sources import LoadOptions, sources
from shedder.cli.loading.loads import FileLoad, LoadTally, Spooled, report, spooled
from shedder.cli.loading.schema_inference import NewStream, StreamOptions, listed, stream_of
from shedder.cli.stderr import say
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.canonical_text import text_of_stream
from shedder.errors import BadSetting, UnknownStream
from shedder.queries.answers.database_api import Database


@dataclass(frozen=True, slots=True)
class PreparedLoad:
    """Files that are read and checked. new: the stream to make; None: it is there."""

    interrupted: list[Spooled]
    files: list[Spooled]
    schema: StreamSchema
    new: NewStream | None


@dataclass(frozen=True, slots=True)
class StreamLoad:
    """A load of files into one stream.

    directory: holds the rows until they are pushed. create: whether to make a missing stream.
    skip_untimed: whether rows without a readable event time are left out.
    """

    stream: str
    files: list[RowFile]
    new_stream: StreamOptions
    options: LoadOptions
    directory: Path
    create: bool
    skip_untimed: bool
    tally: LoadTally = field(default_factory=LoadTally)

    def prepare(self, database: Database | None) -> PreparedLoad:
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
        return PreparedLoad(made[0], made[1], schema, new)

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

    def load(self, database: Database, prepared: PreparedLoad) -> None:
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
