"""Loads of files into a stream: all rows are checked before the first one is pushed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from shedder.cli.files.bad_rows import BadRows
from shedder.cli.files.cell_values import Changes
from shedder.cli.files.event_order import (
    Spool,
    as_given,
    in_order,
    together,
)
from shedder.cli.files.row_file import FileColumns, RowFile
from shedder.cli.files.rows_without_time import Untimed
from shedder.cli.loading.load_history import LoadHistory, open_producer
from shedder.cli.loading.load_identity import FileIdentity, producer_of
from shedder.cli.loading.load_sources import LoadOptions, LoadSource
from shedder.cli.loading.schema_inference import naming
from shedder.cli.stderr import say
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import FailedPrecondition, ShedderError
from shedder.queries.answers.database_api import Database, Receipt
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import arrow_schema

Shows = Callable[[str, "LoadTally"], AbstractContextManager[Callable[[float], None]]]


@dataclass(slots=True)
class LoadTally:
    """What a load did until now.

    rows: that were pushed, or read. duplicates: of those pushed, rows that were stored before.
    late: of those stored, rows that came too late. elapsed_s: of reading and pushing.
    """

    rows: int = 0
    duplicates: int = 0
    late: int = 0
    elapsed_s: float = 0.0

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Add the seconds of a block to `elapsed_s`."""
        began_s = time.monotonic()
        yield
        self.elapsed_s += time.monotonic() - began_s


@dataclass(frozen=True, slots=True)
class Spooled:
    """The rows of one file that the stream takes, with the file's identity."""

    identity: FileIdentity
    spool: Spool


def spooled(
    sources: Sequence[LoadSource],
    reading: FileColumns,
    schema: StreamSchema,
    options: LoadOptions,
    directory: Path,
    shows: Shows,
) -> list[Spooled]:
    """Read all rows of all files into a directory, as the stream takes them.

    Raises:
      BadBatch, BadTimestamp, SchemaMismatch: a row is refused; says which. Nothing was pushed.
    """
    rows, made = 0, []
    for at, source in enumerate(sources):
        spool = Spool(directory / f"{at}.rows", arrow_schema(schema), schema.time_column, rows)
        try:
            _fill(spool, source.file, reading, schema, options, shows)
        finally:
            spool.close()
        rows += spool.rows
        made.append(Spooled(source.identity, spool))
    return made


def _fill(
    spool: Spool,
    file: RowFile,
    reading: FileColumns,
    schema: StreamSchema,
    options: LoadOptions,
    shows: Shows,
) -> None:
    tally, untimed, changes = LoadTally(), Untimed(), Changes()
    bad = BadRows(file.part_name, options.bad_rows)
    skipped = None if reading.moment is None else untimed
    with shows(f"reading {file.path.name}", tally) as show:
        for rows in file.timed(reading, schema.time_column, skipped, show, bad, changes):
            with naming(file, rows):
                for conformed in conform(rows.batch, schema):
                    spool.add(conformed)
            tally.rows += rows.batch.num_rows
    say_changes(file, reading, untimed, bad, changes)


def say_changes(
    file: RowFile, reading: FileColumns, untimed: Untimed, bad: BadRows, changes: Changes
) -> None:
    """Say what of a file's rows was left out or changed."""
    name = file.part_name
    if lacking := file.lacking(reading):
        say(f"{name} has no {', '.join(lacking)}: NULL in its rows", "dim")
    for column, count in changes.null_words.items():
        say(f"{name}: {count:,} words such as NA in {column!r} were read as NULL", "dim")
    for column, count in changes.cut.items():
        say(f"{name}: {count:,} times in {column!r} were cut to microseconds", "yellow")
    for column, zone in changes.zones.items():
        say(f"{name}: times in {column!r} were converted from {zone} to UTC", "dim")
    if untimed.count:
        said = f"{untimed.count:,} left out, with no event time that could be kept: {untimed}"
        say(f"{name}: {said}", "yellow")
    if bad.count:
        say(f"{name}: {bad.count:,} rows that cannot be read were kept aside", "yellow")


class FileLoad:
    """Pushes spooled files into a stream, once. A repeated load stores nothing twice.

    tally: what was pushed until now.
    """

    def __init__(
        self,
        database: Database,
        stream: str,
        time_column: str,
        options: LoadOptions,
        tally: LoadTally | None = None,
    ) -> None:
        self._database = database
        self._stream = stream
        self._history = LoadHistory(database, stream)
        self._time_column = time_column
        self._options = options
        self.tally = LoadTally() if tally is None else tally

    def run(self, parts: Sequence[Sequence[Spooled]], shows: Shows) -> None:
        """Push all rows that are not stored: those of one part after those of the one before.

        Raises:
          FailedPrecondition: the load of a file together with other files was interrupted.
          ShedderError: a push was refused; says how many rows are stored.
        """
        total = sum(file.spool.rows for files in parts for file in files)
        try:
            for files in parts:
                for group in self._groups(files):
                    names = ", ".join(file.identity.name for file in group[:3])
                    more = f" and {len(group) - 3} more" if len(group) > 3 else ""
                    with shows(names + more, self.tally) as show:
                        self._push_group(group, show)
        except (ShedderError, KeyboardInterrupt):
            if total:  # Batches of the push that failed may be stored, too.
                say(
                    f"at least {self.tally.rows:,} of {total:,} rows are stored; once the cause "
                    "is removed, the same command stores the others, and no row twice",
                    "yellow",
                )
            raise

    def _groups(self, files: Sequence[Spooled]) -> Iterator[list[Spooled]]:
        """Files that are pushed together, without those that are complete."""
        for group in self._overlapping(files):
            name = producer_of([file.identity for file in group])
            records = [self._history.record(file.identity) for file in group]
            is_begun = len(group) > 1 and self._history.has_begun(name)
            if is_begun and not all(record.is_complete for record in records):
                yield group
                continue
            left: list[Spooled] = []
            interrupted: list[Spooled] = []
            for file, record in zip(group, records, strict=True):
                if record.is_complete:
                    self.tally.rows += file.spool.rows
                    self.tally.duplicates += file.spool.rows
                    continue
                is_alone = record.is_of(producer_of([file.identity]))
                is_other = not is_alone and not record.is_of(name)
                if is_other and self._history.may_have_rows(file.identity, record):
                    raise FailedPrecondition(
                        f"the load of {file.identity.name} together with other files was "
                        "interrupted: repeat it with the same files"
                    )
                (interrupted if is_alone else left).append(file)
            yield from ([file] for file in interrupted)
            if len(left) == len(group):
                yield group
            else:
                yield from self._groups(left)

    def _overlapping(self, files: Sequence[Spooled]) -> list[list[Spooled]]:
        by_spool = {id(file.spool): file for file in files}
        groups = (
            together([file.spool for file in files])
            if self._options.sorts
            else [[file.spool] for file in files if file.spool.rows]
        )
        return [[by_spool[id(spool)] for spool in group] for group in groups]

    def _push_group(self, group: list[Spooled], show: Callable[[float], None]) -> None:
        spools = [file.spool for file in group]
        rows = sum(spool.rows for spool in spools)
        limits = self._options.limits
        batches = (
            in_order(spools, self._time_column, limits)
            if self._options.sorts
            else as_given(spools, limits)
        )
        identities = [file.identity for file in group]
        self._history.begin(identities)
        done = 0
        with open_producer(self._database, self._stream, producer_of(identities)) as producer:
            for number, batch in enumerate(batches):
                producer.push(batch, sequence=number)
                self._count(producer.flush(), batch.num_rows)
                done += batch.num_rows
                show(done / rows)
        self._history.end(identities)

    def _count(self, receipt: Receipt, rows: int) -> None:
        self.tally.rows += rows
        self.tally.duplicates += rows if receipt.duplicate else 0
        self.tally.late += receipt.late


def report(stream: str, tally: LoadTally, files: Sequence[Spooled], *, sorts: bool) -> None:
    """Say what was pushed, and how many rows were late."""
    speed = tally.rows / max(tally.elapsed_s, 1e-9)
    rows = "1 row" if tally.rows == 1 else f"{tally.rows:,} rows"
    say(f"{stream}: {rows} in {tally.elapsed_s:.1f} s ({speed:,.0f} rows/s)", "green")
    if tally.duplicates:
        say(f"{tally.duplicates:,} of them were there already and were not stored again")
    if tally.late:
        disorder_s = max((file.spool.disorder_us for file in files), default=0) / 1e6
        remedy = (
            "rows of further files come in order without --no-sort; a new stream with --create "
            f"--lateness {disorder_s:g} keeps windows open for them"
            if not sorts and disorder_s
            else "the stream has later rows already; a new stream with --create --lateness "
            "SECONDS keeps windows open for them, and shedder backfill brings in a past"
        )
        say(
            f"{tally.late:,} rows came later than the lateness allows: windows that had ended do "
            f"not have them; {remedy}",
            "yellow",
        )
