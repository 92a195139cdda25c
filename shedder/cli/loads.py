"""Loading files into a stream: all rows are read and checked first, then pushed, each once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import pyarrow as pa

from shedder.cli.files.bad_rows import BadRows
from shedder.cli.files.cell_values import Changes
from shedder.cli.files.event_order import Spool, as_given, in_order, together
from shedder.cli.files.row_file import Reading, RowFile
from shedder.cli.load_identity import (
    FileIdentity,
    Marked,
    bits,
    marked,
    producer_of,
    refuse_grown,
    refuse_moved_on,
)
from shedder.cli.rows_without_time import Untimed
from shedder.cli.schema_inference import naming
from shedder.cli.stderr import say
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import ShedderError
from shedder.queries.answers.database_api import Database, Receipt
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import arrow_schema

Shows = Callable[[str, "Tally"], AbstractContextManager[Callable[[float], None]]]


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How files are loaded.

    prefix: begins the names of producers. options: hash of how rows are read.
    sorts: whether rows are pushed in order of event time. resumes: whether files may have grown.
    bad_rows: takes rows that cannot be read; None: the first one refuses the load.
    """

    prefix: str
    options: str
    sorts: bool = True
    resumes: bool = False
    bad_rows: IO[str] | None = None


@dataclass(slots=True)
class Tally:
    """Rows that were read, pushed, and stored before."""

    read: int = 0
    rows: int = 0
    duplicates: int = 0


@dataclass(frozen=True, slots=True)
class Spooled:
    """The rows of one file that the stream takes, and whose they are."""

    identity: FileIdentity
    spool: Spool


def identities(
    database: Database | None, stream: str, files: Sequence[RowFile], options: LoadOptions
) -> tuple[list[RowFile], list[FileIdentity], dict[str, int]]:
    """Identify files by content, and find those that have grown since they were loaded.

    Args:
      database: None if there is none yet.

    Returns:
      The files as they are to be read, their identities, and by SHA-256 of those that have grown
      the bytes that were loaded before.

    Raises:
      FailedPrecondition: a file has grown, and the load does not resume.
    """
    read: list[RowFile] = []
    known: list[FileIdentity] = []
    resumed: dict[str, int] = {}
    for file in files:
        identity = FileIdentity(file.path.name, file.digest(), options.prefix, options.options)
        same = [each.name for each in known if each.digest.sha256 == identity.digest.sha256]
        if same:
            say(f"{identity.name} has the content of {same[0]}: it is stored once", "yellow")
            continue
        offset = 0
        last = _marked(database, stream, identity)
        if last.size_bytes is not None and 0 < last.size_bytes < identity.digest.size_bytes:
            before = file.digest(last.size_bytes)
            if bits(before) == last.bits and before.size_bytes == last.size_bytes:
                if not options.resumes:
                    raise refuse_grown(identity, last.size_bytes)
                resumed[identity.digest.sha256] = offset = last.size_bytes
        read.append(replace(file, after_bytes=offset))
        known.append(identity)
    return read, known, resumed


def _marked(database: Database | None, stream: str, identity: FileIdentity) -> Marked:
    if database is None:
        return Marked(None, 0)
    with database.producer(stream, identity.mark) as mark:
        return marked(mark.epoch, mark.next_sequence)


def spooled(
    files: Sequence[RowFile],
    known: Sequence[FileIdentity],
    reading: Reading,
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
    for at, (file, identity) in enumerate(zip(files, known, strict=True)):
        spool = Spool(directory / f"{at}.rows", arrow_schema(schema), schema.time_column, rows)
        try:
            _fill(spool, file, reading, schema, options, shows)
        finally:
            spool.close()
        rows += spool.rows
        made.append(Spooled(identity, spool))
    return made


def _fill(
    spool: Spool,
    file: RowFile,
    reading: Reading,
    schema: StreamSchema,
    options: LoadOptions,
    shows: Shows,
) -> None:
    tally, untimed, changes = Tally(), Untimed(), Changes()
    bad = BadRows(file.path.name, options.bad_rows)
    skipped = None if reading.moment is None else untimed
    with shows(f"reading {file.path.name}", tally) as show:
        for batch in file.timed(reading, schema.time_column, skipped, show, bad, changes):
            first = tally.rows + untimed.count + bad.count
            with naming(file, first, batch.num_rows):
                for conformed in conform(batch, schema):
                    spool.add(conformed)
            tally.rows += batch.num_rows
    _say_changes(file, reading, untimed, bad, changes)


def _say_changes(
    file: RowFile, reading: Reading, untimed: Untimed, bad: BadRows, changes: Changes
) -> None:
    name = file.path.name
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


class Load:
    """Pushes spooled files into a stream. A repeated load stores nothing twice."""

    def __init__(
        self, database: Database, stream: str, time_column: str, options: LoadOptions
    ) -> None:
        self._database = database
        self._stream = stream
        self._time_column = time_column
        self._options = options
        self.tally = Tally()

    def run(self, files: Sequence[Spooled], resumed: dict[str, int], shows: Shows) -> None:
        """Push all rows that are not stored.

        Raises:
          FailedPrecondition: a file was loaded, and then a longer one that begins with its lines.
          ShedderError: a push was refused; says how many rows are stored.
        """
        started = time.monotonic()
        total = sum(file.spool.rows for file in files)
        late_before = self._database.ledger(self._stream).late
        try:
            for group in self._groups(files, resumed):
                names = ", ".join(file.identity.name for file in group[:3])
                more = f" and {len(group) - 3} more" if len(group) > 3 else ""
                with shows(names + more, self.tally) as show:
                    self._push_group(group, resumed, show)
        except (ShedderError, KeyboardInterrupt):
            if total:
                say(
                    f"{self.tally.rows:,} of {total:,} rows are stored; the same command stores "
                    "the others, and no row twice",
                    "yellow",
                )
            raise
        self._report(time.monotonic() - started, late_before, files)

    def _groups(self, files: Sequence[Spooled], resumed: dict[str, int]) -> Iterator[list[Spooled]]:
        """Files that are pushed together, without those that are complete."""
        for group in self._overlapping(files):
            if self._begun(producer_of([file.identity for file in group], resumed)):
                yield group
                continue
            left = []
            for file in group:
                if self._is_complete(file.identity):
                    self.tally.rows += file.spool.rows
                    self.tally.duplicates += file.spool.rows
                else:
                    left.append(file)
            yield from self._overlapping(left)

    def _overlapping(self, files: Sequence[Spooled]) -> list[list[Spooled]]:
        by_spool = {id(file.spool): file for file in files}
        groups = (
            together([file.spool for file in files])
            if self._options.sorts
            else [[file.spool] for file in files if file.spool.rows]
        )
        return [[by_spool[id(spool)] for spool in group] for group in groups]

    def _push_group(
        self, group: list[Spooled], resumed: dict[str, int], show: Callable[[float], None]
    ) -> None:
        identities = [file.identity for file in group]
        name = producer_of(identities, resumed)
        rows = sum(file.spool.rows for file in group)
        marks = identities if len(group) == 1 or rows > len(group) else []
        if len({each.mark for each in marks}) < len(marks):
            marks = []  # Two files begin with the same lines: one mark cannot tell of both.
        whole = f"{name}/whole"
        if any(self._has_moved_on(each) for each in marks):
            if self._begun(name) or rows == len(marks):
                raise refuse_moved_on(identities[0])
            marks = []
        if not marks or self._begun(whole):
            name, marks = whole, []
        spools = [file.spool for file in group]
        batches = in_order(spools, self._time_column) if self._options.sorts else as_given(spools)
        held = len(marks)
        with self._database.producer(self._stream, name) as producer:
            sequence, done = 0, 0
            for batch in batches:
                kept = min(batch.num_rows, rows - held - done)
                if kept:
                    sequence = producer.push(batch.slice(0, kept), sequence=sequence)
                    self._count(producer.flush(), kept)
                done += batch.num_rows
                if kept < batch.num_rows:
                    self._push_marks(marks, batch.slice(kept), held)
                    held -= batch.num_rows - kept
                show(done / rows)

    def _push_marks(self, marks: list[FileIdentity], batch: pa.RecordBatch, left: int) -> None:
        """Push the last rows, each as the mark of a file; `left` of them were not pushed yet."""
        for at in range(batch.num_rows):
            identity = marks[len(marks) - left + at]
            with self._database.producer(
                self._stream, identity.mark, epoch=identity.epoch
            ) as producer:
                producer.push(batch.slice(at, 1), sequence=0)
                self._count(producer.flush(), 1)

    def _count(self, receipt: Receipt, rows: int) -> None:
        self.tally.rows += rows
        self.tally.duplicates += rows if receipt.duplicate else 0

    def _begun(self, name: str) -> bool:
        with self._database.producer(self._stream, name) as producer:
            return producer.next_sequence > 0

    def _is_complete(self, identity: FileIdentity) -> bool:
        with self._database.producer(self._stream, identity.mark) as mark:
            return mark.next_sequence > 0 and mark.epoch == identity.epoch

    def _has_moved_on(self, identity: FileIdentity) -> bool:
        with self._database.producer(self._stream, identity.mark) as mark:
            return mark.next_sequence > 0 and mark.epoch > identity.epoch

    def _report(self, elapsed_s: float, late_before: int, files: Sequence[Spooled]) -> None:
        tally = self.tally
        speed = tally.rows / max(elapsed_s, 1e-9)
        rows = "1 row" if tally.rows == 1 else f"{tally.rows:,} rows"
        say(f"{self._stream}: {rows} in {elapsed_s:.1f} s ({speed:,.0f} rows/s)", "green")
        if tally.duplicates:
            say(f"{tally.duplicates:,} of them were there already and were not stored again")
        late = self._database.ledger(self._stream).late - late_before
        if late > 0:
            disorder_s = max(file.spool.disorder_us for file in files) / 1e6
            remedy = (
                "without --no-sort, rows come in order; "
                f"else --create with --lateness {disorder_s:g}"
                if not self._options.sorts and disorder_s
                else "the stream has later rows already; --create with --lateness SECONDS keeps "
                "windows open for them, and shedder backfill brings in a past"
            )
            say(
                f"{late:,} rows came later than the lateness allows: windows that had ended do not "
                f"have them; {remedy}",
                "yellow",
            )
