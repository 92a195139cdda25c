"""Backfill: runs and panes of a stream's past, built elsewhere and adopted atomically."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from shedder.archive.catalog.backfill_table import Backfill, BackfillPart, Summarised
from shedder.archive.files.file_system import failure
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.runs.external_run import SentFile
from shedder.cql.statements.archive_layout import layout_text
from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.engine_state import EngineState
from shedder.engine.maintenance.index_builder import IndexBuilder
from shedder.engine.maintenance.run_rewriter import RunRewriter
from shedder.engine.rebuild.backfill_bounds import check_times
from shedder.engine.rebuild.backfilled_panes import (
    BuiltFrom,
    Received,
    backfill_plans,
    latest_built_from,
    put_in,
    received,
)
from shedder.engine.remote_summaries.wire_format import Summaries
from shedder.engine.runtime.lifetime import Lifetime
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import BadBatch, BadSetting, CommitUnknown, FailedPrecondition

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ATTEMPT = re.compile(r"[0-9a-f]{1,32}")
FILES_MAX = 1 << 16  # Of one part.
POISON_MAX = 1 << 53  # Rows of one part that are kept aside: sums over all parts fit int64.


@dataclass(frozen=True, slots=True)
class BackfillState:
    """State of a backfill that its writers need.

    seed: seed of the stream, by which rows are dealt into blocks.
    layout: layout of the runs, as in CQL.
    first_position: position of part 0; each further part begins `part_positions` later.
    run_rows: rows that a run should have.
    plan: plan with which the backfill was begun.
    done: rows and poison of each part that is done.
    adopted: rows, once the backfill was adopted.
    plans: JSON of engine.summarise's plans.
    watermark_us: present watermark of the stream.
    newest_us: largest event time in the parts that are done.
    """

    stream_id: int
    seed: int
    layout: str
    first_position: int
    part_positions: int
    run_rows: int
    plan: str
    done: dict[int, tuple[int, int]]
    adopted: int | None
    plans: str
    watermark_us: int | None
    newest_us: int | None

    def to_json(self) -> str:
        """As text, for the wire and for executors."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> BackfillState:
        """The inverse of to_json."""
        read = json.loads(text)
        done = {int(part): (rows, poison) for part, (rows, poison) in read["done"].items()}
        return cls(**{**read, "done": done})


@dataclass(frozen=True, slots=True)
class Adopted:
    """How many tuples are part of the stream now; duplicate: they were before."""

    rows: int
    duplicate: bool = False


class Backfills:
    """Takes in the past of streams. Safe from any thread."""

    def __init__(
        self,
        core: EngineState,
        lifetime: Lifetime,
        ddl: threading.RLock,
        checkpoints: Checkpoints,
        indexer: IndexBuilder,
        relayouts: RunRewriter,
    ) -> None:
        self._core = core
        self._lifetime = lifetime
        self._ddl = ddl
        self._checkpoints = checkpoints
        self._indexer = indexer
        self._relayouts = relayouts

    def begin_backfill(
        self, stream: str, name: str, plan: str = "", parts: int = 0
    ) -> BackfillState:
        """Begin a backfill, or see how far it is.

        Args:
          stream: the stream's name.
          name: the backfill's, which makes everything about it idempotent.
          plan: anything that says how the source is cut into parts; the first one counts.
          parts: how many there are; 0: only look.

        Raises:
          UnknownStream, BadSetting; FailedPrecondition: it has not begun, or parts are too many.
        """
        self._lifetime.check_open()
        if not _NAME.fullmatch(name):
            raise BadSetting(f"{name[:120]!r} is no name of a backfill: letters, digits, . _ -")
        if parts < 0:
            raise BadSetting(f"{parts} parts; it must be 0, to look, or more")
        self._core.check_no_view(stream)
        of, store = self._core.stream(stream), self._core.store
        begun = store.backfills.begin(of.id, name, plan, parts)
        done = store.catalog.backfills.parts(of.id, name)
        return BackfillState(
            stream_id=of.id,
            seed=of.schema.seed,
            layout=layout_text(begun.layout),
            first_position=begun.first_position,
            part_positions=store.backfills.part_positions,
            run_rows=self._core.settings.run_rows,
            plan=begun.plan,
            done={part.part: (part.rows, part.poison) for part in done},
            adopted=None if begun.adopted_us is None else begun.rows,
            plans=backfill_plans(self._core, stream).to_json(),
            watermark_us=of.watermark_us,
            newest_us=max((run.high_us for part in done for run in part.runs), default=None),
        )

    def write_backfill(
        self, stream: str, name: str, part: int, attempt: str, file: int, offset: int, data: bytes
    ) -> None:
        """Append bytes to a file of a part; those that are there already are left as they are.

        attempt: hexadecimal; a different one for each process that works on the part.

        Raises:
          FailedPrecondition: bytes before these are missing, begin with another attempt; or the
            backfill is over.
          DiskFull, StorageFailed.
        """
        if offset < 0:
            raise BadSetting(f"offset {offset} of file {file} of part {part}; it must be 0 or more")
        path = self._path(self._going_on(stream, name), part, attempt, file)
        files = self._core.store.files
        try:
            with self._indexer.giving_way():
                with suppress(FileExistsError):
                    files.create(path).close()
                out = files.append(path)
                try:
                    if offset > out.size:
                        raise FailedPrecondition(
                            f"bytes {out.size} to {offset} of file {file} of part {part} "
                            "are missing"
                        )
                    rest = data[out.size - offset :]  # A full disk cuts a write short.
                    if rest:
                        out.write([rest])
                finally:
                    out.close()
        except OSError as error:
            raise failure(error, str(path)) from error

    def finish_backfill_part(
        self,
        stream: str,
        name: str,
        part: int,
        attempt: str,
        *,
        rows: int,
        poison: int,
        sent: Sequence[SentFile],
        queries: Mapping[str, Summarised],
        summaries: bytes,
    ) -> None:
        """Read all that was written of a part, and note that it is done.

        A part that is done stays as it is, but for other summaries when no files are sent.

        Args:
          stream, name, part, attempt: as before. rows: in its runs. poison: kept aside elsewhere.
          sent: its files, number 0 first. queries: those that it is summarised for.
          summaries: of its tuples that the panes of these may need.

        Raises:
          BadBatch, SchemaMismatch, BadTimestamp: what was sent is wrong, and nothing of it is kept.
          FailedPrecondition: the backfill is over.
          DiskFull, StorageFailed.
        """
        backfill, store = self._going_on(stream, name), self._core.store
        self._check_part(backfill, part)
        if not 0 <= rows <= store.backfills.part_positions or not 0 <= poison <= POISON_MAX:
            raise BadBatch(
                f"part {part} has {rows:,} rows and {poison:,} that the stream cannot take; a part "
                f"has 0 to {store.backfills.part_positions:,} rows"
            )
        Summaries.from_bytes(summaries)
        if len(sent) > FILES_MAX:
            raise BadBatch(f"part {part} has {len(sent):,} files; up to {FILES_MAX:,} are taken")
        paths = [self._path(backfill, part, attempt, number) for number in range(len(sent))]
        runs: tuple[Run, ...] = ()
        try:
            if store.catalog.backfills.part(backfill.stream_id, name, part) is None:
                with self._indexer.giving_way():
                    for path in paths:
                        self._sync(path)
                    runs = store.backfills.examine_part(
                        backfill, part, list(zip(paths, sent, strict=True))
                    )
                if (found := sum(run.rows for run in runs)) != rows:
                    raise BadBatch(f"part {part} has {found:,} rows, not {rows:,}")
            made = BackfillPart(backfill.stream_id, name, part, rows, poison, runs, dict(queries))
            store.backfills.finish_part(backfill, made, summaries, paths)
        finally:
            self._forget(backfill, f"{part}-{attempt}")

    def adopt_backfill(
        self, stream: str, name: str, *, rows: int, overlap: bool = False
    ) -> Adopted:
        """Make all parts of a backfill part of the stream, in one catalog transaction.

        Args:
          stream, name: as before.
          rows: of the source, poison included: all parts together have so many.
          overlap: event times may be among those that the stream has already.

        Raises:
          PlansChanged: summarise the parts again, for the queries that there are now.
          FailedPrecondition: rows are missing, or event times overlap.
          BeforeRetention: some are older than what the stream retains.
          BadBatch, DiskFull, StorageFailed: nothing has changed.
        """
        self._lifetime.check_open()
        core = self._core
        with self._ddl:
            of, backfill = core.stream(stream), self._begun(stream, name)
            if backfill.adopted_us is not None:
                return Adopted(backfill.rows, duplicate=True)
            parts = core.store.catalog.backfills.parts(of.id, name)
            found = sum(part.rows + part.poison for part in parts)
            if found != rows:
                raise FailedPrecondition(
                    f"backfill {name!r} has {found:,} rows, its source {rows:,}: parts are "
                    "missing, or the source has changed since it was begun"
                )
            runs = tuple(run for part in parts for run in part.runs)
            panes, built_from = received(core, of, parts), latest_built_from(parts)
            core.store.backfills.link(runs)
            adopting = core.executor.call(
                lambda: self._adopt(of, backfill, runs, panes, built_from, overlap=overlap)
            )
            try:
                adopting.result()
            finally:
                wait([adopting])  # A cancelled caller waits, too: the lock is held until the end.
            core.store.backfills.forget_files(runs)
        self._relayouts.wake(stream)
        self._indexer.catch_up()
        return Adopted(sum(run.rows for run in runs))

    def abandon_backfill(self, stream: str, name: str) -> None:
        """Forget what is done of a backfill that is not adopted; it can begin anew.

        Raises:
          FailedPrecondition: it has never begun, or was adopted.
        """
        self._lifetime.check_open()
        with self._ddl:
            backfill = self._core.store.catalog.backfills.find(self._core.stream(stream).id, name)
            if backfill is None:
                raise FailedPrecondition(f"backfill {name!r} has not begun")
            if backfill.adopted_us is not None:
                raise FailedPrecondition(f"backfill {name!r} is part of the stream; use DELETE")
            self._core.store.backfills.drop(backfill)
            self._forget(backfill, "")

    # --- inside --------------------------------------------------------------------------------

    def _adopt(
        self,
        stream: Stream,
        backfill: Backfill,
        runs: tuple[Run, ...],
        panes: Received,
        built_from: BuiltFrom,
        *,
        overlap: bool,
    ) -> None:
        """Adopt all or nothing. Runs on the apply thread, also after the caller gave up."""
        core = self._core
        now_us = core.clock_us()
        newest_us = max((run.high_us for run in runs), default=None)
        undo: Callable[[], None] | None = None
        try:
            check_times(core, stream, runs, overlap=overlap)
            self._checkpoints.settle()  # What is undone below is not what it believes to be stored.
            if newest_us is not None:
                undo = put_in(stream, panes, built_from, newest_us, now_us)
            self._checkpoints.now(also=lambda: core.store.backfills.adopt(backfill, runs, now_us))
        except BaseException as error:
            if undo is not None:
                undo()
            if not isinstance(error, CommitUnknown):  # A restart may find the runs then.
                core.store.backfills.unlink(runs)
            raise
        core.store.backfills.show(stream.id, runs)
        for standing_query in stream.queries.values():
            standing_query.note_behind()
            standing_query.guard(partial(standing_query.refresh, stream.facts()))

    def _begun(self, stream: str, name: str) -> Backfill:
        return self._core.store.backfills.begin(self._core.stream(stream).id, name, "", 0)

    def _going_on(self, stream: str, name: str) -> Backfill:
        backfill = self._begun(stream, name)
        if backfill.adopted_us is not None:
            raise FailedPrecondition(f"backfill {name!r} is part of the stream already")
        return backfill

    def _check_part(self, backfill: Backfill, part: int) -> None:
        """Raise BadSetting unless a backfill has such a part."""
        positions = backfill.end_position - backfill.first_position
        parts = positions // self._core.store.backfills.part_positions
        if not 0 <= part < parts:
            raise BadSetting(f"backfill {backfill.name!r} has no part {part}; it has {parts:,}")

    def _path(self, backfill: Backfill, part: int, attempt: str, file: int) -> Path:
        self._check_part(backfill, part)
        if not _ATTEMPT.fullmatch(attempt) or not 0 <= file < FILES_MAX:
            raise BadSetting(f"no file {file} of attempt {attempt[:40]!r}")
        name = f"{_prefix(backfill)}{part}-{attempt}-{file}"
        return self._core.store.directory / "tmp" / name

    def _sync(self, path: Path) -> None:
        try:
            file = self._core.store.files.append(path)
            try:
                file.sync()
            finally:
                file.close()
        except FileNotFoundError:
            raise FailedPrecondition(f"nothing was written of {path.name}") from None
        except OSError as error:
            raise failure(error, str(path), "sync") from error

    def _forget(self, backfill: Backfill, which: str) -> None:
        """Remove what was written of one attempt, or (which is empty) of all."""
        folder = self._core.store.directory / "tmp"
        begin = f"{_prefix(backfill)}{which}" + ("-" if which else "")
        with suppress(OSError):  # The next start empties it.
            for name in self._core.store.files.names(folder):
                if name.startswith(begin):
                    self._core.store.files.unlink(folder / name)


def _prefix(backfill: Backfill) -> str:
    digest = hashlib.sha256(backfill.name.encode()).hexdigest()[:16]
    return f"backfill-{backfill.stream_id}-{digest}-"
