"""Loads of files into a stream: all rows are checked before the first one is pushed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import pyarrow as pa

from shedder.cli.files.bad_rows import BadRows
from shedder.cli.files.cell_values import Changes
from shedder.cli.files.event_order import (
    Spool,
    as_given,
    in_order,
    together,
)
from shedder.cli.files.row_file import Reading, RowFile
from shedder.cli.load_history import LoadHistory, opened
from shedder.cli.load_identity import FileIdentity, MarkKind, content_epoch, producer_of
from shedder.cli.load_sources import LoadOptions, Source
from shedder.cli.rows_without_time import Untimed
from shedder.cli.schema_inference import naming
from shedder.cli.stderr import say
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import FailedPrecondition, ShedderError
from shedder.queries.answers.database_api import Database, NamedProducer, Receipt
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import arrow_schema

Shows = Callable[[str, "Tally"], AbstractContextManager[Callable[[float], None]]]


@dataclass(slots=True)
class Tally:
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
    sources: Sequence[Source],
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
    """Pushes spooled files into a stream. A repeated load stores nothing twice.

    tally: what was pushed until now.
    """

    def __init__(
        self,
        database: Database,
        stream: str,
        time_column: str,
        options: LoadOptions,
        tally: Tally | None = None,
    ) -> None:
        self._database = database
        self._stream = stream
        self._history = LoadHistory(database, stream)
        self._time_column = time_column
        self._options = options
        self.tally = Tally() if tally is None else tally

    def run(self, files: Sequence[Spooled], shows: Shows) -> None:
        """Push all rows that are not stored.

        Raises:
          FailedPrecondition: a file was loaded, and then a longer one that begins with its lines,
            or its load together with other files was interrupted.
          ShedderError: a push was refused; says how many rows are stored.
        """
        total = sum(file.spool.rows for file in files)
        try:
            for group in self._groups(files):
                names = ", ".join(file.identity.name for file in group[:3])
                more = f" and {len(group) - 3} more" if len(group) > 3 else ""
                with shows(names + more, self.tally) as show:
                    self._push_group(group, show)
        except (ShedderError, KeyboardInterrupt):
            if total:
                say(
                    f"{self.tally.rows:,} of {total:,} rows are stored; the same command stores "
                    "the others, and no row twice",
                    "yellow",
                )
            raise

    def _groups(self, files: Sequence[Spooled]) -> Iterator[list[Spooled]]:
        """Files that are pushed together, without those that are complete."""
        for group in self._overlapping(files):
            name = producer_of([file.identity for file in group])
            records = [self._history.record(file.identity) for file in group]
            is_new = not all(record.is_complete for record in records)
            if is_new and len(group) > 1 and self._has_any(name):
                yield group
                continue
            left: list[Spooled] = []
            interrupted: list[Spooled] = []
            for file, record in zip(group, records, strict=True):
                mark = self._history.mark(file.identity)
                is_marked = mark.is_of(file.identity.digest)
                if record.is_complete or (not record.is_begun and is_marked and mark.is_complete):
                    self.tally.rows += file.spool.rows
                    self.tally.duplicates += file.spool.rows
                    continue
                is_alone = record.is_of(producer_of([file.identity]))
                is_other = not is_alone and not record.is_of(name)
                is_together = is_marked and mark.kind is MarkKind.TOGETHER
                if (is_other and self._history.may_have_rows(file.identity, record)) or (
                    not record.is_begun and is_together
                ):
                    raise FailedPrecondition(
                        f"the load of {file.identity.name} together with other files was "
                        "interrupted: repeat it with the same files"
                    )
                (interrupted if is_alone or is_marked else left).append(file)
            yield from ([file] for file in interrupted)
            if len(left) == len(group):
                yield group
            else:
                yield from self._groups(left)

    def _has_any(self, name: str) -> bool:
        return self._history.has_begun(name) or self._history.has_begun(_whole(name))

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
        layout = self._layout(identities, rows)
        self._history.begin(identities)
        with ExitStack() as stack:
            producers = _Producers(self._database, self._stream, stack)
            done = 0
            for batch in batches:
                at = 0
                while at < batch.num_rows:
                    turn = layout.turn(done + at)
                    part = batch.slice(at, turn.end - done - at)
                    self._count(producers.push(turn, part), part.num_rows)
                    at += part.num_rows
                done += batch.num_rows
                show(done / rows)
        self._history.end(identities)

    def _layout(self, group: list[FileIdentity], rows: int) -> _Layout:
        """Decide which producer pushes which rows; a repeated load decides the same."""
        name = producer_of(group)
        whole = _Layout([_Turn(rows, _whole(name), None)])
        if self._history.has_begun(_whole(name)):
            return whole
        marks = [each.mark for each in group]
        found = [self._history.mark(each) for each in group]
        if len(set(marks)) < len(marks):
            return whole  # One mark cannot describe two files.
        is_short = rows <= (1 if len(group) == 1 else 2 * len(group))
        # Until new rows are complete, the mark says how far the file was loaded before.
        is_short = is_short or any(each.offset_bytes for each in group)
        kind = MarkKind.TOGETHER if len(group) > 1 else MarkKind.ALONE
        kinds = [MarkKind.ONE_ROW if is_short else kind] * len(group)
        epochs = [content_epoch(each.digest, kind) for each, kind in zip(group, kinds, strict=True)]
        own = [mark.is_of(each.digest) for mark, each in zip(found, group, strict=True)]
        taken = [
            mark.is_known and not is_own and (mark.epoch >= epoch or not mark.is_complete)
            for mark, is_own, epoch in zip(found, own, epochs, strict=True)
        ]
        if any(taken):
            records = [self._history.record(each) for each in group]
            is_growth = group[0].offset_bytes and not any(each.is_begun for each in records)
            is_unclear = rows <= 2 and not any(own) and not is_growth
            if self._history.has_begun(name) or is_unclear:
                raise FailedPrecondition(
                    f"{group[taken.index(True)].name} may have been loaded before; since then, "
                    "another file was loaded that begins with the same lines: nothing was stored. "
                    "--producer NAME loads it under that name"
                )
            return whole
        ends = [_Turn(1, mark, epoch) for mark, epoch in zip(marks, epochs, strict=True)]
        if is_short:  # Files whose times overlap have more rows than there are files.
            return _Layout([_Turn(rows - len(group), name, None), *ends])
        inner = rows - 2 * len(group)
        content = _Turn(inner, name, None)
        if len(group) == 1:
            return _Layout([*ends, content, *ends])
        # A group is known by its content before any mark says that it has begun.
        return _Layout([_Turn(1, name, None), *ends, _Turn(inner - 1, name, None), *ends])

    def _count(self, receipt: Receipt, rows: int) -> None:
        self.tally.rows += rows
        self.tally.duplicates += rows if receipt.duplicate else 0
        self.tally.late += receipt.late


def _whole(name: str) -> str:
    """The producer of a load that has no marks."""
    return f"{name}/whole"


@dataclass(frozen=True, slots=True)
class _Turn:
    """Consecutive rows of a load that one producer pushes.

    end: one past the last row; in a list for `_Layout`, their number. epoch: None: the newest.
    """

    end: int
    producer: str
    epoch: int | None


class _Layout:
    """Assignment of the rows of a load to producers."""

    def __init__(self, lengths: Sequence[_Turn]) -> None:
        ends = accumulate(turn.end for turn in lengths)
        self._turns = [replace(turn, end=end) for turn, end in zip(lengths, ends, strict=True)]

    def turn(self, row: int) -> _Turn:
        """The turn that a row belongs to."""
        return next(turn for turn in self._turns if row < turn.end)


class _Producers:
    """The producers of a load; each numbers its pushes from 0, be they stored already."""

    def __init__(self, database: Database, stream: str, stack: ExitStack) -> None:
        self._database = database
        self._stream = stream
        self._stack = stack
        self._open: dict[str, NamedProducer] = {}
        self._sequences: dict[str, int] = {}

    def push(self, turn: _Turn, batch: pa.RecordBatch) -> Receipt:
        """Push rows and wait until they are durable."""
        name = turn.producer
        if name not in self._open:
            producer = opened(self._database, self._stream, name, turn.epoch)
            self._open[name] = self._stack.enter_context(producer)
        sequence = self._sequences.get(name, 0)
        self._sequences[name] = self._open[name].push(batch, sequence=sequence)
        return self._open[name].flush()


def report(stream: str, tally: Tally, files: Sequence[Spooled], *, sorts: bool) -> None:
    """Say what was pushed, and how many rows were late."""
    speed = tally.rows / max(tally.elapsed_s, 1e-9)
    rows = "1 row" if tally.rows == 1 else f"{tally.rows:,} rows"
    say(f"{stream}: {rows} in {tally.elapsed_s:.1f} s ({speed:,.0f} rows/s)", "green")
    if tally.duplicates:
        say(f"{tally.duplicates:,} of them were there already and were not stored again")
    if tally.late:
        disorder_s = max((file.spool.disorder_us for file in files), default=0) / 1e6
        remedy = (
            f"without --no-sort, rows come in order; else --create with --lateness {disorder_s:g}"
            if not sorts and disorder_s
            else "the stream has later rows already; --create with --lateness SECONDS keeps "
            "windows open for them, and shedder backfill brings in a past"
        )
        say(
            f"{tally.late:,} rows came later than the lateness allows: windows that had ended do "
            f"not have them; {remedy}",
            "yellow",
        )
