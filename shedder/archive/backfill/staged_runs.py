"""Runs of a stream's past that were written elsewhere: they wait aside, and come in all at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from shedder.archive.catalog.backfill_table import Backfill, BackfillPart
from shedder.archive.files.file_system import Files, failure
from shedder.archive.files.unknown_files import keep_unknown
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.metadata.run_name import RunName
from shedder.archive.runs.external_run import SentFile, examined, laid_elsewhere
from shedder.archive.runs.run_file_cache import RunFiles
from shedder.archive.store.open_streams import OpenStreams
from shedder.errors import BadBatch, BadSetting, FailedPrecondition

FOLDER = "backfills"
PART_POSITIONS = 1 << 32
"""Of each part; most are never used."""
PARTS_MAX = 1 << 16
POSITION_MIN = -(1 << 62)


class BackfilledRuns:
    """Runs that were written elsewhere, until and after they become part of a stream.

    Backfilled tuples have the positions below 0: each backfill gets a stretch below all that were
    given out before, so that they come before every tuple of the stream, and nothing that counts
    from 0 (the log, the tail, the live sample, what a query has read) has to know of them.
    """

    part_positions = PART_POSITIONS

    def __init__(
        self, streams: OpenStreams, run_files: RunFiles, files: Files, directory: Path
    ) -> None:
        self._streams, self._catalog, self._run_files = streams, streams.catalog, run_files
        self._files, self._directory = files, directory

    def begin(self, stream: int, name: str, plan: str, parts: int) -> Backfill:
        """Give a backfill its positions; one that has begun is returned as it is.

        Args:
          stream: the stream's id. name: of the backfill. plan: how its source is cut into parts.
          parts: how many; 0: only look whether it has begun. One that was abandoned has not.

        Raises:
          BadSetting: there is no plan.
          FailedPrecondition: it has not begun, and parts is 0; or there are no positions left.
        """
        with self._streams.change():
            entry = self._streams.state(stream).entry
            known = self._catalog.backfills.entries(stream)
            found = next((each for each in known if each.name == name), None)
            if found is not None and found.plan:
                return found
            if not parts:
                raise FailedPrecondition(f"backfill {name!r} has not begun")
            if not plan:
                raise BadSetting(f"say how the source of backfill {name!r} is cut into its parts")
            end = min([0, *(each.first_position for each in known)])
            first = end - parts * PART_POSITIONS
            if first < POSITION_MIN or parts > PARTS_MAX:
                raise FailedPrecondition(f"{parts:,} parts are too many, make larger ones")
            layout = laid_elsewhere(entry.schema.layout)
            begun = Backfill(stream, name, first, end, layout, plan)
            self._catalog.backfills.put(begun)
            return begun

    def rows(self, stream: int) -> int:
        """Return the number of all backfilled tuples, from memory: the apply thread asks for it."""
        return self._streams.state(stream).backfilled

    def examine_part(
        self, backfill: Backfill, part: int, sent: Sequence[tuple[Path, SentFile]]
    ) -> tuple[Run, ...]:
        """Read the files of a part in full: the runs that they are.

        Args:
          backfill: whose. part: its number. sent: the files, and what their writer says of them.

        Raises:
          BadBatch, SchemaMismatch, BadTimestamp: one is not what it should be.
          StorageFailed: one cannot be read.
        """
        entry = self._streams.state(backfill.stream_id).entry
        entry = replace(entry, schema=replace(entry.schema, layout=backfill.layout))
        first = backfill.first_position + part * PART_POSITIONS
        at, runs = first, []
        for path, file in sent:
            fits = at <= file.first_position < file.end_position <= first + PART_POSITIONS
            if not fits or file.end_position > backfill.end_position:
                raise BadBatch(
                    f"positions {file.first_position} to {file.end_position} are not of part {part}"
                )
            at = file.end_position
            runs.append(examined(self._files, path, entry, file))
        return tuple(runs)

    def finish_part(
        self, backfill: Backfill, part: BackfillPart, summaries: bytes, paths: Sequence[Path]
    ) -> None:
        """Move a part's files to the staging folder, and record the part as done.

        A part that is done stays as it is, except that new summaries replace its own if the call
        passes no files. If two callers do the same part, the catalog has the files of the first
        one.

        Args:
          backfill: the backfill as it was when the part was read.
          part: the part, with the runs of its files.
          summaries: bytes of its summaries.
          paths: where the files are.

        Raises:
          FailedPrecondition: the backfill was adopted or abandoned meanwhile.
          DiskFull, StorageFailed.
        """
        with self._catalog.turn():  # No other thread finishes a part, adopts or abandons meanwhile.
            if self._catalog.backfills.find(part.stream_id, part.name) != backfill:
                raise FailedPrecondition(
                    f"backfill {part.name!r} was adopted or abandoned before its part {part.part} "
                    "was there"
                )
            known = self._catalog.backfills.part(part.stream_id, part.name, part.part)
            if known is None:
                self._put_aside(paths, part)
                self._catalog.backfills.put_part(part, summaries)
            elif not paths and known.rows == part.rows:
                self._catalog.backfills.put_part(replace(known, queries=part.queries), summaries)

    def _put_aside(self, paths: Sequence[Path], part: BackfillPart) -> None:
        try:
            for path, run in zip(paths, part.runs, strict=True):
                target = self._directory / FOLDER / run.file
                self._files.make_directory(target.parent)
                self._files.rename(path, target)
                self._files.sync_directory(target.parent)
        except OSError as error:
            raise failure(error, f"part {part.part} of backfill {part.name!r}") from error

    def link(self, runs: Sequence[Run]) -> None:
        """Give staged files their names below `runs/`; no catalog entry names them yet.

        Raises:
          DiskFull, StorageFailed: what was linked is an orphan.
        """
        folders = set()
        self._run_files.unretire(run.file for run in runs)  # Of an adoption that failed.
        try:
            for run in runs:
                target = self._directory / "runs" / run.file
                self._files.make_directory(target.parent)
                with suppress(FileNotFoundError):  # An orphan of an adoption that failed.
                    self._files.unlink(target)
                self._files.link(self._directory / FOLDER / run.file, target)
                folders.add(target.parent)
            for folder in folders:
                self._files.sync_directory(folder)
        except OSError as error:
            raise failure(error, "the runs of a backfill") from error

    def adopt(self, backfill: Backfill, runs: tuple[Run, ...], adopted_us: int) -> None:
        """Tell the catalog; to be called in its transaction, whose end makes it true."""
        self._catalog.adopt_backfill(backfill, runs, adopted_us)

    def show(self, stream: int, runs: tuple[Run, ...]) -> None:
        """Runs that the catalog knows of become visible, all at once."""
        with self._streams.reading(stream) as state:
            state.add_backfilled(runs)
            for run in runs:
                self._run_files.trust(run)

    def unlink(self, runs: Sequence[Run]) -> None:
        """Take the names that `link` gave away again: no commit has named the files."""
        self._run_files.discard(run.file for run in runs)

    def forget_files(self, runs: Sequence[Run]) -> None:
        """Remove files aside that a commit has replaced; what fails, the next start removes.

        It calls fsync, so no lock is held.
        """
        if not self._run_files.sync_marks():
            return
        for run in runs:
            with suppress(OSError):
                self._files.unlink(self._directory / FOLDER / run.file)

    def drop(self, backfill: Backfill) -> None:
        """Forget what is done of a backfill; it may begin anew, with another plan."""
        with self._catalog.turn():
            parts = self._catalog.backfills.parts(backfill.stream_id, backfill.name)
            with self._catalog.transaction():
                self._catalog.backfills.drop_parts(backfill.stream_id, backfill.name)
                self._catalog.backfills.put(replace(backfill, plan=""))
        self.forget_files([run for part in parts for run in part.runs])

    def live_times(self, stream: int) -> list[tuple[int, int, str]]:
        """Smallest and largest event time of each run and of the tail, and what it is."""
        with self._streams.reading(stream) as state:
            column = state.entry.schema.time_column
            found = [(run.low_us, run.high_us, f"run {run.file}") for run in state.runs]
            tail = [piece.batch.column(column) for piece in state.tail.pieces]
        for times in tail:
            us = times.to_numpy(zero_copy_only=False).view("i8")
            found.append((int(us.min()), int(us.max()), "tuples in the log"))
        return found

    def sweep(self, stream: int) -> None:
        """Remove all that waits aside for a stream that was dropped."""
        folder = self._directory / FOLDER / str(stream)
        with suppress(OSError):
            for name in self._files.names(folder):
                if RunName.parse(f"{stream}/{name}") is not None:
                    self._files.unlink(folder / name)

    def recover(self, *, proven: bool) -> list[Path]:
        """Mark parts with missing files to be done again, and remove files of no part.

        proven: the catalog is known to be the newest, so its word is enough to remove files.

        Returns:
          where files are now whose origin is not known.
        """
        known = set()
        for backfill in self._catalog.backfills.entries():
            if (state := self._streams.find(backfill.stream_id)) is not None:
                state.note_backfilled(backfill.rows)
            for part in self._catalog.backfills.parts(backfill.stream_id, backfill.name):
                paths = [self._directory / FOLDER / run.file for run in part.runs]
                if all(map(Path.exists, paths)):
                    known.update(paths)
                else:
                    self._catalog.backfills.drop_part(part.stream_id, part.name, part.part)
        root, kept = self._directory / FOLDER, list[Path]()
        for folder in self._files.names(root) if root.exists() else []:
            if not (root / folder).is_dir():
                continue
            for name in self._files.names(root / folder):
                if root / folder / name in known:
                    continue
                if proven and RunName.parse(f"{folder}/{name}") is not None:
                    self._files.unlink(root / folder / name)
                else:
                    kept.append(
                        keep_unknown(self._files, self._directory, f"{FOLDER}/{folder}/{name}")
                    )
        return kept
